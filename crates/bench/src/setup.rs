//! How a cell is set up beyond its scheduler: who says what is urgent, which
//! server runs, what the scheduler learns of its locks, and which work is in
//! the background.
//!
//! Each is a word of the command line and of result files. The first of each
//! list is what older results were measured with, and is not written to new
//! ones.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Enumerations whose variants have one name everywhere.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident ($what:literal) {
        $($(#[$of:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(Serialize, Deserialize)]
        pub enum $name {
            $($(#[$of])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// All of them, the default first.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The name on the command line and in result files.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let known = $name::ALL.iter().find(|known| known.name() == text);
                known.copied().ok_or_else(|| {
                    let names = $name::ALL.iter().map(|known| known.name());
                    let names = Vec::from_iter(names).join(", ");
                    Error::Config(format!("unknown {} '{text}': write one of {names}", $what))
                })
            }
        }
    };
}

words! {
    /// Who tells the scheduler which of the server's work is urgent.
    By ("way to set priorities") {
        /// Cgroups and scheduling classes, a backend in each by hand: see
        /// `cell::policy`.
        #[default]
        Cgroups = "cgroups",
        /// `ALTER ROLE ... SET giveway.tier` and nothing else: see
        /// `cell::roles`.
        Roles = "roles",
    }
}

words! {
    /// Which server is measured.
    Build ("server") {
        /// The newest that is installed.
        #[default]
        Installed = "installed",
        /// One built for the lab, without changes, with the extension.
        Stock = "stock",
        /// The same with the patch that publishes locks.
        Patched = "patched",
    }
}

words! {
    /// What the scheduler is told of lightweight locks and spinlocks: the
    /// setting `giveway.hints`.
    Hints ("kind of hints") {
        /// Nothing.
        #[default]
        Off = "off",
        /// What it reads from an unchanged server's memory.
        Stock = "stock",
        /// What the patch publishes.
        Patched = "patched",
    }
}

impl Hints {
    /// The server that these hints take.
    pub fn build(self) -> Build {
        match self {
            Hints::Off | Hints::Stock => Build::Stock,
            Hints::Patched => Build::Patched,
        }
    }

    /// Whether there are any.
    pub(crate) const fn are_on(self) -> bool {
        !matches!(self, Hints::Off)
    }
}

words! {
    /// The background's work, in a loop.
    Job ("background job") {
        /// TPC-H's Q17.
        #[default]
        Q17 = "q17",
        /// An update of a fourth of a table's rows, and VACUUM (FREEZE).
        Vacuum = "vacuum",
        /// CREATE INDEX and DROP INDEX.
        CreateIndex = "create-index",
        /// `pg_dump` of TPC-H's tables, in a new connection each time.
        PgDump = "pg_dump",
        /// A transaction that keeps its snapshot for ten seconds and does nothing.
        OpenTransaction = "open-transaction",
        /// Training a logistic regression in Python, inside the server.
        LogisticRegression = "logistic-regression",
    }
}

impl Job {
    /// What it is called in reports.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Job::Q17 => "Q17",
            Job::Vacuum => "VACUUM",
            Job::CreateIndex => "CREATE INDEX",
            Job::PgDump => "pg_dump",
            Job::OpenTransaction => "open transaction",
            Job::LogisticRegression => "ML",
        }
    }

    /// The head of a column of completions per second, in six characters.
    pub(crate) const fn per_second(self) -> &'static str {
        match self {
            Job::Q17 => "Q17/s",
            Job::Vacuum => "vac/s",
            Job::CreateIndex => "idx/s",
            Job::PgDump => "dump/s",
            Job::OpenTransaction => "txn/s",
            Job::LogisticRegression => "fits/s",
        }
    }

    /// Debian packages that it takes beside PostgreSQL `major`.
    pub fn packages(self, major: u32) -> Vec<String> {
        match self {
            Job::LogisticRegression => vec![
                format!("postgresql-plpython3-{major}"),
                "python3-sklearn".to_owned(),
            ],
            _ => Vec::new(),
        }
    }
}

/// Whether a field has the value that older results were measured with.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_same_on_the_command_line_and_in_files() {
        for job in Job::ALL {
            assert_eq!(job.name().parse::<Job>().unwrap(), *job);
            assert_eq!(
                serde_json::to_string(job).unwrap(),
                format!("\"{}\"", job.name())
            );
        }
        let error = "nightly".parse::<Job>().unwrap_err().to_string();
        assert!(
            error.contains("q17, vacuum, create-index, pg_dump, open-transaction"),
            "{error}"
        );
    }
}
