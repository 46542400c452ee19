//! The results as text of at most 80 columns.

use std::fmt::Write as _;

use super::stats::{Cell, Summary};
use super::targets::targets;
use crate::cell::config::Mix;
use crate::cell::report as cells;
use crate::cell::report::plus_minus;
use crate::cell::row::Row;
use crate::cell::setup::{By, Hints};
use crate::harness::number::{MARKED, short};
use crate::render::target;
use crate::report::Report;
use crate::workload::background::Job;

/// Renders medians over repeats, with half the distance between the extremes
/// as the spread of the throughput.
pub(super) fn render(report: &Report<Row>) -> String {
    let summary = Summary::of(report);
    let mut text = String::new();
    for line in heading(report) {
        text.push_str(&line);
        text.push('\n');
    }
    for mix in summary.mixes() {
        text.push('\n');
        let _ = writeln!(text, "{mix}: {}", explain(mix, summary.job()));
        let cells: Vec<&Cell<'_>> = summary.mix(mix).collect();
        let width = cells
            .iter()
            .map(|cell| cell.label().len())
            .max()
            .unwrap_or(0);
        let width = width.clamp(5, 11);
        let _ = writeln!(
            text,
            "  {:width$} {:>12} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>4} {:>5}",
            "",
            "TPC-C tps",
            "/solo",
            "/eevdf",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            summary.job().per_second(),
            "/bg",
            "busy"
        );
        for cell in cells {
            let label: String = cell.label().chars().take(width).collect();
            let number = |value: Option<f64>| value.map_or("-".to_owned(), short);
            let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |r| format!("{r:.2}"));
            let tail = |cell: &Cell<'_>, number: fn(&Row) -> Option<f64>, share| {
                cells::percentile(&cell.rows, number, share).unwrap_or("-".to_owned())
            };
            let bare = |value: Option<f64>| {
                let text = ratio(value);
                text.strip_prefix('0').map_or(text.clone(), str::to_owned)
            };
            let _ = writeln!(
                text,
                "  {label:width$} {:>12} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>4} {:>5}",
                cell.spread(|row| row.ts_tps)
                    .map_or("-".to_owned(), plus_minus),
                ratio(summary.tps_to_solo(cell)),
                ratio(summary.tps_to_eevdf(cell)),
                tail(cell, |row| row.ts_p50_ms, 0.5),
                tail(cell, |row| row.ts_p95_ms, 0.95),
                tail(cell, |row| row.ts_p99_ms, 0.99),
                number(cell.median(|row| row.bg_per_s)),
                bare(summary.bg_to_solo(cell)),
                ratio(cell.median(|row| Some(row.busy_fraction))),
            );
        }
    }
    let _ = write!(
        text,
        "\n/solo, /bg: relative to the scheduler's own SOLO and SOLO-BG (IDLE: EEVDF's).\n\
         busy: share of the server CPUs' time. Medians; ± half the range of the repeats.\n\
         {MARKED}"
    );
    text + &target::lines("UFS", &targets(&summary))
}

/// What runs, in one line.
pub(super) fn explain(mix: Mix, job: Job) -> String {
    let job = job.label();
    match mix {
        Mix::Solo => "TPC-C alone".to_owned(),
        Mix::SoloBackground => format!("{job} alone"),
        Mix::MinMax => format!("TPC-C with the highest priority, {job} with the lowest"),
        Mix::FiftyFifty => format!("TPC-C and {job} with the same, high priority"),
        Mix::TwoThree => format!("TPC-C beside {job}, each with weights 2 and 3"),
    }
}

/// Where the numbers come from, and one line for each thing to beware of.
pub(super) fn heading(report: &Report<Row>) -> Vec<String> {
    let mut lines = cells::heading(report);
    if let Some(row) = report.rows.first() {
        if report.rows.iter().any(|row| row.by == By::Roles) {
            lines.push(format!(
                "UFS/roles: priorities by ALTER ROLE alone, hints {}; server: {}",
                hints_of(report),
                row.server
            ));
        }
        if row.network_us > 0 {
            lines.push(format!(
                "A network of {} us a round trip is between the clients and the server.",
                row.network_us
            ));
        }
    }
    lines.extend(cells::beware(report));
    lines
}

/// What UFS was told of locks where it was told anything.
fn hints_of(report: &Report<Row>) -> Hints {
    let roles = report.rows.iter().find(|row| row.by == By::Roles);
    roles.map_or(Hints::Off, |row| row.hints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::mixed::report::samples;
    use crate::harness::scheduler::Scheduler;

    #[test]
    fn the_table_shows_medians_ratios_and_spread_within_80_columns() {
        let text = render(&samples::report());
        for line in text.lines() {
            assert!(
                line.chars().count() <= 80,
                "{} columns: {line}",
                line.chars().count()
            );
        }
        let section = text.split("MIN:MAX:").nth(1).unwrap();
        let ufs: Vec<&str> = section
            .lines()
            .find(|l| l.contains("UFS"))
            .unwrap()
            .split_whitespace()
            .collect();
        assert_eq!(
            ufs,
            [
                "UFS", "396", "±7.92", "0.99", "1.98", "10.1", "19.2", "~25.2", "62.0", ".39",
                "0.99"
            ]
        );
    }

    #[test]
    fn a_cell_without_transactions_shows_zero_and_no_latency() {
        let text = render(&samples::report());
        let section = text.split("50:50:").nth(1).unwrap();
        let fifo: Vec<&str> = section
            .lines()
            .find(|l| l.contains("FIFO"))
            .unwrap()
            .split_whitespace()
            .collect();
        assert_eq!(fifo[..7], ["FIFO", "0.00", "0.00", "0.00", "-", "-", "-"]);
    }

    #[test]
    fn clients_that_limit_throughput_are_pointed_out() {
        let mut report = samples::report();
        assert!(!render(&report).contains("Beware"));
        report.rows[0].client_busy_fraction = 0.97;
        assert!(render(&report).contains("Beware"));
    }

    #[test]
    fn long_names_and_large_numbers_still_fit() {
        let mut report = samples::report();
        let name = "scx_a_very_long_scheduler_name".to_owned();
        for row in &mut report.rows {
            row.scheduler = Scheduler::Scx(name.clone());
            row.ts_tps = row.ts_tps.map(|tps| tps * 300.0);
        }
        report.environment.kernel = "7.2.13-a-rather-long-flavour-amd64".to_owned();
        for line in render(&report).lines() {
            assert!(
                line.chars().count() <= 80,
                "{} columns: {line}",
                line.chars().count()
            );
        }
    }
}
