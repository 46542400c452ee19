//! Rows like those that cells give, with round numbers.

use crate::cell::setup::Hints;
use crate::experiments::inversion::{ContendedLock, InversionRow, Outcome, Scenario, Treatment};
use crate::harness::environment::Environment;
use crate::harness::scheduler::Scheduler;
use crate::report::Report;

/// All locks under all treatments, two repeats.
pub(crate) fn report() -> Report<InversionRow> {
    let environment = Environment {
        kernel: "7.2.13".to_owned(),
        machine: "sample".to_owned(),
        date: "2026-11-21".to_owned(),
        clock: "lockstep".to_owned(),
        commit: "0123456789abcdef".to_owned(),
        postgresql: "17.11".to_owned(),
        cpus: 2,
        ..Environment::default()
    };
    let mut report = Report::new(crate::experiments::inversion::NAME, environment);
    let schedulers = [
        Scheduler::Eevdf,
        Scheduler::Fifo,
        Scheduler::Rr,
        Scheduler::Ufs,
    ];
    for repeat in 0..2 {
        for treatment in Treatment::all(&schedulers, Hints::ALL) {
            for lock in ContendedLock::ALL {
                for scenario in Scenario::ALL {
                    report.rows.push(row(&treatment, lock, scenario, repeat));
                }
            }
        }
    }
    report
}

fn row(
    treatment: &Treatment,
    lock: ContendedLock,
    scenario: Scenario,
    repeat: u32,
) -> InversionRow {
    // The waiter's ratio; none: it is not through.
    let ratio = match (scenario, treatment.hints) {
        (Scenario::Baseline, _) => Some(1.0),
        (Scenario::Burner, Hints::Patched) => Some(1.15),
        (Scenario::Burner, Hints::Stock) => Some(1.5),
        (Scenario::Burner, Hints::Off) => None,
    };
    let panic =
        ratio.is_none() && treatment.scheduler == Scheduler::Eevdf && lock == ContendedLock::Spin;
    let boosted = treatment.hints != Hints::Off;
    InversionRow {
        scheduler: treatment.scheduler.clone(),
        scheduler_version: treatment.scheduler.program(),
        lock,
        scenario,
        hints: treatment.hints,
        repeat,
        seed: 1 + u64::from(repeat),
        hold_s: 4.0,
        limit_s: 60.0,
        outcome: match (ratio, panic) {
            (Some(_), _) => Outcome::Finished,
            (None, true) => Outcome::Panic,
            (None, false) => Outcome::Late,
        },
        holder_acquire_s: ratio.map(|_| 0.0),
        holder_total_s: ratio.map(|ratio| 4.1 * ratio),
        waiter_acquire_s: ratio.map(|ratio| 3.9 * ratio),
        waiter_total_s: ratio.map(|ratio| 4.0 * ratio),
        boosts: boosted.then_some(7),
        boosted_ns: boosted.then_some(3_500_000_000),
    }
}
