//! What is counted per lock, while the program runs.
//!
//! A mutex has no room for counters, so they are in a table beside, found by
//! the mutex's address. Nothing is counted, and no table exists, unless the
//! settings say where the report goes.
//!
//! ```text
//! slot = hash(address), then the next ones:   | address | counters ... |
//! ```
//!
//! Invariants:
//!
//! 1. A slot's address changes once, from 0 to a mutex's. (Not asserted: the only
//!    write is a compare-and-swap from 0.)
//! 2. All counters of a slot are changed by the holder of its mutex only, so
//!    adding is a load and a store; a report may read in between. (Not asserted:
//!    normal mutexes have no owner to compare.)
//!
//! Weaknesses: a full table counts what it leaves out, and says so; a mutex at
//! an address where an earlier one lay goes on with its line; a wait shorter
//! than `WAIT_NS_MIN` counts as none, since a lock's own path takes that long.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::{ptr, slice};

use libc::timespec;

use crate::config::StatsSettings;
use crate::mutex::Site;
use crate::report;

/// Locks that the table holds; a power of two.
const SLOTS: usize = 1 << 15;
/// Slots that are looked at before a lock is left out.
const PROBES: usize = 64;
/// Below this many nanoseconds a lock was free.
const WAIT_NS_MIN: u64 = 500;

/// One lock's counters.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Counters {
    address: AtomicUsize,
    site: AtomicUsize,
    /// When the present hold began, in ns.
    since: AtomicU64,
    acquisitions: AtomicU64,
    contended: AtomicU64,
    hold_ns: AtomicU64,
    wait_ns: AtomicU64,
    wait_ns_max: AtomicU64,
}

/// One lock's counters, read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LockStats {
    pub(crate) address: usize,
    /// Where it was first locked; 0 if that is not known.
    pub(crate) site: Site,
    pub(crate) acquisitions: u64,
    pub(crate) contended: u64,
    pub(crate) hold_ns: u64,
    pub(crate) wait_ns: u64,
    pub(crate) wait_ns_max: u64,
}

static TABLE: AtomicPtr<Counters> = AtomicPtr::new(ptr::null_mut());
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
static REPORTED: AtomicBool = AtomicBool::new(false);

/// Begins to count, if a report is wanted. Whether it is.
///
/// # Errors
///
/// A sentence if the destination cannot be written.
pub(crate) fn prepare(settings: &StatsSettings) -> Result<bool, String> {
    if !report::prepare(settings)? {
        return Ok(false);
    }
    // SAFETY: an anonymous mapping at an address of the kernel's choice.
    let table = unsafe {
        libc::mmap(
            ptr::null_mut(),
            SLOTS * size_of::<Counters>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if table == libc::MAP_FAILED {
        return Err("no memory for the statistics".to_owned());
    }
    TABLE.store(table.cast(), Release);
    Ok(true)
}

/// Whether locks are counted.
#[inline]
pub(crate) fn are_kept() -> bool {
    !TABLE.load(Relaxed).is_null()
}

/// The table, empty if nothing is counted.
#[inline]
fn table() -> &'static [Counters] {
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return &[];
    }
    // SAFETY: `prepare` mapped this many, zero, which is a valid value, and
    // they are never unmapped.
    unsafe { slice::from_raw_parts(table, SLOTS) }
}

/// The time, if it is recorded.
#[inline]
pub(crate) fn clock() -> Option<u64> {
    are_kept().then(now_ns)
}

/// The calling thread has got the mutex at `address`, which it wanted since
/// `since`, and holds it.
#[inline]
pub(crate) fn acquired(address: usize, site: Site, since: Option<u64>) {
    if !are_kept() {
        return;
    }
    let Some(counters) = counters(table(), address) else {
        LEFT_OUT.fetch_add(1, Relaxed);
        return;
    };
    if counters.site.load(Relaxed) == 0 {
        counters.site.store(site, Relaxed);
    }
    add(&counters.acquisitions, 1);
    let now = now_ns();
    counters.since.store(now, Relaxed);
    let waited = since.map_or(0, |since| now.saturating_sub(since));
    if waited >= WAIT_NS_MIN {
        add(&counters.contended, 1);
        add(&counters.wait_ns, waited);
        if waited > counters.wait_ns_max.load(Relaxed) {
            counters.wait_ns_max.store(waited, Relaxed);
        }
    }
}

/// The calling thread is about to unlock the mutex at `address`.
#[inline]
pub(crate) fn released(address: usize) {
    if TABLE.load(Relaxed).is_null() {
        return;
    }
    if let Some(counters) = counters(table(), address) {
        let since = counters.since.load(Relaxed);
        add(&counters.hold_ns, now_ns().saturating_sub(since));
    }
}

/// `CLOCK_MONOTONIC`, in nanoseconds.
fn now_ns() -> u64 {
    let mut now = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a place for the time of a clock that always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Adds without a locked instruction: the caller holds the mutex (2).
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// The counters of the mutex at `address`, which gets some at the first call.
fn counters(table: &[Counters], address: usize) -> Option<&Counters> {
    // Fibonacci hashing: mutexes lie at multiples of their objects' sizes.
    let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    for probe in 0..PROBES.min(table.len()) {
        let counters = &table[(hash as usize + probe) & (table.len() - 1)];
        let mut there = counters.address.load(Relaxed);
        if there == 0 {
            // Another mutex may get the slot at the same moment.
            match (counters.address).compare_exchange(0, address, Relaxed, Relaxed) {
                Ok(_) => return Some(counters),
                Err(other) => there = other,
            }
        }
        if there == address {
            return Some(counters);
        }
    }
    None
}

/// The child of a fork counts from nothing.
pub(crate) fn fork_child() {
    for counters in table() {
        if counters.address.load(Relaxed) != 0 {
            for counter in [
                &counters.acquisitions,
                &counters.contended,
                &counters.hold_ns,
                &counters.wait_ns,
                &counters.wait_ns_max,
            ] {
                counter.store(0, Relaxed);
            }
        }
    }
    LEFT_OUT.store(0, Relaxed);
    REPORTED.store(false, Relaxed);
}

/// Reports, once, if a report is wanted and a lock was taken.
pub(crate) fn finish() {
    let mut locks = locks();
    // A shell's many children that lock nothing would only make noise.
    if !locks.is_empty() && !REPORTED.swap(true, Relaxed) {
        report::write(&mut locks, LEFT_OUT.load(Relaxed));
    }
}

/// Every lock that was taken.
fn locks() -> Vec<LockStats> {
    let read = |counters: &Counters| LockStats {
        address: counters.address.load(Relaxed),
        site: counters.site.load(Relaxed),
        acquisitions: counters.acquisitions.load(Relaxed),
        contended: counters.contended.load(Relaxed),
        hold_ns: counters.hold_ns.load(Relaxed),
        wait_ns: counters.wait_ns.load(Relaxed),
        wait_ns_max: counters.wait_ns_max.load(Relaxed),
    };
    let mut locks: Vec<_> = table().iter().map(read).collect();
    locks.retain(|lock| lock.acquisitions != 0);
    locks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_has_counters_of_its_own_until_the_table_is_full() {
        let table: Vec<Counters> = (0..PROBES).map(|_| Counters::default()).collect();
        let of = |address| counters(&table, address).map(ptr::from_ref);
        let mut seen: Vec<_> = (1..=PROBES).map(|n| of(n * 40).unwrap()).collect();
        for (n, first) in (1..).zip(&seen) {
            assert_eq!(of(n * 40), Some(*first));
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), PROBES);
        assert_eq!(of(7), None);
    }
}
