//! The protocols under a model checker: the files themselves, with loom's
//! atomics in the place of the real ones, in every interleaving and with every
//! value that weak memory allows (within loom's limits: fences are sequentially
//! consistent, single accesses are not).

// Not everything in the files is used by a model.
#![allow(dead_code)]

#[path = "../src/claims.rs"]
mod claims;
#[path = "../src/epoch.rs"]
mod epoch;
#[path = "../src/gate.rs"]
mod gate;
#[path = "../src/latch.rs"]
mod latch;
#[path = "../src/surplus.rs"]
mod surplus;
#[path = "../src/txn_status.rs"]
mod txn_status;

/// In the place of `src/sync.rs`.
mod sync {
    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
    pub(crate) use std::sync::PoisonError;

    pub(crate) const SLOTS: usize = 2;
    pub(crate) const MODEL: bool = true;

    pub(crate) struct Wait;

    impl Wait {
        pub(crate) fn new() -> Wait {
            Wait
        }
        pub(crate) fn step(&mut self) {
            loom::thread::yield_now();
        }
    }
}

/// In the place of `src/preemption.rs`: threads stand for contexts.
mod preemption {
    pub(crate) struct Region;
    pub(crate) fn region() -> Region {
        Region
    }
    pub(crate) fn poll_point() {}
    pub(crate) fn in_region() -> bool {
        true
    }

    #[derive(Clone, Copy)]
    pub(crate) struct Writer;
    impl Writer {
        pub(crate) const ELSEWHERE: Writer = Writer;
    }
}

/// In the place of `src/txn_context.rs`: what can be freed has a number.
mod txn_context {
    pub(crate) struct Retired(pub(crate) usize);

    impl Retired {
        pub(crate) unsafe fn free(self, _pool: Option<&mut ()>) {}
    }
}

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use claims::Claims;
use epoch::Epochs;
use gate::Gate;
use latch::Latch;
use surplus::Surplus;
use sync::{AcqRel, Acquire, AtomicU64, Relaxed, Release};
use txn_context::Retired;
use txn_status::TxnStatus;

/// Switches of threads that are tried beyond those that must be.
fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

/// L2: what a validated reader has read is one state.
#[test]
fn readers_of_a_latch_see_whole_states() {
    struct Node {
        latch: Latch,
        fields: [AtomicU64; 2],
    }
    model(3, || {
        let node = Arc::new(Node {
            latch: Latch::new(),
            fields: [AtomicU64::new(0), AtomicU64::new(0)],
        });
        let writer = {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                let seen = node.latch.read().expect("not obsolete");
                let held = node.latch.upgrade(seen).expect("nobody else writes");
                node.fields[0].store(1, Relaxed);
                node.fields[1].store(1, Relaxed);
                drop(held);
            })
        };
        let seen = node.latch.read().expect("not obsolete");
        let (second, first) = (node.fields[1].load(Relaxed), node.fields[0].load(Relaxed));
        if node.latch.validate(seen) {
            assert_eq!(first, second);
        }
        writer.join().unwrap();
    });
}

/// L1: of two writers that saw the same, one gets the latch, and what it wrote
/// is seen by the next.
#[test]
fn writers_of_a_latch_exclude_each_other() {
    model(3, || {
        let node = Arc::new((Latch::new(), UnsafeCell::new(0)));
        let write = |node: &(Latch, UnsafeCell<i32>)| {
            let held = node.0.read().and_then(|seen| node.0.upgrade(seen));
            let held = held?;
            // SAFETY: the latch is held; loom checks it.
            node.1.with_mut(|value| unsafe { *value += 1 });
            drop(held);
            Some(())
        };
        let other = {
            let node = Arc::clone(&node);
            thread::spawn(move || i32::from(write(&node).is_some()))
        };
        let here = i32::from(write(&node).is_some());
        let both = here + other.join().unwrap();
        // SAFETY: the other thread has ended.
        assert_eq!(node.1.with(|value| unsafe { *value }), both);
        assert!(both > 0);
    });
}

/// F1: a reader that has decided not to see a transaction does not see it later,
/// and the other way round; who begins after a commit sees it.
#[test]
fn a_snapshot_does_not_change() {
    model(3, || {
        let shared = Arc::new((
            Epochs::<()>::new(|| ()),
            TxnStatus::new(preemption::Writer::ELSEWHERE),
            AtomicU64::new(0),
        ));
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (epochs, status, done) = &*shared;
                status.prepare();
                let ts = epochs.draw();
                status.prepare_at(ts);
                status.commit(ts);
                done.store(1, Release);
            })
        };
        let (epochs, status, done) = &*shared;
        let ended = done.load(Acquire) == 1;
        let (slot, snapshot) = epochs.claim(0).expect("a free slot");
        let first = status.committed_by(snapshot);
        let second = status.committed_by(snapshot);
        assert_eq!(first, second);
        assert!(first || !ended);
        epochs.release(slot);
        writer.join().unwrap();
    });
}

