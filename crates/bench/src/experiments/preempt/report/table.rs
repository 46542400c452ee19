//! Preemption results as text of at most 80 columns.

use std::fmt::Write as _;

use super::summary::{Cell, Summary};
use super::targets::{against_threads, targets};
use crate::experiments::preempt::{
    Latency, Measured, Mixed, PreemptExperiment, PreemptRow, Stalls,
};
use crate::harness::environment::Environment;
use crate::harness::number::{MARKED, Middle, Spread, large, mark, short};
use crate::render::target;
use crate::report::Report;

/// Renders medians over repeats.
pub(super) fn render(report: &Report<PreemptRow>) -> String {
    let summary = Summary::of(report);
    let mut text = String::new();
    for line in heading(report) {
        let _ = writeln!(text, "{line}");
    }
    for experiment in summary.experiments() {
        let _ = writeln!(text, "\n{experiment}: {}", experiment.about());
        let cells = summary.cells(experiment);
        match experiment {
            PreemptExperiment::Latency => {
                mixed(&mut text, cells, &LATENCY);
                tails(&mut text, cells);
                spreads(&mut text, cells);
            }
            PreemptExperiment::Scaling
            | PreemptExperiment::YieldInterval
            | PreemptExperiment::Starvation
            | PreemptExperiment::Arrivals => mixed(&mut text, cells, &SWEEP),
            PreemptExperiment::Overhead => overhead(&mut text, cells),
            PreemptExperiment::Micro => micro(&mut text, cells),
            PreemptExperiment::Engines => engines(&mut text, cells),
        }
    }
    let rivals = against_threads(&summary);
    if !rivals.is_empty() {
        text.push_str("\nthe plain rival: OS threads\n");
    }
    for line in rivals {
        wrap(&mut text, &line);
    }
    let targets = targets(&summary);
    if !targets.is_empty() {
        text.push_str("\ntargets\n");
    }
    text.push_str(&target::rows(&targets));
    text.push_str(
        "\nLatencies run from when a request was due to its end: New-Order and Payment in\n\
         µs, Q2 in ms. gm: geometric mean. drop: urgent requests without a place in a\n\
         queue before the next batch. calm: those that met no stall. Medians of repeats.\n\
         from, to: where the median loss of more pairs would lie, with 95 % confidence.\n",
    );
    text + MARKED
}

