//! What a lock is made of.
//!
//! ```text
//! Core, 16 bytes                                    Extra, 8 bytes
//! ┌──────────────────────────────────────────┐     ┌──────────────────────┐
//! │ state u64: tail │ head │ min_gid │ flags  │     │ profile │ generation │
//! ├──────────────────────────────────────────┤     ├──────────────────────┤
//! │ verdict u64: avg_vLHT            │ sid   │     │ credit  │ sid_since  │
//! └──────────────────────────────────────────┘     └──────────────────────┘
//! tail: node of the last waiter, 0 = no queue; head: node to wake, see HEAD_PARKED
//! ```
//!
//! Core is what Table 1 of the paper counts (13 bytes, 17 with groups): word,
//! `avg_vLHT`, `min_sid`, `min_gid`. Extra is what the options take. Both are
//! valid when zeroed: unlocked, default options. They are two pieces so that a
//! C program's mutex can hold them on both sides of a field that is not ours.
//!
//! Who writes what:
//!
//! | field | written by |
//! | --- | --- |
//! | `state` | all threads, by read-modify-write operations only |
//! | `state.min_gid`, `verdict`, `sid_since` | the lock scheduler; the first two also the holder when there is no queue |
//! | `credit` | the lock scheduler; with accounts by lock the holder adds to it |
//! | `profile` | the thread that makes the lock |
//! | `generation` | the first slow path after a fork |
//!
//! One word holds everything that a release looks at. A release must not touch
//! the lock after its one write: the next holder may free it.

use crate::held;
use crate::sync::{AtomicU32, AtomicU64, LooseU32, LooseU64, Relaxed, const_fn};

/// The lock is held.
pub(crate) const LOCKED: u64 = 1;
/// The head of the queue sleeps: a release must wake the node in the field.
pub(crate) const HEAD_PARKED: u64 = 2;
/// The lock was contended lately: holds are measured.
pub(crate) const METERED: u64 = 4;
/// A waiter has the role of the lock scheduler.
pub(crate) const LS_TAKEN: u64 = 8;
/// The head has waited for long: no thread may pass it any more.
pub(crate) const CLAIMED: u64 = 16;
/// The head is awake and watches the lock.
pub(crate) const WATCHED: u64 = 32;
/// A thread has idled under the strict guarantee, and no other has come since. The
/// thread remembers that it was the one.
pub(crate) const ALONE: u64 = 64;
const LEVEL_SHIFT: u32 = 7;
/// The bits of the spin level, see [`spin_level`].
pub(crate) const LEVEL: u64 = 7 << LEVEL_SHIFT;
/// The spin level of a lock that was not contended lately.
const FIRST_LEVEL: u64 = 4;
/// What must stay as it was for a lease to hold: who is last in the queue, and
/// whether the head is awake.
pub(crate) const LEASED_WITH: u64 = TAIL | WATCHED;
const GID_SHIFT: u32 = 16;
const HEAD_SHIFT: u32 = 32;
const TAIL_SHIFT: u32 = 48;
/// [`HEAD_PARKED`] with its field. The two are cleared together, so that a lock which
/// nobody waits for any more can be as if nobody ever had.
pub(crate) const PARKED_HEAD: u64 = HEAD_PARKED | 0xffff << HEAD_SHIFT;
/// The bits of the favoured group.
pub(crate) const MIN_GID: u64 = 0xffff << GID_SHIFT;
/// The bits of the tail.
pub(crate) const TAIL: u64 = 0xffff << TAIL_SHIFT;

/// The node of the last waiter, or 0.
#[inline]
pub(crate) fn tail(state: u64) -> u32 {
    (state >> TAIL_SHIFT) as u32
}

/// `state` with another last waiter.
#[inline]
pub(crate) fn with_tail(state: u64, node: u32) -> u64 {
    (state & !TAIL) | u64::from(node) << TAIL_SHIFT
}

/// The node that [`HEAD_PARKED`] is about.
#[inline]
pub(crate) fn parked_head(state: u64) -> u32 {
    (state >> HEAD_SHIFT) as u32 & 0xffff
}

/// `state` with this node as the sleeping head.
#[inline]
pub(crate) fn with_parked_head(state: u64, node: u32) -> u64 {
    (state & !PARKED_HEAD) | u64::from(node) << HEAD_SHIFT | HEAD_PARKED
}

