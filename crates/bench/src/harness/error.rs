//! Everything that can go wrong while data is made or a cell is measured.
//! Each message names the remedy where there is one.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A consistency condition of TPC-C that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The clause, such as `3.3.2.1`.
    pub clause: &'static str,
    /// What the clause demands.
    pub demand: &'static str,
    /// The first place where it is broken.
    pub place: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "clause {} of TPC-C ({}) is broken: {}",
            self.clause, self.demand, self.place
        )
    }
}

/// Why data could not be prepared, or a cell could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// The verb: what was tried.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A server program is not installed.
    #[error(
        "PostgreSQL's server programs were not found in PATH or /usr/lib/postgresql: \
         install the package postgresql (15 or newer)"
    )]
    NoPostgres,
    /// A server built for the lab is not where it should be.
    #[error("{} holds no PostgreSQL for the lab: make it with `make servers`", .0.display())]
    NoLabServer(PathBuf),
    /// We are root, and there is no other user to run the server as.
    #[error(
        "PostgreSQL refuses to run as root and there is no user 'postgres': \
         install the package postgresql, which makes it"
    )]
    NoServerUser,
    /// A program ended with an error.
    #[error("{program} failed ({status}):\n{output}")]
    Program {
        /// The program's name.
        program: String,
        /// How it ended.
        status: String,
        /// The last lines it printed.
        output: String,
    },
    /// A statement or connection failed.
    #[error("PostgreSQL, while {what}: {}", describe(source))]
    Sql {
        /// What was being done.
        what: String,
        /// The client library's error.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The directory holds no data made by `giveway bench prepare`.
    #[error(
        "{} holds no prepared data ({reason}): make it with `giveway bench prepare`",
        dir.display()
    )]
    NotPrepared {
        /// The directory.
        dir: PathBuf,
        /// What is missing or does not fit.
        reason: String,
    },
    /// The data directory to be made is there already.
    #[error("{} is not empty: give a new directory, or remove it first", .0.display())]
    NotEmpty(PathBuf),
    /// The metascheduler, or what runs under it, did not do its work.
    #[error("meta: {0}")]
    Meta(String),
    /// The cell's settings contradict each other or the machine.
    #[error("{0}")]
    Config(String),
    /// A cgroup could not be made or used.
    #[error("cgroup {}: cannot {what}: {source}. {remedy}", path.display())]
    Cgroup {
        /// The verb: what was tried.
        what: String,
        /// The cgroup's directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A scheduling class could not be set.
    #[error("cannot give process {pid} the class {class}: {source} (root is needed)")]
    Class {
        /// The process.
        pid: i32,
        /// The class's name.
        class: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A sched_ext scheduler did not start, or did not stay.
    #[error("scheduler {name}: {reason}\n{output}")]
    Scheduler {
        /// The scheduler's program.
        name: String,
        /// What happened.
        reason: String,
        /// The last lines it printed: its exit report.
        output: String,
    },
    /// The database no longer holds what the workload must preserve.
    #[error("the database is inconsistent after the run: {0}")]
    Inconsistent(Violation),
    /// The sessions of an inversion did not do what its script says.
    #[error("the cell did not go as written: {0}; a longer --hold-s may help")]
    Unplayed(String),
    /// An engine failed, and not for a reason that goes away.
    #[error("{engine}, while running TPC-C or Q2: {reason}")]
    Engine {
        /// The engine's name.
        engine: &'static str,
        /// What it says.
        reason: String,
    },
    /// A query failed where none may, or an engine or its data cannot be had.
    #[error("{who}: {reason}")]
    Queries {
        /// The query, engine or data.
        who: String,
        /// What it says.
        reason: String,
    },
    /// A lock let two threads in at once.
    #[error(
        "{lock} does not exclude: its threads took {turns} turns, of which {seen} were seen; \
         leave it out of --locks"
    )]
    NotExclusive {
        /// The lock.
        lock: String,
        /// Turns that threads took.
        turns: u64,
        /// Turns that the protected counter shows.
        seen: u64,
    },
    /// A shared library holds no lock.
    #[error("{}: {reason}; see docs/measure/locks.md for what a library must have", path.display())]
    Library {
        /// The library's file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A results file is not one.
    #[error(
        "{}: not a results file: {reason}\n\
         remedy: name a JSON file that 'giveway bench' has written, as those below results",
        path.display()
    )]
    Results {
        /// The file.
        path: PathBuf,
        /// The parser's complaint.
        reason: String,
    },
    /// Rows of different experiments or environments do not belong in one report.
    #[error("results of different {what} cannot share a report: '{left}' and '{right}'")]
    Mixed {
        /// The property that differs.
        what: &'static str,
        /// Its value in the report so far.
        left: String,
        /// Its value in what was to be added.
        right: String,
    },
}

impl Error {
    /// Wraps an I/O error with what was tried on which file.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { what, path, source }
    }

    /// Names the lock of a run.
    pub(crate) fn of_lock(self, name: &str) -> Self {
        match self {
            Error::NotExclusive { turns, seen, .. } => Error::NotExclusive {
                lock: name.to_owned(),
                turns,
                seen,
            },
            other => other,
        }
    }

    /// Wraps a client error with what was being done.
    pub(crate) fn sql(what: impl Into<String>) -> impl FnOnce(tokio_postgres::Error) -> Error {
        let what = what.into();
        move |source| Error::Sql { what, source }
    }
}

/// The server's own message: the library's text is only "db error".
fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(inner) = source {
                text = format!("{text}: {inner}");
                source = inner.source();
            }
            text
        }
    }
}
