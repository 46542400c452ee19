//! Waking a thread when the log has grown so much.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};

/// Bytes written to the log since it was opened, and who wants to know.
#[derive(Default)]
pub(crate) struct Alarm {
    bytes: AtomicU64,
    /// The number of bytes to wake at; 0 for never.
    at: AtomicU64,
    listener: OnceLock<Thread>,
}

impl Alarm {
    /// For the writer: so many bytes more.
    pub(super) fn add(&self, bytes: u64) {
        let bytes = self.bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        let at = self.at.load(Ordering::SeqCst);
        if at != 0 && bytes >= at {
            self.at.store(0, Ordering::SeqCst);
            if let Some(listener) = self.listener.get() {
                listener.unpark();
            }
        }
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    /// The calling thread is the one that sleeps.
    pub(crate) fn listen(&self) {
        let fresh = self.listener.set(thread::current()).is_ok();
        assert!(fresh, "an alarm has one listener");
    }

    /// Sleeps until there are so many bytes, or it is time to stop; who says so
    /// unparks the thread.
    pub(crate) fn sleep_until(&self, bytes: u64, stop: impl Fn() -> bool) {
        loop {
            // Before looking, so that the writer wakes whom it did not see.
            self.at.store(bytes.max(1), Ordering::SeqCst);
            if self.bytes() >= bytes || stop() {
                return;
            }
            thread::park();
        }
    }
}
