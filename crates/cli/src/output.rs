//! How output looks: marks and progress on a terminal, plain words elsewhere.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use std::sync::Mutex;

use giveway_lab::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Whether standard output is a terminal that shows more than ASCII.
pub(crate) fn fancy_stdout() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A length of time in the two largest units: `2 d 3 h`, `4 min 5 s`, `6.7 s`.
pub(crate) fn human(duration: Duration) -> String {
    let s = duration.as_secs();
    match s {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86400, s / 3600 % 24),
    }
}

/// The lab's long steps on standard error: a spinner with the step's last line
/// on a terminal, one line for begin and end of each step elsewhere.
pub(crate) struct Steps {
    state: Mutex<Step>,
    is_terminal: bool,
}

struct Step {
    bar: ProgressBar,
    name: String,
    begun: Instant,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Steps {
            state: Mutex::new(Step {
                bar: ProgressBar::hidden(),
                name: String::new(),
                begun: Instant::now(),
            }),
            is_terminal: io::stderr().is_terminal(),
        }
    }

    fn step(&self) -> std::sync::MutexGuard<'_, Step> {
        // A printer that panicked leaves nothing inconsistent behind.
        self.state
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }
}

impl Progress for Steps {
    fn begin(&self, name: &str) {
        let mut step = self.step();
        step.name = name.to_owned();
        step.begun = Instant::now();
        if self.is_terminal {
            step.bar = spinner();
            step.bar.set_prefix(name.to_owned());
        } else {
            eprintln!("{name} ...");
        }
    }

    fn detail(&self, line: &str) {
        self.step().bar.set_message(shorten(line, 60));
    }

    fn end(&self, outcome: &str) {
        let step = self.step();
        step.bar.finish_and_clear();
        eprintln!("{}: {outcome} ({})", step.name, human(step.begun.elapsed()));
    }
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(
        ProgressStyle::with_template("{spinner} {prefix} [{elapsed}] {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// The first `limit` characters of a line, without control characters.
pub(crate) fn shorten(line: &str, limit: usize) -> String {
    line.chars()
        .filter(|c| !c.is_control())
        .take(limit)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_in_two_units() {
        let text = |seconds| human(Duration::from_secs(seconds));
        assert_eq!(text(6), "6.0 s");
        assert_eq!(text(245), "4 min 5 s");
        assert_eq!(text(3 * 3600 + 120), "3 h 2 min");
        assert_eq!(text(2 * 86400 + 3 * 3600), "2 d 3 h");
    }

    #[test]
    fn a_console_line_cannot_move_the_cursor() {
        assert_eq!(shorten("\u{1b}[2Jabc\r", 4), "[2Ja");
    }
}
