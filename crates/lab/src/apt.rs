//! Packages from a Debian archive, without touching the host's own apt state:
//! an own source list, own indexes and own caches, used as any user.
//!
//! The mirror is the one this machine already uses for Debian; what is fetched
//! is checked against Debian's archive keys, as apt always does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cache::{Cache, digest};
use crate::command;
use crate::error::{LabError, Result};
use crate::progress::Progress;

/// The release of the guest image and of the emulator's source.
pub(crate) const GUEST_SUITE: &str = "trixie";

/// Where kernels come from, the preferred suite first. Backports are last:
/// some of their builds carry type information that no scheduler can be loaded with.
pub(crate) const KERNEL_SUITES: &[&str] = &["sid", "forky", "trixie-backports"];

/// Indexes older than this are fetched again before they are used.
const INDEX_AGE: Duration = Duration::from_secs(24 * 3600);

/// Archive keys, from the package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

#[derive(Debug)]
pub(crate) struct Apt {
    dir: PathBuf,
    mirror: String,
}

impl Apt {
    /// Prepares the own apt state, and fetches the indexes if they are old.
    pub(crate) fn open(cache: &Cache, progress: &dyn Progress) -> Result<Apt> {
        let _lock = cache.lock("apt")?;
        let apt = Apt {
            dir: cache.dir().join("apt"),
            mirror: mirror()?,
        };
        for sub in ["etc", "state/lists/partial", "cache/archives/partial"] {
            let dir = apt.dir.join(sub);
            fs::create_dir_all(&dir).map_err(LabError::io("creating", &dir))?;
        }
        let suites = KERNEL_SUITES.join(" ");
        let sources = format!(
            "Types: deb deb-src\nURIs: {}\nSuites: {GUEST_SUITE} {suites}\nComponents: main\nSigned-By: {KEYRING}\n",
            apt.mirror
        );
        let path = apt.dir.join("etc/lab.sources");
        let unchanged = fs::read_to_string(&path).is_ok_and(|old| old == sources);
        if !unchanged {
            fs::write(&path, sources).map_err(LabError::io("writing", &path))?;
        }
        let stamp = apt.dir.join("updated");
        let fresh = unchanged
            && stamp
                .metadata()
                .and_then(|meta| meta.modified())
                .is_ok_and(|time| time.elapsed().is_ok_and(|age| age < INDEX_AGE));
        if !fresh {
            progress.begin("fetching the Debian package indexes");
            command::run(
                "apt-get update",
                apt.command("apt-get").arg("update"),
                progress,
            )?;
            fs::write(&stamp, "").map_err(LabError::io("writing", &stamp))?;
            progress.end("fetched");
        }
        Ok(apt)
    }

    /// The mirror's address.
    pub(crate) fn mirror(&self) -> &str {
        &self.mirror
    }

    /// Versions of a binary package and the suite of each.
    pub(crate) fn versions(&self, package: &str) -> Result<Vec<(String, String)>> {
        let text = command::output(
            "apt-cache madison",
            self.command("apt-cache").args(["madison", package]),
        )?;
        Ok(parse_madison(&text))
    }

