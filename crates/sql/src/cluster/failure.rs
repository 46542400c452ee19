//! How the failure of a part is told: by the worker as a status, by those that asked as an
//! error that names the worker.
//!
//! A status of a worker has the header [`CULPRIT`]; one without comes from the connection,
//! and means that the worker is not there any more, unless it is about the message. A worker that could not fetch from
//! another one names that one in the header, so that the coordinator leaves out the right
//! one.

use datafusion::common::DataFusionError;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Status};

use crate::error::SqlError;

/// Who is to blame for a failure: a worker's address, or nothing.
const CULPRIT: &str = "giveway-culprit";

/// A status that a worker sends.
pub(crate) fn marked(mut status: Status, culprit: Option<&str>) -> Status {
    let culprit = culprit.unwrap_or_default();
    let value = culprit.parse::<MetadataValue<Ascii>>();
    let value = value.unwrap_or_else(|_| MetadataValue::from_static(""));
    status.metadata_mut().insert(CULPRIT, value);
    status
}

/// What a call of a worker has come to.
pub(super) fn failed(worker: &str, status: &Status) -> SqlError {
    let said = status.message();
    let text = || format!("worker {worker}: {said}");
    // It answers, if only to say that it is no worker, or who may ask.
    if let Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented = status.code() {
        return SqlError::Execution(DataFusionError::Execution(text()));
    }
    let Some(culprit) = status.metadata().get(CULPRIT) else {
        return match status.code() {
            // Its library refuses a message (one that is too large, OUT_OF_RANGE) before it
            // is read: this query's message, and not the worker, is at fault.
            Code::OutOfRange | Code::InvalidArgument | Code::ResourceExhausted => {
                SqlError::Execution(DataFusionError::Execution(text()))
            }
            _ => lost(worker, said),
        };
    };
    let culprit = culprit.to_str().unwrap_or_default();
    match status.code() {
        // It says itself which worker.
        Code::Unavailable if !culprit.is_empty() => SqlError::WorkerLost {
            worker: culprit.to_owned(),
            why: format!("as worker {worker} has found"),
        },
        Code::Unavailable => lost(worker, said),
        Code::ResourceExhausted => {
            SqlError::OutOfMemory(DataFusionError::ResourcesExhausted(text()))
        }
        Code::DeadlineExceeded => SqlError::DeadlineExceeded,
        Code::Cancelled => SqlError::Cancelled,
        Code::Internal => SqlError::Panicked(text()),
        _ => SqlError::Execution(DataFusionError::Execution(text())),
    }
}

/// A worker that does not answer.
pub(super) fn lost(worker: &str, why: impl std::fmt::Display) -> SqlError {
    SqlError::WorkerLost {
        worker: worker.to_owned(),
        why: why.to_string(),
    }
}

/// Which worker an error names.
pub(crate) fn culprit(error: &SqlError) -> Option<&str> {
    match error {
        SqlError::WorkerLost { worker, .. } => Some(worker),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_too_large_loses_no_worker() {
        for status in [
            Status::out_of_range("decoded message length too large"),
            Status::invalid_argument("not a part"),
            Status::resource_exhausted("too large"),
        ] {
            let own = failed("a:1", &status);
            assert_eq!(culprit(&own), None, "{own}");
            assert!(own.to_string().contains("worker a:1"), "{own}");
        }
    }

    #[test]
    fn the_worker_that_is_gone_is_named_whoever_tells_of_it() {
        let broken = failed("a:1", &Status::unknown("connection reset"));
        assert_eq!(culprit(&broken), Some("a:1"), "a status of no worker");
        let told = marked(Status::unavailable(broken.to_string()), Some("a:1"));
        let passed_on = failed("b:2", &told);
        assert_eq!(culprit(&passed_on), Some("a:1"));
        assert!(
            passed_on.to_string().starts_with("worker a:1 does not"),
            "{passed_on}"
        );
        let own = failed("b:2", &marked(Status::failed_precondition("1 / 0"), None));
        assert_eq!(culprit(&own), None, "a query's own error: {own}");
    }
}
