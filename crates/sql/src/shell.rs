//! A shell: lines in, results out.
//!
//! ```text
//!   line ─┬─ \command ──────────────────────┐
//!         └─ split ── statement at ';' ──┐  │
//!                                        ▼  ▼
//!        screen ◄── format ◄── rows ── backend: an engine here, or a server
//! ```
//!
//! Where lines come from and where text goes is the caller's: a terminal with
//! history, a file, a test. Commands are short forms of SQL (`\tier background` is
//! `SET giveway.tier = 'background'`), so they do the same on both backends.
//!
//! | module | question |
//! | --- | --- |
//! | `split` | Where does a statement end? |
//! | `command` | What does a backslash ask? |
//! | `format` | How are rows written? |
//! | `backend` | Where does it run? |
//! | `complete` | What may a word become? |

mod backend;
mod command;
mod complete;
mod error;
mod format;
mod split;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use futures_util::StreamExt;
use tokio::sync::Notify;

use crate::error::SqlError;
use crate::live;
use crate::session::Session;
use backend::{Backend, Rows, has_columns};
use command::{Command, HELP};
pub use complete::complete;
pub use error::ShellError;
use format::Printer;
pub use format::{Format, ParseFormatError};
use split::Splitter;

/// How often progress is told.
const TICK: Duration = Duration::from_millis(200);

/// Where a shell's text goes.
pub trait Screen {
    /// Results.
    fn write(&mut self, text: &[u8]) -> io::Result<()>;
    /// Remarks, such as how long something took.
    fn note(&mut self, text: &str);
    /// How far a statement is that takes long: a fraction, if that is known, and how
    /// long it has run. `None` when it has ended.
    fn progress(&mut self, progress: Option<(Option<f64>, Duration)>);
    /// Empties the screen for what is written next, if it is one.
    fn clear(&mut self) -> io::Result<()>;
}

/// Whether there is more to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Read on.
    Continue,
    /// The user typed `\q`.
    Quit,
}

/// Ends what a shell is doing; for handlers of Ctrl-C.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Notify>);

impl Interrupt {
    /// Ends the statement that is running. Nothing if there is none.
    pub fn fire(&self) {
        self.0.notify_waiters();
    }
}

/// A shell on an engine or a server.
pub struct Shell {
    backend: Backend,
    splitter: Splitter,
    format: Format,
    is_timing: bool,
    interrupt: Interrupt,
}

impl Shell {
    /// A shell on a session of an engine in this process.
    ///
    /// # Errors
    /// If the session has no catalog for the table of running queries.
    pub fn local(session: Session) -> Result<Shell, ShellError> {
        live::install(&session).map_err(SqlError::planning)?;
        Ok(Shell::new(Backend::Local(session)))
    }

    /// A shell on a server: `grpc://HOST:PORT`.
    ///
    /// # Errors
    /// If there is none, or it does not let this user in.
    pub async fn connect(url: &str, user: &str, password: &str) -> Result<Shell, ShellError> {
        Backend::connect(url, user, password).await.map(Shell::new)
    }

    fn new(backend: Backend) -> Shell {
        Shell {
            backend,
            splitter: Splitter::new(),
            format: Format::default(),
            is_timing: false,
            interrupt: Interrupt::default(),
        }
    }

    /// How rows are written; by default as tables.
    pub fn format(mut self, format: Format) -> Shell {
        self.format = format;
        self
    }

    /// Whether to print how long each statement took; by default not.
    pub fn timing(mut self, is_timing: bool) -> Shell {
        self.is_timing = is_timing;
        self
    }

    /// What ends a statement early.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// The names of tables and of their columns, for completion; none where they cannot
    /// be had.
    pub async fn names(&mut self) -> Vec<String> {
        let Ok(mut rows) = self.backend.execute(NAMES).await else {
            return Vec::new();
        };
        let mut names = Vec::new();
        while let Some(Ok(batch)) = rows.next().await {
            let Ok(column) = cast(batch.column(0), &DataType::Utf8) else {
                continue;
            };
            let column = column.as_string::<i32>();
            names.extend(column.iter().flatten().map(str::to_owned));
        }
        names
    }

    /// Whether the next line begins a statement.
    pub fn is_fresh(&self) -> bool {
        self.splitter.is_empty()
    }

    /// Forgets what has been begun.
    pub fn reset(&mut self) {
        self.splitter = Splitter::new();
    }

    /// Takes a line: a command, or a part of statements, which are run when they are
    /// complete. After an error the rest of the line is not run.
    pub async fn line(&mut self, line: &str, screen: &mut dyn Screen) -> Result<Flow, ShellError> {
        if self.is_fresh() && line.trim_start().starts_with('\\') {
            self.reset();
            let command = Command::parse(line).map_err(ShellError::Command)?;
            return self.command(command, screen).await;
        }
        for statement in self.splitter.push(line) {
            self.statement(&statement, screen).await?;
        }
        Ok(Flow::Continue)
    }

    /// Runs what is left at the end of the input: a statement without a semicolon.
    pub async fn finish(&mut self, screen: &mut dyn Screen) -> Result<(), ShellError> {
        match self.splitter.finish() {
            Some(statement) => self.statement(&statement, screen).await,
            None => Ok(()),
        }
    }

