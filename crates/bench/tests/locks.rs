//! Shares of real threads in real time, which a machine that does something
//! else disturbs: a lock that shares is within bounds in one of a few tries,
//! and one that does not, never in all the runs that are asked of it.

use giveway_bench::locks::{LockExperiment, LockPlan, LockRow};

const TRIES: u32 = 6;

/// The hold-time ratio of each run of the experiment, by case.
fn ratios(experiment: LockExperiment, lock: &str) -> Vec<(String, f64)> {
    let plan = LockPlan {
        experiments: vec![experiment],
        locks: vec![lock.to_owned()],
        threads: vec![4],
        seconds: 0.7,
        ..LockPlan::default()
    };
    let rows = plan.run(&mut |_| ()).unwrap();
    let ratio = |row: LockRow| (row.case, row.contended.unwrap().ratio.unwrap_or(0.0));
    rows.into_iter().map(ratio).collect()
}

#[test]
fn u_scl_shares_hold_time_equally_and_by_weight() {
    // Slices of 2 ms in a window of 0.7 s leave some percent open.
    let fair = |ratio: f64| (0.85..1.18).contains(&ratio);
    for (experiment, cases) in [
        (LockExperiment::Fairness, ["1:3 µs"].as_slice()),
        (LockExperiment::Weights, ["2:1", "8:1"].as_slice()),
    ] {
        let mut open = cases.to_vec();
        let mut seen = Vec::new();
        for _ in 0..TRIES {
            let ratios = ratios(experiment, "u-scl");
            open.retain(|case| {
                !ratios
                    .iter()
                    .any(|(name, ratio)| name == case && fair(*ratio))
            });
            seen.extend(ratios);
            if open.is_empty() {
                break;
            }
        }
        assert!(
            open.is_empty(),
            "{experiment}, never fair: {open:?} of {seen:?}"
        );
    }
}
