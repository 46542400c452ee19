//! What the process used of the machine.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// CPU time and context switches of all threads so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu_s: f64,
    /// Switches to another thread because this one slept or yielded.
    pub(crate) voluntary: u64,
    /// Switches because its time was up.
    pub(crate) involuntary: u64,
}

impl Usage {
    pub(crate) fn now() -> Self {
        // It cannot fail for the own process; zeros would show.
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
            return Usage::default();
        };
        let time = usage.user_time() + usage.system_time();
        Usage {
            cpu_s: time.num_microseconds() as f64 / 1e6,
            voluntary: usage.voluntary_context_switches().unsigned_abs(),
            involuntary: usage.involuntary_context_switches().unsigned_abs(),
        }
    }

    pub(crate) fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            cpu_s: self.cpu_s - earlier.cpu_s,
            voluntary: self.voluntary - earlier.voluntary,
            involuntary: self.involuntary - earlier.involuntary,
        }
    }
}
