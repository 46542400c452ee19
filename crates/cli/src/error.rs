//! What a failed command says, and the status it ends with.
//!
//! A failure is one sentence about what went wrong and, where the user can do
//! something, one sentence that says what (`remedy:`). A reader that goes away
//! (`giveway status | head -1`) is no failure at all: it ends the command
//! quietly, as `head` meant it to.
//!
//! Statuses: 0 done, 1 failed, 2 wrong usage; `giveway run` passes on its
//! command's status and uses 125 to 127 for its own failures, as `nice`,
//! `env` and `timeout` do.

use std::fmt;
use std::io;

/// Everything that ends a command early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The reader of our output has gone away.
    BrokenPipe,
    /// Something to tell the user.
    Said {
        message: String,
        remedy: Option<String>,
        status: u8,
    },
}

impl Failure {
    /// A failure with status 1 and no remedy.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Failure::Said {
            message: message.to_string(),
            remedy: None,
            status: 1,
        }
    }

    /// Wrong usage: status 2.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Failure::new(message).with_status(2)
    }

    /// Adds what the user can do about it.
    pub(crate) fn with_remedy(mut self, text: impl fmt::Display) -> Self {
        if let Failure::Said { remedy, .. } = &mut self {
            *remedy = Some(text.to_string());
        }
        self
    }

    /// Sets the status the process ends with.
    pub(crate) fn with_status(mut self, code: u8) -> Self {
        if let Failure::Said { status, .. } = &mut self {
            *status = code;
        }
        self
    }

    /// The text without the program's name, on one or more lines.
    pub(crate) fn message(&self) -> String {
        let text = self.to_string();
        text.strip_prefix("giveway: error: ")
            .unwrap_or(&text)
            .to_owned()
    }

    /// The status the process ends with.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Failure::BrokenPipe => 0,
            Failure::Said { status, .. } => *status,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::BrokenPipe => f.write_str("the reader of the output went away"),
            Failure::Said {
                message, remedy, ..
            } => {
                write!(f, "giveway: error: {message}")?;
                match remedy {
                    Some(remedy) => write!(f, "\nremedy: {remedy}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::new(error),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(io::ErrorKind::BrokenPipe) => Failure::BrokenPipe,
            _ => Failure::new(error),
        }
    }
}

/// Turns a failed operation into a sentence that says what was tried.
pub(crate) trait Context<T> {
    /// `what` completes "cannot …".
    fn cannot(self, what: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn cannot(self, what: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(format_args!("cannot {what}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_program_and_its_remedy() {
        let failure = Failure::usage("no such tier").with_remedy("write background");
        assert_eq!(
            failure.to_string(),
            "giveway: error: no such tier\nremedy: write background"
        );
        assert_eq!(failure.status(), 2);
    }

    #[test]
    fn a_reader_that_goes_away_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure.status(), 0);
    }
}