    /// Names of binary packages that begin with `start`, in no order.
    pub(crate) fn names(&self, start: &str) -> Result<Vec<String>> {
        let text = command::output(
            "apt-cache pkgnames",
            self.command("apt-cache").args(["pkgnames", start]),
        )?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Packages that `package` at `version` depends on, with the version each must have.
    pub(crate) fn dependencies(
        &self,
        package: &str,
        version: &str,
    ) -> Result<Vec<(String, Option<String>)>> {
        let text = command::output(
            "apt-cache show",
            self.command("apt-cache")
                .args(["show", &format!("{package}={version}")]),
        )?;
        Ok(parse_depends(&text))
    }

    /// Downloads packages (`name`, `name=version` or `name/suite`) and unpacks them into `into`.
    pub(crate) fn unpack(
        &self,
        packages: &[String],
        into: &Path,
        progress: &dyn Progress,
    ) -> Result<()> {
        let debs = tempfile::tempdir_in(&self.dir)
            .map_err(LabError::io("creating a directory in", &self.dir))?;
        command::run(
            &format!("downloading {}", packages.join(", ")),
            self.command("apt-get")
                .arg("download")
                .args(packages)
                .current_dir(debs.path()),
            progress,
        )?;
        for deb in fs::read_dir(debs.path())
            .map_err(LabError::io("reading", debs.path()))?
            .flatten()
        {
            command::run(
                "unpacking a package",
                Command::new("dpkg").arg("-x").arg(deb.path()).arg(into),
                progress,
            )?;
        }
        Ok(())
    }

    /// The cache entry with these packages of a suite, unpacked. Its name begins with
    /// `prefix`.
    pub(crate) fn unpacked(
        &self,
        cache: &Cache,
        prefix: &str,
        suite: &str,
        packages: &[&str],
        progress: &dyn Progress,
    ) -> Result<PathBuf> {
        let mut wanted = Vec::new();
        for package in packages {
            // A package that the suite lacks has no version here, and apt says so.
            let versions = self.versions(package)?;
            let here = versions.into_iter().find(|(_, place)| place == suite);
            let version = here.map_or_else(|| suite.to_owned(), |(version, _)| version);
            wanted.push(format!("{package}={version}"));
        }
        let name = prefix.to_owned() + &digest(wanted.iter().map(|name| name.as_bytes()));
        cache.entry(&name, |into| self.unpack(&wanted, into, progress))
    }

    /// Downloads the source package (`name/suite`) into `into`.
    pub(crate) fn source(&self, package: &str, into: &Path, progress: &dyn Progress) -> Result<()> {
        command::run(
            &format!("downloading the source of {package}"),
            self.command("apt-get")
                .args(["source", "--download-only", package])
                .current_dir(into),
            progress,
        )
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let dir = self.dir.display();
        for option in [
            "Dir::Etc::sourcelist=/dev/null".into(),
            format!("Dir::Etc::sourceparts={dir}/etc"),
            format!("Dir::State={dir}/state"),
            "Dir::State::status=/dev/null".into(),
            format!("Dir::Cache={dir}/cache"),
            "APT::Architecture=amd64".into(),
            "APT::Architectures=amd64".into(),
            "APT::Sandbox::User=root".into(),
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
            "Acquire::Retries=3".into(),
        ] {
            command.arg("-o").arg(option);
        }
        command.env("LC_ALL", "C");
        command
    }
}

/// The Debian mirror this machine uses.
fn mirror() -> Result<String> {
    if let Ok(mirror) = std::env::var("GIVEWAY_DEBIAN_MIRROR") {
        return Ok(mirror);
    }
    let text = command::output(
        "apt-get indextargets",
        Command::new("apt-get").args([
            "indextargets",
            "--format",
            "$(ORIGIN) $(REPO_URI)",
            "Created-By: Packages",
        ]),
    )?;
    pick_mirror(&text).ok_or(LabError::NoMirror)
}

/// Chooses among lines of "ORIGIN URI". The origin is empty before the first
/// update of the host's indexes; then the customary path of a mirror decides.
fn pick_mirror(text: &str) -> Option<String> {
    let is_archive = |uri: &str| uri.trim_end_matches('/').ends_with("/debian");
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(origin, uri)| (*origin == "Debian" || origin.is_empty()) && is_archive(uri))
        .map(|(_, uri)| uri.to_owned())
}

/// Lines of `name | version | uri suite/component arch Packages`.
fn parse_madison(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split('|').map(str::trim);
            let (_, version, place) = (fields.next()?, fields.next()?, fields.next()?);
            if !place.ends_with("Packages") {
                return None;
            }
            let suite = place.split_whitespace().nth(1)?.split('/').next()?;
            Some((version.to_owned(), suite.to_owned()))
        })
        .collect()
}

/// The `Depends` field of the first stanza, alternatives and all but exact versions left out.
fn parse_depends(text: &str) -> Vec<(String, Option<String>)> {
    let stanza = text.split("\n\n").next().unwrap_or_default();
    let Some(line) = stanza
        .lines()
        .find_map(|line| line.strip_prefix("Depends: "))
    else {
        return Vec::new();
    };
    line.split(',')
        .filter_map(|item| {
            let first = item.split('|').next()?.trim();
            let (name, rest) = first.split_once(' ').unwrap_or((first, ""));
            let exact = rest
                .trim_matches(['(', ')'])
                .strip_prefix("= ")
                .map(str::to_owned);
            Some((name.to_owned(), exact))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_debians_own_archive() {
        let text = "Other http://other.example/cloud/\n\
                    Debian http://mirror.example/debian-security/\n\
                    Debian http://mirror.example/debian/\n";
        assert_eq!(pick_mirror(text).unwrap(), "http://mirror.example/debian/");
        assert_eq!(
            pick_mirror(" http://fresh.example/debian\n").unwrap(),
            "http://fresh.example/debian"
        );
        assert_eq!(pick_mirror("Other http://other.example/cloud/\n"), None);
    }

    #[test]
    fn versions_carry_their_suite() {
        let text = "linux-image-cloud-amd64 | 7.2.13-1 | http://m/debian sid/main amd64 Packages\n\
                    linux-image-cloud-amd64 | 6.12.1-1 | http://m/debian trixie/main amd64 Packages\n\
                    linux-signed-amd64 | 6.12.1+1 | http://m/debian trixie/main Sources\n";
        assert_eq!(
            parse_madison(text),
            [
                ("7.2.13-1".into(), "sid".into()),
                ("6.12.1-1".into(), "trixie".into())
            ]
        );
    }

    #[test]
    fn dependencies_keep_exact_versions() {
        let text = "Package: x\nDepends: linux-base-9 (= 9-1), kmod, initramfs-tools (>= 0.120) | dracut\n\nPackage: y\n";
        assert_eq!(
            parse_depends(text),
            [
                ("linux-base-9".into(), Some("9-1".into())),
                ("kmod".into(), None),
                ("initramfs-tools".into(), None)
            ]
        );
    }
}
