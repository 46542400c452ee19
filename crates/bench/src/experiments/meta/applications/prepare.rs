//! Makes the application's directory, from wheels and a seed: once, natively, since
//! embedding a corpus takes minutes of an emulated guest's time.
//!
//! ```text
//!   DIR/python          the Python that made it, and that is to run it
//!   DIR/packages        what the wheels hold, compiled
//!   DIR/corpus.txt      a chunk a line           DIR/index.voy      its index
//!   DIR/requests.jsonl  a body of a request a line
//!   DIR/*.py, ask.lua   the application and its load
//! ```

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::corpus::{CHUNKS, Corpus, VERSION};
use crate::harness::Progress;
use crate::harness::error::{Error, Result};
use crate::workload::postgres::output;

/// Python packages of the application, pinned.
pub(crate) const REQUIREMENTS: &str = include_str!("ask/requirements.txt");

/// The application's own files.
const FILES: [(&str, &str); 4] = [
    ("retrieval.py", include_str!("ask/retrieval.py")),
    ("api.py", include_str!("ask/api.py")),
    ("alone.py", include_str!("ask/alone.py")),
    ("ask.lua", include_str!("ask/ask.lua")),
];

/// Names what [`prepare`] makes of this seed, but for the wheels: under another key
/// there is something else.
pub(crate) fn key(seed: u64) -> String {
    let files: String = FILES
        .iter()
        .map(|(name, text)| name.to_string() + text)
        .collect();
    format!("ask-{VERSION}-{CHUNKS}-{seed}\n{files}")
}

/// Makes the directory `dir`, which is not there or empty, from a directory of the
/// wheels that [`REQUIREMENTS`] name. `python` has pip, and the version that the
/// wheels are for.
///
/// # Errors
/// [`Error::NotEmpty`]; [`Error::Program`] if pip or the making of the index fails;
/// [`Error::File`].
pub(crate) fn prepare(
    dir: &Path,
    wheels: &Path,
    python: &Path,
    seed: u64,
    line: Progress<'_>,
) -> Result<()> {
    if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::NotEmpty(dir.to_owned()));
    }
    fs::create_dir_all(dir).map_err(Error::file("create", dir))?;
    let dir = &dir.canonicalize().map_err(Error::file("find", dir))?;
    line("the application's Python packages");
    let requirements = dir.join("requirements.txt");
    write(&requirements, REQUIREMENTS)?;
    output(
        "pip",
        Command::new(python)
            .args([
                "-m",
                "pip",
                "--isolated",
                "install",
                "--quiet",
                "--no-cache-dir",
            ])
            .args(["--no-index", "--no-deps", "--require-hashes", "--compile"])
            .arg("--find-links")
            .arg(wheels)
            .arg("--target")
            .arg(dir.join("packages"))
            .arg("--requirement")
            .arg(&requirements),
    )?;
    let executable = "import sys; print(sys.executable)";
    let found = output("python", Command::new(python).args(["-c", executable]))?;
    let link = dir.join("python");
    symlink(found.trim(), &link).map_err(Error::file("create", &link))?;
    line(&format!("a corpus of {CHUNKS} chunks"));
    for (name, text) in FILES {
        write(&dir.join(name), text)?;
    }
    let corpus = Corpus::of(seed, CHUNKS);
    write(&dir.join("corpus.txt"), &(corpus.chunks.join("\n") + "\n"))?;
    write(&dir.join("requests.jsonl"), &corpus.requests())?;
    line("its index");
    let said = output(
        "python",
        program(dir).arg(dir.join("retrieval.py")).arg(dir),
    )?;
    line(said.trim());
    // Guests cannot write here, and would compile it at each start.
    output(
        "python",
        program(dir).args(["-m", "compileall", "-q"]).arg(dir),
    )?;
    Ok(())
}

/// The application's Python, with what it needs.
pub(super) fn program(dir: &Path) -> Command {
    let mut command = Command::new(python(dir));
    command
        .env(
            "PYTHONPATH",
            format!("{}:{}", dir.display(), dir.join("packages").display()),
        )
        // Threads are the server's to have: those of libraries would come on top.
        .env("OPENBLAS_NUM_THREADS", "1")
        .env("TOKENIZERS_PARALLELISM", "false")
        .stdin(Stdio::null());
    command
}

/// Where it is.
pub(super) fn python(dir: &Path) -> PathBuf {
    dir.join("python")
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::file("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_pinned_by_version_and_digest() {
        let lines = REQUIREMENTS.lines().filter(|line| !line.starts_with('#'));
        let mut names = Vec::new();
        for line in lines {
            let (package, digest) = line.split_once(" --hash=sha256:").expect(line);
            assert!(digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()));
            names.push(package.split_once("==").expect(line).0);
        }
        for needed in ["flask", "gunicorn", "numpy", "voyager", "wordllama"] {
            assert!(names.contains(&needed), "{needed}");
        }
        assert!(names.is_sorted_by(|a, b| a < b), "each once: {names:?}");
    }

    #[test]
    fn other_data_have_another_key() {
        assert_ne!(key(1), key(2));
        assert!(key(1).contains("class Stub"), "the files are part of it");
    }

    #[test]
    fn a_directory_that_is_in_use_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("x"), "").unwrap();
        let python = Path::new("/no/such/python");
        let error = prepare(dir.path(), dir.path(), python, 1, &mut |_| {}).unwrap_err();
        assert!(matches!(error, Error::NotEmpty(_)), "{error}");
        let new = dir.path().join("new");
        let error = prepare(&new, dir.path(), python, 1, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("/no/such/python"), "{error}");
    }
}