/// A line in lines of 78 characters, indented.
fn wrap(text: &mut String, line: &str) {
    let mut width = 80;
    for word in line.split(' ') {
        let length = word.chars().count();
        if width + 1 + length > 78 {
            text.push_str(if width == 80 { "  " } else { "\n    " });
            width = if width == 80 { 2 } else { 4 };
        } else {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += length;
    }
    text.push('\n');
}

/// Where the numbers come from, and what to beware of.
pub(super) fn heading(report: &Report<PreemptRow>) -> Vec<String> {
    let Environment { cpus, clock, .. } = &report.environment;
    let commit = report.short_commit();
    let mut lines = vec![
        report.headline(),
        format!("{cpus} CPUs, clock {clock}, commit {commit}"),
    ];
    let repeats = report.rows.iter().map(|row| row.repeat).max();
    let run = report.rows.iter().find_map(|row| match &row.measured {
        Measured::Mixed(mixed) => Some(mixed),
        _ => None,
    });
    if let Some(mixed) = run {
        let place = &mixed.placement;
        let workers = place.worker_cpus.iter().map(usize::to_string);
        lines.push(format!(
            "{} x {:.1} s; Q2 at scale {}",
            repeats.unwrap_or(0) + 1,
            mixed.seconds,
            mixed.q2_scale,
        ));
        if let Some(offered) = &mixed.offered {
            lines.push(format!(
                "alone: urgent {} µs, Q2 {} ms; a batch of {} every {} ms: load {:.2}",
                short(offered.service.urgent_us),
                short(offered.service.q2_us / 1e3),
                mixed.batch,
                short(mixed.arrival_us / 1e3),
                offered.load,
            ));
        }
        lines.push(format!(
            "pinned: scheduling thread on CPU {}, workers on {}",
            place.scheduler_cpu,
            Vec::from_iter(workers).join(", "),
        ));
    }
    if *cpus < 4 && run.is_some() {
        lines.push(format!(
            "Beware: {cpus} CPUs, so one worker at most has nobody beside it; the paper has 16."
        ));
    }
    lines
}

/// A column of runs of the mix: its head, its width, a number, and of which latency it is
/// which percentile, if it is one.
type Column = (&'static str, usize, fn(&Mixed) -> f64, Tail);
type Tail = Option<(fn(&Mixed) -> &Latency, f64)>;

/// A number of a cell as text, marked if it is a percentile of too few requests.
fn marked(cell: &Cell<'_>, text: String, tail: Tail) -> String {
    match tail {
        Some((latency, share)) => {
            let requests = cell.mixed().map(|mixed| latency(mixed).count as f64);
            mark(text, requests.sum(), share)
        }
        None => text,
    }
}

const LATENCY: [Column; 9] = [
    (
        "NO p50",
        7,
        |mixed| mixed.new_order.p50_us,
        Some((|mixed| &mixed.new_order, 0.50)),
    ),
    (
        "p90",
        6,
        |mixed| mixed.new_order.p90_us,
        Some((|mixed| &mixed.new_order, 0.90)),
    ),
    (
        "p99",
        6,
        |mixed| mixed.new_order.p99_us,
        Some((|mixed| &mixed.new_order, 0.99)),
    ),
    (
        "p99.9",
        6,
        |mixed| mixed.new_order.p999_us,
        Some((|mixed| &mixed.new_order, 0.999)),
    ),
    (
        "Pay p99",
        7,
        |mixed| mixed.payment.p99_us,
        Some((|mixed| &mixed.payment, 0.99)),
    ),
    (
        "Q2 p50",
        6,
        |mixed| mixed.q2.p50_us / 1e3,
        Some((|mixed| &mixed.q2, 0.50)),
    ),
    (
        "p99",
        6,
        |mixed| mixed.q2.p99_us / 1e3,
        Some((|mixed| &mixed.q2, 0.99)),
    ),
    ("Q2/s", 6, |mixed| mixed.q2.per_s, None),
    ("urg./s", 6, Mixed::urgent_per_s, None),
];

const SWEEP: [Column; 8] = [
    (
        "NO p50",
        6,
        |mixed| mixed.new_order.p50_us,
        Some((|mixed| &mixed.new_order, 0.50)),
    ),
    (
        "p99",
        6,
        |mixed| mixed.new_order.p99_us,
        Some((|mixed| &mixed.new_order, 0.99)),
    ),
    ("gm", 6, |mixed| mixed.new_order.geomean_us, None),
    ("Q2 gm", 6, |mixed| mixed.q2.geomean_us / 1e3, None),
    (
        "p99",
        6,
        |mixed| mixed.q2.p99_us / 1e3,
        Some((|mixed| &mixed.q2, 0.99)),
    ),
    ("Q2/s", 6, |mixed| mixed.q2.per_s, None),
    ("urg./s", 6, Mixed::urgent_per_s, None),
    (
        "drop %",
        6,
        |mixed| 100.0 * mixed.dropped as f64 / (mixed.urgent.max(1)) as f64,
        None,
    ),
];

fn mixed(text: &mut String, cells: &[Cell<'_>], columns: &[Column]) {
    let sweeps = cells.iter().any(|cell| cell.value.is_some());
    let _ = match sweeps {
        true => write!(text, "  {:>8} {:<13}", "at", "method"),
        false => write!(text, "  {:<13}", "method"),
    };
    for (head, width, ..) in columns {
        let _ = write!(text, " {head:>width$}");
    }
    text.push('\n');
    for cell in cells {
        let method: String = cell.method.chars().take(13).collect();
        let value = cell.value.map_or("-".to_owned(), |value| value.to_string());
        let _ = match sweeps {
            true => write!(text, "  {value:>8} {method:<13}"),
            false => write!(text, "  {method:<13}"),
        };
        for (_, width, number, tail) in columns {
            let number = cell.median(number).map_or("-".to_owned(), large);
            let number = marked(cell, number, *tail);
            let _ = write!(text, " {number:>width$}");
        }
        text.push('\n');
    }
}

/// What the highest percentile is made of: of how many requests it is, and what
/// it is without those that met a stall of the machine.
fn tails(text: &mut String, cells: &[Cell<'_>]) {
    type Number = fn(&Mixed, &Stalls) -> f64;
    /// A head, a width, a number; of which latency it is the p99.9, if it is one.
    type Column = (&'static str, usize, Number, Option<Of>);
    type Of = fn(&Mixed, &Stalls) -> Latency;
    const COLUMNS: [Column; 8] = [
        ("NO n", 6, |mixed, _| mixed.new_order.count as f64, None),
        (
            "p99.9",
            6,
            |mixed, _| mixed.new_order.p999_us,
            Some(|mixed, _| mixed.new_order),
        ),
        ("calm n", 6, |_, stalls| stalls.new_order.count as f64, None),
        (
            "p99.9",
            6,
            |_, stalls| stalls.new_order.p999_us,
            Some(|_, stalls| stalls.new_order),
        ),
        (
            "Pay p99.9",
            9,
            |mixed, _| mixed.payment.p999_us,
            Some(|mixed, _| mixed.payment),
        ),
        (
            "calm",
            6,
            |_, stalls| stalls.payment.p999_us,
            Some(|_, stalls| stalls.payment),
        ),
        (
            "stalls/s",
            8,
            |mixed, stalls| stalls.count as f64 / mixed.seconds,
            None,
        ),
        ("longest", 7, |_, stalls| stalls.longest_us, None),
    ];
    let watched = |mixed: &&Mixed| mixed.stalls.is_some();
    let Some(over_us) = cells.iter().find_map(|cell| {
        let mixed = cell.mixed().find(watched)?;
        Some(mixed.stalls?.over_us)
    }) else {
        return;
    };
    let _ = writeln!(
        text,
        "  p99.9 and the machine; stall: the scheduling thread stood still for > {} µs",
        short(over_us)
    );
    let _ = write!(text, "  {:<13}", "method");
    for (head, width, ..) in COLUMNS {
        let _ = write!(text, " {head:>width$}");
    }
    text.push('\n');
    for cell in cells {
        let _ = write!(text, "  {:<13}", cell.method);
        for (_, width, number, of) in COLUMNS {
            let repeats = || {
                cell.mixed()
                    .filter_map(|mixed| Some((mixed, mixed.stalls.as_ref()?)))
            };
            let numbers = repeats().map(|(mixed, stalls)| number(mixed, stalls));
            let number = Spread::of(numbers).map_or("-".to_owned(), |spread| large(spread.median));
            let number = match of {
                Some(of) => {
                    let requests = repeats().map(|(mixed, stalls)| of(mixed, stalls).count as f64);
                    mark(number, requests.sum(), 0.999)
                }
                None => number,
            };
            let _ = write!(text, " {number:>width$}");
        }
        text.push('\n');
    }
}

/// How far the repeats are apart.
fn spreads(text: &mut String, cells: &[Cell<'_>]) {
    const COLUMNS: [Column; 4] = [
        (
            "NO p50",
            13,
            |mixed| mixed.new_order.p50_us,
            Some((|mixed| &mixed.new_order, 0.50)),
        ),
        (
            "p99",
            13,
            |mixed| mixed.new_order.p99_us,
            Some((|mixed| &mixed.new_order, 0.99)),
        ),
        (
            "p99.9",
            13,
            |mixed| mixed.new_order.p999_us,
            Some((|mixed| &mixed.new_order, 0.999)),
        ),
        ("Q2/s", 13, |mixed| mixed.q2.per_s, None),
    ];
    let repeats = cells.iter().map(|cell| cell.rows.len()).max();
    let Some(repeats @ 2..) = repeats else {
        return;
    };
    let _ = writeln!(text, "  least and most of {repeats} repeats");
    let _ = write!(text, "  {:<13}", "method");
    for (head, width, ..) in COLUMNS {
        let _ = write!(text, " {head:>width$}");
    }
    text.push('\n');
    for cell in cells {
        let _ = write!(text, "  {:<13}", cell.method);
        for (_, width, number, tail) in COLUMNS {
            let ends = cell.spread(number);
            let ends = ends.map_or("-".to_owned(), |spread| {
                format!("{}-{}", large(spread.min), large(spread.max))
            });
            let ends = marked(cell, ends, tail);
            let _ = write!(text, " {ends:>width$}");
        }
        text.push('\n');
    }
}

fn overhead(text: &mut String, cells: &[Cell<'_>]) {
    let _ = writeln!(
        text,
        "  {:<13} {:>9} {:>9} {:>8} {:>8} {:>8} {:>10}",
        "delivery", "without/s", "with/s", "loss %", "from", "to", "taken"
    );
    for cell in cells {
        let pairs = || cell.overhead().flat_map(|overhead| overhead.pairs.clone());
        let without = Spread::of(pairs().map(|pair| pair.0));
        let with = Spread::of(pairs().map(|pair| pair.1));
        let loss = Middle::of(cell.losses().map(|loss| 100.0 * loss));
        let (Some(without), Some(with), Some(loss)) = (without, with, loss) else {
            continue;
        };
        let taken: u64 = cell.overhead().map(|overhead| overhead.taken).sum();
        let _ = writeln!(
            text,
            "  {:<13} {:>9} {:>9} {:>8} {:>8} {:>8} {:>10}",
            cell.method,
            large(without.median),
            large(with.median),
            short(loss.median),
            short(loss.low),
            short(loss.high),
            taken
        );
    }
}

fn micro(text: &mut String, cells: &[Cell<'_>]) {
    let _ = writeln!(
        text,
        "  {:<16} {:>9} {:>9} {:>9}",
        "operation, ns", "median", "least", "most"
    );
    for cell in cells {
        if let Some(Spread { median, min, max }) = cell.ns() {
            let _ = writeln!(
                text,
                "  {:<16} {median:>9.2} {min:>9.2} {max:>9.2}",
                cell.method
            );
        }
    }
    let _ = writeln!(
        text,
        "  {:<16} {:>9} {:>9} {:>9} {:>9} {:>12}",
        "delivery, ns", "p50", "p90", "p99", "max", "sender pays"
    );
    for cell in cells {
        let number = |of| cell.delivery_ns(of).map(large);
        let numbers = [
            number(|row| row.latency.p50_ns),
            number(|row| row.latency.p90_ns),
            number(|row| row.latency.p99_ns),
            number(|row| row.latency.max_ns),
            number(|row| row.latency.send_p50_ns),
        ];
        if let [Some(p50), Some(p90), Some(p99), Some(max), Some(send)] = numbers {
            let _ = writeln!(
                text,
                "  {:<16} {p50:>9} {p90:>9} {p99:>9} {max:>9} {send:>12}",
                cell.method
            );
        }
    }
}

fn engines(text: &mut String, cells: &[Cell<'_>]) {
    let ours = |mix| {
        let cell = cells.iter().find(|cell| cell.method == "giveway")?;
        Some(cell.per_s(mix)?.median)
    };
    let _ = writeln!(
        text,
        "  {:<9} {:>9} {:>6} {:>11} {:>6}  isolation; durability",
        "engine", "standard", "/ours", "interactive", "/ours"
    );
    for cell in cells {
        let _ = write!(text, "  {:<9}", cell.method);
        for (mix, width) in [("standard", 9), ("interactive", 11)] {
            let per_s = cell.per_s(mix).map(|spread| spread.median);
            let share = per_s.zip(ours(mix)).map(|(theirs, ours)| theirs / ours);
            let number = per_s.map_or("-".to_owned(), large);
            let share = share.map_or("-".to_owned(), |share| format!("{share:.2}"));
            let _ = write!(text, " {number:>width$} {share:>6}");
        }
        if let Some(row) = cell.throughput().next() {
            let _ = write!(text, "  {}", row.isolation);
        }
        text.push('\n');
    }
    for cell in cells {
        if let Some(row) = cell.throughput().next() {
            let _ = writeln!(text, "  {}: durability {}", cell.method, row.durability);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::preempt::report::samples;

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
            row.value = row.value.map(|value| value * 10.0);
            if let Measured::Mixed(mixed) = &mut row.measured {
                for latency in [&mut mixed.new_order, &mut mixed.payment, &mut mixed.q2] {
                    latency.p50_us *= 1e4;
                    latency.p99_us *= 1e4;
                    latency.per_s *= 1e3;
                }
            }
        }
        let usual = render(&samples::report());
        for line in render(&report).lines().chain(usual.lines()) {
            let length = line.chars().count();
            assert!(length <= 80, "{length}: {line}");
        }
    }

    #[test]
    fn few_cpus_are_pointed_out() {
        let mut report = samples::report();
        assert!(!render(&report).contains("Beware"));
        report.environment.cpus = 2;
        assert!(render(&report).contains("Beware"));
    }
}
