//! Lets other threads write tier and weight of a thread's slot.
//!
//! A thread that waits for a CPU cannot write its slot. So the thread that gives it
//! urgent work may write the slot instead, until the owner releases it (`gate`).
//!
//! Invariants, where one thread sets and any number reset:
//! 1. `set` writes the weight before the tier, `reset` after it, and both exchange the
//!    tier, so that the later one has seen the stores of the earlier one. So if the tier
//!    was reset last, the weight was, too. (not asserted: no thread sees the order of
//!    the others' stores)
//!
//! Known weakness: a `reset` that runs while the thread is set anew may take its
//! weight away and not its tier; then it has the default weight in that tier until
//! it is set again.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Release};

use super::{Page, Slot};
use crate::gate::Gate;
use crate::table::Mapping;
use crate::{Tier, Weight};

/// A handle on a thread's [`Slot`] that any thread may use. It does nothing once
/// the slot is given back. Made by [`Slot::remote`].
///
/// Setting is for one thread at a time; resetting is for all, also meanwhile.
#[derive(Clone, Debug)]
pub struct Remote {
    gate: Arc<Gate>,
    mapping: Mapping,
    index: u32,
}

impl Remote {
    /// Puts the thread into this tier, with this weight, until it is set again.
    /// False if its slot is released.
    pub fn set(&self, tier: Tier, weight: Weight) -> bool {
        self.write(|page| {
            page.weight.store(weight.get() as u16, Release);
            page.tier.swap(tier as u8 + 1, AcqRel);
        })
    }

    /// Gives it its cgroup's tier again. False if its slot is released.
    pub fn reset(&self) -> bool {
        self.write(|page| {
            page.tier.swap(0, AcqRel);
            page.weight.store(0, Release);
        })
    }

    fn write(&self, write: impl FnOnce(&Page)) -> bool {
        let done = self.gate.inside(|| write(self.mapping.page(self.index)));
        done.is_some()
    }
}

impl Slot {
    /// A handle for other threads.
    pub fn remote(&self) -> Remote {
        Remote {
            gate: Arc::clone(self.gate.get_or_init(|| Arc::new(Gate::new()))),
            mapping: self.mapping,
            index: self.index,
        }
    }
}
