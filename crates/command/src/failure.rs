//! Error messages and exit statuses.
//!
//! A failure is one sentence about what went wrong and, where the user can do
//! something, one sentence that says what (`remedy:`). A broken pipe
//! (`giveway status | head -1`) is not a failure: the command exits quietly.
//!
//! Statuses: 0 done, 1 failed, 2 wrong usage; `giveway run` passes on its
//! command's status and uses 125 to 127 for its own failures, as `nice`,
//! `env` and `timeout` do.

use std::error::Error;
use std::fmt;
use std::io;

/// Everything that ends a command early.
#[derive(Debug)]
pub enum Failure {
    /// The reader of our output has gone away.
    BrokenPipe,
    /// Something to tell the user.
    Said {
        /// What went wrong.
        message: String,
        /// What the user can do about it.
        remedy: Option<String>,
        /// The status the process ends with.
        status: u8,
    },
}

impl Failure {
    /// A failure with status 1 and no remedy.
    pub fn new(message: impl fmt::Display) -> Self {
        Failure::Said {
            message: message.to_string(),
            remedy: None,
            status: 1,
        }
    }

    /// Wrong usage: status 2.
    pub fn usage(message: impl fmt::Display) -> Self {
        Failure::new(message).with_status(2)
    }

    /// Adds what the user can do about it.
    pub fn with_remedy(mut self, text: impl fmt::Display) -> Self {
        if let Failure::Said { remedy, .. } = &mut self {
            *remedy = Some(text.to_string());
        }
        self
    }

    /// Sets the status the process ends with.
    pub fn with_status(mut self, code: u8) -> Self {
        if let Failure::Said { status, .. } = &mut self {
            *status = code;
        }
        self
    }

    /// The text without the program's name, on one or more lines.
    pub fn message(&self) -> String {
        let text = self.to_string();
        text.strip_prefix("giveway: error: ")
            .unwrap_or(&text)
            .to_owned()
    }

    /// The status the process ends with.
    pub fn status(&self) -> u8 {
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

/// An error of any library: its message, and as the remedy what stands behind
/// `remedy: ` in it, as some of our crates write it. A broken pipe is recognised
/// wherever it comes from.
impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        if is_broken_pipe(&error) {
            return Failure::BrokenPipe;
        }
        let text = error.to_string();
        match text.split_once("\nremedy: ") {
            Some((message, remedy)) => Failure::new(message).with_remedy(remedy),
            None => Failure::new(text),
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let io = error.downcast_ref().map(io::Error::kind);
    let json = || {
        error
            .downcast_ref()
            .and_then(serde_json::Error::io_error_kind)
    };
    io.or_else(json) == Some(io::ErrorKind::BrokenPipe)
}

/// Turns a failed operation into a sentence that says what was tried.
pub trait Context<T> {
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
    fn a_broken_pipe_is_no_failure() {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(Failure::from(gone()).status(), 0);
        let json = serde_json::Error::io(gone());
        assert_eq!(Failure::from(json).status(), 0);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(Failure::from(full).status(), 1);
    }

    #[test]
    fn a_remedy_in_an_error_s_message_is_printed_as_ours() {
        let error = io::Error::other("'ninja' is not installed\nremedy: apt-get install ninja");
        assert_eq!(
            Failure::from(error).to_string(),
            "giveway: error: 'ninja' is not installed\nremedy: apt-get install ninja"
        );
    }
}
