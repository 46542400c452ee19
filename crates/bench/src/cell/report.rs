//! What reports have in common whose rows are cells of a database workload: where
//! the numbers come from, and rows in groups.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::cell::record::CellRecord;
use crate::cell::row::Row;
use crate::harness::number::{Spread, mark, short};
use crate::harness::scheduler::Scheduler;
use crate::render::page::{self, escape};
use crate::report::{self, Report};

/// Client CPUs that are busier may limit throughput.
const CLIENTS_BUSY: f64 = 0.9;

/// Where the numbers come from, in lines.
pub(crate) fn heading<R: CellRecord>(report: &Report<R>) -> Vec<String> {
    let environment = &report.environment;
    let mut lines = vec![
        report.headline(),
        format!(
            "PostgreSQL {}, clock {}, commit {}",
            environment.postgresql,
            environment.clock,
            report.short_commit()
        ),
    ];
    let rows = || report.rows.iter().map(CellRecord::cell);
    if let Some(row) = rows().next() {
        let repeats = report::repeats_said(rows().map(cell));
        lines.push(format!(
            "{} server CPUs, {} client CPUs; {repeats} x {} s after {} s of warm-up",
            row.cpus, row.client_cpus, row.seconds, row.warmup_s
        ));
    }
    lines
}

/// What a row shares with its repeats.
fn cell(row: &Row) -> String {
    let setting = (row.by, row.server, row.hints, row.counted_only);
    let place = (row.disk, row.request_us, row.io_priority, row.network_us);
    let work = (row.mix, row.terminals, row.job, row.background_workers);
    format!("{} {setting:?} {place:?} {work:?}", row.scheduler)
}

/// What to beware of: clients that limit throughput.
pub(crate) fn beware<R: CellRecord>(report: &Report<R>) -> Option<String> {
    let shares = report
        .rows
        .iter()
        .map(|row| row.cell().client_busy_fraction);
    let most = shares.fold(0.0, f64::max);
    (most > CLIENTS_BUSY).then(|| {
        format!(
            "Beware: the client CPUs were busy up to {:.0} % of the time and may limit throughput.",
            most * 100.0
        )
    })
}

/// The median of a percentile over the repeats that have it, marked if all of them
/// together have too few samples.
pub(crate) fn percentile(
    rows: &[&Row],
    number: impl Fn(&Row) -> Option<f64>,
    share: f64,
) -> Option<String> {
    let found = rows
        .iter()
        .filter_map(|row| Some((row.latencies(), number(row)?)));
    let (samples, values): (Vec<f64>, Vec<f64>) = found.unzip();
    let median = Spread::of(values)?.median;
    Some(mark(short(median), samples.into_iter().sum(), share))
}

/// The repeats of one scheduler, or of one scheduler and setting.
#[derive(Clone, Debug)]
pub(crate) struct Repeats<'a> {
    pub(crate) rows: Vec<&'a Row>,
}

impl Repeats<'_> {
    /// Of which there is at least one.
    fn first(&self) -> &Row {
        self.rows[0]
    }

    pub(crate) fn scheduler(&self) -> &Scheduler {
        &self.first().scheduler
    }

    /// Their scheduler's name in at most so many characters.
    pub(crate) fn label(&self, width: usize) -> String {
        self.scheduler().label().chars().take(width).collect()
    }

    /// The spread of a number over the repeats that have it.
    pub(crate) fn spread(&self, number: impl Fn(&Row) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rows.iter().filter_map(|row| number(row)))
    }

    /// The median of a number over the repeats that have it.
    pub(crate) fn median(&self, number: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        self.spread(number).map(|spread| spread.median)
    }
}

/// Rows that are alike but for their repeat, in the order of `key`, then of
/// schedulers.
pub(crate) fn repeats<R: CellRecord, K: Ord>(
    report: &Report<R>,
    key: impl Fn(&Row) -> K,
) -> Vec<Repeats<'_>> {
    let mut groups: BTreeMap<(K, (usize, String)), Vec<&Row>> = BTreeMap::new();
    for row in report.rows.iter().map(CellRecord::cell) {
        let rows = groups.entry((key(row), row.scheduler.rank())).or_default();
        rows.push(row);
    }
    let groups = groups.into_values();
    groups.map(|rows| Repeats { rows }).collect()
}

/// A median with half the distance between the extremes.
pub(crate) fn plus_minus(spread: Spread) -> String {
    if spread.min == spread.max {
        return short(spread.median);
    }
    let half = (spread.max - spread.min) / 2.0;
    format!("{} ±{}", short(spread.median), short(half))
}

/// The table as it is on a terminal, as a section of a page: plots are for what
/// has a shape.
pub(crate) fn numbers(page: &mut String, table: &str) {
    page::section(page, "Numbers", "Medians of the repeats.");
    let _ = write!(
        page,
        "<div class=\"card\"><pre>{}</pre></div>",
        escape(table)
    );
}

/// Where the numbers come from, as the last section of a page.
pub(crate) fn environment<R: CellRecord>(page: &mut String, report: &Report<R>, note: &str) {
    let rows = || report.rows.iter().map(CellRecord::cell);
    let versions: BTreeSet<&str> = rows()
        .filter_map(|row| row.scheduler_version.as_deref())
        .collect();
    let more = [
        ("sched_ext schedulers", Vec::from_iter(versions).join(", ")),
        ("PostgreSQL", report.environment.postgresql.clone()),
        ("Cells measured", report.rows.len().to_string()),
    ];
    let note = format!(
        "{note} In the lockstep clock all CPUs run at the same constant speed, and memory and \
         caches cost nothing: compare schedulers with each other, not these numbers with those of \
         hardware."
    );
    page::environment(page, &report.environment, &more, &note);
}
