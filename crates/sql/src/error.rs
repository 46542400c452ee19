//! Errors of queries, and of engines that cannot be built.
//!
//! Whatever goes wrong in a query ends that query alone. DataFusion has one error
//! type for all of it; here errors are sorted by what the caller does next.

use std::any::Any;

use datafusion::error::DataFusionError;
use giveway_tasks::{QueryError, Why};

/// Why a query has no result.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// The text cannot be made into a plan: correct it, or register what it names.
    #[error("{0}")]
    Plan(#[source] DataFusionError),
    /// The statement is not for this login, or for none: its text says which.
    #[error("{0}")]
    Denied(String),
    /// The data did not agree with the query (a cast, a division, a file): correct
    /// one of them.
    #[error("{0}")]
    Execution(#[source] DataFusionError),
    /// The engine's memory was used up, by this query or by those beside it: try
    /// again later, or give the engine more.
    #[error(
        "out of memory: {0}; give Builder::memory_limit more, or run fewer queries at a \
         time"
    )]
    OutOfMemory(#[source] DataFusionError),
    /// A background query was ended, since time-sensitive ones needed its memory: run it when
    /// they are done, or give the engine more.
    #[error(
        "out of memory: this background query was ended, since a time-sensitive one needed its \
         memory; run it again later, give --memory more, or set --keep-background"
    )]
    GaveWay,
    /// An operator or a function panicked: report it to its author. The message is
    /// what it panicked with.
    #[error("a part of the query panicked: {0}; the engine and other queries go on")]
    Panicked(String),
    /// It was cancelled.
    #[error("the query was cancelled")]
    Cancelled,
    /// It took longer than its deadline allows: give it more time, a higher tier or
    /// more weight.
    #[error("the query was not done by its deadline: set a later one, or a higher weight")]
    DeadlineExceeded,
    /// The engine does not take it now.
    #[error("{0}")]
    Refused(Why),
    /// The engine was shut down before it was done: submit it to another one.
    #[error("the engine was shut down before the query was done")]
    ShutDown,
    /// A worker of the cluster has gone: submit the query again, the others run it.
    #[error(
        "worker {worker} does not answer ({why}), and the query has failed with it: ask it \
         again, the other workers will run it"
    )]
    WorkerLost {
        /// HOST:PORT.
        worker: String,
        /// What is known of it.
        why: String,
    },
    /// No worker of the cluster answers: start one, or look at the reasons.
    #[error("no worker of this cluster can be used: start one ({0})")]
    NoWorkers(String),
}

impl SqlError {
    /// What a thread panicked with.
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> SqlError {
        let text = (panic.downcast_ref::<&str>().copied())
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        SqlError::Panicked(text.unwrap_or("no message").to_owned())
    }

    /// An error of a plan that was being made.
    pub(crate) fn planning(error: DataFusionError) -> SqlError {
        SqlError::Plan(plain(error))
    }

    /// An error of a plan that was being run.
    pub(crate) fn running(error: DataFusionError) -> SqlError {
        let error = plain(error);
        if let Some(ours) = SqlError::inside(&error) {
            return ours;
        }
        // Readers of files and kernels put it into errors of theirs.
        match error.find_root() {
            DataFusionError::ResourcesExhausted(message) => {
                SqlError::OutOfMemory(DataFusionError::ResourcesExhausted(message.clone()))
            }
            _ => SqlError::Execution(error),
        }
    }

    /// The error of this crate that an error of DataFusion's has come from, if it has.
    pub(crate) fn inside(error: &DataFusionError) -> Option<SqlError> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(ours) = error.downcast_ref::<SqlError>() {
                return Some(ours.copy());
            }
            cause = error.source();
        }
        None
    }

    /// The same error once more; what was DataFusion's is a text.
    pub(crate) fn copy(&self) -> SqlError {
        match self {
            SqlError::Plan(error) => SqlError::Plan(DataFusionError::Plan(told(error))),
            SqlError::Denied(why) => SqlError::Denied(why.clone()),
            SqlError::Execution(error) => {
                SqlError::Execution(DataFusionError::Execution(told(error)))
            }
            SqlError::OutOfMemory(error) => {
                SqlError::OutOfMemory(DataFusionError::ResourcesExhausted(told(error)))
            }
            SqlError::GaveWay => SqlError::GaveWay,
            SqlError::Panicked(message) => SqlError::Panicked(message.clone()),
            SqlError::Cancelled => SqlError::Cancelled,
            SqlError::DeadlineExceeded => SqlError::DeadlineExceeded,
            SqlError::Refused(why) => SqlError::Refused(*why),
            SqlError::ShutDown => SqlError::ShutDown,
            SqlError::WorkerLost { worker, why } => SqlError::WorkerLost {
                worker: worker.clone(),
                why: why.clone(),
            },
            SqlError::NoWorkers(why) => SqlError::NoWorkers(why.clone()),
        }
    }

    /// As an error of DataFusion, for its streams.
    pub fn into_datafusion(self) -> DataFusionError {
        match self {
            SqlError::Plan(error) | SqlError::Execution(error) => error,
            other => DataFusionError::External(Box::new(other)),
        }
    }
}

impl From<QueryError> for SqlError {
    fn from(error: QueryError) -> SqlError {
        match error {
            QueryError::Cancelled => SqlError::Cancelled,
            QueryError::ShutDown => SqlError::ShutDown,
            QueryError::Panicked(message) => SqlError::Panicked(message),
            QueryError::Failed(failure) => match failure.downcast::<DataFusionError>() {
                Ok(error) => SqlError::running(*error),
                Err(other) => SqlError::Execution(DataFusionError::External(other)),
            },
        }
    }
}

/// What an error says, without the name of its kind before it.
fn told(error: &DataFusionError) -> String {
    match error {
        DataFusionError::Plan(text)
        | DataFusionError::Execution(text)
        | DataFusionError::ResourcesExhausted(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The error itself, without the notes on where it passed by: those that look at
/// its variant would not see it, and readers have no use for them.
fn plain(error: DataFusionError) -> DataFusionError {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => plain(*inner),
        DataFusionError::Shared(inner) => match std::sync::Arc::try_unwrap(inner) {
            Ok(inner) => plain(inner),
            Err(inner) => match inner.find_root() {
                DataFusionError::ResourcesExhausted(message) => {
                    DataFusionError::ResourcesExhausted(message.clone())
                }
                _ => DataFusionError::Shared(inner),
            },
        },
        error => error,
    }
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The workers' pool cannot be had.
    #[error(transparent)]
    Pool(#[from] giveway_tasks::BuildError),
    /// Nothing could be held in memory.
    #[error("a memory limit of {0} bytes: give Builder::memory_limit 1 MiB at least")]
    Memory(usize),
    /// There would be nothing to run.
    #[error("{0} partitions: give Builder::partitions 1 to 4096")]
    Partitions(usize),
    /// The thread that looks after queries could not be started.
    #[error("no thread: {0}")]
    Clerk(#[from] std::io::Error),
}