/// C1: of two transactions that each have not seen what the other writes, at
/// most one is certified.
#[test]
fn write_skew_is_refused() {
    model(2, || {
        let shared = Arc::new((
            Epochs::<()>::new(|| ()),
            [
                TxnStatus::new(preemption::Writer::ELSEWHERE),
                TxnStatus::new(preemption::Writer::ELSEWHERE),
            ],
        ));
        let commit = |shared: &(Epochs<()>, [TxnStatus; 2]), mine: usize| {
            let (epochs, statuses) = shared;
            statuses[mine].prepare();
            let ts = epochs.draw();
            statuses[mine].prepare_at(ts);
            // Each has read, before the other wrote, what the other writes.
            let certified = !statuses[1 - mine].committed_by(ts - 1);
            if certified {
                statuses[mine].commit(ts);
            } else {
                statuses[mine].abort();
            }
            certified
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || commit(&shared, 1))
        };
        let here = commit(&shared, 0);
        let there = other.join().unwrap();
        assert!(here ^ there, "one, and not both");
    });
}

/// K1: what was written under an index set is committed before the set is replaced, or
/// not at all; what was written under the next one, is.
#[test]
fn nobody_commits_after_a_change_what_was_written_before_it() {
    model(3, || {
        let shared = Arc::new((
            Epochs::<()>::new(|| ()),
            TxnStatus::new(preemption::Writer::ELSEWHERE),
            AtomicU64::new(0),
        ));
        let change = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (epochs, until, set) = &*shared;
                until.prepare();
                let ts = epochs.draw();
                until.prepare_at(ts);
                set.store(1, Release);
                until.commit(ts);
                ts
            })
        };
        let (epochs, until, set) = &*shared;
        let written_under = set.load(Acquire);
        let ts = epochs.draw();
        let refused = written_under == 0 && until.committed_by(ts);
        let changed = change.join().unwrap();
        assert_eq!(refused, written_under == 0 && changed < ts);
    });
}

/// J1: when a gate was closed, nobody is inside.
#[test]
fn nobody_is_inside_a_gate_that_was_closed() {
    model(3, || {
        let shared = Arc::new((Gate::open(), UnsafeCell::new(0)));
        // SAFETY: one thread uses the cell while it is inside, the other after it has
        // closed the gate; loom checks it.
        unsafe impl Sync for Guarded {}
        // SAFETY: as above.
        unsafe impl Send for Guarded {}
        struct Guarded(Arc<(Gate, UnsafeCell<i32>)>);
        let other = Guarded(Arc::clone(&shared));
        let passing = thread::spawn(move || {
            let other = other;
            if let Some(_inside) = other.0.0.pass() {
                // SAFETY: as above.
                other.0.1.with_mut(|value| unsafe { *value += 1 });
            }
        });
        shared.0.close();
        // SAFETY: as above.
        shared.1.with_mut(|value| unsafe { *value += 1 });
        assert!(shared.0.pass().is_none());
        passing.join().unwrap();
    });
}

/// K6: of all who cover a record one counts, and none marks it when the marks are
/// taken away for another index.
#[test]
fn of_all_who_cover_a_record_one_counts() {
    model(2, || {
        let shared = Arc::new((Gate::open(), AtomicU64::new(0), AtomicU64::new(0)));
        let cover = |shared: &(Gate, AtomicU64, AtomicU64)| {
            let (gate, mark, spans) = shared;
            if mark.load(Acquire) == 1 {
                return;
            }
            if let Some(_inside) = gate.pass() {
                spans.fetch_add(1, AcqRel);
                if mark.fetch_or(1, AcqRel) == 1 {
                    spans.fetch_sub(1, AcqRel);
                }
            }
        };
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || cover(&shared))
        };
        cover(&shared);
        let (gate, mark, spans) = &*shared;
        gate.close();
        assert_eq!((mark.load(Acquire), spans.load(Acquire)), (1, 1));
        // Another index begins; the writer may only just go on.
        mark.store(0, Relaxed);
        writer.join().unwrap();
        assert_eq!((mark.load(Acquire), spans.load(Acquire)), (0, 1));
    });
}

