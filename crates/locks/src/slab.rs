//! Type-stable slabs: slots that never move and are never unmapped.
//!
//! A waiter's node may be read by a thread that still believes it is queued.
//! With memory that could be freed this would be a use after free; with a slot
//! that stays a slot of the same type for ever, all of it atomics, it is a read
//! of stale numbers (invariant S1). The slots lie in zeroed statics, which cost
//! no memory until they are used, need no allocator, and exist before any
//! constructor runs.
//!
//! Index 0 means "none". Free slots form a stack. Its head carries a tag that
//! changes with every operation, so that a pop that was overtaken fails.
//!
//! - **S1** A slot is all atomics and is valid from before `main` to the end.
//!   (Not asserted: by the type, and a static.)
//! - **S2** An index handed out by [`Slab::take`] is handed out to no other until
//!   [`Slab::give`]. (Asserted in `give`, of the slot given last; the model
//!   `no_slot_is_handed_out_twice`.)

use crate::sync::{Acquire, AtomicU32, AtomicU64, Relaxed, Release, const_fn};

/// What can live in a [`Slab`]: valid when zeroed, and with a link to the next
/// free slot.
pub(crate) trait Slot: Sized + Sync {
    #[cfg(not(any(loom, shuttle)))]
    const ZERO: Self;
    #[cfg(any(loom, shuttle))]
    fn zero() -> Self;
    fn link(&self) -> &AtomicU32;
}

/// Up to `N - 1` slots.
pub(crate) struct Slab<T, const N: usize> {
    #[cfg(not(any(loom, shuttle)))]
    slots: [T; N],
    #[cfg(any(loom, shuttle))]
    slots: Box<[T]>,
    /// Tag in the upper half, index of the first free slot in the lower.
    free: AtomicU64,
    /// How many slots, counted from 1, were ever handed out.
    used: AtomicU32,
}

impl<T: Slot, const N: usize> Slab<T, N> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Slab {
                #[cfg(not(any(loom, shuttle)))]
                slots: [const { T::ZERO }; N],
                #[cfg(any(loom, shuttle))]
                slots: (0..N).map(|_| T::zero()).collect(),
                free: AtomicU64::new(0),
                used: AtomicU32::new(0),
            }
        }
    }

    /// The slot of this index. An index beyond the slab, which only stale
    /// numbers can contain, names slot 0, which is never handed out.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> &T {
        let index = index as usize;
        &self.slots[if index < N { index } else { 0 }]
    }

    /// A slot of one's own, or `None` if all are taken.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut free = self.free.load(Acquire);
        while free as u32 != 0 {
            let next = self.get(free as u32).link().load(Relaxed);
            match self
                .free
                .compare_exchange_weak(free, retag(free, next), Acquire, Acquire)
            {
                Ok(_) => return Some(free as u32),
                Err(now) => free = now,
            }
        }
        self.used
            .fetch_update(Relaxed, Relaxed, |used| {
                (used as usize + 1 < N).then_some(used + 1)
            })
            .ok()
            .map(|used| used + 1)
    }

    /// Returns a slot. The caller must not use it any more.
    pub(crate) fn give(&self, index: u32) {
        debug_assert_ne!(index, 0, "S2");
        let mut free = self.free.load(Relaxed);
        loop {
            debug_assert_ne!(free as u32, index, "S2");
            self.get(index).link().store(free as u32, Relaxed);
            match self
                .free
                .compare_exchange_weak(free, retag(free, index), Release, Relaxed)
            {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }

    /// Whether a slot that was handed out before is free.
    pub(crate) fn has_free(&self) -> bool {
        self.free.load(Relaxed) as u32 != 0
    }

    /// How many slots were ever handed out, taken or not.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// All slots that were ever handed out, taken or not.
    pub(crate) fn known(&self) -> impl Iterator<Item = (u32, &T)> {
        (1..=self.used.load(Acquire)).map(|index| (index, self.get(index)))
    }

    /// Frees every slot but those in `keep`. Only for the child of a fork,
    /// while it has one thread.
    pub(crate) fn keep_only(&self, keep: &[u32]) {
        self.free.store(0, Relaxed);
        for index in 1..=self.used.load(Relaxed) {
            if !keep.contains(&index) {
                self.give(index);
            }
        }
    }
}

fn retag(head: u64, index: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(index)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    struct Cell {
        link: AtomicU32,
        taken: AtomicBool,
    }

    impl Slot for Cell {
        const ZERO: Self = Cell {
            link: AtomicU32::new(0),
            taken: AtomicBool::new(false),
        };
        fn link(&self) -> &AtomicU32 {
            &self.link
        }
    }

    #[test]
    fn no_slot_is_handed_out_twice() {
        static SLAB: Slab<Cell, 5> = Slab::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
                        let index = SLAB.take().expect("four threads, four slots");
                        let slot = SLAB.get(index);
                        assert!(!slot.taken.swap(true, Relaxed), "slot {index} twice");
                        slot.taken.store(false, Relaxed);
                        SLAB.give(index);
                    }
                });
            }
        });
    }

    #[test]
    fn an_empty_slab_says_so_and_recovers() {
        static SLAB: Slab<Cell, 3> = Slab::new();
        let taken: Vec<_> = std::iter::from_fn(|| SLAB.take()).collect();
        assert_eq!(taken, [1, 2]);
        SLAB.keep_only(&[1]);
        assert_eq!((SLAB.take(), SLAB.take()), (Some(2), None));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    struct Cell {
        link: AtomicU32,
        /// loom reports an access that the slab does not order.
        content: UnsafeCell<u32>,
    }

    // SAFETY: `content` is only touched by who has the slot (S2), which is what
    // loom checks.
    unsafe impl Sync for Cell {}
    // SAFETY: as above.
    unsafe impl Send for Cell {}

    impl Slot for Cell {
        fn zero() -> Self {
            Cell {
                link: AtomicU32::new(0),
                content: UnsafeCell::new(0),
            }
        }
        fn link(&self) -> &AtomicU32 {
            &self.link
        }
    }

    /// Takes a slot and writes to it, as its only user.
    fn take(slab: &Slab<Cell, 4>) -> u32 {
        let index = slab.take().expect("as many slots as are taken");
        // SAFETY: the slot is this thread's (S2).
        let write = |content: *mut u32| unsafe { *content += 1 };
        slab.get(index).content.with_mut(write);
        index
    }

    /// One thread pops while another pops twice and pushes the first again, so
    /// that the stack's head is what it was and its second slot is not.
    #[test]
    fn no_slot_is_handed_out_twice() {
        crate::sync::check(|| {
            let slab = Arc::new(Slab::<Cell, 4>::new());
            for index in [take(&slab), take(&slab), take(&slab)] {
                slab.give(index);
            }
            let one = loom::thread::spawn({
                let slab = slab.clone();
                move || take(&slab)
            });
            let other = loom::thread::spawn({
                let slab = slab.clone();
                move || {
                    let (first, second) = (take(&slab), take(&slab));
                    slab.give(first);
                    second
                }
            });
            let (others, second) = (one.join().unwrap(), other.join().unwrap());
            let mut all = [others, second, take(&slab)];
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3]);
        });
    }
}
