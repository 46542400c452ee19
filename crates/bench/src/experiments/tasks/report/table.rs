//! Scheduling results as text of at most 80 columns.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::summary::{Cell, Number, Part, Summary, all, long, medians, short};
use super::targets::{percent, rivals, scheduling, targets, total, tuning};
use crate::experiments::tasks::metrics::{Estimate, geomean};
use crate::experiments::tasks::row::Scheduled;
use crate::experiments::tasks::{Arrived, Measured, TasksExperiment, TasksRow, within};
use crate::harness::environment::Environment;
use crate::harness::number::{Spread, large, short as digits};
use crate::render::target;
use crate::report::Report;

/// Renders means over traces.
pub(super) fn render(report: &Report<TasksRow>) -> String {
    let summary = Summary::of(report);
    let mut text = String::new();
    for line in heading(report) {
        wrap(&mut text, "", &line);
    }
    for experiment in summary.experiments() {
        let _ = writeln!(text, "\n{experiment}: {}", experiment.about());
        match experiment {
            TasksExperiment::Mix | TasksExperiment::Load | TasksExperiment::Simulated => {
                for load in summary.loads(experiment) {
                    let _ = writeln!(text, "  at load {load}");
                    let cells = || {
                        summary
                            .cells(experiment)
                            .filter(|cell| cell.load == Some(load))
                    };
                    columns(&mut text, cells(), &SLOWDOWNS);
                    columns(&mut text, cells(), &WHOLE);
                }
            }
            TasksExperiment::Shift => {
                for load in summary.loads(experiment) {
                    let _ = writeln!(text, "  at load {load}: means before, just after, later");
                    let cells = || {
                        summary
                            .cells(experiment)
                            .filter(|cell| cell.load == Some(load))
                    };
                    columns(&mut text, cells(), &SHIFT);
                    last_parameters(&mut text, cells());
                }
            }
            TasksExperiment::Answers => answers(&mut text, summary.cells(experiment)),
            TasksExperiment::Single => single(&mut text, summary.cells(experiment)),
            TasksExperiment::Overrun => turns(&mut text, summary.cells(experiment)),
            TasksExperiment::Cost => cost(&mut text, summary.cells(experiment)),
        }
        let left_out = summary.cells(experiment).filter_map(|cell| {
            let why = cell.left_out()?;
            Some(format!("left out: {}: {why}", cell.arm))
        });
        // Once, whatever the loads.
        for line in left_out.collect::<BTreeSet<_>>() {
            wrap(&mut text, "  ", &line);
        }
    }
    let rivals = rivals(&summary);
    if !rivals.is_empty() {
        text.push_str("\nrivals\n");
    }
    for line in rivals {
        wrap(&mut text, "  ", &line);
    }
    let targets = targets(&summary);
    if !targets.is_empty() {
        text.push_str("\ntargets\n");
    }
    text.push_str(&target::rows(&targets));
    text.push_str(
        "\nSlowdown: latency from when a query was due, over what it takes alone; in load,\n\
         alone on one thread of the same engine. gm: geometric mean. drawn: the load of\n\
         the trace; busy: the part of the time that threads were on a CPU. Means over\n\
         traces; in brackets bounds by the bootstrap (of few traces: their range).\n",
    );
    text
}

/// A line in lines of at most 80 characters, those after the first indented further.
fn wrap(text: &mut String, indent: &str, line: &str) {
    let mut width = 0;
    for word in line.split(' ') {
        let length = word.chars().count();
        match width {
            0 => text.push_str(indent),
            width if width + 1 + length > 80 => {
                text.push('\n');
                text.push_str(indent);
                text.push_str("  ");
            }
            _ => text.push(' '),
        }
        width = match width {
            0 => indent.len() + length,
            width if width + 1 + length > 80 => indent.len() + 2 + length,
            width => width + 1 + length,
        };
        text.push_str(word);
    }
    text.push('\n');
}

