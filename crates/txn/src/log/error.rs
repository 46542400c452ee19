//! What can go wrong between memory and disk, and what to do next.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::limits::{RECORD_MAX, VERSION};

/// What is wrong with a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// It ends too early.
    #[error("it ends in the middle")]
    Truncated,
    /// The system cannot read it: the medium is damaged.
    #[error("the system cannot read it")]
    Unreadable,
    /// It begins with something else.
    #[error("it does not begin as it should")]
    Magic,
    /// The checksum does not fit.
    #[error("its checksum does not fit")]
    Checksum,
    /// The checksum fits, but what it covers makes no sense.
    #[error("its contents make no sense")]
    Contents,
    /// It is out of order.
    #[error("it is out of order")]
    Order,
    /// A later version of this program wrote it.
    #[error("it has version {0}; this program reads up to {VERSION}")]
    Version(u32),
}

impl Flaw {
    /// What an error of reading says about the file. `None`: nothing; the system, or this
    /// process, lacks something, and trying again may help.
    pub(crate) fn of(error: &io::Error) -> Option<Flaw> {
        // As disks, and file systems with checksums of their own, report bad blocks.
        const MEDIUM: [i32; 5] = [
            libc::EIO,
            libc::EBADMSG,
            libc::EUCLEAN,
            libc::ENODATA,
            libc::EREMOTEIO,
        ];
        let code = error.raw_os_error()?;
        MEDIUM.contains(&code).then_some(Flaw::Unreadable)
    }
}

/// Why the write that failed first did so. Later errors carry it along.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {file}: {source}")]
pub struct Failure {
    /// What was being done.
    pub doing: &'static str,
    /// To which file.
    pub file: String,
    /// What the system said.
    pub source: io::Error,
}

impl PartialEq for Failure {
    /// The system's errors are compared by their kind.
    fn eq(&self, other: &Failure) -> bool {
        (self.doing, &self.file, self.source.kind())
            == (other.doing, &other.file, other.source.kind())
    }
}

impl Eq for Failure {}

/// Why something is not durable, or cannot be recovered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurabilityError {
    /// Somebody else has the database open. Close it there, or open another.
    #[error("{directory} is open in another process, or twice in this one; close it there first")]
    InUse {
        /// The database.
        directory: String,
    },
    /// There is nothing to read. Look at the path, or open it without
    /// [`read_only`](crate::DurabilityOptions::read_only), which makes a database.
    #[error(
        "{directory}: there is no database; check the path, or open it without `read_only` to \
         make one"
    )]
    NoDatabase {
        /// Where there is none.
        directory: String,
    },
    /// The system refused something while the database was being opened or
    /// checkpointed. Nothing is lost; put it right and try again.
    #[error("{0}; nothing was lost, try again when the cause is gone")]
    Io(Arc<Failure>),
    /// A file has bytes that cannot be right, and more behind them. Restore the
    /// file from a copy, or open with [`salvage`](crate::DurabilityOptions::salvage)
    /// to keep what comes before.
    #[error(
        "{file}, offset {offset}: damaged ({flaw}), and whole data follows it; restore the file \
         from a copy, or open with `salvage` to keep only what was committed before"
    )]
    Damaged {
        /// The file.
        file: String,
        /// Where, bytes from its beginning.
        offset: u64,
        /// How it shows.
        flaw: Flaw,
    },
    /// Log segments are gone. Restore them from a copy, or open with
    /// [`salvage`](crate::DurabilityOptions::salvage) to keep what comes before.
    #[error(
        "{directory}: the log lacks {what}; restore the missing files from a copy, or open with \
         `salvage` to keep only what was committed before"
    )]
    Missing {
        /// The database.
        directory: String,
        /// What is not there.
        what: String,
    },
    /// A later version of this program wrote the file. Open it with that.
    #[error(
        "{file} has version {version}, and this program reads up to {VERSION}; use a newer program"
    )]
    Newer {
        /// The file.
        file: String,
        /// Its version.
        version: u32,
    },
    /// The file belongs to another database. Move it out of the directory.
    #[error("{file} belongs to another database; move it elsewhere")]
    Foreign {
        /// The file.
        file: String,
    },
    /// The log could not be written, and the database takes no more changes.
    /// Every acknowledged commit is safe: close it, see to the disk, reopen.
    #[error(
        "read-only since the log could not be written ({0}); all acknowledged commits are safe: \
         close the database, see to the disk, and open it again"
    )]
    ReadOnly(Arc<Failure>),
    /// The database was opened with
    /// [`read_only`](crate::DurabilityOptions::read_only). Reading goes on; close it and
    /// open it without.
    #[error(
        "the database was opened for reading only: close it, and open it without `read_only` \
         to change it"
    )]
    OpenedReadOnly,
    /// The log could not be written after this transaction was applied. It is
    /// in doubt: when the database is opened again it may be there or not.
    #[error(
        "in doubt: the log could not be written ({0}); the transaction may or may not be there \
         when the database is opened again"
    )]
    InDoubt(Arc<Failure>),
    /// The log could not be written, and the transaction, which wrote nothing, has
    /// read what is in doubt since. Read other rows, or open the database again:
    /// then it has what is durable.
    #[error(
        "the transaction wrote nothing, but read rows that are in doubt: the log could not be \
         written ({0}); they may not be there when the database is opened again"
    )]
    ReadInDoubt(Arc<Failure>),
    /// The transaction writes too much. Divide it.
    #[error("the transaction logs {0} bytes, and {RECORD_MAX} is the most; divide it")]
    TooLarge(usize),
    /// The disk does not keep up, and the transaction's deadline passed while it
    /// waited for its turn. Nothing was changed; try again later.
    #[error("the log is {backlog} bytes behind, and the deadline passed; try again later")]
    Backlog {
        /// Bytes that wait to be written.
        backlog: u64,
    },
    /// There are no files to do this with. Open the database with
    /// [`Database::open`](crate::Database::open).
    #[error("the database is in memory only; open it with a directory for this")]
    InMemory,
    /// The deadline passed before the disk had it all. It is committed and
    /// visible, and will be durable unless the machine fails now.
    #[error("committed, but not yet durable after {0:?}; it will be unless the machine fails now")]
    NotYet(Duration),
}

impl From<Failure> for DurabilityError {
    fn from(failure: Failure) -> DurabilityError {
        DurabilityError::Io(Arc::new(failure))
    }
}

impl DurabilityError {
    /// What the system refused, for [`map_err`](Result::map_err).
    pub(crate) fn io(
        doing: &'static str,
        file: impl Into<String>,
    ) -> impl FnOnce(io::Error) -> DurabilityError {
        let file = file.into();
        move |source| {
            Failure {
                doing,
                file,
                source,
            }
            .into()
        }
    }
}
