//! Where a worker's contexts are: which one runs, and where the others were
//! stopped in the middle of a task. For the pool's watch, in another thread.
//!
//! The worker's thread writes with every switch, two words and without a fence; a
//! reader may see a switch half done. So a look that matters is repeated
//! ([`watch`](crate::pool) does).

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::level::Level;

/// Levels there can be.
pub(crate) const LEVELS: usize = Level::MAX.get() as usize + 1;

/// In place of a program counter: at a poll point, a region's exit or in a yield.
const BY_ITSELF: usize = 1;

/// Where a context was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// At this instruction, by an interrupt.
    Interrupted(usize),
    /// Where it looked for requests, or made room.
    ByItself,
}

/// Where the contexts of a worker are. A debugger reads it, too ([`debugger`](crate::debugger)).
#[repr(C)]
pub(crate) struct Trail {
    running: AtomicUsize,
    /// 0 for those that run or are idle.
    stopped: [AtomicUsize; LEVELS],
}

impl Trail {
    /// The base runs.
    pub(crate) fn new() -> Trail {
        Trail {
            running: AtomicUsize::new(0),
            stopped: [const { AtomicUsize::new(0) }; LEVELS],
        }
    }

    /// This level's context runs from now on.
    #[inline]
    pub(crate) fn run(&self, level: Level) {
        self.running.store(level.index(), Relaxed);
    }

    /// This level's context makes room for another one.
    #[inline]
    pub(crate) fn stop(&self, level: Level, stop: Stop) {
        let at = match stop {
            Stop::Interrupted(at) => at,
            Stop::ByItself => BY_ITSELF,
        };
        self.stopped[level.index()].store(at, Relaxed);
    }

    /// It goes on.
    #[inline]
    pub(crate) fn go_on(&self, level: Level) {
        self.stopped[level.index()].store(0, Relaxed);
    }

    /// The level whose context runs.
    pub(crate) fn running(&self) -> Level {
        Level::new(self.running.load(Relaxed) as u8)
    }

    /// Where this level's context was stopped; `None` if it was not.
    pub(crate) fn stopped(&self, level: Level) -> Option<Stop> {
        match self.stopped[level.index()].load(Relaxed) {
            0 => None,
            BY_ITSELF => Some(Stop::ByItself),
            at => Some(Stop::Interrupted(at)),
        }
    }
}
