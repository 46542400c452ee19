//! What CFL is meant to reach, beside what was measured. A target whose rows
//! are missing is not mentioned; one that is missed is.

use super::summary::{Group, Summary};
use crate::experiments::locks::{LockExperiment, LockRow};
use crate::render::target::Target;
use crate::report::Report;

/// Our lock, and the same with its strict guarantee.
pub(super) const OWN: &str = "cfl";
const OWN_STRICT: &str = "cfl-sg";
/// The rival in fairness, the queue of the paper's convoy, and the lock that an
/// uncontended pair is compared with.
pub(super) const RIVAL: &str = "u-scl";
pub(super) const QUEUE: &str = "mcs";
pub(super) const PLAIN: &str = "parking_lot-0.13";

/// Every target that the rows say something about.
pub(super) fn targets(summary: &Summary<'_>) -> Vec<Target> {
    use LockExperiment::{Convoy, Equal, Fairness, Groups, Short, Strict, Weights};
    let percent = |value: f64| format!("{:.1} %", value * 100.0);
    let times = |value: f64| format!("{value:.2} x");
    let deviation = |experiment, lock: &'static str, least| {
        worst(summary, experiment, least, f64::max, move |group| {
            group.cell(lock)?.deviation()
        })
    };
    let at_most = |what: &str, bound, limit: f64, value: Option<f64>| {
        value.map(|value| Target {
            what: what.to_owned(),
            bound,
            measured: percent(value),
            met: value <= limit,
        })
    };
    let at_least = |what: &str, bound, limit: f64, value: Option<f64>| {
        value.map(|value| Target {
            what: what.to_owned(),
            bound,
            measured: times(value),
            met: value >= limit,
        })
    };
    let turns = |experiment, rival: fn(&Group<'_>) -> Option<f64>| {
        worst(summary, experiment, 0, f64::min, move |group| {
            quotient(group.cell(OWN)?.turns_per_s(), rival(group))
        })
    };
    let wait = worst(summary, Convoy, 32, f64::max, |group| {
        quotient(group.cell(OWN)?.wait_us(), group.cell(QUEUE)?.wait_us())
    });
    let convoy = worst(summary, Convoy, 32, f64::min, |group| {
        quotient(
            group.cell(OWN)?.turns_per_s(),
            group.cell(QUEUE)?.turns_per_s(),
        )
    });
    [
        at_most(
            "hold time equal, 8 threads and more",
            "within 2 %",
            0.02,
            deviation(Fairness, OWN, 8),
        ),
        at_most(
            "hold time by weight",
            "within 5 %",
            0.05,
            deviation(Weights, OWN, 0),
        ),
        at_most(
            "hold time by group",
            "within 5 %",
            0.05,
            deviation(Groups, OWN, 0),
        ),
        at_most(
            "hold time equal, 2 and 4 threads, cfl-sg",
            "within 2 %",
            0.02,
            deviation(Strict, OWN_STRICT, 0),
        ),
        at_least(
            "short critical sections: turns of u-scl's",
            "at least 3 x",
            3.0,
            turns(Short, |group| group.cell(RIVAL)?.turns_per_s()),
        ),
        at_least(
            "equal sections: turns of the best unfair one",
            "at least 0.8 x",
            0.8,
            turns(Equal, |group| group.best_unfair()?.turns_per_s()),
        ),
        at_least(
            "convoy, from 32 threads: turns of mcs's",
            "at least 3 x",
            3.0,
            convoy,
        ),
        at_most(
            "convoy, from 32 threads: mean wait of mcs's",
            "at most 50 %",
            0.5,
            wait,
        ),
        alone(summary),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn alone(summary: &Summary<'_>) -> Option<Target> {
    let group = summary.experiment(LockExperiment::Uncontended).next()?;
    let ns = |lock| Some(group.cell(lock)?.alone_ns()?.median);
    let more = ns(OWN)? - ns(PLAIN)?;
    Some(Target {
        what: "uncontended pair: beyond parking_lot-0.13".to_owned(),
        bound: "at most 5 ns",
        measured: format!("{more:+.1} ns"),
        met: more <= 5.0,
    })
}

/// The worst of an experiment's groups with so many threads or more.
pub(super) fn worst(
    summary: &Summary<'_>,
    experiment: LockExperiment,
    threads_min: u32,
    worse: fn(f64, f64) -> f64,
    number: impl Fn(&Group<'_>) -> Option<f64>,
) -> Option<f64> {
    summary
        .experiment(experiment)
        .filter(|group| group.threads >= threads_min)
        .filter_map(number)
        .reduce(worse)
}

/// One as a multiple of the other.
pub(super) fn quotient(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    let (one, other) = (one?, other?);
    (other > 0.0).then_some(one / other)
}

/// What the reader should see.
pub(super) fn sentence(report: &Report<LockRow>) -> String {
    let targets = targets(&Summary::of(report));
    if targets.is_empty() {
        return "These rows hold nothing that CFL has a target for.".to_owned();
    }
    let say = |target: &Target| format!("{} {} ({})", target.what, target.measured, target.bound);
    let list = |met: bool| {
        let chosen = targets.iter().filter(|target| target.met == met).map(say);
        Vec::from_iter(chosen).join("; ")
    };
    let met = targets.iter().filter(|target| target.met).count();
    match met {
        0 => format!("CFL misses every target measured: {}.", list(false)),
        met if met == targets.len() => format!("CFL meets every target measured: {}.", list(true)),
        met => format!(
            "CFL meets {met} of {} targets measured and misses: {}.",
            targets.len(),
            list(false)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::locks::report::samples;

    fn met(report: &Report<LockRow>) -> Vec<bool> {
        let targets = targets(&Summary::of(report));
        targets.into_iter().map(|target| target.met).collect()
    }

    #[test]
    fn the_samples_meet_every_target() {
        assert_eq!(met(&samples::report()), [true; 9]);
        let text = sentence(&samples::report());
        assert!(text.starts_with("CFL meets every target"), "{text}");
    }

    #[test]
    fn a_miss_is_said() {
        let mut report = samples::report();
        for row in &mut report.rows {
            if let (LockExperiment::Fairness, "cfl", Some(contended)) =
                (row.experiment, row.lock.as_str(), &mut row.contended)
            {
                contended.ratio = Some(0.9);
            }
        }
        assert_eq!(met(&report).iter().filter(|met| !**met).count(), 1);
        let text = sentence(&report);
        assert_eq!(
            text,
            "CFL meets 8 of 9 targets measured and misses: hold time equal, 8 threads and more \
             10.0 % (within 2 %)."
        );
    }

    #[test]
    fn nothing_is_claimed_that_was_not_measured() {
        let mut report = samples::report();
        report
            .rows
            .retain(|row| row.lock != "cfl" && row.lock != "cfl-sg");
        assert!(sentence(&report).contains("nothing"));
    }
}