/// Where the numbers come from, and what to beware of.
pub(super) fn heading(report: &Report<TasksRow>) -> Vec<String> {
    let Environment { cpus, clock, .. } = &report.environment;
    let commit = report.short_commit();
    let mut lines = vec![
        report.headline(),
        format!("{cpus} CPUs, clock {clock}, commit {commit}"),
    ];
    let Some(row) = report.rows.first() else {
        return lines;
    };
    lines.push(format!(
        "TPC-H at scale {} and {}, {} workers, seeds from {}",
        row.scale,
        row.scale * 10.0,
        row.workers,
        report.rows.iter().map(|row| row.seed).min().unwrap_or(0),
    ));
    let runs = || {
        report.rows.iter().filter_map(|row| match &row.measured {
            Measured::Arrived(arrived) => Some((row, arrived)),
            _ => None,
        })
    };
    if let Some((_, run)) = runs().next() {
        let repeats = runs().map(|(row, _)| row.repeat).max().unwrap_or(0) + 1;
        let (tracking, refresh) = run.tuning_s;
        lines.push(format!(
            "{repeats} traces of {} s; tuned policies track {} s every {} s",
            digits(run.seconds),
            digits(tracking),
            digits(refresh)
        ));
    }
    let engine = runs().find(|(_, run)| !run.version.is_empty());
    lines.extend(engine.map(|(row, run)| format!("{} {}", row.arm, run.version)));
    for (row, run) in runs() {
        let (failed, why) = &run.failed;
        if *failed > 0 {
            lines.push(format!(
                "Beware: {failed} queries of {} in {} failed and count nowhere, the first with: \
                 {why}",
                row.arm, row.experiment
            ));
        }
        if run.unfinished > 0 {
            lines.push(format!(
                "Beware: {} queries of {} in {} had not ended when the run was given up; they \
                 count with the time until then.",
                run.unfinished, row.arm, row.experiment
            ));
        }
    }
    if row.workers >= *cpus && clock == "native" && runs().next().is_some() {
        lines.push(
            "Beware: as many workers as CPUs, so clients take time from them, and so does \
             whatever else runs here."
                .to_owned(),
        );
    }
    lines
}

/// A column of runs: its head, its width, and a number.
type Column = (&'static str, usize, Number);

const SLOWDOWNS: [Column; 8] = [
    ("sh.mean", 7, |run| Some(short(run)?.mean)),
    ("gm", 6, |run| Some(short(run)?.geomean)),
    ("p95", 6, |run| Some(short(run)?.p95)),
    ("max", 6, |run| Some(short(run)?.max)),
    ("long mean", 9, |run| Some(long(run)?.mean)),
    ("gm", 6, |run| Some(long(run)?.geomean)),
    ("p95", 6, |run| Some(long(run)?.p95)),
    ("max", 6, |run| Some(long(run)?.max)),
];

const WHOLE: [Column; 9] = [
    ("drawn", 5, |run| Some(run.offered)),
    ("busy", 5, |run| Some(run.busy)),
    ("queries", 7, |run| Some(run.samples.len() as f64)),
    ("/s", 5, |run| Some(run.samples.len() as f64 / run.span_s)),
    ("all mean", 8, |run| Some(all(run)?.mean)),
    ("Jain", 4, |run| Some(all(run)?.jain)),
    ("sh.gm ms", 8, |run| latency(run, false)),
    ("long ms", 7, |run| latency(run, true)),
    ("<2t%", 5, |run| {
        Some(100.0 * run.scheduler.as_ref()?.within_2)
    }),
];

const SHIFT: [Column; 5] = [
    ("before", 8, |run| Part::Before.mean(run)),
    ("just after", 10, |run| Part::After.mean(run)),
    ("later", 8, |run| Part::Later.mean(run)),
    ("busy", 6, |run| Some(run.busy)),
    ("tunings", 7, |run| {
        Some(run.scheduler.as_ref()?.tunings as f64)
    }),
];

/// The geometric mean of latencies, ms.
fn latency(run: &Arrived, long: bool) -> Option<f64> {
    let chosen = run.samples.iter().filter(|sample| sample.long == long);
    geomean(&Vec::from_iter(chosen.map(|sample| sample.latency_ms)))
}

fn columns<'a, 'b: 'a>(
    text: &mut String,
    cells: impl Iterator<Item = &'a Cell<'b>>,
    columns: &[Column],
) {
    let _ = write!(text, "  {:<14}", "arm");
    for (head, width, _) in columns {
        let _ = write!(text, " {head:>width$}");
    }
    text.push('\n');
    for cell in cells.filter(|cell| cell.arrived().next().is_some()) {
        let arm: String = cell.arm.chars().take(14).collect();
        let _ = write!(text, "  {arm:<14}");
        for (_, width, number) in columns {
            let mean = cell.estimate(*number).map(|estimate| estimate.mean);
            let _ = write!(text, " {:>width$}", mean.map_or("-".to_owned(), large));
        }
        text.push('\n');
    }
}

