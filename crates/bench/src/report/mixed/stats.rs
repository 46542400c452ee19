//! Summaries of repeats.

use crate::config::{Mix, Scheduler};
use crate::report::number::Spread;
use crate::result::{Report, Row};

/// The repeats of one scheduler and mix.
#[derive(Clone, Debug)]
pub(crate) struct Cell<'a> {
    pub(crate) scheduler: Scheduler,
    pub(crate) mix: Mix,
    pub(crate) rows: Vec<&'a Row>,
}

impl<'a> Cell<'a> {
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

/// A report's rows, by mix and scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Summary<'a> {
    /// In the order of tables: mixes, then schedulers.
    pub(crate) cells: Vec<Cell<'a>>,
}

impl<'a> Summary<'a> {
    pub(crate) fn of(report: &'a Report) -> Self {
        let mut cells: Vec<Cell<'a>> = Vec::new();
        for row in &report.rows {
            match cells
                .iter_mut()
                .find(|c| c.mix == row.mix && c.scheduler == row.scheduler)
            {
                Some(cell) => cell.rows.push(row),
                None => cells.push(Cell {
                    scheduler: row.scheduler.clone(),
                    mix: row.mix,
                    rows: vec![row],
                }),
            }
        }
        cells.sort_by_key(|cell| (cell.mix, cell.scheduler.rank()));
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

    /// The schedulers that were measured.
    pub(crate) fn schedulers(&self) -> Vec<Scheduler> {
        let mut schedulers: Vec<Scheduler> = self
            .cells
            .iter()
            .map(|cell| cell.scheduler.clone())
            .collect();
        schedulers.sort_by_key(Scheduler::rank);
        schedulers.dedup();
        schedulers
    }

    /// One cell.
    pub(crate) fn cell(&self, scheduler: &Scheduler, mix: Mix) -> Option<&Cell<'a>> {
        self.mix(mix).find(|cell| cell.scheduler == *scheduler)
    }

    /// A median as a fraction of another cell's.
    pub(crate) fn ratio(
        &self,
        cell: &Cell<'_>,
        (scheduler, mix): (&Scheduler, Mix),
        number: impl Fn(&Row) -> Option<f64>,
    ) -> Option<f64> {
        let other = self.cell(scheduler, mix)?.median(&number)?;
        let this = cell.median(number)?;
        (other > 0.0).then_some(this / other)
    }

    /// Throughput of TPC-C as a fraction of the scheduler's own SOLO.
    pub(crate) fn tps_to_solo(&self, cell: &Cell<'_>) -> Option<f64> {
        self.ratio(cell, (&cell.scheduler.baseline(), Mix::Solo), |row| {
            row.ts_tps
        })
    }

    /// Throughput of Q17 as a fraction of the scheduler's own SOLO.
    pub(crate) fn bg_to_solo(&self, cell: &Cell<'_>) -> Option<f64> {
        self.ratio(
            cell,
            (&cell.scheduler.baseline(), Mix::SoloBackground),
            |row| row.bg_per_s,
        )
    }

    /// Throughput of TPC-C as a fraction of EEVDF's in the same mix.
    pub(crate) fn tps_to_eevdf(&self, cell: &Cell<'_>) -> Option<f64> {
        self.ratio(cell, (&Scheduler::Eevdf, cell.mix), |row| row.ts_tps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::mixed::samples;

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
