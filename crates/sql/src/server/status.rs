//! Errors as gRPC statuses: the code says what a client's library does next, the
//! message what a person does.

use arrow_flight::error::FlightError;
use datafusion::error::DataFusionError;
use tonic::{Code, Status};

use crate::error::SqlError;

/// Bytes of a message; it travels in a header, and headers are bounded.
const MESSAGE_MAX: usize = 4000;

pub(super) fn status(error: &SqlError) -> Status {
    let code = match error {
        SqlError::Plan(_) => Code::InvalidArgument,
        SqlError::Denied(_) => Code::PermissionDenied,
        SqlError::Execution(_) => Code::FailedPrecondition,
        SqlError::OutOfMemory(_) | SqlError::GaveWay => Code::ResourceExhausted,
        SqlError::Panicked(_) => Code::Internal,
        SqlError::Cancelled => Code::Cancelled,
        SqlError::DeadlineExceeded => Code::DeadlineExceeded,
        // Another try may find room, or another server.
        SqlError::Refused(_)
        | SqlError::ShutDown
        | SqlError::WorkerLost { .. }
        | SqlError::NoWorkers(_) => Code::Unavailable,
    };
    Status::new(code, shorten(&error.to_string()))
}

/// For statements that are wrong before they are planned.
pub(super) fn planning(error: DataFusionError) -> Status {
    status(&SqlError::Plan(error))
}

/// For streams of a result.
pub(super) fn streaming(error: SqlError) -> FlightError {
    FlightError::Tonic(Box::new(status(&error)))
}

/// What this server got wrong, not its client.
pub(super) fn internal(error: impl std::fmt::Display) -> Status {
    Status::internal(shorten(&error.to_string()))
}

fn shorten(message: &str) -> String {
    match message.len() {
        0..=MESSAGE_MAX => message.to_owned(),
        _ => {
            let end = message.floor_char_boundary(MESSAGE_MAX);
            format!("{} …", &message[..end])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_fit_into_a_header() {
        let error = DataFusionError::Plan("ä".repeat(10_000));
        let status = planning(error);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().len() < 4010 && status.message().ends_with(" …"));
    }
}
