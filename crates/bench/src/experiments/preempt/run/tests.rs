//! Plans and rows: every experiment is run, small.

use super::*;
use crate::experiments::preempt::*;
use crate::workload::tpcc::generate::Size;

fn plan(experiments: &[PreemptExperiment]) -> PreemptPlan {
    PreemptPlan {
        experiments: experiments.to_vec(),
        seconds: 0.05,
        size: Size::SMALL,
        q2_scale: 0.001,
        rounds: 3,
        ..PreemptPlan::default()
    }
}

/// The rows of an experiment; none on a machine that has no CPU for a worker.
fn rows(experiment: PreemptExperiment) -> Vec<PreemptRow> {
    measured(&plan(&[experiment]))
}

/// The rows of a plan, as above.
fn measured(plan: &PreemptPlan) -> Vec<PreemptRow> {
    if cpus::allowed().unwrap().len() < 2 {
        eprintln!("skipped: a worker and a scheduling thread need two CPUs");
        return Vec::new();
    }
    let rows = plan.run(&mut |_| ()).unwrap();
    assert_eq!(rows.len(), plan.rows().unwrap(), "{plan:?}");
    rows
}

fn mixed(row: &PreemptRow) -> &Mixed {
    match &row.measured {
        Measured::Mixed(mixed) => mixed,
        other => panic!("not a run of the mix: {other:?}"),
    }
}

/// Rows in which every request that is due has ended or was dropped. Somebody who
/// takes the CPUs away can have all of them dropped in a window, but not in all.
fn served(experiment: PreemptExperiment) -> Vec<PreemptRow> {
    let rows = rows(experiment);
    let mut ended = 0;
    for row in &rows {
        let Mixed {
            new_order,
            payment,
            urgent,
            dropped,
            stalls,
            ..
        } = mixed(row);
        let of_row = new_order.count + payment.count;
        assert_eq!(of_row + dropped, *urgent, "{row:?}");
        assert!(new_order.p50_us <= new_order.max_us, "{row:?}");
        assert_eq!(new_order.p50_us > 0.0, new_order.count > 0, "{row:?}");
        // Calm requests are some of them.
        let calm = stalls.as_ref().unwrap();
        assert!(calm.new_order.count <= new_order.count, "{row:?}");
        assert!(calm.payment.count <= payment.count, "{row:?}");
        ended += of_row;
    }
    assert!(ended > 0 || rows.is_empty(), "nothing was served at all");
    rows
}

#[test]
fn latency_compares_policies_and_threads() {
    let rows = served(PreemptExperiment::Latency);
    for name in ["wait", "hybrid", "threads", "threads-fifo"] {
        let found = rows.is_empty() || rows.iter().any(|row| row.method == name);
        assert!(found, "{name}");
    }
}

#[test]
fn overhead_counts_what_was_interrupted() {
    // The interrupting thread may have no CPU for a whole run, but not for all.
    let tries = (0..20).map(|_| {
        let rows = rows(PreemptExperiment::Overhead);
        rows.iter().all(|row| match &row.measured {
            Measured::Overhead(overhead) => {
                assert_eq!(overhead.pairs.len(), PAIRS as usize);
                assert!(overhead.losses().next().is_some(), "{overhead:?}");
                overhead.taken > 0
            }
            other => panic!("{other:?}"),
        })
    });
    assert!(tries.into_iter().any(|interrupted| interrupted));
}

#[test]
fn sweeps_serve_everything() {
    served(PreemptExperiment::Scaling);
    served(PreemptExperiment::YieldInterval);
    served(PreemptExperiment::Starvation);
    served(PreemptExperiment::Arrivals);
}

#[test]
fn a_load_stretches_all_times_by_what_requests_take_here() {
    let plan = PreemptPlan {
        load: Some(0.05),
        ..plan(&[PreemptExperiment::Scaling])
    };
    for row in measured(&plan) {
        let mixed = mixed(&row);
        let offered = mixed.offered.as_ref().unwrap();
        let near = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-3;
        assert!(near(offered.load, 0.05), "{offered:?}");
        assert!(near(mixed.arrival_us, 1e3 * offered.stretch), "{row:?}");
        assert!(
            near(mixed.seconds, plan.seconds * offered.stretch),
            "{row:?}"
        );
        let over_us = mixed.stalls.as_ref().unwrap().over_us;
        assert!(near(over_us, 200.0 * offered.stretch), "{row:?}");
        assert!(offered.service.q2_us > 0.0, "{offered:?}");
    }
}

#[test]
fn operations_take_time() {
    for row in rows(PreemptExperiment::Micro) {
        match row.measured {
            Measured::Operation(operation) => {
                assert_eq!(operation.ns.len(), 3);
                assert!(operation.ns.iter().all(|ns| *ns > 0.0), "{operation:?}");
            }
            Measured::Delivery(delivery) => assert!(delivery.latency.p50_ns > 0),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn engines_are_all_compared() {
    let rows = rows(PreemptExperiment::Engines);
    for row in &rows {
        let Measured::Throughput(throughput) = &row.measured else {
            panic!("{row:?}");
        };
        assert_eq!(throughput.per_s.len(), ROUNDS as usize);
        assert!(throughput.per_s.iter().all(|per_s| *per_s > 0.0));
    }
}

#[test]
fn workers_without_a_cpu_are_refused() {
    let plan = PreemptPlan {
        workers: vec![1_000],
        ..PreemptPlan::default()
    };
    let error = plan.validate().unwrap_err().to_string();
    assert!(error.contains("--workers"), "{error}");
}
