//! What can go wrong in a shell, and what its user does about it.

use std::io;

use crate::error::SqlError;

/// Why a line has come to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// What the engine says.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// What a server says.
    #[error("{0}")]
    Server(String),
    /// There is no server: start one, or correct the address.
    #[error("cannot connect to {0}")]
    Connect(String),
    /// A command that is none; the text says what to write.
    #[error("{0}")]
    Command(String),
    /// It was interrupted.
    #[error("cancelled")]
    Interrupted,
    /// Rows cannot be written in this format: choose another one.
    #[error("{0}: choose another format, table can show everything")]
    Format(#[from] datafusion::arrow::error::ArrowError),
    /// The reader of the output has gone, or the disk is full.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}
