//! Plans and rows.

use super::*;

fn plan(experiments: &[LockExperiment], locks: &[&str]) -> LockPlan {
    LockPlan {
        experiments: experiments.to_vec(),
        locks: locks.iter().map(|name| name.to_string()).collect(),
        seconds: 0.02,
        threads: vec![2],
        rounds: 3,
        ..LockPlan::default()
    }
}

#[test]
fn every_experiment_makes_the_rows_it_announces() {
    let plan = plan(&LockExperiment::ALL, &["pthread", "u-scl", "none"]);
    let mut lines = Vec::new();
    let rows = plan.run(&mut |line| lines.push(line.to_owned())).unwrap();
    assert_eq!(rows.len(), plan.rows().unwrap());
    for row in &rows {
        let alone = row.experiment == LockExperiment::Uncontended;
        assert_eq!(row.contended.is_none(), alone, "{row:?}");
        assert_eq!(row.uncontended_ns.len(), if alone { 3 } else { 0 });
        // No lock at all is measured alone only.
        assert!(alone || row.lock != "none");
    }
    assert!(
        lines
            .iter()
            .any(|line| line.contains("convoy 1:20 µs, 2 threads: u-scl"))
    );
}

#[test]
fn arrivals_are_counted_and_served() {
    let plan = LockPlan {
        seconds: 0.2,
        ..plan(&[LockExperiment::Newcomers], &["fifo"])
    };
    for row in plan.run(&mut |_| ()).unwrap() {
        let arrivals = row.contended.unwrap().arrivals.unwrap();
        assert!((1..20).contains(&arrivals.count), "{arrivals:?}");
        assert_eq!(arrivals.first.count, arrivals.count, "{arrivals:?}");
        assert!(arrivals.share_of_equal > 0.0, "{arrivals:?}");
    }
}

#[test]
fn one_thread_cannot_contend() {
    let plan = LockPlan {
        threads: vec![1],
        ..LockPlan::default()
    };
    let error = plan.validate().unwrap_err().to_string();
    assert!(error.contains("2 to 1024"), "{error}");
}
