//! The ticket lock: take a number, wait until it is served. First come, first
//! served; every waiter watches the same line.

use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::CachePadded;

use super::spin;
use crate::experiments::locks::lock::{BenchLock, LockHandle, Member};

#[derive(Debug, Default)]
pub(super) struct Ticket {
    next: CachePadded<AtomicU32>,
    serving: CachePadded<AtomicU32>,
}

impl BenchLock for Ticket {
    type Handle<'a> = &'a Ticket;

    fn join(&self, _member: &Member) -> &Ticket {
        self
    }
}

// SAFETY: numbers are unique until 2^32 threads wait, and `serving` moves on in
// `unlock` only; its release store pairs with the acquire load in `lock`.
unsafe impl LockHandle for &Ticket {
    fn lock(&mut self) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        spin::wait_until(|| self.serving.load(Ordering::Acquire) == number);
    }

    unsafe fn unlock(&mut self) {
        let number = self.serving.load(Ordering::Relaxed);
        self.serving
            .store(number.wrapping_add(1), Ordering::Release);
    }
}
