//! TPC-C with fsync beside a background scan at one disk, under UFS: what the
//! extension's `giveway.io_priority` is worth.
//!
//! ```text
//!   disk, one request at a time
//!     first come, first served   [scan][scan][scan][scan][scan][scan][scan][ log ]
//!     with I/O priority          [scan][ log ][scan][scan][scan][scan][scan][scan]
//! ```
//!
//! Each commit of TPC-C waits for its log record to be on the disk. A background session
//! scans a table that its server's buffers do not keep, with seven parallel workers, so
//! that eight requests are waiting at the disk at most times. Both tiers are roles
//! (`cell::roles`); UFS keeps the scan from the CPU of TPC-C in all cells.
//!
//! | cell | disk's scheduler | scan | `giveway.io_priority` |
//! | --- | --- | --- | --- |
//! | alone | each | no | off |
//! | beside the scan | each | yes | off |
//! | with priority | each | yes | on |
//!
//! Known weaknesses. The disk is null_blk's (`cell::disk`): each request takes
//! the same time, large or small, and it has no cache and no head. TPC-C's data are in
//! the server's buffers, and no checkpoint runs inside a window: the log is all that
//! urgent work wants of the disk.

pub(crate) mod cli;
pub(crate) mod report;

use crate::cell::config::{CellConfig, Mix};
use crate::cell::frame::Frame;
use crate::cell::record::cell_rows;
use crate::cell::setup::{Build, By, Disk};
use crate::harness::scheduler::Scheduler;
use crate::workload::background::Job;

/// What is compared by default.
pub(crate) const DISKS: [Disk; 3] = [Disk::None, Disk::MqDeadline, Disk::Bfq];

/// The cells of the experiment.
pub(crate) fn cells(frame: &Frame, disks: &[Disk], request_us: u32) -> Vec<CellConfig> {
    frame.cells(|cell| {
        let mut cells = Vec::new();
        for disk in disks {
            for (mix, io_priority) in [
                (Mix::Solo, false),
                (Mix::MinMax, false),
                (Mix::MinMax, true),
            ] {
                cells.push(CellConfig {
                    scheduler: Scheduler::Ufs,
                    mix,
                    by: By::Roles,
                    server: Build::Stock,
                    job: Job::Scan,
                    background_workers: 1,
                    disk: *disk,
                    request_us,
                    io_priority,
                    ..cell.clone()
                });
            }
        }
        cells
    })
}

cell_rows! {
    /// A cell with its server's files on a disk.
    DiskRow, "disk"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disk_is_measured_alone_and_beside_a_scan_without_and_with_priority() {
        let frame = Frame {
            cpus: 2,
            warmup_s: 1.0,
            seconds: 4.0,
            repeat: 2,
            seed: 1,
        };
        let cells = cells(&frame, &DISKS, 1000);
        assert_eq!(cells.len(), 2 * 3 * 3);
        cells.iter().for_each(|cell| cell.validate().unwrap());
        let of = |cell: &CellConfig| (cell.mix, cell.io_priority, cell.background_count());
        assert_eq!(
            Vec::from_iter(cells[..3].iter().map(of)),
            [
                (Mix::Solo, false, 0),
                (Mix::MinMax, false, 1),
                (Mix::MinMax, true, 1)
            ]
        );
    }
}
