//! How the writer sleeps and is woken.
//!
//! Committing threads should not pay for a system call unless the writer sleeps
//! for want of work. One word says which:
//!
//! | state | the writer | an ordinary ring | an urgent ring |
//! | --- | --- | --- | --- |
//! | `AWAKE` | will look at everything before it sleeps | nothing | nothing |
//! | `IDLE` | sleeps until there is work | wakes | wakes |
//! | `PAUSING` | lets work gather until a moment | nothing | wakes |
//!
//! - **B1** Work is left before the bell is rung; the writer says that it sleeps
//!   before it looks for work a last time. Both orders are store then
//!   load, so all accesses are `SeqCst`, those to the work's counter included:
//!   one of the two sees the other. (Not asserted: a lost wake-up shows as a wait
//!   that does not end, in any test with a log.)

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use giveway_machine::futex::{self, Deadline};

const AWAKE: u32 = 0;
const IDLE: u32 = 1;
const PAUSING: u32 = 2;

/// The writer's bell.
pub(crate) struct Doorbell(AtomicU32);

impl Doorbell {
    /// The writer is awake.
    pub(crate) fn new() -> Doorbell {
        Doorbell(AtomicU32::new(AWAKE))
    }

    /// There is work.
    pub(crate) fn ring(&self) {
        if self.0.load(Ordering::SeqCst) == IDLE {
            self.wake(IDLE);
        }
    }

    /// There is work that should not wait for more.
    pub(crate) fn ring_urgently(&self) {
        let state = self.0.load(Ordering::SeqCst);
        if state != AWAKE {
            self.wake(state);
        }
    }

    fn wake(&self, from: u32) {
        // One of those who ring is enough.
        let woken = self
            .0
            .compare_exchange(from, AWAKE, Ordering::SeqCst, Ordering::SeqCst);
        if woken.is_ok() {
            futex::wake(&self.0, 1);
        }
    }

    /// For the writer: sleeps until somebody rings, unless there is work (B1).
    pub(crate) fn idle(&self, work: impl FnOnce() -> bool) {
        self.0.store(IDLE, Ordering::SeqCst);
        if !work() {
            self.sleep(IDLE, None);
        }
        self.0.store(AWAKE, Ordering::SeqCst);
    }

    /// For the writer: sleeps until the moment, if there is one, or until somebody
    /// rings urgently, unless there is a reason not to.
    pub(crate) fn pause(&self, until: Option<Instant>, urgent: impl FnOnce() -> bool) {
        self.0.store(PAUSING, Ordering::SeqCst);
        if !urgent() {
            self.sleep(PAUSING, until);
        }
        self.0.store(AWAKE, Ordering::SeqCst);
    }

    fn sleep(&self, state: u32, until: Option<Instant>) {
        while self.0.load(Ordering::SeqCst) == state
            && until.is_none_or(|until| Instant::now() < until)
        {
            futex::wait(&self.0, state, until.and_then(Deadline::at));
        }
    }
}