/// Q1: of two who claim a key, each of which looks for the other and then shows itself,
/// one goes on. So it is if they have other keys beside it.
#[test]
fn of_two_who_claim_a_key_the_second_finds_the_first() {
    model(3, || {
        let shared = Arc::new((Claims::new(), [AtomicU64::new(0), AtomicU64::new(0)]));
        let write = |shared: &(Claims, [AtomicU64; 2]), mine: usize| {
            let (claims, there) = shared;
            let _claimed = claims.claim(1 | 2 << mine);
            let goes_on = there[1 - mine].load(Relaxed) == 0;
            if goes_on {
                there[mine].store(1, Relaxed);
            }
            goes_on
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || write(&shared, 1))
        };
        let here = write(&shared, 0);
        let there = other.join().unwrap();
        assert!(here ^ there, "one, and not both");
        // Everything was given up.
        drop(shared.0.claim(u64::MAX));
    });
}

/// An object that is linked, another that takes its place, and the transactions that find
/// one of them.
struct Linked {
    epochs: Epochs<()>,
    surplus: Surplus,
    /// Which of the objects is linked.
    link: AtomicU64,
    objects: [UnsafeCell<u32>; 2],
}

// SAFETY: loom checks the accesses to the objects.
unsafe impl Sync for Linked {}

impl Linked {
    fn new() -> Arc<Linked> {
        Arc::new(Linked {
            epochs: Epochs::new(|| ()),
            surplus: Surplus::default(),
            link: AtomicU64::new(0),
            objects: [UnsafeCell::new(7), UnsafeCell::new(7)],
        })
    }

    /// A transaction that reads what it finds.
    fn read(&self) {
        let (slot, _) = self.epochs.claim(1).expect("a free slot");
        let at = self.link.load(Acquire) as usize;
        // SAFETY: found while the slot is held, so not freed (E1).
        let value = self.objects[at].with(|object| unsafe { *object });
        assert_eq!(value, 7);
        self.epochs.release(slot);
    }

    /// Puts the second object in the place of the first; the stamp of that.
    fn unlink(&self) -> u64 {
        self.link.store(1, Release);
        self.epochs.stamp()
    }

    fn free(&self, at: usize) {
        // SAFETY: stamped before the oldest open transaction (E1).
        self.objects[at].with_mut(|object| unsafe { *object = 0 });
    }
}

/// E1: what is freed is not found, or not used any more.
#[test]
fn nothing_is_freed_under_a_reader() {
    model(3, || {
        let shared = Linked::new();
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.read())
        };
        // Others retire something, too.
        let ticker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.epochs.stamp())
        };
        let stamp = shared.unlink();
        if stamp < shared.epochs.oldest(None).0 {
            shared.free(0);
        }
        ticker.join().unwrap();
        reader.join().unwrap();
    });
}

/// E3, E4: a version is freed when no snapshot needs it, and a snapshot that does not hold
/// it back sees the commit that replaced it.
#[test]
fn no_version_is_freed_under_a_snapshot_that_needs_it() {
    model(3, || {
        let shared = Linked::new();
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (slot, snapshot) = shared.epochs.claim(1).expect("a free slot");
                // The newest version is at hand, and the one below it if that is too new.
                let at = snapshot as usize;
                // SAFETY: needed by the snapshot, so not freed (E3).
                let value = shared.objects[at].with(|object| unsafe { *object });
                assert_eq!(value, 7);
                shared.epochs.release(slot);
            })
        };
        let ticker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.epochs.stamp())
        };
        assert_eq!(shared.epochs.draw(), 1);
        let stamp = shared.epochs.stamp();
        if stamp < shared.epochs.oldest(None).0 {
            shared.free(0);
        }
        ticker.join().unwrap();
        reader.join().unwrap();
    });
}

/// X3: nor what another transaction left to the surplus, whenever that was.
#[test]
fn nothing_of_the_surplus_is_freed_under_a_reader() {
    model(3, || {
        let shared = Linked::new();
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.read())
        };
        let collector = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut taken = Vec::new();
                let oldest = || shared.epochs.oldest(Some(0)).0;
                shared.surplus.take(oldest, 1, &mut taken);
                for Retired(at) in taken {
                    shared.free(at);
                }
            })
        };
        let stamp = shared.unlink();
        shared.surplus.leave([(stamp, Retired(0))].into(), 0);
        collector.join().unwrap();
        reader.join().unwrap();
    });
}