/// How long the head spins before it sleeps, as learnt from earlier heads: 0 is
/// not at all, each level doubles it.
#[inline]
pub(crate) fn spin_level(state: u64) -> u32 {
    ((state & LEVEL) >> LEVEL_SHIFT ^ FIRST_LEVEL) as u32
}

/// `state` with another spin level, 0 to 7.
#[inline]
pub(crate) fn with_spin_level(state: u64, level: u32) -> u64 {
    (state & !LEVEL) | (u64::from(level) ^ FIRST_LEVEL) << LEVEL_SHIFT
}

/// The waiting group with the lowest vLHT.
#[inline]
pub(crate) fn min_gid(state: u64) -> u32 {
    (state >> GID_SHIFT) as u32 & 0xffff
}

/// The lock itself. Zeroed memory is an unlocked lock.
#[repr(C, align(8))]
pub struct Core {
    pub(crate) state: AtomicU64,
    verdict: LooseU64,
}

/// What a lock's options take. Zeroed memory means the default options.
#[repr(C)]
pub struct Extra {
    /// Profile in the lower half, generation in the upper.
    profile_generation: AtomicU32,
    /// Credit in the lower 24 bits, time of the last change of `min_sid` in the
    /// upper 8.
    credit_since: LooseU32,
}

/// What the lock scheduler last published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Average vLHT of the waiters, in ns of virtual time.
    pub(crate) avg: u64,
    /// The socket whose waiters have the lowest average.
    pub(crate) sid: u32,
}

/// The unit of the published average, as a power of two of ns, and of one that is too
/// long for it: after 4 years, which are 17 days for a thread of weight 1. The average
/// has 55 bits, and one that tells the unit.
const AVG_UNIT_BITS: u32 = 2;
const LONG_UNIT_BITS: u32 = 9;
const IS_LONG: u64 = 1 << 55;

impl Core {
    const_fn! {
        /// An unlocked lock.
        pub fn new() -> Core {
            Core::in_state(0)
        }
    }

    const_fn! {
        /// An unlocked lock with these flags set.
        pub(crate) fn in_state(flags: u64) -> Core {
            Core {
                state: AtomicU64::new(flags),
                verdict: LooseU64::new(0),
            }
        }
    }

