//! What preemption is meant to reach, beside what was measured. A target whose
//! rows are missing is not mentioned; one that is missed is.

use std::ops::Range;

use super::summary::{Cell, NEW_ORDER, Summary, Transaction, URGENT};
use crate::experiments::preempt::{Latency, Mixed, PreemptExperiment, PreemptRow, REGION, SWITCH};
use crate::harness::number::{Middle, large, mark, short};
use crate::render::target::Target;
use crate::report::Report;

/// The policies that preempt: by signals, by ours, and by the paper's user interrupts.
const PREEMPTING: [&str; 3] = ["preempt", "hybrid", UINTR];
/// The policy, and the delivery, of user interrupts.
pub(super) const UINTR: &str = "uintr";
/// Urgent latency below that of policies that do not, in parts of theirs.
const BELOW: f64 = 0.88;
/// New-Order's by user interrupts below that of waiting, in parts of it.
const UINTR_BELOW: f64 = 0.95;
/// Of what Q2 has under `wait`, this much may be lost.
const Q2_LOSS: f64 = 0.03;
/// Of TPC-C's throughput, empty interrupts may cost this much.
const INTERRUPT_LOSS: f64 = 0.017;
/// And empty user interrupts.
const UINTR_LOSS: f64 = 0.01;
/// Ahead of the best other engine.
const AHEAD: f64 = 10.0;

/// Every target that the rows say something about.
pub(super) fn targets(summary: &Summary<'_>) -> Vec<Target> {
    let mut targets = Vec::new();
    for method in PREEMPTING {
        targets.extend(match method {
            UINTR => below(summary, method, "wait", &NEW_ORDER, UINTR_TARGET),
            _ => below(summary, method, "wait", &URGENT, TARGET),
        });
        targets.extend(below(summary, method, "cooperative", &URGENT, TARGET));
        targets.extend(q2_kept(summary, method));
    }
    targets.extend(not_above_signals(summary));
    targets.extend(overhead(summary));
    targets.extend(operation(summary, SWITCH, "at most 50 ns", 50.0));
    targets.extend(operation(summary, REGION, "at most 2 ns", 2.0));
    targets.extend(hybrid_delivery(summary));
    targets.extend(engines(summary));
    targets
}

/// A number of a method in `latency`.
fn number(summary: &Summary<'_>, method: &str, of: impl Fn(&Mixed) -> f64) -> Option<f64> {
    summary.cell(PreemptExperiment::Latency, method)?.median(of)
}

/// How many requests the one of some methods has that has fewest, in all repeats.
fn requests(summary: &Summary<'_>, methods: &[&str], of: impl Fn(&Mixed) -> Latency) -> f64 {
    let requests = |method: &&str| -> f64 {
        let cell = summary.cell(PreemptExperiment::Latency, method);
        let runs = cell.into_iter().flat_map(Cell::mixed);
        runs.map(|mixed| of(mixed).count as f64).sum()
    };
    methods.iter().map(requests).fold(f64::INFINITY, f64::min)
}

