//! `giveway-sql`, or `giveway sql`: SQL over files, from a shell, a script or other programs.
//!
//! ```text
//!   giveway sql         ─► session ─► shell ◄─ lines: -c, -f, a pipe, a terminal
//!   giveway sql serve   ─► session ─► server ◄─ clients, until SIGINT or SIGTERM
//!   giveway sql worker  ─► engine ─► server ◄─ the server of a cluster
//!   giveway sql tpch    ─► files
//! ```
//!
//! The engine (`giveway-sql`) runs statements; this crate has the options, the terminal
//! and exit statuses.

mod cluster;
mod measure;
mod serve;
mod session;
mod terminal;
mod tpch;

use std::fs;
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use giveway_command::generate::{CompletionsArgs, ManArgs};
use giveway_command::memory::{self, MiMalloc};
use giveway_command::{Context, Failure};
use giveway_sql::shell::{Flow, Format, Interrupt, Shell, ShellError};

use session::EngineArgs;
use terminal::{Line, Reader, Terminal};

/// Query Parquet and CSV files in SQL
///
/// Without -c and -f, statements are read from standard input: from a terminal
/// with history and line editing ('\?' lists commands), else as a script. A
/// script ends at the first error.
#[derive(Parser, Debug)]
#[command(
    name = "giveway-sql",
    bin_name = "giveway sql",
    version,
    max_term_width = 80,
    args_conflicts_with_subcommands = true,
    after_help = "Exit status: 0 done, 1 a statement failed, 2 wrong usage, 130 interrupted."
)]
pub(crate) struct SqlArgs {
    #[command(subcommand)]
    command: Option<SqlCommand>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Ask a server instead: grpc://HOST:PORT
    #[arg(long, value_name = "URL", conflicts_with_all = ["table", "data", "workers", "part_size", "memory", "keep_background", "plan_size", "spill", "policy"])]
    connect: Option<String>,
    #[command(flatten)]
    login: LoginArgs,
    #[command(flatten)]
    cluster: serve::ClusterLoginArgs,
    /// Run these statements, and end; may be repeated
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    commands: Vec<String>,
    /// Run the statements in this file, and end; after those of -c
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How to write rows: table, csv, tsv, json or ndjson
    #[arg(long, default_value_t = Format::Table)]
    format: Format,
    /// Say how long each statement takes
    #[arg(long)]
    timing: bool,
}

/// The login at a server.
#[derive(Args, Debug)]
struct LoginArgs {
    /// The name to log in with
    #[arg(long, default_value = "giveway", value_name = "NAME")]
    user: String,
    /// The password to log in with
    #[arg(
        long,
        env = "GIVEWAY_SQL_PASSWORD",
        hide_env_values = true,
        value_name = "WORD"
    )]
    password: Option<String>,
}

impl LoginArgs {
    /// The same for a further process.
    fn pass_on(&self, command: &mut std::process::Command) {
        command.args(["--user", &self.user]);
        if let Some(password) = &self.password {
            // Arguments can be seen by everybody.
            command.env("GIVEWAY_SQL_PASSWORD", password);
        }
    }
}

