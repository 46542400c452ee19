//! Summaries of repeats.

use crate::cell::config::Mix;
use crate::cell::row::Row;
use crate::cell::setup::By;
use crate::harness::number::Spread;
use crate::harness::scheduler::Scheduler;
use crate::report::Report;
use crate::workload::background::Job;

/// The repeats of one scheduler and mix, with priorities set in one way.
#[derive(Clone, Debug)]
pub(crate) struct Cell<'a> {
    pub(crate) scheduler: Scheduler,
    pub(crate) by: By,
    pub(crate) mix: Mix,
    pub(crate) rows: Vec<&'a Row>,
}

impl<'a> Cell<'a> {
    /// The name that is printed in tables and plots.
    pub(crate) fn label(&self) -> String {
        label(&self.scheduler, self.by)
    }

    /// The spread of a number over the repeats that have it.
    pub(crate) fn spread(&self, number: impl Fn(&Row) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rows.iter().filter_map(|row| number(row)))
    }

    /// The median of a number over the repeats that have it.
    pub(crate) fn median(&self, number: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        self.spread(number).map(|spread| spread.median)
    }

    /// The latencies of all repeats together: (milliseconds, share of
    /// transactions at or below), ascending.
    pub(crate) fn latency_cdf(&self) -> Vec<(f64, f64)> {
        let mut pairs: Vec<(f64, u64)> = self
            .rows
            .iter()
            .flat_map(|row| row.latency_histogram.iter().copied())
            .collect();
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: u64 = pairs.iter().map(|pair| pair.1).sum();
        let mut below = 0;
        pairs
            .into_iter()
            .map(|(ms, count)| {
                below += count;
                (ms, below as f64 / total as f64)
            })
            .collect()
    }
}

/// The name of a scheduler that heard of priorities in some way.
pub(crate) fn label(scheduler: &Scheduler, by: By) -> String {
    match by {
        By::Cgroups => scheduler.label(),
        By::Roles => format!("{}/roles", scheduler.label()),
    }
}

/// A report's rows, by mix and scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Summary<'a> {
    /// In the order of tables: mixes, then schedulers.
    pub(crate) cells: Vec<Cell<'a>>,
}

impl<'a> Summary<'a> {
    pub(crate) fn of(report: &'a Report<Row>) -> Self {
        let mut cells: Vec<Cell<'a>> = Vec::new();
        for row in &report.rows {
            match cells
                .iter_mut()
                .find(|c| c.mix == row.mix && c.scheduler == row.scheduler && c.by == row.by)
            {
                Some(cell) => cell.rows.push(row),
                None => cells.push(Cell {
                    scheduler: row.scheduler.clone(),
                    by: row.by,
                    mix: row.mix,
                    rows: vec![row],
                }),
            }
        }
        cells.sort_by_key(|cell| (cell.mix, cell.scheduler.rank(), cell.by));
        Summary { cells }
    }

