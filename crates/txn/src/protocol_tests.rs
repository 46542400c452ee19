//! Tests of `latch`, `txn_status`, `epoch` and `surplus` in one thread. They are not in those
//! files because the model checker of `tests/models.rs` includes these.

use crate::epoch::Epochs;
use crate::latch::Latch;
use crate::preemption::{self, Writer};
use crate::surplus::{LIMBO, Limbo, Surplus};
use crate::sync::SLOTS;
use crate::txn_context::Retired;
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
    let status = TxnStatus::new(Writer::ELSEWHERE);
    assert!(!status.committed_by(9));
    assert_eq!(status.outcome(), Outcome::Active);
    status.prepare();
    status.prepare_at(5);
    assert!(!status.committed_by(4));
    status.commit(5);
    assert!(!status.committed_by(4));
    assert!(status.committed_by(5));
    assert_eq!(status.outcome(), Outcome::Committed(5));
    let status = TxnStatus::new(Writer::ELSEWHERE);
    status.abort();
    assert!(!status.committed_by(u64::MAX >> 2));
    assert_eq!(status.outcome(), Outcome::Aborted);
}

#[test]
fn the_oldest_transaction_holds_back_what_was_retired_since_it_began() {
    let epochs: Epochs<()> = Epochs::new(|| ());
    assert_eq!(epochs.draw(), 1);
    let before = epochs.stamp();
    let (old, snapshot) = epochs.claim(0).unwrap();
    assert_eq!(snapshot, 1);
    // Nobody has committed since, and nobody need.
    assert!(before < epochs.oldest(None).0);
    let between = epochs.stamp();
    let (young, snapshot) = epochs.claim(0).unwrap();
    assert_eq!(snapshot, 1);
    assert_ne!(old, young);
    let published = epochs.published(old);
    assert_eq!(epochs.oldest(None), (published, Some((old, published))));
    assert!(between >= published);
    epochs.release(old);
    let published = epochs.published(young);
    assert_eq!(epochs.oldest(None), (published, Some((young, published))));
    assert!(between < published);
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

/// Two transactions that overlap, as those of one thread may, take no new slots for ever.
#[test]
fn slots_that_were_used_are_taken_first() {
    let epochs: Epochs<()> = Epochs::new(|| ());
    let mut hint = 0;
    let mut claim = || {
        hint = epochs.claim(hint).unwrap().0;
        hint
    };
    let mut reader = claim();
    for _ in 0..SLOTS {
        let next = claim();
        epochs.release(reader);
        reader = next;
        epochs.release(claim());
    }
    assert!(epochs.used() <= 3, "{} slots", epochs.used());
}

/// What is left of a long limbo keeps no more memory than it takes.
#[test]
fn what_is_left_of_a_long_limbo_keeps_little_memory() {
    let surplus = Surplus::default();
    let mut limbo = Limbo::with_capacity(100_000);
    let piece = |stamp| (stamp, Retired::Table(std::ptr::null()));
    limbo.extend((0..10_000).map(piece));
    surplus.leave(limbo, 0);
    let piece = size_of::<(u64, Retired)>() as u64;
    assert!(surplus.lists() < 11_000 * piece, "{}", surplus.lists());
    // It goes with its pieces, the first ones first.
    let mut taken = Vec::new();
    assert_eq!(surplus.take(|| 7_000, usize::MAX, &mut taken), 7_000);
    let left = 3_000 + LIMBO as u64;
    assert!(surplus.lists() <= left * piece, "{}", surplus.lists());
    assert_eq!(surplus.take(|| u64::MAX, usize::MAX, &mut taken), 3_000);
    assert_eq!(surplus.lists(), 0);
}
