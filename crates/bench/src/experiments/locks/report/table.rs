//! Lock results as text of at most 80 columns.

use std::fmt::Write as _;

use super::summary::{Cell, Group, Summary};
use super::targets::{PLAIN, QUEUE, quotient, targets};
use crate::experiments::locks::{Contended, LockExperiment, LockRow, SetRow};
use crate::harness::environment::Environment;
use crate::harness::number::{MARKED, Spread, large, mark, short};
use crate::render::target;
use crate::report::Report;

/// Renders medians over repeats.
pub(super) fn render(report: &Report<LockRow>) -> String {
    let summary = Summary::of(report);
    let mut text = String::new();
    for line in heading(report) {
        let _ = writeln!(text, "{line}");
    }
    for experiment in summary.experiments() {
        let _ = writeln!(text, "\n{experiment}: {}", experiment.about());
        for group in summary.experiment(experiment) {
            table(&mut text, group);
        }
    }
    let targets = targets(&summary);
    if !targets.is_empty() {
        text.push_str("\ntargets\n");
    }
    text.push_str(&target::rows(&targets));
    text.push_str(
        "\nratio: hold time of the first set by what it is entitled to, relative to the\n\
         second's; 1 is fair. jain: 1 is fair for every thread. held: part of the time.\n\
         bypass: turns of others between asking and a turn, at most. Medians of repeats.\n",
    );
    text + MARKED
}

/// Where the numbers come from, and what to beware of.
pub(super) fn heading(report: &Report<LockRow>) -> Vec<String> {
    let Environment { cpus, clock, .. } = &report.environment;
    let commit = report.short_commit();
    let mut lines = vec![
        report.headline(),
        format!("{cpus} CPUs, clock {clock}, commit {commit}"),
    ];
    let repeats = report.rows.iter().map(|row| row.repeat).max();
    if let Some(contended) = report.rows.iter().find_map(|row| row.contended.as_ref()) {
        let scale = report.rows[0].scale;
        lines.push(format!(
            "{} x {:.2} s; work {scale} x as long as named",
            repeats.unwrap_or(0) + 1,
            contended.seconds,
        ));
    }
    let threads = report.rows.iter().map(|row| row.threads).max().unwrap_or(0);
    if threads > *cpus {
        lines.push(format!(
            "Beware: up to {threads} threads on {cpus} CPUs; preempted holders count as holding."
        ));
    }
    lines
}

/// A column: its head, its width, and the number of a cell.
type Column = (
    &'static str,
    usize,
    fn(&Cell<'_>, &Group<'_>) -> Option<String>,
);

fn table(text: &mut String, group: &Group<'_>) {
    let columns = columns(group.experiment);
    let title = match group.experiment {
        LockExperiment::Uncontended => String::new(),
        _ => format!("{}, {} threads", group.case, group.threads),
    };
    let _ = write!(text, "  {title:<22}");
    for (head, width, _) in columns {
        let _ = write!(text, " {head:>width$}");
    }
    text.push('\n');
    for cell in &group.cells {
        let name: String = cell.lock.chars().take(22).collect();
        let _ = write!(text, "  {name:<22}");
        for (_, width, number) in columns {
            let value = number(cell, group).unwrap_or("-".to_owned());
            let _ = write!(text, " {value:>width$}");
        }
        text.push('\n');
    }
}

