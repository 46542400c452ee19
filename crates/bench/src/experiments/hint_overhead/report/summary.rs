//! Rows of an arm together: ratios of pairs, and what UFS counted.

use std::collections::BTreeMap;

use crate::cell::row::Row;
use crate::cell::setup::Build;
use crate::cell::ufs::Callback;
use crate::experiments::hint_overhead::{Arm, HintRow};
use crate::harness::number::{Spread, quantile};
use crate::render::target::Target;
use crate::report::Report;
use crate::workload::background::Job;

/// "on" has to keep this much of the throughput of "off".
pub(super) const KEEPS: f64 = 0.99;

/// The repeats of one server and arm.
#[derive(Clone, Debug)]
pub(super) struct Cell<'a> {
    pub(super) server: Build,
    pub(super) arm: Arm,
    pub(super) rows: Vec<&'a Row>,
}

impl Cell<'_> {
    pub(super) fn spread(&self, number: impl Fn(&Row) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rows.iter().filter_map(|row| number(row)))
    }

    /// The latency that 999 of 1000 transactions of all repeats keep, in
    /// milliseconds.
    pub(super) fn latency_p999_ms(&self) -> Option<f64> {
        let pairs = self.rows.iter().flat_map(|row| &row.latency_histogram);
        quantile(pairs.copied(), 0.999)
    }

    /// How many transactions that is of.
    pub(super) fn latencies(&self) -> f64 {
        self.rows.iter().map(|row| row.latencies()).sum()
    }

    /// The same of sleeps for lightweight locks, in microseconds: the upper
    /// bound of a bucket, four of which make an octave.
    pub(super) fn lock_wait_us(&self, share: f64) -> Option<f64> {
        let mut buckets: Vec<u64> = Vec::new();
        for ufs in self.rows.iter().filter_map(|row| row.ufs.as_ref()) {
            let waits = &ufs.locks.lock_wait_ns;
            buckets.resize(buckets.len().max(waits.len()), 0);
            for (sum, count) in buckets.iter_mut().zip(waits) {
                *sum += count;
            }
        }
        let numbered = buckets
            .into_iter()
            .zip(0..)
            .map(|(count, bucket)| (f64::from(bucket), count));
        let bucket = quantile(numbered, share)?;
        let octave = (bucket / 4.0).floor();
        Some(octave.exp2() * (1.25 + 0.25 * (bucket - 4.0 * octave)) / 1_000.0)
    }

    /// A count of UFS's, per second of the windows.
    pub(super) fn per_second(&self, count: impl Fn(&Row) -> Option<u64>) -> Option<f64> {
        let mut seconds = 0.0;
        let mut sum = None;
        for row in &self.rows {
            if let Some(count) = count(row) {
                *sum.get_or_insert(0) += count;
                seconds += row.seconds;
            }
        }
        sum.map(|sum| sum as f64 / seconds)
    }
}

/// A report's rows, by server and arm.
pub(super) struct Summary<'a> {
    pub(super) cells: Vec<Cell<'a>>,
    timed: Vec<&'a HintRow>,
}

impl<'a> Summary<'a> {
    pub(super) fn of(report: &'a Report<HintRow>) -> Self {
        let (timed, rows): (Vec<&HintRow>, Vec<&HintRow>) =
            report.rows.iter().partition(|row| row.is_timed());
        let mut cells: Vec<Cell<'a>> = Vec::new();
        for row in rows {
            let (server, arm) = (row.server(), row.arm());
            match cells
                .iter_mut()
                .find(|c| c.server == server && c.arm == arm)
            {
                Some(cell) => cell.rows.push(&row.0),
                None => cells.push(Cell {
                    server,
                    arm,
                    rows: vec![&row.0],
                }),
            }
        }
        cells.sort_by_key(|cell| (cell.server, cell.arm));
        Summary { cells, timed }
    }

    /// What ran in the background.
    pub(super) fn job(&self) -> Job {
        let first = self.cells.first().and_then(|cell| cell.rows.first());
        first.map_or(Job::Q17, |row| row.job)
    }

    pub(super) fn servers(&self) -> Vec<Build> {
        let mut servers: Vec<Build> = self.cells.iter().map(|cell| cell.server).collect();
        servers.dedup();
        servers
    }

    pub(super) fn cell(&self, server: Build, arm: Arm) -> Option<&Cell<'a>> {
        let mut cells = self.cells.iter();
        cells.find(|cell| cell.server == server && cell.arm == arm)
    }

    /// A number of a cell as a fraction of that of the arm "off", seed by seed.
    pub(super) fn to_off(
        &self,
        cell: &Cell<'_>,
        number: impl Fn(&Row) -> Option<f64>,
    ) -> Option<Spread> {
        let off = self.cell(cell.server, Arm::Off)?;
        let pairs = cell.rows.iter().filter_map(|row| {
            let twin = off.rows.iter().find(|twin| twin.seed == row.seed)?;
            let (this, other) = (number(row)?, number(twin)?);
            (other > 0.0).then_some(this / other)
        });
        Spread::of(pairs)
    }

    /// UFS's callbacks with hints off and on, where they were timed.
    pub(super) fn callbacks(&self, server: Build) -> Vec<(&'a str, Callback, Callback)> {
        let of = |arm| {
            let mut timed = self.timed.iter();
            timed
                .find(|row| row.server() == server && row.arm() == arm)
                .and_then(|row| row.0.ufs.as_ref())
                .map(|ufs| &ufs.callbacks)
        };
        let (Some(off), Some(on)) = (of(Arm::Off), of(Arm::On)) else {
            return Vec::new();
        };
        in_both(off, on)
    }
}