    /// `None` before the first pass over a queue of this lock.
    #[inline]
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        match self.verdict.load(Relaxed) {
            0 => None,
            word => {
                let avg = word >> 8;
                let avg = match avg & IS_LONG {
                    0 => avg << AVG_UNIT_BITS,
                    _ => (avg & !IS_LONG) << LONG_UNIT_BITS,
                };
                let sid = (word & 0xff) as u32;
                Some(Verdict { avg, sid })
            }
        }
    }

    /// Publishes. An average of 0 becomes the smallest that is not "none".
    pub(crate) fn set_verdict(&self, verdict: Verdict) {
        let avg = match verdict.avg >> AVG_UNIT_BITS {
            short if short < IS_LONG => short.max(1),
            _ => verdict.avg >> LONG_UNIT_BITS | IS_LONG,
        };
        self.verdict
            .store(avg << 8 | u64::from(verdict.sid & 0xff), Relaxed);
    }

    /// As before the first pass.
    pub(crate) fn forget_verdict(&self) {
        self.verdict.store(0, Relaxed);
    }

    #[inline]
    pub(crate) fn load(&self) -> u64 {
        self.state.load(Relaxed)
    }

    pub(crate) fn set_min_gid(&self, gid: u32) {
        let mut state = self.load();
        while min_gid(state) != gid {
            let new = (state & !MIN_GID) | u64::from(gid) << GID_SHIFT;
            match self
                .state
                .compare_exchange_weak(state, new, Relaxed, Relaxed)
            {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }
}

impl Extra {
    const_fn! {
        /// Default options.
        pub fn new() -> Extra {
            Extra::with_profile(0)
        }
    }

    const_fn! {
        pub(crate) fn with_profile(profile: u16) -> Extra {
            Extra {
                profile_generation: AtomicU32::new(profile as u32),
                credit_since: LooseU32::new(0),
            }
        }
    }

    #[inline]
    pub(crate) fn profile(&self) -> u16 {
        self.profile_generation.load(Relaxed) as u16
    }

    pub(crate) fn set_profile(&self, profile: u16) {
        let set = |word| Some((word & 0xffff_0000) | u32::from(profile));
        let _ = self.profile_generation.fetch_update(Relaxed, Relaxed, set);
    }

    #[inline]
    pub(crate) fn generation(&self) -> u16 {
        (self.profile_generation.load(Relaxed) >> 16) as u16
    }

    /// Changes the generation; false if somebody else did.
    pub(crate) fn replace_generation(&self, from: u16, to: u16) -> bool {
        use crate::sync::AcqRel;
        let word = self.profile_generation.load(Relaxed);
        (word >> 16) as u16 == from
            && self
                .profile_generation
                .compare_exchange(word, (word & 0xffff) | u32::from(to) << 16, AcqRel, Relaxed)
                .is_ok()
    }
}

/// The bits of the credit, in units of [`held::UNIT_NS`].
const CREDIT: u32 = 0x00ff_ffff;

/// By how much the published average may advance. With accounts by lock the
/// credit is what was held here since the last census, 17 s at most. With
/// accounts across locks it is what all locks had been held at that census,
/// modulo 17 s: a lock that meets contention once in so long advances by too
/// little, and makes up for it with its next censuses.
impl Extra {
    /// Enters what a hold cost. Parts of a unit are rounded by `chance`, which
    /// is any changing number.
    pub(crate) fn add_credit(&self, virtual_ns: u64, chance: u64) {
        let units = (virtual_ns + chance % held::UNIT_NS) / held::UNIT_NS;
        if units > 0 {
            let add = |word: u32| {
                let credit = (u64::from(word & CREDIT) + units).min(CREDIT.into());
                Some((word & !CREDIT) | credit as u32)
            };
            let _ = self.credit_since.fetch_update(Relaxed, Relaxed, add);
        }
    }

    /// Takes what was held here, ns of virtual time.
    pub(crate) fn take_credit(&self) -> u64 {
        let word = self.credit_since.fetch_and(!CREDIT, Relaxed);
        u64::from(word & CREDIT) * held::UNIT_NS
    }

    /// Takes what was held anywhere, ns of virtual time. `units` is
    /// [`held::units`].
    pub(crate) fn take_credit_of_all(&self, units: u64) -> u64 {
        let now = units as u32 & CREDIT;
        let word = self.replace_credit(now);
        u64::from(now.wrapping_sub(word) & CREDIT) * held::UNIT_NS
    }

    fn replace_credit(&self, credit: u32) -> u32 {
        let set = |word: u32| Some((word & !CREDIT) | credit);
        match self.credit_since.fetch_update(Relaxed, Relaxed, set) {
            Ok(before) | Err(before) => before,
        }
    }

    /// When `min_sid` last changed, in a unit of the caller's modulo 256; 0 if
    /// it never has.
    pub(crate) fn sid_since(&self) -> u8 {
        (self.credit_since.load(Relaxed) >> 24) as u8
    }

    pub(crate) fn set_sid_since(&self, time: u8) {
        let set = |word: u32| Some((word & CREDIT) | u32::from(time) << 24);
        let _ = self.credit_since.fetch_update(Relaxed, Relaxed, set);
    }
}

impl Default for Core {
    fn default() -> Self {
        Core::new()
    }
}

impl Default for Extra {
    fn default() -> Self {
        Extra::new()
    }
}

#[cfg(not(any(loom, shuttle)))]
const _: () = {
    assert!(size_of::<Core>() == 16 && align_of::<Core>() == 8);
    assert!(size_of::<Extra>() == 8 && align_of::<Extra>() == 4);
};

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn an_average_of_any_size_is_published() {
        let core = Core::new();
        let lengths = (2..64).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits]);
        let mut before = 0;
        for avg in lengths.chain([u64::MAX]) {
            core.set_verdict(Verdict { avg, sid: 200 });
            let read = core.verdict().expect("published");
            let unit = if avg < 1 << 57 { 4 } else { 512 };
            assert_eq!(read.sid, 200);
            assert!(
                read.avg <= avg.max(unit) && avg.abs_diff(read.avg) < unit,
                "{avg}"
            );
            assert!(read.avg >= before, "{avg}");
            before = read.avg;
        }
    }
}