/// A bound as text, and as a number.
type Bound = (&'static str, f64);

const TARGET: Bound = ("at least 88 %", BELOW);
const UINTR_TARGET: Bound = ("at least 95 %", UINTR_BELOW);

/// A method's latency beside a rival's where the rival is nearest.
struct Nearest {
    /// Ours, in parts of theirs.
    ratio: f64,
    /// Of which transaction, which percentile.
    place: String,
    /// How many requests the one has that has fewer, and the percentile's share of them.
    requests: f64,
    share: f64,
}

/// Which percentiles are compared, of [`Latency::percentiles`].
type Percentiles = Range<usize>;

const MEDIAN: Percentiles = 0..1;
const EVERY: Percentiles = 0..4;

/// The largest ratio over some transactions and percentiles.
fn nearest(
    summary: &Summary<'_>,
    method: &str,
    rival: &str,
    transactions: &[Transaction],
    percentiles: Percentiles,
) -> Option<Nearest> {
    let mut worst: Option<Nearest> = None;
    for (name, of) in transactions {
        for at in percentiles.clone() {
            let percentile = |mixed: &Mixed| of(mixed).percentiles()[at].1;
            let ours = number(summary, method, percentile)?;
            let theirs = number(summary, rival, percentile)?;
            let ratio = ours / theirs;
            // Of ratios that differ by rounding alone, the first.
            let is_worse = |worst: &Nearest| 1.0 - ratio < 1.0 - worst.ratio;
            if worst.as_ref().is_none_or(is_worse) {
                worst = Some(Nearest {
                    ratio,
                    place: format!("{name} {}", Latency::default().percentiles()[at].0),
                    requests: requests(summary, &[method, rival], of),
                    share: [0.5, 0.9, 0.99, 0.999][at],
                });
            }
        }
    }
    worst
}

/// The least reduction over some transactions: of the median, and of all percentiles, which
/// may miss for another reason.
fn below(
    summary: &Summary<'_>,
    method: &str,
    rival: &str,
    transactions: &[Transaction],
    (bound, least): Bound,
) -> Vec<Target> {
    let nearest = |percentiles| nearest(summary, method, rival, transactions, percentiles);
    let mut found: Vec<Nearest> = [MEDIAN, EVERY].into_iter().filter_map(nearest).collect();
    found.dedup_by(|a, b| a.place == b.place);
    let target = |nearest: Nearest| {
        let below = 1.0 - nearest.ratio;
        Target {
            what: format!("{method} below {rival}, {}", nearest.place),
            bound,
            measured: mark(percent(below), nearest.requests, nearest.share),
            met: below >= least,
        }
    };
    found.into_iter().map(target).collect()
}

/// User interrupts are not slower than signals, at any percentile.
fn not_above_signals(summary: &Summary<'_>) -> Option<Target> {
    let worst = nearest(summary, UINTR, "preempt", &NEW_ORDER, EVERY)?;
    Some(Target {
        what: format!("uintr over signals (preempt), {}", worst.place),
        bound: "at most 1 x",
        measured: mark(format!("{:.2} x", worst.ratio), worst.requests, worst.share),
        met: worst.ratio <= 1.0,
    })
}

fn q2_kept(summary: &Summary<'_>, method: &str) -> Vec<Target> {
    type Of = fn(&Mixed) -> f64;
    let numbers: [(&str, f64, Of); 3] = [
        ("Q2's median latency beyond wait's", 1.0, |mixed| {
            mixed.q2.p50_us
        }),
        ("Q2's p99 latency beyond wait's", 1.0, |mixed| {
            mixed.q2.p99_us
        }),
        ("Q2's throughput short of wait's", -1.0, |mixed| {
            mixed.q2.per_s
        }),
    ];
    let queries = requests(summary, &[method, "wait"], |mixed| mixed.q2);
    let target = |(what, sign, of): (&str, f64, Of)| {
        let (ours, theirs) = (number(summary, method, of)?, number(summary, "wait", of)?);
        let lost = sign * (ours / theirs - 1.0);
        Some(Target {
            what: format!("{method}: {what}"),
            bound: "at most 3 %",
            measured: match what.contains("p99") {
                true => mark(percent(lost), queries, 0.99),
                false => percent(lost),
            },
            met: lost <= Q2_LOSS,
        })
    };
    numbers.into_iter().filter_map(target).collect()
}

fn overhead(summary: &Summary<'_>) -> Vec<Target> {
    let target = |cell: &Cell<'_>| {
        let loss = Middle::of(cell.losses())?;
        let (bound, most) = match cell.method {
            UINTR => ("at most 1 %", UINTR_LOSS),
            _ => ("at most 1.7 %", INTERRUPT_LOSS),
        };
        Some(Target {
            what: format!("1000 empty interrupts/s by {}: loss", cell.method),
            bound,
            // A bound above the target leaves it open.
            measured: format!("up to {}", percent(loss.high)),
            met: loss.high <= most,
        })
    };
    let cells = summary.cells(PreemptExperiment::Overhead);
    cells.iter().filter_map(target).collect()
}

