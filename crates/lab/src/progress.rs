//! How the lab tells what it is doing while a long step runs.

use std::io::Write;

/// Told of each long step. Implementations draw a spinner, a line, or nothing.
pub trait Progress: Sync {
    /// A step begins, such as "building QEMU with the lockstep clock".
    fn begin(&self, step: &str);
    /// A line that the running step printed.
    fn detail(&self, line: &str);
    /// The step ended; `outcome` is its result in a few words.
    fn end(&self, outcome: &str);
}

/// A line to stderr when a step begins and when it ends, also from within a test,
/// whose output is kept back until its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines;

impl Progress for Lines {
    fn begin(&self, step: &str) {
        // The reader may be gone.
        let _ = writeln!(std::io::stderr(), "lab: {step} ...");
    }
    fn detail(&self, _line: &str) {}
    fn end(&self, outcome: &str) {
        let _ = writeln!(std::io::stderr(), "lab: ... {outcome}");
    }
}

/// Says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _step: &str) {}
    fn detail(&self, _line: &str) {}
    fn end(&self, _outcome: &str) {}
}
