//! What the user sees while cells run: a line per running cell and a bar for
//! all on a terminal; a line per begun and ended cell elsewhere.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use giveway_command::output::{human, shorten};

/// Draws the pool's progress on standard error.
pub(crate) struct Board {
    titles: Vec<String>,
    bars: MultiProgress,
    all: ProgressBar,
    running: Mutex<HashMap<usize, ProgressBar>>,
    is_terminal: bool,
}

impl Board {
    /// For cells of these titles.
    pub(crate) fn new(titles: Vec<String>) -> Self {
        let bars = MultiProgress::new();
        let all = bars.add(ProgressBar::new(titles.len() as u64));
        all.set_style(style(
            "{bar:30} {pos}/{len} cells, {elapsed} gone, {eta} to go",
        ));
        let is_terminal = std::io::stderr().is_terminal();
        if is_terminal {
            all.enable_steady_tick(Duration::from_millis(500));
        }
        Board {
            titles,
            bars,
            all,
            running: Mutex::default(),
            is_terminal,
        }
    }

    /// Takes the bars off the screen.
    pub(crate) fn finish(&self) {
        self.all.finish_and_clear();
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<usize, ProgressBar>> {
        // A map of bars has no state that a panic could leave half-changed.
        self.running
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }

    fn say(&self, text: &str) {
        if self.is_terminal {
            // Above the bars. Nothing is lost with an unwritable terminal.
            let _ = self.bars.println(text);
        } else {
            eprintln!("{text}");
        }
    }

    fn number(&self, cell: usize) -> String {
        format!("[{}/{}] {}", cell + 1, self.titles.len(), self.titles[cell])
    }

    /// A cell has begun.
    pub(crate) fn started(&self, cell: usize) {
        if !self.is_terminal {
            return eprintln!("{} ...", self.number(cell));
        }
        let bar = self
            .bars
            .insert_before(&self.all, ProgressBar::new_spinner());
        bar.set_style(style("{spinner} {prefix} [{elapsed}] {msg}"));
        bar.set_prefix(self.titles[cell].clone());
        bar.enable_steady_tick(Duration::from_millis(120));
        self.running().insert(cell, bar);
    }

    /// A cell says something.
    pub(crate) fn line(&self, cell: usize, line: &str) {
        if let Some(bar) = self.running().get(&cell) {
            bar.set_message(shorten(line, 40));
        }
    }

    /// A cell has ended; the error is why it failed.
    pub(crate) fn ended(&self, cell: usize, result: Result<(), &str>, took: Duration) {
        if let Some(bar) = self.running().remove(&cell) {
            bar.finish_and_clear();
        }
        let (number, took) = (self.number(cell), human(took));
        match result {
            Ok(()) => self.say(&format!("{number}: measured in {took}")),
            Err(text) => self.say(&format!("{number}: FAILED after {took}: {text}")),
        }
        self.all.inc(1);
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
