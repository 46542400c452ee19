//! The results as text of at most 80 columns.

use std::fmt::Write as _;

use super::summary::{Cell, KEEPS, Summary, per_call, targets};
use crate::cell::report::{heading, percentile, plus_minus};
use crate::cell::row::Row;
use crate::experiments::hint_overhead::{Arm, HintRow};
use crate::harness::number::{MARKED, mark, short};
use crate::render::target;
use crate::report::Report;

/// Renders the table.
pub(super) fn render(report: &Report<HintRow>) -> String {
    let summary = Summary::of(report);
    let mut text = heading(report).join("\n");
    let _ = write!(
        text,
        "\n\nTPC-C with the highest priority, {} with the lowest, by roles\n  \
         {:<16} {:>12} {:>19} {:>7} {:>7} {:>8}\n",
        summary.job().label(),
        "",
        "TPC-C tps",
        "of off",
        "p99 ms",
        "p99.9",
        summary.job().per_second()
    );
    for cell in &summary.cells {
        let _ = writeln!(
            text,
            "  {:<16} {:>12} {:>19} {:>7} {:>7} {:>8}",
            name(cell),
            cell.spread(|row| row.ts_tps).map_or(none(), plus_minus),
            kept(&summary, cell),
            percentile(&cell.rows, |row| row.ts_p99_ms, 0.99).unwrap_or(none()),
            mark(number(cell.latency_p999_ms()), cell.latencies(), 0.999),
            number(cell.spread(|row| row.bg_per_s).map(|spread| spread.median)),
        );
    }
    let _ = write!(
        text,
        "\nBackground work preempted with a lightweight lock or spinlock held, and TPC-C's\n\
         sleeps for lightweight locks, per second of the window\n  {:<16} {:>9} {:>9} {:>9} {:>9} {:>9} \
         {:>9}\n",
        "", "preempted", "awaited", "boosts", "waits", "p99 us", "p99.9 us"
    );
    for cell in summary.cells.iter().filter(|cell| cell.arm != Arm::Off) {
        let _ = writeln!(
            text,
            "  {:<16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            name(cell),
            number(cell.per_second(preempted)),
            number(cell.per_second(awaited)),
            number(cell.per_second(boosts)),
            number(cell.per_second(waits)),
            wait(cell, 0.99),
            wait(cell, 0.999),
        );
    }
    for server in summary.servers() {
        let callbacks = summary.callbacks(server);
        if callbacks.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "\nUFS's callbacks, {server} server: nanoseconds a call, timed by the kernel\n  \
             {:<16} {:>9} {:>9} {:>9} {:>12}\n",
            "", "off", "on", "more", "calls"
        );
        for (name, off, on) in callbacks {
            let (before, after) = (per_call(off), per_call(on));
            let _ = writeln!(
                text,
                "  {name:<16} {:>9} {:>9} {:>9} {:>12}",
                short(before),
                short(after),
                short(after - before),
                on.calls
            );
        }
    }
    let _ = write!(
        text,
        "\nof off: seed by seed, median and range; at least {KEEPS} is wanted of \"on\".\n\
         counted: UFS reads the hints and boosts nobody. p99.9: of all repeats together.\n\
         {MARKED}"
    );
    text + &target::lines("TPC-C's throughput with hints on", &targets(&summary))
}

/// What a share of the sleeps for lightweight locks keeps, in microseconds.
fn wait(cell: &Cell<'_>, share: f64) -> String {
    let sleeps = cell.rows.iter().filter_map(|row| waits(row));
    let text = cell.lock_wait_us(share).map(short);
    text.map_or(none(), |text| mark(text, sleeps.sum::<u64>() as f64, share))
}

/// A cell's name: `patched, counted`.
pub(super) fn name(cell: &Cell<'_>) -> String {
    format!("{}, {}", cell.server, cell.arm.name())
}

/// The throughput of a cell as a fraction of that without hints.
pub(super) fn kept(summary: &Summary<'_>, cell: &Cell<'_>) -> String {
    if cell.arm == Arm::Off {
        return none();
    }
    let kept = summary.to_off(cell, |row| row.ts_tps);
    kept.map_or(none(), |kept| {
        format!("{:.3} {:.3}-{:.3}", kept.median, kept.min, kept.max)
    })
}

pub(super) fn preempted(row: &Row) -> Option<u64> {
    Some(row.ufs.as_ref()?.locks.holders_preempted)
}

pub(super) fn awaited(row: &Row) -> Option<u64> {
    Some(row.ufs.as_ref()?.locks.holders_awaited)
}

pub(super) fn boosts(row: &Row) -> Option<u64> {
    let locks = &row.ufs.as_ref()?.locks;
    Some(locks.boosts_lock + locks.boosts_tranche + locks.boosts_leader + locks.boosts_rescue)
}

pub(super) fn waits(row: &Row) -> Option<u64> {
    Some(row.ufs.as_ref()?.locks.lock_waits)
}

fn none() -> String {
    "-".to_owned()
}

fn number(value: Option<f64>) -> String {
    value.map_or(none(), short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::hint_overhead::report::samples;

    #[test]
    fn the_table_shows_cost_and_use_within_80_columns() {
        let text = render(&samples::report());
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let words = |name: &str, nth: usize| {
            let line = text.lines().filter(|line| line.contains(name)).nth(nth);
            Vec::from_iter(line.unwrap().split_whitespace().map(str::to_owned))
        };
        assert_eq!(words("stock, on", 0)[4], "0.995");
        // 40 in 4 seconds.
        assert_eq!(words("patched, counted", 1)[2..4], ["10.0", "1.00"]);
        assert_eq!(words("  stopping", 0)[1..4], ["400", "500", "100"]);
    }
}
