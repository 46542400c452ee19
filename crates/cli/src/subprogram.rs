//! Subcommands that are programs of their own: `giveway sql` starts `giveway-sql`, as
//! git starts its subcommands.
//!
//! `giveway` is on every node that UFS runs on, so it contains only what a node needs.
//! Large parts (a SQL engine, experiments, the lab) are programs that are built and
//! installed separately. The program replaces this one by `exec`, so it gets the signals
//! and the terminal, and its exit status is the command's.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::Args;
use giveway_command::{Failure, program};

/// A subcommand that another program has.
#[derive(Debug)]
pub(crate) struct Subprogram {
    /// As it is typed after `giveway`.
    pub(crate) name: &'static str,
    /// One line for the list of commands.
    pub(crate) about: &'static str,
    /// The program's file.
    program: &'static str,
    /// What the program is told before the user's own arguments.
    first: &'static [&'static str],
}

pub(crate) const BENCH: Subprogram = Subprogram {
    name: "bench",
    about: "Measure workloads under several schedulers, locks or policies",
    program: "giveway-bench",
    first: &[],
};
pub(crate) const REPORT: Subprogram = Subprogram {
    name: "report",
    about: "Render results as a table or a page",
    program: "giveway-bench",
    first: &["report"],
};
pub(crate) const LAB: Subprogram = Subprogram {
    name: "lab",
    about: "Run commands in a virtual machine whose kernel has sched_ext",
    program: "giveway-bench",
    first: &["lab"],
};
pub(crate) const SQL: Subprogram = Subprogram {
    name: "sql",
    about: "Query Parquet and CSV files in SQL",
    program: "giveway-sql",
    first: &[],
};

/// Their names. Each program writes its manual pages itself.
pub(crate) const NAMES: [&str; 4] = [BENCH.name, REPORT.name, LAB.name, SQL.name];

/// Arguments that are the program's, help among them.
#[derive(Args, Debug)]
pub(crate) struct Passed {
    /// The program's own; --help lists them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<OsString>,
}

impl Subprogram {
    /// Becomes the program; comes back only if it cannot be started.
    pub(crate) fn exec(&self, passed: Passed) -> Failure {
        let Some(file) = program::find(self.program) else {
            return self.missing();
        };
        let mut command = Command::new(&file);
        command.args(self.first).args(passed.arguments);
        Failure::new(format_args!(
            "cannot start {}: {}",
            file.display(),
            command.exec()
        ))
    }

    fn missing(&self) -> Failure {
        Failure::new(format_args!(
            "'giveway {}' is the program {}, which is neither beside this one nor in PATH",
            self.name, self.program
        ))
        .with_remedy(format_args!(
            "install the package {0}, or build it from Giveway's source: \
             cargo build --release -p {1}",
            self.program,
            match self.program {
                "giveway-sql" => "giveway-sql-cli",
                program => program,
            }
        ))
        .with_status(127)
    }
}