    async fn command(
        &mut self,
        command: Command,
        screen: &mut dyn Screen,
    ) -> Result<Flow, ShellError> {
        match command {
            Command::Quit => return Ok(Flow::Quit),
            Command::Help => screen.write(HELP.as_bytes())?,
            Command::Timing(state) => {
                self.is_timing = state.unwrap_or(!self.is_timing);
                let state = if self.is_timing { "on" } else { "off" };
                screen.note(&format!("timing is {state}"));
            }
            Command::Format(None) => screen.note(&format!("format is {}", self.format)),
            Command::Format(Some(name)) => {
                let parsed: Result<Format, ParseFormatError> = name.parse();
                self.format = parsed.map_err(|error| ShellError::Command(error.to_string()))?;
            }
            Command::Describe(table) => self.statement(&describe(table.as_deref()), screen).await?,
            Command::Setting(name, None) => {
                self.statement(&format!("SHOW giveway.{name}"), screen)
                    .await?;
            }
            Command::Setting(name, Some(value)) => {
                let sql = format!("SET giveway.{name} = {}", quoted(&value));
                self.statement(&sql, screen).await?;
            }
            Command::Cancel(id) => {
                self.statement(&format!("CANCEL QUERY {id}"), screen)
                    .await?;
            }
            Command::Queries(None) => self.statement(QUERIES, screen).await?,
            Command::Queries(Some(pause)) => self.watch(pause, screen).await?,
        }
        Ok(Flow::Continue)
    }

    /// Shows the running queries again and again, until interrupted.
    async fn watch(&mut self, pause: Duration, screen: &mut dyn Screen) -> Result<(), ShellError> {
        let interrupt = self.interrupt.clone();
        // One for all of it: a statement may be done before it hears of the interrupt.
        let mut interrupted = std::pin::pin!(interrupt.0.notified());
        loop {
            screen.clear()?;
            match self.statement(QUERIES, screen).await {
                Err(ShellError::Interrupted) => return Ok(()),
                other => other?,
            }
            tokio::select! {
                () = &mut interrupted => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Runs one statement and writes its rows as they come.
    async fn statement(&mut self, sql: &str, screen: &mut dyn Screen) -> Result<(), ShellError> {
        let begun = Instant::now();
        let interrupt = self.interrupt.clone();
        // Dropping the work cancels the query.
        let done = tokio::select! {
            done = self.run(sql, screen, begun) => done,
            () = interrupt.0.notified() => Err(ShellError::Interrupted),
        };
        screen.progress(None);
        done?;
        if self.is_timing {
            let ms = begun.elapsed().as_secs_f64() * 1000.0;
            screen.note(&format!("time: {ms:.1} ms"));
        }
        Ok(())
    }

    async fn run(
        &mut self,
        sql: &str,
        screen: &mut dyn Screen,
        begun: Instant,
    ) -> Result<(), ShellError> {
        let mut rows: Rows = self.backend.execute(sql).await?;
        let schema = rows.schema();
        let has_columns = has_columns(&schema);
        let mut printer = Printer::new(self.format, schema);
        let mut tick = tokio::time::interval(TICK);
        loop {
            let batch = tokio::select! {
                batch = rows.next() => batch,
                _ = tick.tick() => {
                    screen.progress(Some((rows.progress(), begun.elapsed())));
                    continue;
                }
            };
            let Some(batch) = batch else { break };
            let text = printer.batch(&batch?)?;
            if !text.is_empty() {
                screen.progress(None);
                screen.write(&text)?;
            }
        }
        screen.progress(None);
        if has_columns {
            screen.write(&printer.finish()?)?;
        }
        Ok(())
    }
}

/// What `\queries` asks.
const QUERIES: &str = "SELECT id, tier, weight, state, round(progress * 100) AS \"%\", \
                       round(age_s, 1) AS age_s, round(ran_s, 1) AS ran_s, \
                       memory_bytes / 1048576 AS mib, substr(sql, 1, 60) AS sql \
                       FROM giveway.queries ORDER BY id";

/// What may be named in a statement.
const NAMES: &str = "SELECT table_name AS name FROM information_schema.tables \
                     UNION SELECT column_name FROM information_schema.columns \
                     WHERE table_schema <> 'information_schema' ORDER BY name";

/// What `\d` asks.
fn describe(table: Option<&str>) -> String {
    match table {
        None => "SELECT table_schema AS schema, table_name AS name, table_type AS type \
                 FROM information_schema.tables WHERE table_schema <> 'information_schema' \
                 ORDER BY 1, 2"
            .to_owned(),
        Some(table) => {
            let (schema, name) = match table.rsplit_once('.') {
                Some((schema, name)) => (format!("AND table_schema = {}", quoted(schema)), name),
                None => (String::new(), table),
            };
            format!(
                "SELECT column_name AS name, data_type AS type, is_nullable AS nullable \
                 FROM information_schema.columns WHERE table_name = {} {schema} \
                 ORDER BY ordinal_position",
                quoted(name)
            )
        }
    }
}

/// A text as SQL writes it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_quotes() {
        assert_eq!(quoted("a'; drop table b"), "'a''; drop table b'");
        assert!(describe(Some("public.o'rders")).contains("table_name = 'o''rders'"));
        assert!(describe(Some("public.orders")).contains("table_schema = 'public'"));
    }
}
