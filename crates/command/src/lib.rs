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

use std::error::Error;
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
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
            eprint!("giveway: {}", said(error));
            ExitCode::from(2)
        }
    }
}

/// An error of clap in plain words.
fn said(error: &clap::Error) -> String {
    let said = error.render().to_string();
    let reworded = error.source().and_then(|why| Some((why, reworded(why)?)));
    match reworded {
        Some((why, words)) => said.replacen(&format!(": {why}"), &format!(": {words}"), 1),
        None => said,
    }
}

/// What to write instead, where clap gives a reason of Rust's library or a range of Rust's.
fn reworded(why: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = why.downcast_ref::<ParseIntError>() {
        let words = match error.kind() {
            IntErrorKind::PosOverflow => "write a smaller number",
            IntErrorKind::NegOverflow => "write a larger number",
            _ => "write a whole number",
        };
        return Some(words.to_owned());
    }
    if why.is::<ParseFloatError>() {
        return Some("write a number, as in 1.5".to_owned());
    }
    if why.is::<AddrParseError>() {
        return Some("write an address and a port, as in 127.0.0.1:9752".to_owned());
    }
    // '96 is not in 1..=32'
    let why = why.to_string();
    let (_, range) = why.split_once(" is not in ")?;
    let (least, most) = range.split_once("..=")?;
    Some(format!("write a whole number from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use clap::builder::ValueParser;
    use clap::{Arg, Command, value_parser};

    use super::*;

    #[test]
    fn values_that_rust_refuses_are_refused_in_plain_words() {
        let refusal = |parser: ValueParser, value: &str| {
            let command = Command::new("x").arg(Arg::new("n").long("n").value_parser(parser));
            let refused = command.try_get_matches_from(["x", "--n", value]);
            said(&refused.unwrap_err())
        };
        let range = || -> ValueParser { value_parser!(u32).range(2..=64).into() };
        for (parser, value, words) in [
            (
                range(),
                "foo",
                "'foo' for '--n <n>': write a whole number\n",
            ),
            (range(), "96", ": write a whole number from 2 to 64\n"),
            (
                range(),
                "99999999999999999999",
                ": write a smaller number\n",
            ),
            (value_parser!(u32).into(), "x", ": write a whole number\n"),
            (
                value_parser!(f64).into(),
                "x",
                ": write a number, as in 1.5\n",
            ),
            (
                value_parser!(SocketAddr).into(),
                "9752",
                ": write an address and a port, as in 127.0.0.1:9752\n",
            ),
        ] {
            let said = refusal(parser, value);
            assert!(said.contains(words), "{said}");
        }
    }
}
