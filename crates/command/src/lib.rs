//! What Giveway's programs share on the command line.
//!
//! `giveway`, `giveway-bench` and `giveway-sql` are separate programs that a user sees as
//! one: they share error messages, exit statuses, durations, manual pages and completions,
//! and find each other.
//!
//! | module | answers |
//! | --- | --- |
//! | [`failure`] | What does a failed command print, and with which status does it exit? |
//! | [`generate`] | Manual pages and completions from a declaration of arguments. |
//! | [`memory`] | Which allocator, and how long does it keep freed memory? |
//! | [`output`] | How are durations and console lines written? |
//! | [`program`] | Where is another of our programs? |
//!
//! It knows no command and no crate that does the work.

pub mod failure;
pub mod generate;
#[cfg(feature = "allocator")]
pub mod memory;
pub mod output;
pub mod program;

pub use failure::{Context, Failure};

use std::process::ExitCode;

use clap::error::ErrorKind;

/// Ends a program: prints a failure and gives its status, or passes on a status.
pub fn end(outcome: Result<u8, Failure>) -> ExitCode {
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            if !matches!(failure, Failure::BrokenPipe) {
                eprintln!("{failure}");
            }
            ExitCode::from(failure.status())
        }
    }
}

/// Prints what clap has to say: help and version as they are, everything else
/// as an error of ours.
pub fn explain(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that goes away has seen enough.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            eprint!("giveway: {}", error.render());
            ExitCode::from(2)
        }
    }
}
