//! Who may put a key into a unique index: one transaction at a time, for each key.
//!
//! ```text
//!  claim the key ─► does a row have it? ─► version, index entry ─► give the claim up
//!                          └── yes: an error ──────────────────────────────┘
//! ```
//!
//! Looking whether a row has a key and putting one there that has it are one step for
//! all who are about the same key. So of two who insert the same key the second finds
//! the first, be it committed or not, and exactly one of them goes on.
//!
//! A claim is a bit of a word of the table, and a key's bit is chosen by its hash: keys
//! that share one wait for each other without need. A row that has several unique keys
//! claims all of them at once, so nobody who waits has a claim.
//!
//! - **Q1** A bit is set by whoever has it and by nobody else until it is given up; what
//!   its holder has written is seen by the next one. (Not asserted: the model
//!   `of_two_who_claim_a_key_the_second_finds_the_first`.)
//! - **Q2** A claim is held in a region (R1), so nobody waits for a paused context.
//!   (Asserted when it is given up.)
//!
//! Known weakness: all writers of unique keys of a table write to one cache line.

use crate::preemption::{self, Region};
use crate::sync::{Acquire, AtomicU64, Relaxed, Release, Wait};

/// The claims to a table's keys.
pub(crate) struct Claims(AtomicU64);

/// Claims that are held.
pub(crate) struct Claimed<'a> {
    claims: &'a Claims,
    bits: u64,
    /// Left after the claims, since fields are dropped after `drop`.
    _region: Region,
}

impl Claims {
    pub(crate) fn new() -> Claims {
        Claims(AtomicU64::new(0))
    }

    /// Claims all of these bits.
    pub(crate) fn claim(&self, bits: u64) -> Claimed<'_> {
        let region = preemption::region();
        let mut wait = Wait::new();
        loop {
            let held = self.0.load(Relaxed);
            let free = held & bits == 0;
            if free
                && self
                    .0
                    .compare_exchange(held, held | bits, Acquire, Relaxed)
                    .is_ok()
            {
                return Claimed {
                    claims: self,
                    bits,
                    _region: region,
                };
            }
            wait.step();
        }
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        debug_assert!(preemption::in_region(), "Q2");
        self.claims.0.fetch_and(!self.bits, Release);
    }
}
