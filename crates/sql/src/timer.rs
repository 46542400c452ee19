//! The engine's clock: a thread that waits for the next time that something is due, says
//! so, and does nothing else.
//!
//! A deadline has to be told when it passes, whatever the engine does then. So the thread
//! that waits for it runs no plan, drops none, and waits for no other thread:
//!
//! ```text
//!   at(time, what) ──▶ heap, by time ──▶ what.due(): sets flags, wakes others
//! ```
//!
//! D1. `due` takes locks that are held for a moment, and calls wakers. It frees nothing
//!     that is large and runs nothing of a plan. (not asserted: there are three of them,
//!     in `run`, `planner` and `results`)
//! D2. What has gone before its time is not waited for: the heap knows things by weak
//!     references and is cleared of dead ones whenever it has doubled. (tested)

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

/// Something that is to happen at a time.
pub(crate) trait Due: Send + Sync {
    /// The time has come: D1.
    fn due(&self);
}

/// A thread, which ends when this is dropped.
pub(crate) struct Timer(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The earliest on top.
    entries: BinaryHeap<Entry>,
    /// How many entries there may be before the dead ones are looked for: D2.
    purge_at: usize,
    is_over: bool,
}

struct Entry {
    at: Instant,
    what: Weak<dyn Due>,
}

/// The fewest entries that are worth looking through.
const PURGE_MIN: usize = 64;

impl Timer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub(crate) fn start() -> io::Result<Timer> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                entries: BinaryHeap::new(),
                purge_at: PURGE_MIN,
                is_over: false,
            }),
            changed: Condvar::new(),
        });
        let timer = Timer(Arc::clone(&shared));
        std::thread::Builder::new()
            .name("giveway-sql-timer".to_owned())
            .spawn(move || shared.keep_time())?;
        Ok(timer)
    }

    /// Calls `what` at that time, if it is still there.
    pub(crate) fn at(&self, at: Instant, what: Weak<dyn Due>) {
        let mut state = crate::lock(&self.0.state);
        let is_next = state.entries.peek().is_none_or(|next| at < next.at);
        state.entries.push(Entry { at, what });
        // D2.
        if state.entries.len() > state.purge_at {
            state.entries.retain(|entry| entry.what.strong_count() > 0);
            state.purge_at = (2 * state.entries.len()).max(PURGE_MIN);
        }
        drop(state);
        if is_next {
            self.0.changed.notify_one();
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        crate::lock(&self.0.state).is_over = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn keep_time(&self) {
        let mut state = crate::lock(&self.state);
        while !state.is_over {
            let now = Instant::now();
            let wait = state.entries.peek().map(|next| next.at - now);
            state = match wait {
                None => (self.changed.wait(state)).unwrap_or_else(PoisonError::into_inner),
                Some(wait) if !wait.is_zero() => {
                    let waited = self.changed.wait_timeout(state, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    let entry = state.entries.pop().expect("looked at under the same lock");
                    drop(state);
                    if let Some(what) = entry.what.upgrade() {
                        what.due();
                    }
                    crate::lock(&self.state)
                }
            };
        }
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.at == other.at
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    struct Told(Mutex<Sender<u32>>, u32);

    impl Due for Told {
        fn due(&self) {
            let _ = crate::lock(&self.0).send(self.1);
        }
    }

    #[test]
    fn what_is_due_is_told_in_order_and_what_has_gone_is_forgotten() {
        let timer = Timer::start().unwrap();
        let (sender, told) = channel();
        let now = Instant::now();
        let at = |number: u32, ms: u64| {
            let what = Arc::new(Told(Mutex::new(sender.clone()), number));
            let weak: Weak<dyn Due> = Arc::downgrade(&what) as _;
            timer.at(now + Duration::from_millis(ms), weak);
            what
        };
        let kept = [at(2, 60), at(1, 30), at(3, 90)];
        for number in 10..10 + 4 * PURGE_MIN as u32 {
            drop(at(number, 45));
        }
        let entries = crate::lock(&timer.0.state).entries.len();
        assert!(entries <= PURGE_MIN + 4, "D2: {entries} entries");
        let next = || told.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!([next(), next(), next()], [1, 2, 3]);
        assert!(now.elapsed() >= Duration::from_millis(90));
        drop(kept);
    }
}
