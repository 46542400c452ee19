//! Which task set is in which slot, which worker is at which slot, and how the last
//! worker that leaves a set finds out that it has to finalize it (Section 2.3).
//!
//! ```text
//!  slots, global                         posts, one per worker
//!  ┌───────────────────────────┐         ┌───────────────────────────────┐
//!  │ 0: set ──▶ TaskSet        │         │ state: IDLE │ slot │ FINALIZE │
//!  │ 1: set│TAG ──▶ TaskSet    │         │ change mask: new groups       │
//!  │ 2: null                   │         │ return mask: new sets, lanes  │
//!  └───────────────────────────┘         └───────────────────────────────┘
//! ```
//!
//! A slot is *open* (an untagged pointer), *closed* (tagged: the set is being
//! finalized) or *empty*.
//!
//! ```text
//!  worker                                 coordinator of a set
//!  W1 state = slot                        C1 tag the slot (by compare-exchange)
//!  W2 fence                               C2 fence
//!  W3 read the slot; run if open          C3 for each worker at the slot:
//!  W4 exchange state for IDLE                  exchange its state for FINALIZE
//!  W5 if it was FINALIZE:                 C4 owed += how many there were;
//!     owed -= 1; at 0, finalize              at 0, finalize
//! ```
//!
//! F1. *One coordinator.* Several workers may find a set exhausted; the one whose
//!     tag gets into the slot coordinates. The slot has no other coordinator until
//!     the set has been finalized, because no other set is posted there before.
//!     (asserted in `open`: the slot is not open)
//! F2. *No worker is missed.* A worker that read the open slot in W3 has its state
//!     written before the coordinator's C3 reads it: the fences W2 and C2 are in
//!     one order, and if W2 came second, W3 would have read the tag. So a worker
//!     that runs the set is either marked, or has gone through W4 before C3; then
//!     C3 reads what W4 or a later W1 wrote, and both are releases.
//!     (asserted by its consequence, F4; the memory order only in `models`)
//! F3. *One finalizer.* `owed` is 0 when a set is posted. Marked workers may
//!     subtract before the coordinator adds, so it may be negative for a time; it
//!     is 0 after the sum and before nothing but the last of these operations, and
//!     each of them happens exactly once. The operation that leaves 0 finalizes.
//!     (asserted in `open`, and in `Last::new`: a set is finalized once)
//! F4. *The finalizer is alone.* By F2 and F3 all others have gone, and what they
//!     wrote is seen: the operations on `owed` acquire and release.
//!     (asserted in `Last::new`: no task of the set runs)
//! F5. *A set that is gone is not touched.* A set is alive at least until its
//!     finalization ends. A worker uses the pointer only if it read the slot open
//!     (by F2 the set waits for it), or if W4 returned FINALIZE; in this case it
//!     reads the slot again, because the set that waits for it may be a successor
//!     of the one whose tag it saw in W3. The slot cannot change before W5.
//!     (asserted in `TaskSet::enter`, and in models by `Life`)
//! F6. The coordinator leaves its own post (state = IDLE) between C1 and C3, and
//!     keeps the set alive by owing it C4. After C4 or W5 that does not leave 0,
//!     the set is not touched again.
//!     (asserted in `close`: the coordinator is not marked)
//!
//! The update masks: a set is posted in its slot first, and in the masks second;
//! a worker pulls its masks first, and reads the slot second. So a worker that
//! disables its slot because it read the tag still finds the bit (M1 of `mask`).
//!
//! Known weakness: C3 looks at all workers, so the end of a set costs a cache miss
//! per worker. Section 5.3 of the paper finds no trace of it at 120 workers.

use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use crate::group_word::GroupWord;
use crate::kernel::Raise;
use crate::mask::UpdateMask;
use crate::parking::Parking;
use crate::sync::{
    AcqRel, Acquire, AtomicPtr, AtomicU32, AtomicU64, Relaxed, Release, SeqCst, fence,
};
use crate::task_set::TaskSet;

/// A worker that is at no slot.
const IDLE: u32 = u32::MAX;
/// A worker that has to sign off at the set of the slot where it was.
const FINALIZE: u32 = u32::MAX - 1;
/// In the pointer of a closed slot.
const TAG: usize = 1;

pub(crate) struct Slots {
    slots: Box<[CachePadded<Slot>]>,
    posts: Box<[CachePadded<Post>]>,
}

struct Slot {
    set: AtomicPtr<TaskSet>,
    /// The group that the slot has, for workers that pull the change mask.
    word: AtomicU64,
}

/// A worker's state, and the masks by which others tell it of changes.
pub(crate) struct Post {
    state: AtomicU32,
    pub(crate) change: UpdateMask,
    pub(crate) back: UpdateMask,
    pub(crate) parking: Parking,
    pub(crate) raise: Raise,
}

/// The caller is alone with this set, and has to finalize it.
#[must_use = "no other thread finalizes the set"]
#[derive(Debug)]
pub(crate) struct Last(pub(crate) NonNull<TaskSet>);

impl Last {
    /// # Safety
    /// The caller is the set's finalizer: F3.
    unsafe fn new(set: NonNull<TaskSet>) -> Last {
        // SAFETY: F5, a set is alive until its finalization ends.
        unsafe { set.as_ref().assert_alone() };
        Last(set)
    }
}

fn tagged(set: *mut TaskSet) -> *mut TaskSet {
    set.map_addr(|address| address | TAG)
}

fn untagged(set: *mut TaskSet) -> *mut TaskSet {
    set.map_addr(|address| address & !TAG)
}

