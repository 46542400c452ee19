//! The scheduling queue of one worker and one level (Section 4.1).
//!
//! Any thread pushes; one context of the worker takes. The queue is bounded and
//! never waits: a full queue is a value, because the submitter decides about
//! admission. It is a ring in which every slot has a turn, the position that it may
//! be used for next:
//!
//! ```text
//!             freed      taken            claimed
//!               │          │                 │
//!   ────────────┼──────────┼─────────────────┼──────────────▶ positions
//!     free      │ taken,   │ pushed, or      │ free
//!               │ waiting  │ being written   │
//!               │ elsewhere│ by its claimant │
//!               └──────── at most `places` ──┘
//! ```
//!
//! *Closing* a queue refuses later pushes, and tells the consumer how many came
//! before, so that a pool that shuts down loses nothing to a race.
//!
//! *Taking* a task moves it out of the ring; *freeing* its place lets another
//! be pushed. They are two steps because the background level first takes all
//! it finds, to choose among it by weight, and gives a place back only when a
//! task starts: the capacity that its user chose bounds what waits, wherever it
//! waits.
//!
//! Invariants:
//!
//! - **Q1** `freed` ≤ `taken` ≤ `claimed`. `claimed` is raised by the pushers,
//!   `taken` and `freed` by the consumer alone, of which there is one. (Asserted in
//!   `take` and `free`.)
//! - **Q2** `claimed` − `freed` ≤ `places` ≤ number of slots. So a claimant's
//!   slot has been taken from, and the claimant alone may touch it until it
//!   sets the slot's turn. (Asserted in `push`.)
//! - **Q3** A slot's turn is position + 1 from when the value of that position
//!   is written; from then on the consumer alone may touch the slot, until
//!   it has freed the position. Positions never repeat, so no turn is mistaken
//!   for that of a lap before. (Asserted in `push`: the slot has the turn of
//!   the lap before; the model `pushes_arrive_once_and_in_order`.)
//!
//! Known weakness: a thread that stops between claiming and setting the turn
//! holds up what others push behind it, on this worker and level, until it goes
//! on. It does so for a few nanoseconds with a copy of one pointer in between,
//! and pushes happen in a non-preemptible region, so that only the kernel can
//! stop it.

use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::sync::{Acquire, AtomicU64, Relaxed, Release, UnsafeCell};

/// The bit of `claimed` that says that the queue is closed.
const CLOSED: u64 = 1 << 63;

/// Why a value was not taken in, and the value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused<T> {
    /// All places are in use.
    Full(T),
    /// The queue is closed for good.
    Closed(T),
}

/// The side that pushes, and that looks.
pub(crate) struct Queue<T> {
    places: u64,
    /// Number of slots − 1; the number is a power of two.
    mask: u64,
    slots: Box<[Slot<T>]>,
    claimed: CachePadded<AtomicU64>,
    freed: CachePadded<AtomicU64>,
    taken: CachePadded<AtomicU64>,
}

struct Slot<T> {
    turn: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// The side that takes. There is one for every queue.
pub(crate) struct Consumer<T> {
    queue: Arc<Queue<T>>,
}

// SAFETY: a value is handed from one thread to another and never shared (Q2,
// Q3), so `T: Send` is enough.
unsafe impl<T: Send> Sync for Queue<T> {}
// SAFETY: as above; the queue owns the values in it.
unsafe impl<T: Send> Send for Queue<T> {}

/// A queue in which that many values may wait.
pub(crate) fn queue<T>(places: NonZeroU32) -> Consumer<T> {
    let slots = u64::from(places.get()).next_power_of_two();
    let slot = |_| Slot {
        turn: AtomicU64::new(0),
        value: UnsafeCell::new(MaybeUninit::uninit()),
    };
    let queue = Arc::new(Queue {
        places: u64::from(places.get()),
        mask: slots - 1,
        slots: (0..slots).map(slot).collect(),
        claimed: CachePadded::new(AtomicU64::new(0)),
        freed: CachePadded::new(AtomicU64::new(0)),
        taken: CachePadded::new(AtomicU64::new(0)),
    });
    Consumer { queue }
}

impl<T> Queue<T> {
    fn slot(&self, position: u64) -> &Slot<T> {
        &self.slots[(position & self.mask) as usize]
    }

    /// Adds a value at the end, or gives it back.
    pub(crate) fn push(&self, value: T) -> Result<(), Refused<T>> {
        let mut claimed = self.claimed.load(Relaxed);
        loop {
            if claimed & CLOSED != 0 {
                return Err(Refused::Closed(value));
            }
            // Pairs with the release in `free`: the consumer is done with the
            // slot. Read after `claimed`, so that a queue is called full only
            // if it was.
            let freed = self.freed.load(Acquire);
            // Negative if `claimed` is out of date, which the exchange notices.
            if claimed.wrapping_sub(freed) as i64 >= self.places as i64 {
                return Err(Refused::Full(value));
            }
            match self
                .claimed
                .compare_exchange_weak(claimed, claimed + 1, Relaxed, Relaxed)
            {
                Ok(_) => break,
                Err(now) => claimed = now,
            }
        }
        let slot = self.slot(claimed);
        #[cfg(not(loom))]
        {
            let before = claimed.saturating_sub(self.mask);
            debug_assert_eq!(slot.turn.load(Relaxed), before, "Q3");
            debug_assert!(before <= self.taken.load(Relaxed), "Q2");
        }
        slot.value.with_mut(|place| {
            // SAFETY: the position is ours alone, and so is its slot (Q2).
            unsafe { (*place).write(value) };
        });
        // Pairs with the acquire in `take`: the value is there.
        slot.turn.store(claimed + 1, Release);
        Ok(())
    }

