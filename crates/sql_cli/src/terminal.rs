//! The shell's terminal: lines with history in, rows on standard output, remarks
//! and progress on standard error.

use std::env;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use giveway_sql::shell::{Screen, complete};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Editor, Helper};

use giveway_command::{Context, Failure};

/// What takes less is not worth a progress bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where text goes.
pub(super) struct Terminal {
    bar: Option<ProgressBar>,
    shows_progress: bool,
    can_clear: bool,
}

impl Terminal {
    pub(super) fn new() -> Terminal {
        Terminal {
            bar: None,
            shows_progress: io::stderr().is_terminal(),
            can_clear: io::stdout().is_terminal(),
        }
    }
}

impl Screen for Terminal {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text)?;
        out.flush()
    }

    fn note(&mut self, text: &str) {
        eprintln!("{text}");
    }

    fn progress(&mut self, progress: Option<(Option<f64>, Duration)>) {
        match progress {
            None => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
            }
            Some((_, elapsed)) if !self.shows_progress || elapsed < PATIENCE => {}
            Some((fraction, _)) => {
                let bar = self.bar.get_or_insert_with(|| bar(fraction.is_some()));
                bar.set_position((fraction.unwrap_or(0.0) * 1000.0) as u64);
                bar.tick();
            }
        }
    }

    fn clear(&mut self) -> io::Result<()> {
        match self.can_clear {
            true => self.write(b"\x1b[H\x1b[2J"),
            false => Ok(()),
        }
    }
}

fn bar(has_fraction: bool) -> ProgressBar {
    let target = ProgressDrawTarget::stderr();
    let template = match has_fraction {
        true => "{spinner} [{bar:30}] {percent} % [{elapsed}]",
        false => "{spinner} [{elapsed}]",
    };
    let style = ProgressStyle::with_template(template);
    ProgressBar::with_draw_target(Some(1000), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// What comes from a terminal.
pub(super) enum Line {
    Text(String),
    /// Ctrl-C.
    TakenBack,
    /// Ctrl-D.
    End,
}

/// Completes words at a tab.
#[derive(Default)]
struct Words {
    /// Of tables and columns.
    names: Vec<String>,
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(complete(line, cursor, &self.names))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {}
impl Validator for Words {}
impl Helper for Words {}

/// Where lines come from.
pub(super) struct Reader {
    editor: Editor<Words, DefaultHistory>,
    history: Option<PathBuf>,
}

impl Reader {
    pub(super) fn new() -> Result<Reader, Failure> {
        let mut editor = Editor::new().cannot("read from the terminal")?;
        editor.set_helper(Some(Words::default()));
        let history = history();
        if let Some(path) = &history {
            // None yet, or unreadable: a shell without history is a shell.
            let _ = editor.load_history(path);
        }
        Ok(Reader { editor, history })
    }

    /// Sets the names that words may become.
    pub(super) fn set_names(&mut self, names: Vec<String>) {
        self.editor.set_helper(Some(Words { names }));
    }

    pub(super) fn line(&mut self, prompt: &str) -> Result<Line, Failure> {
        match self.editor.readline(prompt) {
            Ok(line) => {
                if !line.trim().is_empty() {
                    self.remember(&line);
                }
                Ok(Line::Text(line))
            }
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(ReadlineError::Interrupted) => Ok(Line::TakenBack),
            Err(error) => Err(error).cannot("read from the terminal"),
        }
    }

    /// Writes history line by line: a shell may end by a signal.
    fn remember(&mut self, line: &str) {
        // Whatever is wrong with history is no reason to end.
        let _ = self.editor.add_history_entry(line);
        if let Some(path) = &self.history {
            let _ = self.editor.append_history(path);
        }
    }
}

/// `$XDG_STATE_HOME/giveway/sql_history`; its directory is there.
fn history() -> Option<PathBuf> {
    let state = match env::var_os("XDG_STATE_HOME") {
        Some(state) if !state.is_empty() => PathBuf::from(state),
        _ => PathBuf::from(env::var_os("HOME")?).join(".local/state"),
    };
    let dir = state.join("giveway");
    fs::create_dir_all(&dir).ok()?;
    Some(dir.join("sql_history"))
}
