//! How the lab tells what it is doing while a long step runs.

/// Told of each long step. Implementations draw a spinner, a line, or nothing.
pub trait Progress: Sync {
    /// A step begins, such as "building QEMU with the lockstep clock".
    fn begin(&self, step: &str);
    /// A line that the running step printed.
    fn detail(&self, line: &str);
    /// The step ended; `outcome` is its result in a few words.
    fn end(&self, outcome: &str);
}

/// Says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _step: &str) {}
    fn detail(&self, _line: &str) {}
    fn end(&self, _outcome: &str) {}
}