    /// The cells of a mix.
    pub(crate) fn mix(&self, mix: Mix) -> impl Iterator<Item = &Cell<'a>> {
        self.cells.iter().filter(move |cell| cell.mix == mix)
    }

    /// The mixes that were measured.
    pub(crate) fn mixes(&self) -> Vec<Mix> {
        Mix::ALL
            .into_iter()
            .filter(|mix| self.mix(*mix).next().is_some())
            .collect()
    }

    /// The schedulers that were measured, and how priorities were set.
    pub(crate) fn schedulers(&self) -> Vec<(Scheduler, By)> {
        let mut schedulers: Vec<(Scheduler, By)> = self
            .cells
            .iter()
            .map(|cell| (cell.scheduler.clone(), cell.by))
            .collect();
        schedulers.sort_by_key(|(scheduler, by)| (scheduler.rank(), *by));
        schedulers.dedup();
        schedulers
    }

    /// What ran in the background.
    pub(crate) fn job(&self) -> Job {
        let first = self.cells.first().and_then(|cell| cell.rows.first());
        first.map_or(Job::Q17, |row| row.job)
    }

    /// One cell; by cgroups, if it was measured.
    pub(crate) fn cell(&self, scheduler: &Scheduler, mix: Mix) -> Option<&Cell<'a>> {
        self.mix(mix).find(|cell| cell.scheduler == *scheduler)
    }

    /// One cell with priorities set in a certain way.
    pub(crate) fn cell_by(&self, scheduler: &Scheduler, by: By, mix: Mix) -> Option<&Cell<'a>> {
        self.mix(mix)
            .find(|cell| cell.scheduler == *scheduler && cell.by == by)
    }

    /// A median as a fraction of another cell's.
    pub(crate) fn ratio(
        &self,
        cell: &Cell<'_>,
        (scheduler, by, mix): (&Scheduler, By, Mix),
        number: impl Fn(&Row) -> Option<f64>,
    ) -> Option<f64> {
        let other = self.cell_by(scheduler, by, mix)?.median(&number)?;
        let this = cell.median(number)?;
        (other > 0.0).then_some(this / other)
    }

    /// A median as a fraction of that of the cell's own baseline.
    pub(crate) fn to_own(
        &self,
        cell: &Cell<'_>,
        mix: Mix,
        number: impl Fn(&Row) -> Option<f64>,
    ) -> Option<f64> {
        self.ratio(cell, (&cell.scheduler.baseline(), cell.by, mix), number)
    }

    /// Throughput of TPC-C as a fraction of the scheduler's own SOLO.
    pub(crate) fn tps_to_solo(&self, cell: &Cell<'_>) -> Option<f64> {
        self.to_own(cell, Mix::Solo, |row| row.ts_tps)
    }

    /// Throughput of the background as a fraction of what it has alone.
    pub(crate) fn bg_to_solo(&self, cell: &Cell<'_>) -> Option<f64> {
        self.to_own(cell, Mix::SoloBackground, |row| row.bg_per_s)
    }

    /// Throughput of TPC-C as a fraction of EEVDF's in the same mix.
    pub(crate) fn tps_to_eevdf(&self, cell: &Cell<'_>) -> Option<f64> {
        let eevdf = (&Scheduler::Eevdf, By::Cgroups, cell.mix);
        self.ratio(cell, eevdf, |row| row.ts_tps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::mixed::report::samples;

    #[test]
    fn ratios_are_to_the_own_solo_and_idle_borrows_eevdfs() {
        let report = samples::report();
        let summary = Summary::of(&report);
        let ratio = |scheduler, mix| {
            summary
                .tps_to_solo(summary.cell(&scheduler, mix).unwrap())
                .unwrap()
        };
        assert_eq!(ratio(Scheduler::Eevdf, Mix::MinMax), 0.5);
        assert_eq!(ratio(Scheduler::Idle, Mix::MinMax), 0.4);
        assert_eq!(ratio(Scheduler::Ufs, Mix::MinMax), 0.99);
        let ufs = summary.cell(&Scheduler::Ufs, Mix::MinMax).unwrap();
        assert_eq!(summary.tps_to_eevdf(ufs), Some(1.98));
    }

    #[test]
    fn roles_have_a_baseline_of_their_own() {
        let mut report = samples::report();
        let ufs = report
            .rows
            .iter()
            .filter(|row| row.scheduler == Scheduler::Ufs);
        let roles: Vec<_> = ufs
            .cloned()
            .map(|row| Row {
                by: By::Roles,
                ts_tps: row.ts_tps.map(|tps| tps / 2.0),
                ..row
            })
            .collect();
        report.rows.extend(roles);
        let summary = Summary::of(&report);
        let cell = summary
            .cell_by(&Scheduler::Ufs, By::Roles, Mix::MinMax)
            .unwrap();
        assert_eq!(cell.label(), "UFS/roles");
        assert_eq!(summary.tps_to_solo(cell), Some(0.99));
        assert_eq!(summary.tps_to_eevdf(cell), Some(0.99));
        assert_eq!(summary.schedulers().len(), 6);
        assert_eq!(
            summary.cell(&Scheduler::Ufs, Mix::MinMax).unwrap().by,
            By::Cgroups
        );
    }

    #[test]
    fn a_cdf_ends_at_one_and_never_falls() {
        let report = samples::report();
        let summary = Summary::of(&report);
        let cdf = summary
            .cell(&Scheduler::Ufs, Mix::MinMax)
            .unwrap()
            .latency_cdf();
        assert!(cdf.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 < w[1].1));
        assert_eq!(cdf.last().unwrap().1, 1.0);
    }
}
