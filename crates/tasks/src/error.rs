//! How a query fails, and why one is refused.

use crate::pipeline::Failure;

/// Why a query ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// It was cancelled.
    #[error("the query was cancelled")]
    Cancelled,
    /// The pool was shut down before it was done.
    #[error("the pool was shut down before the query was done: submit it to another one")]
    ShutDown,
    /// One of its pipelines said so.
    #[error("the query failed: {0}")]
    Failed(Failure),
    /// One of its pipelines panicked: a defect of the engine. The message is what
    /// it panicked with.
    #[error("a pipeline of the query panicked: {0}")]
    Panicked(String),
}

/// Why a query was not taken; it comes back with this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Too many queries wait already.
    #[error("{0} queries are waiting: try again later, or give Builder::waiting more places")]
    Full(usize),
    /// The pool takes no more queries.
    #[error("the pool is shutting down: submit to another one")]
    ShuttingDown,
}
