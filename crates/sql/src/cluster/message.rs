//! What the servers of a cluster tell each other, inside Flight's messages.
//!
//! | call | body | answer |
//! | --- | --- | --- |
//! | `DoAction` [`HELLO`] | none | the version, as text |
//! | `DoAction` [`RUN`] | a [`Part`] | one empty result when the part is done; the call stays open, and its end lets the part's rows go |
//! | `DoGet`, a ticket of type [`FETCH`] | a [`Fetch`] | the rows of one partition of a part |
//!
//! Plans are not understood across versions, so the version is compared whenever a worker
//! is greeted and in every part.

use std::collections::HashMap;

use arrow_flight::Ticket;
use prost::Message;
use prost::bytes::Bytes;
use tonic::Status;

/// Asks a server whether it is a worker, and of which version.
pub(crate) const HELLO: &str = "giveway.hello";
/// Runs a part.
pub(crate) const RUN: &str = "giveway.run";
/// The type of tickets for the rows of a part.
pub(crate) const FETCH: &str = "type.googleapis.com/giveway.Fetch";

/// What has to be the same on all machines of a cluster. The number counts changes of the
/// messages between two versions.
pub(crate) const VERSION: &str = concat!("giveway ", env!("CARGO_PKG_VERSION"), ", messages 1");

/// What is wrong with another version, if anything is.
pub(crate) fn check_version(theirs: &str) -> Result<(), String> {
    match theirs == VERSION {
        true => Ok(()),
        false => Err(format!(
            "it is of another version ({theirs}; this is {VERSION}): install the same version \
             on all machines of the cluster"
        )),
    }
}

/// Names a part of a query.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct PartKey {
    /// Random, so that nobody can guess it.
    #[prost(string, tag = "1")]
    pub(crate) query: String,
    #[prost(uint32, tag = "2")]
    pub(crate) stage: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) task: u32,
}

/// A part of a query, to be run by a worker.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Part {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(message, required, tag = "2")]
    pub(crate) key: PartKey,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) plan: Bytes,
    /// How often each partition of its rows will be fetched.
    #[prost(uint32, tag = "4")]
    pub(crate) readers: u32,
    /// What it is called in `giveway.queries`.
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    #[prost(string, tag = "6")]
    pub(crate) tier: String,
    #[prost(uint32, tag = "7")]
    pub(crate) weight: u32,
    /// What is left until the query's deadline; 0 is for ever.
    #[prost(uint64, tag = "8")]
    pub(crate) deadline_ms: u64,
    /// DataFusion's options that are not as by default.
    #[prost(map = "string, string", tag = "9")]
    pub(crate) options: HashMap<String, String>,
}

/// Asks for the rows of one partition of a part.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Fetch {
    #[prost(message, required, tag = "1")]
    pub(crate) key: PartKey,
    #[prost(uint32, tag = "2")]
    pub(crate) partition: u32,
}

impl Fetch {
    pub(crate) fn ticket(&self) -> Ticket {
        let ticket = arrow_flight::sql::Any {
            type_url: FETCH.to_owned(),
            value: self.encode_to_vec().into(),
        };
        Ticket::new(ticket.encode_to_vec())
    }
}

/// Reads a message of another server.
pub(crate) fn decoded<M: Message + Default>(bytes: &[u8]) -> Result<M, Status> {
    M::decode(bytes)
        .map_err(|error| Status::invalid_argument(format!("a message between servers: {error}")))
}

/// A leaf whose rows are those of parts that other workers have run.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Source {
    #[prost(string, tag = "1")]
    pub(crate) query: String,
    #[prost(uint32, tag = "2")]
    pub(crate) stage: u32,
    /// By task.
    #[prost(string, repeated, tag = "3")]
    pub(crate) workers: Vec<String>,
    /// By the leaf's partitions.
    #[prost(message, repeated, tag = "4")]
    pub(crate) partitions: Vec<Pieces>,
    /// Columns, as Arrow's messages have them.
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) schema: Bytes,
}

/// What one partition of a leaf consists of.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Pieces {
    #[prost(message, repeated, tag = "1")]
    pub(crate) pieces: Vec<Piece>,
}

/// A partition of what a task has made.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Piece {
    #[prost(uint32, tag = "1")]
    pub(crate) task: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) partition: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_refused_with_what_to_do() {
        assert_eq!(check_version(VERSION), Ok(()));
        let error = check_version("giveway 0.0.1, messages 1").unwrap_err();
        assert!(error.contains("giveway 0.0.1") && error.contains("install the same version"));
    }
}
