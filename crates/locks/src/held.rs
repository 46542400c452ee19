//! The virtual hold time of all threads at all locks of the process.
//!
//! Where a thread has one vLHT for all locks (Section 3.2.1), the average that a
//! lock has published falls behind by what its visitors hold elsewhere. A lock
//! that is contended now and then must therefore know how much was held
//! anywhere since it last took an average: else every visitor looks
//! over-served to it, none may steal, and each contention becomes a convoy.
//!
//! One counter that every release wrote would be a contended line of its own.
//! A thread adds what it has gathered whenever that is [`BATCH`] units, and keeps
//! the rest, so nothing is lost and the counter lags by less than that for each
//! thread.

use crate::sync::{LooseU32, LooseU64, Relaxed};

/// What a unit is worth, ns of virtual time.
pub(crate) const UNIT_NS: u64 = 1024;
/// Units that a thread adds at once, at least.
const BATCH: u64 = 4;

crate::sync::model_static! {
    static HELD: LooseU64 = LooseU64::new(0);
}

/// Units held so far.
pub(crate) fn units() -> u64 {
    HELD.load(Relaxed)
}

/// Enters what a hold cost. `gathered` is the thread's own, ns not yet added.
pub(crate) fn add(gathered: &LooseU32, virtual_ns: u64) {
    let ns = u64::from(gathered.load(Relaxed)).saturating_add(virtual_ns);
    let rest = if ns < BATCH * UNIT_NS {
        ns
    } else {
        HELD.fetch_add(ns / UNIT_NS, Relaxed);
        ns % UNIT_NS
    };
    gathered.store(rest as u32, Relaxed);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn many_short_holds_count_as_much_as_a_long_one() {
        let gathered = LooseU32::new(0);
        let before = units();
        for _ in 0..1000 {
            add(&gathered, 700);
        }
        // Tests beside this one hold locks, too: there may be more.
        let counted = (units() - before) * UNIT_NS + u64::from(gathered.load(Relaxed));
        assert!(counted >= 700_000, "{counted}");
    }
}
