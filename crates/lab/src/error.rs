//! What can go wrong in the lab. Each message names the remedy; variants that
//! concern a guest carry the last lines of its console.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::place::{CACHE_REMEDY, cache_root};

/// A result whose error is a [`LabError`].
pub type Result<T> = std::result::Result<T, LabError>;

/// Why the lab could not be made, or a guest not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Guests cannot run this machine's programs.
    #[error("the lab is for x86_64, and this machine is {0}\nremedy: use an x86_64 machine")]
    Architecture(&'static str),
    /// A program the lab calls is not installed.
    #[error("'{tool}' is not installed\nremedy: apt-get install {package}")]
    MissingTool {
        /// The program.
        tool: String,
        /// The Debian package that has it.
        package: String,
    },
    /// A file or directory could not be used.
    #[error("{what} {path}: {source}{}", remedy_of_io(path, source))]
    Io {
        /// What was tried, as a verb phrase.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk that holds the cache is too full to build in.
    #[error(
        "{path} has {free_mib} MiB free, and the lab needs {need_mib} MiB\n\
         remedy: free some space there, or set XDG_CACHE_HOME to another disk"
    )]
    DiskFull {
        /// The cache directory.
        path: PathBuf,
        /// What is free there.
        free_mib: u64,
        /// What a build takes.
        need_mib: u64,
    },
    /// A program the lab calls failed.
    #[error("{what} failed ({status}); its last lines:\n{tail}")]
    Command {
        /// What it was to do.
        what: String,
        /// Its exit status.
        status: String,
        /// The end of what it printed.
        tail: String,
    },
    /// No Debian mirror is configured on this machine.
    #[error(
        "this machine's package sources name no Debian mirror\n\
         remedy: add a 'deb' source of Debian under /etc/apt, or set GIVEWAY_DEBIAN_MIRROR"
    )]
    NoMirror,
    /// No kernel of the archive can run a sched_ext scheduler.
    #[error("no Debian kernel can load a sched_ext scheduler:\n{tried}")]
    NoKernel {
        /// One line per kernel that was tried: version and reason.
        tried: String,
    },
    /// The archive has no source of such a kernel, and no build that can be used.
    #[error(
        "Debian's archive has no source of Linux {series}, and no build of it that loads a \
         sched_ext scheduler{}{tried}", if tried.is_empty() { "" } else { ":\n" }
    )]
    NoSeries {
        /// The first two numbers of its version.
        series: String,
        /// One line per kernel that was tried: version and reason.
        tried: String,
    },
    /// The machine cannot be built as described.
    #[error("{0}")]
    Config(String),
    /// The guest ran longer than it was allowed to.
    #[error(
        "the guest ran past its limit of {} s and was stopped; last console lines:\n{tail}",
        limit.as_secs()
    )]
    Timeout {
        /// The limit, in host time.
        limit: Duration,
        /// The end of its console.
        tail: String,
    },
    /// The guest ended without reporting how its job ended.
    #[error("the guest died: {reason}; last console lines:\n{tail}")]
    GuestDied {
        /// A kernel panic, an emulator failure, …
        reason: String,
        /// The end of its console.
        tail: String,
    },
    /// A guest that was booted again did not say what it said before.
    #[error(
        "two runs of one guest differ in line {line}:\n  before: {before}\n  now:    {now}\n{}",
        remedy(kept.as_deref())
    )]
    Differs {
        /// The first line that differs, from 1.
        line: usize,
        /// That line of the earlier run.
        before: String,
        /// That line of this run.
        now: String,
        /// Where the earlier run's answer is kept; none if both were booted.
        kept: Option<PathBuf>,
    },
}

/// What to do about a file, if that can be said.
fn remedy_of_io(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "\nremedy: free some space on that disk, or set TMPDIR and XDG_CACHE_HOME to \
             directories of another"
                .to_owned()
        }
        // A file of the caller's is another matter.
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            if path.starts_with(cache_root()) =>
        {
            format!("\nremedy: {CACHE_REMEDY}")
        }
        _ => String::new(),
    }
}

/// What to do about two runs that differ.
fn remedy(kept: Option<&Path>) -> String {
    match kept {
        None => "both were booted with the same input: the emulator does not repeat itself \
                 (docs/design/clock.md)"
            .to_owned(),
        Some(entry) => {
            let entry = entry.display();
            format!(
                "the earlier run is kept in {entry}\n\
                 remedy: GIVEWAY_AGAIN=1 boots both. If these differ too, the emulator does \
                 not repeat itself; if not, what is kept is wrong: rm -r {entry}"
            )
        }
    }
}

impl LabError {
    /// Turns an I/O error into a `LabError` that says what was tried.
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| LabError::Io { what, path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_cannot_be_written_to_has_a_remedy_and_a_caller_s_file_has_none() {
        let denied = |path: PathBuf| {
            let error = io::Error::from(io::ErrorKind::PermissionDenied);
            LabError::io("creating", path)(error).to_string()
        };
        let said = denied(cache_root().join("lab"));
        assert!(
            said.ends_with(&format!("\nremedy: {CACHE_REMEDY}")),
            "{said}"
        );
        assert!(!denied("/elsewhere".into()).contains("remedy"));
    }
}