/// What tuning had come to at the end of each trace.
fn last_parameters<'a, 'b: 'a>(text: &mut String, cells: impl Iterator<Item = &'a Cell<'b>>) {
    for cell in cells.filter(|cell| ["tuned", "adaptive"].contains(&cell.arm)) {
        let end = |scheduled: &Scheduled| match (&scheduled.order, scheduled.decay) {
            (Some(order), _) => Some(order.clone()),
            (None, Some((lambda, d_start))) => Some(format!("decay:{lambda},{d_start}")),
            (None, None) => None,
        };
        let ends = cell
            .arrived()
            .filter_map(|run| end(run.scheduler.as_ref()?));
        let ends = Vec::from_iter(ends).join(" ");
        wrap(text, "  ", &format!("{} ended with {ends}", cell.arm));
    }
}

fn answers<'a, 'b: 'a>(text: &mut String, cells: impl Iterator<Item = &'a Cell<'b>>) {
    let _ = writeln!(
        text,
        "  {:<14} {:>9} {:>9} {:>9} {:>9}",
        "arm", "at a time", "compared", "wrong", "seconds"
    );
    for cell in cells {
        for row in &cell.rows {
            let Measured::Answers(answers) = &row.measured else {
                continue;
            };
            let _ = writeln!(
                text,
                "  {:<14} {:>9} {:>9} {:>9} {:>9}",
                cell.arm,
                answers.at_a_time,
                answers.compared,
                answers.wrong.len(),
                digits(answers.seconds)
            );
            for wrong in &answers.wrong {
                wrap(text, "    ", wrong);
            }
        }
    }
}

fn single<'a, 'b: 'a>(text: &mut String, cells: impl Iterator<Item = &'a Cell<'b>>) {
    let rows: Vec<&TasksRow> = cells.flat_map(|cell| cell.rows.iter().copied()).collect();
    let _ = writeln!(
        text,
        "  {:<8} {:>9} {:>9} {:>11}",
        "query", "ours, ms", "stock, ms", "ours/stock"
    );
    let mut line = |name: &str, times: &[(f64, f64)]| {
        let ours = Spread::of(times.iter().map(|(ours, _)| *ours));
        let stock = Spread::of(times.iter().map(|(_, stock)| *stock));
        if let (Some(ours), Some(stock)) = (ours, stock) {
            let _ = writeln!(
                text,
                "  {name:<8} {:>9} {:>9} {:>11.2}",
                large(ours.median),
                large(stock.median),
                ours.median / stock.median
            );
        }
    };
    for query in 1..=22_u8 {
        let pairs = rows.iter().flat_map(|row| match &row.measured {
            Measured::Single(pairs) => &pairs[..],
            _ => &[],
        });
        let of_query = pairs.filter(|pair| pair.query == query);
        line(
            &format!("Q{query}"),
            &Vec::from_iter(of_query.filter_map(medians)),
        );
    }
    let totals = rows.iter().filter_map(|row| total(row));
    line("all", &Vec::from_iter(totals));
}

/// The most kinds of pipelines that are listed: those with most tasks beyond 2 t_max.
const OPERATORS: usize = 12;

fn turns<'a, 'b: 'a>(text: &mut String, cells: impl Iterator<Item = &'a Cell<'b>>) {
    for row in cells.flat_map(|cell| cell.rows.iter()) {
        let Measured::Turns(turns) = &row.measured else {
            continue;
        };
        let _ = writeln!(
            text,
            "  {} at a time; t_max is {} ms; tasks by their length in t_max",
            turns.at_a_time, turns.t_max_ms
        );
        let _ = writeln!(
            text,
            "  {:>8} {:>6} {:>6} {:>6} {:>6} {:>8}  operators",
            "tasks", "<=1 %", "<=2 %", "<=4 %", "<=16 %", "max, ms"
        );
        let mut line = |tasks: &[u64], longest_ms: f64, names: &str| {
            let part = |end| within(tasks, end).map_or("-".to_owned(), |part| digits(100.0 * part));
            let count: u64 = tasks.iter().sum();
            let _ = writeln!(
                text,
                "  {count:>8} {:>6} {:>6} {:>6} {:>6} {:>8}  {}",
                part(1.0),
                part(2.0),
                part(4.0),
                part(16.0),
                large(longest_ms),
                ending(names, 30)
            );
        };
        let longest_ms = turns
            .operators
            .iter()
            .map(|one| one.longest_ms)
            .fold(0.0, f64::max);
        line(&turns.all(), longest_ms, "all");
        let mut operators: Vec<_> = turns.operators.iter().collect();
        // Classes from the fifth on are longer than 2 t_max.
        operators.sort_by_key(|one| std::cmp::Reverse(one.tasks[4..].iter().sum::<u64>()));
        for one in operators.iter().take(OPERATORS) {
            line(&one.tasks, one.longest_ms, &one.names);
        }
    }
}

