//! Shares of real threads in real time, which a machine that does something
//! else disturbs: a lock that shares is within bounds in one of a few tries,
//! and one that does not, never in all of them.

use giveway_bench::experiments::locks::{LockExperiment, LockPlan};

const TRIES: u32 = 6;

/// The hold-time ratio at weights 8:1; 1 is fair.
fn ratio_at_eight_to_one(lock: &str) -> f64 {
    let plan = LockPlan {
        experiments: vec![LockExperiment::Weights],
        locks: vec![lock.to_owned()],
        threads: vec![4],
        seconds: 0.7,
        ..LockPlan::default()
    };
    let rows = plan.run(&mut |_| ()).unwrap();
    let row = rows.into_iter().find(|row| row.case == "8:1").unwrap();
    row.contended.unwrap().ratio.unwrap_or(0.0)
}

#[test]
fn u_scl_shares_hold_time_by_weight() {
    // Slices of 2 ms in a short window leave some of the way to 1 open. If nobody
    // is ever banned, or for the same time whatever the weight, it is 1/8.
    let mut seen = Vec::new();
    let ever_fair = (0..TRIES).any(|_| {
        let ratio = ratio_at_eight_to_one("u-scl");
        seen.push(ratio);
        (0.4..2.5).contains(&ratio)
    });
    assert!(ever_fair, "never fair: {seen:?}");
}
