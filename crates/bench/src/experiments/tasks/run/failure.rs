//! What is said of an engine that failed.

use crate::harness::error::Error;

/// A query, or an engine, that failed where none may.
pub(super) fn failed(who: impl std::fmt::Display, why: impl std::fmt::Display) -> Error {
    Error::Queries {
        who: who.to_string(),
        reason: why.to_string(),
    }
}
