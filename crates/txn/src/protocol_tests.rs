//! Tests of `latch`, `txn_status` and `epoch` in one thread. They are not in those
//! files because the model checker of `tests/models.rs` includes these.

use crate::epoch::Epochs;
use crate::latch::Latch;
use crate::preemption;
use crate::sync::SLOTS;
use crate::txn_status::{Outcome, TxnStatus};

#[test]
fn a_reader_notices_a_writer_and_an_end() {
    let latch = Latch::new();
    let seen = latch.read().unwrap();
    assert!(latch.validate(seen));
    drop(latch.upgrade(seen).unwrap());
    assert!(!latch.validate(seen));
    assert!(latch.upgrade(seen).is_none());
    let seen = latch.read().unwrap();
    latch.upgrade(seen).unwrap().make_obsolete();
    assert!(latch.read().is_none());
    assert!(latch.is_obsolete());
}

#[test]
fn only_a_commit_up_to_the_limit_counts() {
    let _region = preemption::region();
    let status = TxnStatus::new(0);
    assert!(!status.committed_by(9));
    assert_eq!(status.outcome(), Outcome::Active);
    status.prepare();
    status.prepare_at(5);
    assert!(!status.committed_by(4));
    status.commit(5);
    assert!(!status.committed_by(4));
    assert!(status.committed_by(5));
    assert_eq!(status.outcome(), Outcome::Committed(5));
    let status = TxnStatus::new(0);
    status.abort();
    assert!(!status.committed_by(u64::MAX >> 2));
    assert_eq!(status.outcome(), Outcome::Aborted);
}

#[test]
fn the_oldest_snapshot_holds_back_what_it_might_need() {
    let epochs: Epochs<()> = Epochs::new(|| ());
    assert_eq!(epochs.draw(), 1);
    let (old, snapshot) = epochs.claim(0).unwrap();
    assert_eq!(snapshot, 1);
    assert_eq!(epochs.draw(), 2);
    let (young, _) = epochs.claim(0).unwrap();
    assert_ne!(old, young);
    assert_eq!(epochs.oldest(None), (1, Some((old, 1))));
    epochs.release(old);
    assert_eq!(epochs.oldest(None), (2, Some((young, 2))));
    epochs.release(young);
    assert_eq!(epochs.oldest(None), (u64::MAX, None));
}

#[test]
fn a_claim_fails_when_all_slots_are_taken() {
    let epochs: Epochs<()> = Epochs::new(|| ());
    for _ in 0..SLOTS {
        epochs.claim(3).unwrap();
    }
    assert!(epochs.claim(3).is_none());
}
