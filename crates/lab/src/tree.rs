//! Directories of files that a [`Layer`](crate::Layer) has at hand while it is made,
//! beside Debian's packages. A tree is an entry of the cache, so its name is a digest
//! of what it was made from, and an image is named by its trees.
//!
//! The one kind there is are Python wheels. What is wanted is text in the form of
//! pip's requirements, with one version and its digests for each package:
//!
//! ```text
//! flask==3.1.3 --hash=sha256:… --hash=sha256:…
//! ```
//!
//! pip fetches them from wherever this machine's pip does, for the guest's Python and
//! not the host's, and checks each digest. What is left is counted and checked here
//! once more, so that a tree is whole whatever pip was configured to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::cache::{Cache, digest};
use crate::command;
use crate::error::{LabError, Result};
use crate::progress::Progress;

/// The Python of the guest's Debian.
const GUEST_PYTHON: &str = "3.13";
/// The systems that wheels may be for: all that the guest's C library runs, but newer
/// ones than any wheel asks for so far.
const PLATFORMS: [&str; 3] = [
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux2014_x86_64",
];

/// A directory of files for a layer.
#[derive(Clone, Debug)]
pub struct Tree {
    path: PathBuf,
}

impl Tree {
    /// The wheels that these requirements pin, from the cache or fetched.
    ///
    /// # Errors
    /// A requirement without a version or a digest; what pip says of those it cannot
    /// get; no python3 that can make environments.
    pub fn wheels(requirements: &str, progress: &dyn Progress) -> Result<Tree> {
        let pins = pins(requirements)?;
        let cache = Cache::open()?;
        let made_from = [GUEST_PYTHON, &PLATFORMS.join(" "), requirements];
        let name = format!("wheels-{}", digest(made_from.map(str::as_bytes)));
        let path = cache.entry(&name, |dir| {
            progress.begin("fetching Python packages for the guest");
            let scratch = cache.scratch("wheels")?;
            let file = scratch.path().join("requirements.txt");
            fs::write(&file, requirements).map_err(LabError::io("writing", &file))?;
            let python = command::python(scratch.path(), progress)?;
            let mut pip = Command::new(&python);
            pip.args(["-m", "pip", "download", "--quiet", "--no-cache-dir"])
                .args(["--require-hashes", "--no-deps", "--only-binary=:all:"])
                .arg("--implementation=cp")
                .arg(format!("--abi=cp{}", GUEST_PYTHON.replace('.', "")))
                .arg(format!("--python-version={GUEST_PYTHON}"))
                .args(PLATFORMS.map(|platform| format!("--platform={platform}")))
                .arg("--dest")
                .arg(dir)
                .arg("--requirement")
                .arg(&file);
            command::run("fetching Python packages", &mut pip, progress)?;
            check(&pins, dir)?;
            progress.end("fetched");
            Ok(())
        })?;
        Ok(Tree { path })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// This directory, whatever it holds.
    #[cfg(test)]
    pub(crate) fn at(path: PathBuf) -> Tree {
        Tree { path }
    }

    /// What it is called in the cache.
    pub(crate) fn name(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.expect("entries of the cache have plain names")
    }
}

/// A package with its version, and the digests that its file may have.
#[derive(Debug, PartialEq, Eq)]
struct Pin<'a> {
    package: &'a str,
    digests: Vec<&'a str>,
}

fn pins(requirements: &str) -> Result<Vec<Pin<'_>>> {
    let lines = requirements.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let package = words.next().unwrap_or_default();
            let digests: Option<Vec<&str>> = words
                .map(|word| word.strip_prefix("--hash=sha256:"))
                .collect();
            let digests = digests.filter(|digests| !digests.is_empty());
            match digests {
                Some(digests) if package.contains("==") => Ok(Pin { package, digests }),
                _ => Err(LabError::Config(format!(
                    "the requirement '{line}' is not pinned: write \
                     NAME==VERSION --hash=sha256:DIGEST"
                ))),
            }
        })
        .collect()
}

/// One wheel for each pin, with a digest that it may have, and nothing else.
fn check(pins: &[Pin<'_>], dir: &Path) -> Result<()> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(LabError::io("reading", dir))? {
        let path = entry.map_err(LabError::io("reading", dir))?.path();
        let content = fs::read(&path).map_err(LabError::io("reading", &path))?;
        let digest = Sha256::digest(&content);
        found.push(digest.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    let is_there = |digest: &&str| found.iter().any(|one: &String| one == digest);
    let lacks = |pin: &&Pin<'_>| !pin.digests.iter().any(&is_there);
    if let Some(pin) = pins.iter().find(lacks) {
        return Err(LabError::Config(format!(
            "pip fetched no file of {} with a digest that it may have: look at pip's \
             configuration with 'pip config list'",
            pin.package
        )));
    }
    match found.len() == pins.len() {
        true => Ok(()),
        false => Err(LabError::Config(format!(
            "pip fetched {} files for {} requirements",
            found.len(),
            pins.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests of "one" and "two".
    const ONE: &str = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
    const TWO: &str = "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3";

    #[test]
    fn what_is_not_pinned_is_refused_with_what_to_write() {
        let text = format!("# a\n\nb==1 --hash=sha256:{ONE} --hash=sha256:{TWO}\n");
        let expected = Pin {
            package: "b==1",
            digests: vec![ONE, TWO],
        };
        assert_eq!(pins(&text).unwrap(), [expected]);
        for loose in ["b", "b==1", "b>=1 --hash=sha256:12", "b==1 --hash=md5:12"] {
            let error = pins(loose).unwrap_err().to_string();
            assert!(error.contains("NAME==VERSION --hash"), "{error}");
        }
    }

    #[test]
    fn a_tree_has_one_file_of_each_pin_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("a==1 --hash=sha256:{ONE}\nb==2 --hash=sha256:{TWO}\n");
        let pins = pins(&text).unwrap();
        let refused = || check(&pins, dir.path()).unwrap_err().to_string();
        fs::write(dir.path().join("a.whl"), "one").unwrap();
        fs::write(dir.path().join("b.whl"), "tw").unwrap();
        assert!(refused().contains("no file of b==2"), "{}", refused());
        fs::write(dir.path().join("b.whl"), "two").unwrap();
        check(&pins, dir.path()).unwrap();
        fs::write(dir.path().join("c.whl"), "three").unwrap();
        assert!(refused().contains("3 files for 2"), "{}", refused());
    }
}
