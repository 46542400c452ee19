//! What can go wrong outside a scheduler, and what the caller does next.
//!
//! A scheduler that misbehaves is no error of this crate: it is a
//! [`Fault`](crate::supervisor::Fault), which the supervisor records and goes on.

use std::io;
use std::path::{Path, PathBuf};

use giveway_machine::lock::LockError;

/// What ends an operation of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written: tell the user which.
    #[error("cannot {verb} {}: {source}", path.display())]
    File {
        /// `read`, `write` and the like.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A configuration or a measurement file is invalid: show its author the text,
    /// which says what would be valid.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to write instead.
        what: String,
    },
    /// A choice cannot be made from what has been measured: measure more, or
    /// choose another policy. The text says which.
    #[error("{0}")]
    Unmeasured(String),
    /// Another program decides on this machine's schedulers: stop it first.
    #[error("{0}")]
    Occupied(String),
    /// A lock is held by another process, or cannot be taken: its remedy says what helps.
    #[error("{lock}\nremedy: {remedy}", lock = .0, remedy = .0.remedy())]
    Lock(#[from] LockError),
    /// scx_loader is to start the schedulers, and cannot. The text says what to
    /// change.
    #[error("{0}")]
    ScxLoader(String),
}

/// What operations of this crate answer with.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// For `map_err` on an operation on a file.
    pub(crate) fn file(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::File {
            verb,
            path: path.to_owned(),
            source,
        }
    }

    /// A file with invalid content.
    pub(crate) fn content(path: &Path, what: impl ToString) -> Error {
        Error::Content {
            path: path.to_owned(),
            what: what.to_string(),
        }
    }
}