fn in_both<'a>(
    off: &'a BTreeMap<String, Callback>,
    on: &BTreeMap<String, Callback>,
) -> Vec<(&'a str, Callback, Callback)> {
    let mut both: Vec<_> = off
        .iter()
        .filter_map(|(name, off)| Some((name.as_str(), *off, *on.get(name)?)))
        .collect();
    both.sort_by_key(|(_, _, on)| std::cmp::Reverse(on.run_ns));
    both
}

/// Nanoseconds of one call.
pub(super) fn per_call(callback: Callback) -> f64 {
    callback.run_ns as f64 / callback.calls.max(1) as f64
}

/// What is wanted of TPC-C's throughput with hints.
pub(super) fn targets(summary: &Summary<'_>) -> Vec<Target> {
    let target = |server: Build| {
        let kept = summary.to_off(summary.cell(server, Arm::On)?, |row| row.ts_tps)?;
        Some(Target {
            what: format!("{server} server, of hints off"),
            bound: "at least 0.99",
            measured: format!("{:.3}", kept.median),
            met: kept.median >= KEEPS,
        })
    };
    summary.servers().into_iter().filter_map(target).collect()
}

/// What the reader should see.
pub(super) fn sentence(report: &Report<HintRow>) -> String {
    let summary = Summary::of(report);
    let kept: Vec<String> = summary
        .servers()
        .into_iter()
        .filter_map(|server| {
            let on = summary.cell(server, Arm::On)?;
            let kept = summary.to_off(on, |row| row.ts_tps)?;
            let verdict = if kept.median < KEEPS {
                ", less than it should"
            } else {
                ""
            };
            Some(format!(
                "{:.3} with the {server} server{verdict}",
                kept.median
            ))
        })
        .collect();
    if kept.is_empty() {
        return "These rows hold no pair with hints off and on, so they do not say what hints \
                cost."
            .to_owned();
    }
    let mut text = format!(
        "With hints TPC-C keeps, of the throughput it has without them, {}",
        kept.join(", and ")
    );
    let counted = |count: fn(&Row) -> Option<u64>| {
        let cells = summary.cells.iter().filter(|cell| cell.arm == Arm::Counted);
        cells
            .filter_map(|cell| cell.per_second(count))
            .reduce(f64::max)
    };
    let preempted = counted(|row| Some(row.ufs.as_ref()?.locks.holders_preempted));
    let awaited = counted(|row| Some(row.ufs.as_ref()?.locks.holders_awaited));
    if let (Some(preempted), Some(awaited)) = (preempted, awaited) {
        text.push_str(&format!(
            "; background work was preempted while holding a lock {preempted:.1} times a second, \
             and TPC-C came to wait for {awaited:.2} of them"
        ));
    }
    text.push('.');
    text
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn ratios_are_of_pairs_and_timed_rows_do_not_count() {
        let report = samples::report();
        let summary = Summary::of(&report);
        let on = summary.cell(Build::Stock, Arm::On).unwrap();
        let kept = summary.to_off(on, |row| row.ts_tps).unwrap();
        // The seeds differ by far more than the arms, and the timed rows by more.
        assert!((kept.min - 0.995).abs() < 1e-9 && (kept.max - 0.995).abs() < 1e-9);
        let rows = summary.callbacks(Build::Stock);
        assert_eq!(rows[0].0, "stopping");
        assert_eq!((per_call(rows[0].1), per_call(rows[0].2)), (400.0, 500.0));
    }

    #[test]
    fn quantiles_are_of_all_repeats_together() {
        let report = samples::report();
        let summary = Summary::of(&report);
        let on = summary.cell(Build::Stock, Arm::On).unwrap();
        // Bucket 42 of the sample's waits: 2^10 ns and a half, up to three quarters.
        assert_eq!(on.lock_wait_us(0.5), Some(1.792));
    }

    #[test]
    fn the_sentence_says_a_loss() {
        let mut report = samples::report();
        assert!(sentence(&report).contains("0.995 with the stock server,"));
        for row in &mut report.rows {
            if row.arm() == Arm::On {
                row.0.ts_tps = row.0.ts_tps.map(|tps| tps * 0.9);
            }
        }
        assert!(sentence(&report).contains("less than it should"));
        report.rows.retain(|row| row.arm() == Arm::On);
        assert!(sentence(&report).contains("no pair"));
    }
}