fn columns(experiment: LockExperiment) -> &'static [Column] {
    const TURNS: Column = ("turns/s", 7, |cell, _| Some(large(cell.turns_per_s()?)));
    const HELD: Column = ("held", 5, |cell, _| two(cell.median(|row| Some(row.held))));
    const MEAN: Column = ("mean µs", 7, |cell, _| Some(large(cell.wait_us()?)));
    const P99: Column = ("p99 µs", 7, |cell, _| {
        let text = large(cell.median(|row| Some(row.wait.p99_us))?);
        Some(mark(text, cell.sum(|row| row.wait.count as f64), 0.99))
    });
    const BYPASS: Column = ("bypass", 7, |cell, _| {
        let most = |row: &Contended| row.sets.iter().map(|set| set.bypass_max).max();
        Some(large(cell.median(|row| most(row).map(|most| most as f64))?))
    });
    const RATIO: Column = ("ratio", 6, |cell, _| three(cell.median(|row| row.ratio)));
    const JAIN: Column = ("jain", 5, |cell, _| {
        three(cell.median(|row| Some(row.jain)))
    });
    match experiment {
        LockExperiment::Equal => &[
            TURNS,
            ("/best", 6, |cell, group| {
                two(quotient(
                    cell.turns_per_s(),
                    group.best_unfair()?.turns_per_s(),
                ))
            }),
            JAIN,
            HELD,
            MEAN,
            P99,
            BYPASS,
        ],
        LockExperiment::Convoy => &[
            TURNS,
            ("/mcs", 6, |cell, group| {
                let queue = group.cell(QUEUE)?;
                two(quotient(cell.turns_per_s(), queue.turns_per_s()))
            }),
            MEAN,
            ("/mcs", 6, |cell, group| {
                two(quotient(cell.wait_us(), group.cell(QUEUE)?.wait_us()))
            }),
            ("p99 find", 8, |cell, _| set_p99(cell, 0)),
            ("insert", 7, |cell, _| set_p99(cell, 1)),
            ("ratio", 6, RATIO.2),
        ],
        LockExperiment::Newcomers => &[
            ("count", 5, |cell, _| {
                arrivals(cell, |row| row.count as f64, |n| format!("{n:.0}"))
            }),
            ("p50 µs", 7, |cell, _| {
                arrivals(cell, |row| row.first.p50_us, large)
            }),
            ("max µs", 7, |cell, _| {
                arrivals(cell, |row| row.first.max_us, large)
            }),
            ("bypass", 7, |cell, _| {
                arrivals(cell, |row| row.first_bypass_max as f64, large)
            }),
            ("/equal", 6, |cell, _| {
                arrivals(cell, |row| row.share_of_equal, |n| format!("{n:.2}"))
            }),
            ("old max", 7, |cell, _| {
                Some(large(cell.median(|row| Some(row.wait.max_us))?))
            }),
            ("late µs", 7, |cell, _| {
                arrivals(cell, |row| row.late.p50_us, large)
            }),
        ],
        LockExperiment::Uncontended => &[
            ("ns", 8, |cell, _| one(cell.alone_ns().map(|s| s.median))),
            ("least", 8, |cell, _| one(cell.alone_ns().map(|s| s.min))),
            ("most", 8, |cell, _| one(cell.alone_ns().map(|s| s.max))),
            ("- parking_lot", 13, |cell, group| {
                let ns = |spread: Option<Spread>| spread.map(|spread| spread.median);
                let plain = ns(group.cell(PLAIN)?.alone_ns())?;
                Some(format!("{:+.1}", ns(cell.alone_ns())? - plain))
            }),
        ],
        _ => &[RATIO, JAIN, TURNS, HELD, MEAN, P99, BYPASS],
    }
}

fn set_p99(cell: &Cell<'_>, index: usize) -> Option<String> {
    let p99 = |set: &SetRow| set.wait.p99_us;
    let text = large(cell.median(|row| row.sets.get(index).map(p99))?);
    let waits = |row: &Contended| row.sets[index].wait.count as f64;
    Some(mark(text, cell.sum(waits), 0.99))
}

fn arrivals(
    cell: &Cell<'_>,
    number: fn(&crate::experiments::locks::ArrivalRow) -> f64,
    text: fn(f64) -> String,
) -> Option<String> {
    Some(text(cell.median(|row| row.arrivals.as_ref().map(number))?))
}

fn one(value: Option<f64>) -> Option<String> {
    value.map(|value| format!("{value:.1}"))
}

fn two(value: Option<f64>) -> Option<String> {
    value.map(|value| format!("{value:.2}"))
}

fn three(value: Option<f64>) -> Option<String> {
    value.map(|value| match value {
        v if v < 10.0 => format!("{v:.3}"),
        v => short(v),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::locks::report::samples;

    #[test]
    fn the_table_is_the_golden_one() {
        let text = render(&samples::report());
        let golden = include_str!("golden.txt");
        assert!(text == golden, "differs from golden.txt:\n{text}");
    }

    #[test]
    fn no_line_is_longer_than_80_columns() {
        let mut report = samples::report();
        for row in &mut report.rows {
            row.lock = format!("{}-and-a-very-long-name-beside", row.lock);
            row.threads *= 100;
            if let Some(contended) = &mut row.contended {
                contended.turns_per_s *= 1e3;
                contended.wait.p99_us *= 1e5;
                contended.ratio = contended.ratio.map(|ratio| ratio * 999.0);
            }
        }
        for line in render(&report)
            .lines()
            .chain(render(&samples::report()).lines())
        {
            assert!(
                line.chars().count() <= 80,
                "{}: {line}",
                line.chars().count()
            );
        }
    }

    #[test]
    fn more_threads_than_cpus_are_pointed_out() {
        let mut report = samples::report();
        assert!(render(&report).contains("Beware"));
        report.environment.cpus = 64;
        assert!(!render(&report).contains("Beware"));
    }
}
