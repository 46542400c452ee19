//! What the supervisor sees of a machine, and what it can do to it.
//!
//! Everything goes through [`Host`], the time included, so that the same
//! supervisor runs with processes of its own ([`System`](crate::system::System)),
//! through scx_loader ([`ScxLoader`](crate::scx_loader::ScxLoader)), and against a
//! made-up kernel in tests.
//!
//! The kernel's word and the process's are two things: a scheduler's process can
//! run without its scheduler being loaded, and the other way round for a moment.
//! A host reports both and draws no conclusion.

use std::path::PathBuf;
use std::time::Duration;

use giveway_machine::sched_ext::State;

use crate::scheduler::Scheduler;

/// How a scheduler's process fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Child {
    /// There is none.
    None,
    /// It runs.
    Running,
    /// It has ended, in these words, or waits for its next turn; [`Host::reap`]
    /// forgets it.
    Ended(String),
}

/// How to end a scheduler's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By asking. One that can wait leaves and does so; another hears SIGINT, at
    /// which a scheduler unloads and reports.
    Ask,
    /// At once, and without an answer from it: SIGKILL, at which the kernel unloads
    /// what the process had loaded, or a word to the kernel itself.
    Kill,
}

/// A machine with at most one scheduler process of ours, but for those that are
/// ready and wait.
pub trait Host {
    /// Monotonic time.
    fn now(&self) -> Duration;

    /// Lets this long pass, or less.
    fn rest(&mut self, duration: Duration);

    /// What the kernel says at this moment.
    fn state(&mut self) -> State;

    /// Starts a scheduler's process, or tells one that is ready to go on; `Err`
    /// says why it cannot be started.
    ///
    /// # Panics
    /// If there is one that has not been reaped.
    fn spawn(&mut self, scheduler: &Scheduler) -> Result<(), String>;

    /// Keeps these ready, and no others: loaded and verified ahead where they
    /// can wait so, which makes their next [`Host::spawn`] cheap. None of them
    /// is in force meanwhile.
    fn keep_ready(&mut self, schedulers: &[&Scheduler]);

    /// How the process fares.
    fn child(&mut self) -> Child;

    /// Ends the turn of the process, if it runs.
    fn end(&mut self, how: End);

    /// Forgets a process that has ended, or leaves it with those that wait; answers
    /// with its last words.
    fn reap(&mut self) -> String;

    /// What the tasks of each of these cgroups (`/system.slice/web.service`) have
    /// demanded of CPUs so far, in seconds: time that they ran, and time that
    /// some of them waited to run. 0 for one that is not there.
    fn demanded(&mut self, cgroups: &[PathBuf]) -> Vec<f64>;

    /// For how long a task of the ordinary class that wants to run has not: 0
    /// on a machine that schedules.
    fn starved(&mut self) -> Duration;
}
