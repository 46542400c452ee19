//! A report with round numbers, for tests.

use std::collections::BTreeMap;

use crate::cell::config::Mix;
use crate::cell::setup::{By, Hints};
use crate::cell::ufs::{Callback, LockCounts, UfsCounts};
use crate::experiments::hint_overhead::{Arm, HintPlan, HintRow};
use crate::experiments::mixed::report::samples as mixed;
use crate::harness::scheduler::Scheduler;
use crate::report::Report;
use crate::workload::background::Job;

/// Three repeats of every arm, and the timed pairs.
pub(crate) fn report() -> Report<HintRow> {
    let plan = HintPlan {
        hints: vec![Hints::Stock, Hints::Patched],
        job: Job::Q17,
        cpus: 4,
        warmup_s: 1.0,
        seconds: 4.0,
        repeat: 3,
        seed: 1,
        time_callbacks: true,
    };
    let environment = mixed::report().environment;
    let mut report = Report::new("hint-overhead", environment);
    for cell in plan.cells() {
        let base = 400.0 * (1.0 + 0.1 * f64::from(cell.repeat));
        let timed = if cell.time_callbacks { 0.5 } else { 1.0 };
        let kept = if cell.hints == Hints::Off { 1.0 } else { 0.995 };
        let tps = base * timed * kept;
        let mut row = mixed::row(
            Scheduler::Ufs,
            Mix::MinMax,
            cell.repeat,
            Some(tps),
            10.0,
            Some(60.0),
        );
        row.by = By::Roles;
        row.server = cell.server;
        row.hints = cell.hints;
        row.counted_only = !cell.boost;
        row.ufs = Some(counts(&cell.hints, cell.time_callbacks));
        report.rows.push(HintRow(row));
    }
    debug_assert!(report.rows.iter().any(|row| row.arm() == Arm::Counted));
    report
}

fn counts(hints: &Hints, timed: bool) -> UfsCounts {
    let ns = if *hints == Hints::Off { 400 } else { 500 };
    let stopping = Callback {
        calls: 1_000,
        run_ns: 1_000 * ns,
    };
    let mut lock_wait_ns = vec![0; 128];
    (lock_wait_ns[42], lock_wait_ns[60]) = (90, 1);
    UfsCounts {
        locks: match hints {
            Hints::Off => LockCounts::default(),
            _ => LockCounts {
                holders_preempted: 40,
                holders_awaited: 4,
                lock_waits: 91,
                lock_wait_ns,
                ..LockCounts::default()
            },
        },
        callbacks: match timed {
            true => BTreeMap::from([("stopping".to_owned(), stopping)]),
            false => BTreeMap::new(),
        },
    }
}