impl Slots {
    pub(crate) fn new(workers: usize, slots: usize) -> Slots {
        let slot = |_| {
            CachePadded::new(Slot {
                set: AtomicPtr::new(std::ptr::null_mut()),
                word: AtomicU64::new(0),
            })
        };
        let post = |_| {
            CachePadded::new(Post {
                state: AtomicU32::new(IDLE),
                change: UpdateMask::new(slots),
                back: UpdateMask::new(slots),
                parking: Parking::new(),
                raise: Raise::default(),
            })
        };
        Slots {
            slots: (0..slots).map(slot).collect(),
            posts: (0..workers).map(post).collect(),
        }
    }

    pub(crate) fn posts(&self) -> impl Iterator<Item = &Post> {
        self.posts.iter().map(|post| &**post)
    }

    pub(crate) fn post(&self, worker: usize) -> &Post {
        &self.posts[worker]
    }

    /// The group that was posted in the slot last, if there was one.
    pub(crate) fn word(&self, slot: usize) -> Option<GroupWord> {
        GroupWord::unpack(self.slots[slot].word.load(Relaxed))
    }

    /// The group that holds the slot, also between two of its sets.
    pub(crate) fn holder(&self, slot: usize) -> Option<GroupWord> {
        let is_free = self.slots[slot].set.load(Acquire).is_null();
        self.word(slot).filter(|_| !is_free)
    }

    /// Opens the slot for a set. Only the finalizer of the set before, or who has
    /// been given the slot, may do so (F1).
    pub(crate) fn open(&self, slot: usize, set: &TaskSet) {
        let slot = &self.slots[slot];
        debug_assert!(
            {
                let before = slot.set.load(Relaxed);
                before.is_null() || before != untagged(before)
            },
            "F1: a set is posted in an open slot"
        );
        debug_assert_eq!(set.owed.load(Relaxed), 0, "F3: a set is posted again");
        slot.word.store(set.word.pack(), Relaxed);
        slot.set.store(std::ptr::from_ref(set).cast_mut(), Release);
    }

    /// Empties the slot. As [`open`](Self::open).
    pub(crate) fn empty(&self, slot: usize) {
        self.slots[slot].set.store(std::ptr::null_mut(), Release);
    }

    /// The pointer in the slot if it is open. Only to compare it: nothing keeps the
    /// set alive.
    pub(crate) fn opened(&self, slot: usize) -> Option<NonNull<TaskSet>> {
        let set = self.slots[slot].set.load(Acquire);
        NonNull::new(set).filter(|set| set.as_ptr() == untagged(set.as_ptr()))
    }

    /// W1 to W3. Whatever comes out, [`unpin`](Self::unpin) or
    /// [`close`](Self::close) follows; until then the set is alive (F5).
    pub(crate) fn pin(&self, worker: usize, slot: usize) -> Option<NonNull<TaskSet>> {
        let state = &self.posts[worker].state;
        debug_assert_eq!(state.load(Relaxed), IDLE, "one slot at a time");
        state.store(slot as u32, Release);
        fence(SeqCst);
        self.opened(slot)
    }

    /// W4 and W5.
    pub(crate) fn unpin(&self, worker: usize, slot: usize) -> Option<Last> {
        let state = self.posts[worker].state.swap(IDLE, AcqRel);
        if state != FINALIZE {
            debug_assert_eq!(state, slot as u32, "W4: unpinned from another slot");
            return None;
        }
        let set = NonNull::new(untagged(self.slots[slot].set.load(Acquire)))
            .expect("a set that waits for a worker stays in its slot");
        // SAFETY: F5, the set waits for this worker.
        let owed = unsafe {
            set.as_ref().life.used();
            set.as_ref().owed.fetch_sub(1, AcqRel)
        };
        // SAFETY: this operation left 0.
        (owed == 1).then(|| unsafe { Last::new(set) })
    }

    /// C1 to C4, of a set that is exhausted, by a worker pinned to it or by another
    /// thread. `None` if another one coordinates, or finalizes; a worker has left its
    /// post in any case.
    ///
    /// # Safety
    /// The set is alive: the caller is a worker pinned to it, or holds its group.
    pub(crate) unsafe fn close(
        &self,
        slot: usize,
        set: NonNull<TaskSet>,
        worker: Option<usize>,
    ) -> Option<Last> {
        let word = &self.slots[slot].set;
        let closed = tagged(set.as_ptr());
        if word
            .compare_exchange(set.as_ptr(), closed, AcqRel, Relaxed)
            .is_err()
        {
            // F1. A worker may have been marked by the one that was first.
            return worker.and_then(|worker| self.unpin(worker, slot));
        }
        if let Some(worker) = worker {
            // F6.
            self.posts[worker].state.store(IDLE, Release);
        }
        fence(SeqCst);
        let mut marked = 0;
        for post in self.posts() {
            let at_slot = slot as u32;
            if post
                .state
                .compare_exchange(at_slot, FINALIZE, AcqRel, Acquire)
                .is_ok()
            {
                marked += 1;
            }
        }
        debug_assert!(
            worker.is_none_or(|worker| self.posts[worker].state.load(Relaxed) == IDLE),
            "F6: the coordinator has marked itself"
        );
        // SAFETY: F6, the set waits for this operation.
        let owed = unsafe {
            set.as_ref().life.used();
            set.as_ref().owed.fetch_add(marked, AcqRel) + marked
        };
        // SAFETY: this operation left 0.
        (owed == 0).then(|| unsafe { Last::new(set) })
    }
}
