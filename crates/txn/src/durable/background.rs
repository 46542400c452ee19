//! Checkpoints that happen by themselves.
//!
//! A thread sleeps until the log has grown by what the options say, makes a
//! checkpoint, and sleeps again. When the last handle of the database is dropped,
//! the thread abandons its checkpoint and is joined: then the database is no longer
//! open.
//!
//! A checkpoint that fails is tried again after an eighth of the growth; what
//! was wrong can be seen in the statistics. Nothing is lost but time and space.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::database::Database;
use crate::error::Result;
use crate::log::{Alarm, DurabilityError};
use crate::preemption;

/// The thread that makes checkpoints.
pub(crate) struct Background {
    /// Taken when it is joined.
    thread: Option<JoinHandle<()>>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Background {
    /// Makes a checkpoint of `db` whenever its log has grown by `growth` bytes;
    /// `read` is how many recovery has read, which count as well.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(
        db: Database,
        alarm: Arc<Alarm>,
        growth: u64,
        read: u64,
    ) -> Result<Background> {
        let state: Arc<State> = Arc::default();
        let theirs = Arc::clone(&state);
        let first = growth.saturating_sub(read);
        let thread = thread::Builder::new()
            .name("giveway-ckpt".to_owned())
            .spawn(move || theirs.run(&db, &alarm, growth, first))
            .map_err(DurabilityError::io("starting", "the checkpoints' thread"))?;
        Ok(Background {
            thread: Some(thread),
            state,
        })
    }

    /// Why the last checkpoint failed, if it did. In a region, since the contexts of a
    /// worker share the lock (R1).
    pub(super) fn failure(&self) -> Option<String> {
        let _region = preemption::region();
        self.state.failure().clone()
    }
}

impl State {
    fn run(&self, db: &Database, alarm: &Alarm, growth: u64, first: u64) {
        let stop = || self.stop.load(Ordering::SeqCst);
        let mut next = first;
        alarm.listen();
        loop {
            alarm.sleep_until(next, stop);
            if stop() {
                return;
            }
            let written = db.checkpoint_unless(stop);
            let pause = if written.is_ok() { growth } else { growth / 8 };
            next = alarm.bytes() + pause;
            *self.failure() = written.err().map(|error| error.to_string());
        }
    }

    fn failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        let thread = self.thread.take().expect("it is dropped once");
        thread.thread().unpark();
        // It has nothing to tell: its failures are in the statistics.
        let _ = thread.join();
    }
}
