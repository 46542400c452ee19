//! Weights inside both tiers at once (UFS paper, Section 6.4, Figure 8): TPC-C
//! and Q17, each in two classes whose weights are as two to three, on the same
//! CPUs. Each class has as many clients as there are CPUs; the paper's have eight
//! on eight.
//!
//! What is compared is throughput, not CPU time: a transaction waits, and what it
//! waits for is for the scheduler to decide as well.

pub(crate) mod cli;
pub(crate) mod report;

use crate::cell::class::Work;
use crate::cell::config::{CellConfig, Mix};
use crate::cell::frame::Frame;
use crate::cell::record::cell_rows;
use crate::cell::row::{ClassRow, Row};
use crate::harness::scheduler::Scheduler;

/// What is compared by default: the paper's.
pub(crate) const SCHEDULERS: [Scheduler; 2] = [Scheduler::Eevdf, Scheduler::Ufs];

/// The cells of the experiment, with so many microseconds of each round trip in a
/// network.
pub(crate) fn cells(frame: &Frame, schedulers: &[Scheduler], network_us: u32) -> Vec<CellConfig> {
    frame.cells(|cell| {
        schedulers.iter().map(move |scheduler| CellConfig {
            scheduler: scheduler.clone(),
            mix: Mix::TwoThree,
            network_us,
            ..cell.clone()
        })
    })
}

cell_rows! {
    /// A cell with two classes in each tier.
    WeightsRow, "weights"
}

/// The two classes of one kind of work, the heavier first.
pub(crate) fn pair(row: &Row, bursty: bool) -> Option<[&ClassRow; 2]> {
    let of = |class: &&ClassRow| matches!(class.work, Work::Tpcc) == bursty;
    let mut classes: Vec<&ClassRow> = row.classes.iter().filter(of).collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.weight));
    classes.try_into().ok()
}

/// The lighter class's throughput over the heavier's, as a multiple of what their
/// weights say: 1 where shares are exactly by weight.
pub(crate) fn error(row: &Row, bursty: bool) -> Option<f64> {
    let [heavy, light] = pair(row, bursty)?;
    let weights = f64::from(light.weight.get()) / f64::from(heavy.weight.get());
    (heavy.per_s > 0.0).then_some(light.per_s / heavy.per_s / weights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::weights::report::samples;

    #[test]
    fn a_ratio_is_compared_with_that_of_the_weights() {
        let row = |per_s| samples::row(Scheduler::Ufs, 0, per_s);
        let even = row([300.0, 300.0, 60.0, 40.0]);
        let close = |bursty, expected: f64| {
            let error = error(&even, bursty).unwrap();
            assert!((error - expected).abs() < 1e-9, "{error}");
        };
        close(true, 10_000.0 / 6_667.0);
        close(false, 1.0);
        assert_eq!(error(&row([0.0, 1.0, 0.0, 0.0]), true), None);
        let [heavy, light] = pair(&even, false).unwrap();
        assert_eq!((heavy.weight.get(), light.weight.get()), (3, 2));
    }

    #[test]
    fn every_cell_is_two_to_three() {
        let frame = Frame {
            cpus: 4,
            warmup_s: 1.0,
            seconds: 4.0,
            repeat: 2,
            seed: 1,
        };
        let cells = cells(&frame, &SCHEDULERS, 50);
        assert_eq!(cells.len(), 4);
        assert!(cells.iter().all(|cell| cell.network_us == 50));
        assert!(cells.iter().all(|cell| cell.mix == Mix::TwoThree));
        assert!(cells.iter().all(|cell| cell.validate().is_ok()));
    }
}
