//! Checkpoints that happen by themselves.
//!
//! A thread sleeps until the log has grown by what the options say, makes a
//! checkpoint, and sleeps again. When the last handle of the database is dropped,
//! the thread abandons its checkpoint and is joined: then the database is no longer
//! open.
//!
//! A checkpoint that fails, or panics, is tried again after an eighth of the growth;
//! what was wrong can be seen in the statistics. Nothing is lost but time and space.
//!
//! The last handle may be dropped by the log's writer, which calls functions of others.
//! It must not wait for the thread, which may wait for the log, and closes the log if it
//! is then the last to know the database. The database is open until that is done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

use crate::database::Database;
use crate::error::Result;
use crate::log::{Alarm, DurabilityError, text};
use crate::preemption;

/// The thread that makes checkpoints.
pub(crate) struct Background {
    /// Taken when it is joined.
    thread: Option<JoinHandle<()>>,
    /// Who must not join it.
    writer: ThreadId,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Background {
    /// Makes a checkpoint of `db` whenever its log has grown by `growth` bytes;
    /// `read` is how many recovery has read, which count as well. With the alarm comes
    /// the log's writer.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(
        db: Database,
        (alarm, writer): (Arc<Alarm>, ThreadId),
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
            writer,
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
            let failure = match catch_unwind(AssertUnwindSafe(|| db.checkpoint_unless(stop))) {
                Ok(written) => written.err().map(|error| error.to_string()),
                Err(panic) => Some(format!("the checkpoint panicked: {}", text(&*panic))),
            };
            let pause = if failure.is_none() {
                growth
            } else {
                growth / 8
            };
            next = alarm.bytes() + pause;
            *self.failure() = failure;
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
        if thread::current().id() == self.writer {
            return;
        }
        // It has nothing to tell: its failures are in the statistics.
        let _ = thread.join();
    }
}