    /// Whether the consumer would find something. Exact on the consumer's own
    /// thread; elsewhere the answer may be out of date.
    pub(crate) fn is_ready(&self) -> bool {
        let taken = self.taken.load(Relaxed);
        self.slot(taken).turn.load(Acquire) == taken + 1
    }

    /// How many places are in use. The answer may be out of date.
    pub(crate) fn len(&self) -> u64 {
        let freed = self.freed.load(Relaxed);
        (self.claimed.load(Relaxed) & !CLOSED).saturating_sub(freed)
    }

    /// Refuses all pushes from now on.
    pub(crate) fn close(&self) {
        self.claimed.fetch_or(CLOSED, Relaxed);
    }

    /// Whether the queue is closed, and everything in it was taken.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.claimed.load(Relaxed) == self.taken.load(Relaxed) | CLOSED
    }
}

impl<T> Consumer<T> {
    /// The side that pushes.
    pub(crate) fn queue(&self) -> &Arc<Queue<T>> {
        &self.queue
    }

    /// Takes the value that has waited longest. Its place stays in use until
    /// [`free`](Self::free).
    pub(crate) fn take(&mut self) -> Option<T> {
        let taken = self.queue.taken.load(Relaxed);
        let slot = self.queue.slot(taken);
        // Pairs with the release in `push`.
        if slot.turn.load(Acquire) != taken + 1 {
            return None;
        }
        #[cfg(not(loom))]
        debug_assert!(taken < self.queue.claimed.load(Relaxed) & !CLOSED, "Q1");
        let value = slot.value.with_mut(|place| {
            // SAFETY: the value was written, and the slot is the consumer's
            // (Q3), of which `&mut self` is the only one.
            unsafe { (*place).assume_init_read() }
        });
        self.queue.taken.store(taken + 1, Relaxed);
        Some(value)
    }

    /// Gives back the place of a value taken before.
    pub(crate) fn free(&mut self) {
        let freed = self.queue.freed.load(Relaxed);
        debug_assert!(freed < self.queue.taken.load(Relaxed), "Q1");
        // Pairs with the acquire in `push`.
        self.queue.freed.store(freed + 1, Release);
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        let claimed = self.claimed.load(Relaxed) & !CLOSED;
        for position in self.taken.load(Relaxed)..claimed {
            self.slot(position).value.with_mut(|place| {
                // SAFETY: nobody has the queue any more, so every claimed
                // position was written (Q2) and those from `taken` on were not
                // read (Q3).
                unsafe { (*place).assume_init_drop() };
            });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn places(number: u32) -> Consumer<String> {
        queue(NonZeroU32::new(number).unwrap())
    }

    #[test]
    fn a_full_queue_gives_the_value_back() {
        // Three places, four slots: the slots are not the bound.
        let mut consumer = places(3);
        let queue = Arc::clone(consumer.queue());
        for lap in 0..10 {
            for number in 0..3 {
                assert_eq!(queue.push(format!("{lap} {number}")), Ok(()));
            }
            assert_eq!(queue.push("more".into()), Err(Refused::Full("more".into())));
            for number in 0..3 {
                assert_eq!(consumer.take(), Some(format!("{lap} {number}")));
                consumer.free();
            }
            assert!(consumer.take().is_none() && !queue.is_ready());
        }
    }

    #[test]
    fn a_place_stays_in_use_until_it_is_freed() {
        let mut consumer = places(2);
        let queue = Arc::clone(consumer.queue());
        queue.push("a".into()).unwrap();
        queue.push("b".into()).unwrap();
        assert_eq!(consumer.take().as_deref(), Some("a"));
        assert_eq!(consumer.take().as_deref(), Some("b"));
        assert_eq!(queue.len(), 2);
        assert!(queue.push("c".into()).is_err());
        consumer.free();
        assert_eq!(queue.push("c".into()), Ok(()));
        assert!(queue.push("d".into()).is_err());
    }

    #[test]
    fn a_closed_queue_takes_nothing_in_and_keeps_what_it_has() {
        let mut consumer = places(2);
        let queue = Arc::clone(consumer.queue());
        queue.push("a".into()).unwrap();
        queue.close();
        assert_eq!(queue.push("b".into()), Err(Refused::Closed("b".into())));
        assert!(!queue.is_exhausted());
        assert_eq!((queue.len(), consumer.take().as_deref()), (1, Some("a")));
        assert!(queue.is_exhausted());
    }

    #[test]
    fn what_is_left_is_dropped_once() {
        let value = Arc::new(());
        let mut consumer = queue(NonZeroU32::new(4).unwrap());
        for _ in 0..4 {
            assert!(consumer.queue().push(Arc::clone(&value)).is_ok());
        }
        drop(consumer.take());
        assert_eq!(Arc::strong_count(&value), 4);
        drop(consumer);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn threads_lose_nothing() {
        const EACH: u64 = 1000;
        let mut consumer = queue::<u64>(NonZeroU32::new(3).unwrap());
        let pushers: Vec<_> = (0..2)
            .map(|thread| {
                let queue = Arc::clone(consumer.queue());
                std::thread::spawn(move || {
                    for number in 0..EACH {
                        while queue.push(thread * EACH + number).is_err() {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let mut next = [0, EACH];
        while next != [EACH, 2 * EACH] {
            match consumer.take() {
                Some(value) => {
                    consumer.free();
                    let of = usize::from(value >= EACH);
                    assert_eq!(value, next[of]);
                    next[of] += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        for pusher in pushers {
            pusher.join().unwrap();
        }
    }
}
