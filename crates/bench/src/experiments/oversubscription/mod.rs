//! More time-sensitive clients than CPUs (UFS paper, Section 6.3, Figure 7): the
//! mix MIN:MAX with one, two and three TPC-C terminals for each CPU of the
//! server, and as many background workers as CPUs.
//!
//! With more of them a scheduler gains less by preempting background work, and
//! the order among the time-sensitive begins to matter.

pub(crate) mod cli;
pub(crate) mod report;

use crate::cell::config::{CellConfig, Mix};
use crate::cell::frame::Frame;
use crate::cell::record::cell_rows;
use crate::cell::row::Row;
use crate::harness::scheduler::Scheduler;

/// What is compared by default: the paper's.
pub(crate) const SCHEDULERS: [Scheduler; 3] = [Scheduler::Eevdf, Scheduler::Rr, Scheduler::Ufs];

/// Time-sensitive clients for each CPU: the paper's.
pub(crate) const CLIENTS: [u32; 3] = [1, 2, 3];

/// The cells of the experiment, `clients` time-sensitive ones for each CPU.
pub(crate) fn cells(frame: &Frame, schedulers: &[Scheduler], clients: &[u32]) -> Vec<CellConfig> {
    frame.cells(|cell| {
        let mut cells = Vec::new();
        for clients in clients {
            cells.extend(schedulers.iter().map(|scheduler| CellConfig {
                scheduler: scheduler.clone(),
                mix: Mix::MinMax,
                terminals: clients * cell.cpus,
                ..cell.clone()
            }));
        }
        cells
    })
}

cell_rows! {
    /// A cell with some number of time-sensitive clients for each CPU.
    OversubscriptionRow, "oversubscription"
}

/// Time-sensitive clients for each CPU.
pub(crate) fn clients(row: &Row) -> u32 {
    row.terminals / row.cpus.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_grow_and_the_background_stays() {
        let frame = Frame {
            cpus: 4,
            warmup_s: 1.0,
            seconds: 4.0,
            repeat: 1,
            seed: 1,
        };
        let cells = cells(&frame, &SCHEDULERS, &CLIENTS);
        let counts: Vec<(u32, u32)> = cells
            .iter()
            .step_by(SCHEDULERS.len())
            .map(|cell| (cell.terminal_count(), cell.background_count()))
            .collect();
        assert_eq!(counts, [(4, 4), (8, 4), (12, 4)]);
        assert!(cells.iter().all(|cell| cell.validate().is_ok()));
    }
}