fn operation(
    summary: &Summary<'_>,
    name: &str,
    bound: &'static str,
    most_ns: f64,
) -> Option<Target> {
    let ns = summary.cell(PreemptExperiment::Micro, name)?.ns()?.median;
    Some(Target {
        what: match name {
            SWITCH => "voluntary switch".to_owned(),
            REGION => "region, enter and exit".to_owned(),
            other => other.to_owned(),
        },
        bound,
        measured: format!("{ns:.1} ns"),
        met: ns <= most_ns,
    })
}

fn hybrid_delivery(summary: &Summary<'_>) -> Option<Target> {
    let cells = summary.cells(PreemptExperiment::Micro);
    let cell = cells
        .iter()
        .find(|cell| cell.method.starts_with("hybrid"))?;
    let ns = cell.delivery_ns(|row| row.latency.p50_ns)?;
    Some(Target {
        what: "hybrid delivery, median".to_owned(),
        bound: "at most 1 µs",
        measured: format!("{:.2} µs", ns / 1e3),
        met: ns <= 1_000.0,
    })
}

fn engines(summary: &Summary<'_>) -> Vec<Target> {
    let per_s = |cell: &Cell<'_>| Some(cell.per_s("interactive")?.median);
    let own = summary.cell(PreemptExperiment::Engines, "giveway");
    let Some(ours) = own.and_then(per_s) else {
        return Vec::new();
    };
    let target = |cell: &Cell<'_>| {
        let theirs = per_s(cell).filter(|_| cell.method != "giveway")?;
        let times = ours / theirs;
        Some(Target {
            what: format!("New-Order and Payment a second, of {}'s", cell.method),
            bound: "at least 10 x",
            measured: format!("{times:.1} x"),
            met: times >= AHEAD,
        })
    };
    let cells = summary.cells(PreemptExperiment::Engines);
    cells.iter().filter_map(target).collect()
}

fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

/// How OS threads fare beside our best policy: what they win and what they lose.
pub(super) fn against_threads(summary: &Summary<'_>) -> Vec<String> {
    let cells = summary.cells(PreemptExperiment::Latency);
    let threads = cells
        .iter()
        .filter(|cell| cell.method.starts_with("threads"));
    threads
        .filter_map(|cell| {
            let pair = |of: fn(&Mixed) -> f64| {
                Some((
                    number(summary, "hybrid", of)?,
                    number(summary, cell.method, of)?,
                ))
            };
            let median = pair(|mixed| mixed.new_order.p50_us)?;
            let tail = pair(|mixed| mixed.new_order.p99_us)?;
            let q2 = pair(|mixed| mixed.q2.per_s)?;
            Some(format!(
                "{} beside hybrid: New-Order p50 {} to {} µs ({}), p99 {} to {} µs ({}), \
                 Q2 {} to {} a second ({})",
                cell.method,
                large(median.1),
                large(median.0),
                winner(median.0 <= median.1),
                large(tail.1),
                large(tail.0),
                winner(tail.0 <= tail.1),
                short(q2.1),
                short(q2.0),
                winner(q2.0 >= q2.1),
            ))
        })
        .collect()
}

fn winner(ours: bool) -> &'static str {
    if ours { "hybrid wins" } else { "threads win" }
}

