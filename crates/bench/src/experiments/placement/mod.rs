//! Where a scheduler puts bursty work (UFS paper, Section 3, Figure 2): TPC-C
//! beside Q17, MIN:MAX, and how much of TPC-C's CPU time each CPU had.
//!
//! A scheduler that looks for idle CPUs at wake-ups finds those that bursty work
//! has just left, and piles it up there; one that preempts finds all of them. The
//! kernel's context switches tell ([`crate::cell::switches::CpuTime`]); tracing them costs each
//! switch a little, so throughput here is not that of `mixed`.

pub(crate) mod cli;
pub(crate) mod report;

use crate::cell::config::{CellConfig, Mix};
use crate::cell::frame::Frame;
use crate::cell::record::cell_rows;
use crate::cell::row::Row;
use crate::harness::scheduler::Scheduler;

/// What is compared by default: the paper's figure has the first two.
pub(crate) const SCHEDULERS: [Scheduler; 3] = [Scheduler::Eevdf, Scheduler::Rr, Scheduler::Ufs];

/// The cells of the experiment.
pub(crate) fn cells(frame: &Frame, schedulers: &[Scheduler]) -> Vec<CellConfig> {
    frame.cells(|cell| {
        schedulers.iter().map(move |scheduler| CellConfig {
            scheduler: scheduler.clone(),
            mix: Mix::MinMax,
            trace_switches: true,
            ..cell.clone()
        })
    })
}

cell_rows! {
    /// A cell whose context switches were traced.
    PlacementRow, "placement"
}

/// The bursty time of each CPU, as a share of that of the CPU with the most, from
/// the most to the least. None where no CPU had any, or nothing was traced.
pub(crate) fn shares(row: &Row) -> Option<Vec<f64>> {
    let mut shares: Vec<f64> = row.placement.iter().map(|cpu| cpu.bursty_s).collect();
    shares.sort_by(|a, b| b.total_cmp(a));
    let most = *shares.first().filter(|most| **most > 0.0)?;
    shares.iter_mut().for_each(|share| *share /= most);
    Some(shares)
}

/// The largest of a cell's shares over its smallest.
pub(crate) fn skew(row: &Row) -> Option<f64> {
    Some(1.0 / shares(row)?.last()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::switches::CpuTime;
    use crate::experiments::mixed::report::samples;

    #[test]
    fn every_cell_is_traced_and_repeats_share_their_seeds() {
        let frame = Frame {
            cpus: 4,
            warmup_s: 1.0,
            seconds: 4.0,
            repeat: 2,
            seed: 7,
        };
        let cells = cells(&frame, &SCHEDULERS);
        let seeds: Vec<(u32, u64)> = cells.iter().map(|cell| (cell.repeat, cell.seed)).collect();
        assert_eq!(seeds, [(0, 7), (0, 7), (0, 7), (1, 8), (1, 8), (1, 8)]);
        let all = cells.iter();
        assert!(
            all.clone()
                .all(|cell| cell.trace_switches && cell.mix == Mix::MinMax)
        );
        assert!(all.clone().all(|cell| cell.validate().is_ok()));
        assert_eq!(cells[4].scheduler, Scheduler::Rr);
    }

    #[test]
    fn shares_are_of_the_cpu_with_the_most() {
        let row = |bursty: &[f64]| {
            let mut row = samples::row(Scheduler::Ufs, Mix::MinMax, 0, Some(1.0), 1.0, None);
            let cpu = |bursty_s: &f64| CpuTime {
                bursty_s: *bursty_s,
                ..CpuTime::default()
            };
            row.placement = bursty.iter().map(cpu).collect();
            row
        };
        let uneven = row(&[1.0, 2.0, 4.0]);
        assert_eq!(shares(&uneven).unwrap(), [1.0, 0.5, 0.25]);
        assert_eq!(skew(&uneven), Some(4.0));
        assert_eq!(skew(&row(&[3.0, 0.0])), Some(f64::INFINITY));
        assert_eq!(skew(&row(&[0.0, 0.0])), None);
        assert_eq!(skew(&row(&[])), None);
    }
}