/// The end of a text that is too long.
fn ending(text: &str, width: usize) -> String {
    let count = text.chars().count();
    match count <= width {
        true => text.to_owned(),
        false => format!(
            "…{}",
            text.chars().skip(count - width + 1).collect::<String>()
        ),
    }
}

fn cost<'a, 'b: 'a>(text: &mut String, cells: impl Iterator<Item = &'a Cell<'b>>) {
    for row in cells.flat_map(|cell| cell.rows.iter()) {
        let Measured::Cost(cost) = &row.measured else {
            continue;
        };
        let _ = writeln!(
            text,
            "  {:>8} {:>8} {:>9} {:>9} {:>9}",
            "workers", "queries", "ns/task", "least", "most"
        );
        for decision in &cost.decisions {
            if let Some(Spread { median, min, max }) = Spread::of(decision.ns.iter().copied()) {
                let _ = writeln!(
                    text,
                    "  {:>8} {:>8} {median:>9.0} {min:>9.0} {max:>9.0}",
                    decision.workers, decision.queries
                );
            }
        }
        let share = &cost.share;
        let part = |part: Option<f64>| part.map_or("unknown".to_owned(), percent);
        for line in [
            format!(
                "{} queries at a time for {} s: {} tasks, {} decisions, {} tunings",
                share.queries,
                digits(share.span_s),
                share.tasks,
                share.decisions,
                share.tunings
            ),
            format!(
                "workers were in tasks for {} s and on a CPU for {} s",
                digits(share.busy_s),
                digits(share.cpu_s)
            ),
            format!(
                "of that, decisions (as many as there were, at the ns above) {}, tuning {}",
                part(scheduling(cost)),
                part(tuning(cost))
            ),
        ] {
            wrap(text, "  ", &line);
        }
    }
}

/// Means with their bounds, for the page.
pub(super) fn bounds(estimate: Option<Estimate>) -> String {
    match estimate {
        None => "–".to_owned(),
        Some(Estimate { mean, low, high }) if low == high => large(mean),
        Some(Estimate { mean, low, high }) => {
            format!(
                "{} <small>{}–{}</small>",
                large(mean),
                large(low),
                large(high)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::tasks::report::samples;

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
            match &mut row.measured {
                Measured::Arrived(run) => {
                    for sample in &mut run.samples {
                        sample.latency_ms *= 12_345.0;
                    }
                    run.failed = (12, "Q18 large: out of memory: ".repeat(10));
                    run.unfinished = 3;
                }
                Measured::Turns(turns) => turns.operators[0].names.push_str(&"Join > ".repeat(20)),
                _ => {}
            }
        }
        let usual = render(&samples::report());
        for line in render(&report).lines().chain(usual.lines()) {
            let length = line.chars().count();
            assert!(length <= 80, "{length}: {line}");
        }
    }

    #[test]
    fn queries_that_failed_or_never_ended_are_pointed_out() {
        let mut report = samples::report();
        assert!(!render(&report).contains("Beware"));
        let run = report
            .rows
            .iter_mut()
            .find_map(|row| match &mut row.measured {
                Measured::Arrived(run) => Some(run),
                _ => None,
            });
        let run = run.unwrap();
        run.failed = (2, "memory".to_owned());
        run.unfinished = 1;
        let text = render(&report);
        assert!(
            text.contains("Beware: 2 queries of") && text.contains("memory"),
            "{text}"
        );
        assert!(text.contains("Beware: 1 queries of"), "{text}");
    }
}