#[derive(Subcommand, Debug)]
enum SqlCommand {
    Serve(serve::ServeArgs),
    Worker(serve::WorkerArgs),
    Cluster(cluster::ClusterArgs),
    Tpch(tpch::TpchArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// The status of a script that Ctrl-C has ended, as shells have it.
const INTERRUPTED: u8 = 130;

/// Queries allocate and free gigabytes a second.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    memory::keep_what_is_freed();
    match SqlArgs::try_parse() {
        Ok(args) => giveway_command::end(sql(args).map(|()| 0)),
        Err(error) => giveway_command::explain(&error),
    }
}

/// Runs a shell or one of the other commands.
fn sql(mut args: SqlArgs) -> Result<(), Failure> {
    match args.command.take() {
        Some(SqlCommand::Serve(args)) => return serve::serve(&args),
        Some(SqlCommand::Worker(args)) => return serve::work(&args),
        Some(SqlCommand::Cluster(args)) => return cluster::cluster(args),
        Some(SqlCommand::Tpch(args)) => return tpch::tpch(&args),
        Some(SqlCommand::Completions(args)) => {
            return args.print(SqlArgs::command(), "giveway-sql");
        }
        Some(SqlCommand::Man(args)) => return args.write(SqlArgs::command(), &[]),
        None => {}
    }
    // One thread: the work is done by the engine's workers.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .cannot("start a runtime")?;
    runtime.block_on(shell(&args))
}

async fn shell(args: &SqlArgs) -> Result<(), Failure> {
    let shell = match &args.connect {
        Some(url) => {
            let password = args.login.password.as_deref().unwrap_or_default();
            Shell::connect(url, &args.login.user, password).await
        }
        None => {
            let others = args.cluster.at_others(&args.login);
            Shell::local(args.engine.session(others).await?)
        }
    };
    let mut shell = shell
        .map_err(failure)?
        .format(args.format)
        .timing(args.timing);
    let interrupt = shell.interrupt();
    on_interrupt(interrupt)?;
    let mut terminal = Terminal::new();
    if args.connect.is_some() {
        for line in args.engine.settings() {
            shell.line(&line, &mut terminal).await.map_err(failure)?;
        }
    }
    let is_script = !args.commands.is_empty() || !args.files.is_empty();
    for text in &args.commands {
        script(
            &mut shell,
            &mut terminal,
            text.lines().map(|line| Ok(line.to_owned())),
        )
        .await?;
    }
    for path in &args.files {
        let text = fs::read_to_string(path).cannot(format_args!("read {}", path.display()))?;
        script(
            &mut shell,
            &mut terminal,
            text.lines().map(|line| Ok(line.to_owned())),
        )
        .await?;
    }
    if is_script {
        return Ok(());
    }
    if io::stdin().is_terminal() {
        return converse(&mut shell, &mut terminal).await;
    }
    script(&mut shell, &mut terminal, io::stdin().lock().lines()).await
}

/// Ctrl-C ends the statement that is running, and so the script that it is in.
fn on_interrupt(interrupt: Interrupt) -> Result<(), Failure> {
    ctrlc::set_handler(move || interrupt.fire()).cannot("handle interrupts")
}

/// Runs lines up to the first error.
async fn script(
    shell: &mut Shell,
    terminal: &mut Terminal,
    lines: impl Iterator<Item = io::Result<String>>,
) -> Result<(), Failure> {
    for line in lines {
        let line = line.cannot("read standard input")?;
        if shell.line(&line, terminal).await.map_err(failure)? == Flow::Quit {
            return Ok(());
        }
    }
    shell.finish(terminal).await.map_err(failure)
}

/// Reads from a terminal until the user quits; errors are told and
/// forgotten.
async fn converse(shell: &mut Shell, terminal: &mut Terminal) -> Result<(), Failure> {
    let mut reader = Reader::new()?;
    println!(
        "Giveway {}: \\? lists commands, \\q leaves.",
        env!("CARGO_PKG_VERSION")
    );
    let mut has_new_names = true;
    loop {
        if has_new_names && shell.is_fresh() {
            reader.set_names(shell.names().await);
            has_new_names = false;
        }
        let prompt = if shell.is_fresh() { "sql> " } else { "  -> " };
        let line = match reader.line(prompt)? {
            Line::Text(line) => {
                let line_lower = line.to_lowercase();
                has_new_names |= ["create", "drop"]
                    .iter()
                    .any(|word| line_lower.contains(word));
                line
            }
            Line::TakenBack => {
                shell.reset();
                continue;
            }
            Line::End => return Ok(()),
        };
        match shell.line(&line, terminal).await {
            Ok(Flow::Continue) => {}
            Ok(Flow::Quit) => return Ok(()),
            Err(ShellError::Output(error)) => return Err(error.into()),
            Err(error) => {
                // The rest of a statement that failed is no statement.
                shell.reset();
                eprintln!("{}", failure(error));
            }
        }
    }
}

/// What ends a script.
fn failure(error: ShellError) -> Failure {
    match error {
        ShellError::Output(error) => error.into(),
        ShellError::Interrupted => Failure::new("interrupted").with_status(INTERRUPTED),
        error => Failure::new(error),
    }
}