/// What the reader should see.
pub(super) fn sentence(report: &Report<PreemptRow>) -> String {
    let summary = Summary::of(report);
    let targets = targets(&summary);
    if targets.is_empty() {
        return "These rows hold nothing that preemption has a target for.".to_owned();
    }
    let say = |target: &Target| format!("{} {} ({})", target.what, target.measured, target.bound);
    let list = |met: bool| {
        let chosen = targets.iter().filter(|target| target.met == met).map(say);
        Vec::from_iter(chosen).join("; ")
    };
    let met = targets.iter().filter(|target| target.met).count();
    match met {
        0 => format!("Preemption misses every target measured: {}.", list(false)),
        met if met == targets.len() => {
            format!("Preemption meets every target measured: {}.", list(true))
        }
        met => format!(
            "Preemption meets {met} of {} targets measured and misses: {}.",
            targets.len(),
            list(false)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::preempt::Measured;
    use crate::experiments::preempt::report::samples;

    fn missed(report: &Report<PreemptRow>) -> Vec<String> {
        let targets = targets(&Summary::of(report));
        let missed = targets.into_iter().filter(|target| !target.met);
        missed.map(|target| target.what).collect()
    }

    #[test]
    fn the_samples_meet_every_target() {
        assert_eq!(missed(&samples::report()), Vec::<String>::new());
        let text = sentence(&samples::report());
        assert!(text.starts_with("Preemption meets every target"), "{text}");
    }

    #[test]
    fn one_slow_percentile_of_one_transaction_is_a_miss() {
        let mut report = samples::report();
        for row in &mut report.rows {
            if let (PreemptExperiment::Latency, "preempt", Measured::Mixed(mixed)) =
                (row.experiment, row.method.as_str(), &mut row.measured)
            {
                mixed.payment.p999_us *= 5.0;
            }
        }
        let places =
            ["wait", "cooperative"].map(|rival| format!("preempt below {rival}, Payment p99.9"));
        assert_eq!(missed(&report), places);
    }

    #[test]
    fn user_interrupts_that_are_slower_than_signals_are_a_miss() {
        let mut report = samples::report();
        for row in &mut report.rows {
            if let (PreemptExperiment::Latency, "uintr", Measured::Mixed(mixed)) =
                (row.experiment, row.method.as_str(), &mut row.measured)
            {
                // Between their bound and that of signals.
                mixed.new_order.p90_us = 0.06 * 4_000.0;
            }
        }
        let missed = missed(&report);
        assert_eq!(
            missed,
            [
                "uintr below wait, New-Order p90",
                "uintr over signals (preempt), New-Order p90"
            ]
        );
    }

    #[test]
    fn empty_user_interrupts_may_cost_less_than_signals() {
        let mut report = samples::report();
        for row in &mut report.rows {
            if let (Measured::Overhead(overhead), "uintr" | "signal") =
                (&mut row.measured, row.method.as_str())
            {
                overhead.pairs = vec![(1e3, 985.0)];
            }
        }
        assert_eq!(missed(&report), ["1000 empty interrupts/s by uintr: loss"]);
    }

    #[test]
    fn what_q2_loses_is_a_miss() {
        let mut report = samples::report();
        for row in &mut report.rows {
            if let ("hybrid", Measured::Mixed(mixed)) = (row.method.as_str(), &mut row.measured) {
                mixed.q2.per_s *= 0.95;
            }
        }
        assert_eq!(missed(&report), ["hybrid: Q2's throughput short of wait's"]);
        assert!(sentence(&report).contains("misses: hybrid: Q2's throughput"));
    }

    #[test]
    fn a_rival_that_is_too_near_is_a_miss() {
        let mut report = samples::report();
        for row in &mut report.rows {
            if let ("redb", Measured::Throughput(row)) = (row.method.as_str(), &mut row.measured) {
                row.per_s.iter_mut().for_each(|per_s| *per_s *= 4.0);
            }
        }
        assert_eq!(
            missed(&report),
            ["New-Order and Payment a second, of redb's"]
        );
    }

    #[test]
    fn threads_that_win_are_said_to() {
        let report = samples::report();
        let lines = against_threads(&Summary::of(&report));
        let fifo = lines.iter().find(|line| line.starts_with("threads-fifo"));
        let fifo = fifo.unwrap();
        assert!(
            fifo.contains("threads win") && fifo.contains("hybrid wins"),
            "{fifo}"
        );
    }

    #[test]
    fn nothing_is_claimed_that_was_not_measured() {
        let mut report = samples::report();
        report.rows.retain(|row| row.method == "wait");
        assert!(sentence(&report).contains("nothing"));
    }
}
