//! The lab's long steps on standard error.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use giveway_command::output::{human, shorten};
use giveway_lab::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A spinner with the step's last line
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

    fn step(&self) -> MutexGuard<'_, Step> {
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
