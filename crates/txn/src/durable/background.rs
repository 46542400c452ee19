//! Checkpoints that happen by themselves.
//!
//! A thread sleeps until the log has grown by what the options say, makes a
//! checkpoint, and sleeps again. It keeps no database open: while it sleeps it
//! has a handle that does not count, and when the database is dropped, it ends.
//!
//! A checkpoint that fails is tried again after an eighth of the growth; what
//! was wrong can be seen in the statistics. Nothing is lost but time and space.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use super::Durable;
use crate::database::Database;
use crate::error::Result;
use crate::log::DurabilityError;

/// The thread that makes checkpoints, if there is one.
pub(super) struct Background {
    thread: OnceLock<JoinHandle<()>>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Background {
    /// No thread yet.
    pub(super) fn new() -> Background {
        Background {
            thread: OnceLock::new(),
            state: Arc::default(),
        }
    }

    /// Makes a checkpoint of `db` whenever `durable`'s log has grown so much.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(&self, db: &Database, durable: &Durable, growth: u64) -> Result<()> {
        let state = Arc::clone(&self.state);
        let alarm = durable.log.alarm();
        // What recovery had to read counts as well.
        let mut next = growth.saturating_sub(durable.report.log_bytes);
        let db = db.downgrade();
        let thread = thread::Builder::new()
            .name("giveway-ckpt".to_owned())
            .spawn(move || {
                alarm.listen();
                loop {
                    alarm.sleep_until(next, || state.stop.load(Ordering::SeqCst));
                    // For as long as a checkpoint takes, the thread keeps the
                    // database open; it may be the one that closes it.
                    let Some(db) = Database::upgrade(&db) else {
                        return;
                    };
                    let written = db.checkpoint();
                    let growth = if written.is_ok() { growth } else { growth / 8 };
                    next = alarm.bytes() + growth;
                    let failure = written.err().map(|error| error.to_string());
                    *state.failure() = failure;
                }
            })
            .map_err(DurabilityError::io("starting", "the checkpoints' thread"))?;
        assert!(self.thread.set(thread).is_ok(), "it is started once");
        Ok(())
    }

    /// Why the last checkpoint failed, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        self.state.failure().clone()
    }
}

impl State {
    fn failure(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        let Some(thread) = self.thread.take() else {
            return;
        };
        thread.thread().unpark();
        if thread.thread().id() != thread::current().id() {
            // It has nothing to tell: its failures are in the statistics.
            let _ = thread.join();
        }
    }
}
