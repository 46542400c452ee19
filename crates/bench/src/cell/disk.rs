//! A disk that has a queue, for cells in which storage plays a part.
//!
//! It is null_blk's, kept in memory: it serves one request at a time, each in the time
//! that the cell says, whatever is read or written. That is the least with which there
//! is a queue, and something to choose in it. A network volume takes about a
//! millisecond; a disk with a head takes more, and less for neighbours, which this one
//! does not know.
//!
//! * A scheduler chooses among the requests that it holds, so it gets room for all of
//!   them.
//! * The server reads and writes its tables past the kernel's cache, which is as large
//!   as the disk; the log goes through it, and each commit waits for the disk.
//! * It is for guests: it loads drivers, and takes the name of the first null_blk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::cell::config::CellConfig;
use crate::cell::setup::Disk;
use crate::harness::error::{Error, Result};
use crate::workload::postgres::output;

const DEVICE: &str = "/dev/nullb0";
const QUEUE: &str = "/sys/block/nullb0/queue";
const MOUNTED_AT: &str = "/run/giveway-disk";
/// What has been done, in numbers: the third is of 512 bytes that were read.
const STAT: &str = "/sys/block/nullb0/stat";
/// Requests that a scheduler holds: more than the cell's processes have at once.
const HELD: u32 = 128;

/// A file system on the cell's disk; unmounted when dropped.
#[derive(Debug)]
pub(super) struct Mounted(());

impl Mounted {
    /// Makes the disk of a cell that has one.
    ///
    /// # Errors
    /// A driver that is missing, and what its tools say.
    pub(super) fn make(config: &CellConfig) -> Result<Option<Self>> {
        if config.disk == Disk::Memory {
            return Ok(None);
        }
        for name in ["configfs", "mq-deadline", "bfq"] {
            load(&config.drivers_dir, name, &[])?;
        }
        load(&config.drivers_dir, "null_blk", &options(config.request_us))?;
        for (name, value) in queue(config.disk) {
            let path = Path::new(QUEUE).join(name);
            fs::write(&path, value).map_err(Error::file("write", &path))?;
        }
        busybox("mke2fs", &[DEVICE])?;
        let mounted_at = Path::new(MOUNTED_AT);
        fs::create_dir_all(mounted_at).map_err(Error::file("make", mounted_at))?;
        busybox("mount", &["-t", "ext4", DEVICE, MOUNTED_AT])?;
        Ok(Some(Mounted(())))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        Path::new(MOUNTED_AT)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The guest ends with the cell.
        let _ = busybox("umount", &[MOUNTED_AT]);
    }
}

fn options(request_us: u32) -> Vec<String> {
    let ns = u64::from(request_us) * 1000;
    [
        "nr_devices=1",
        "gb=2",
        "memory_backed=1",
        // Requests go through a scheduler, and end by a timer.
        "queue_mode=2",
        "irqmode=2",
        &format!("completion_nsec={ns}"),
        "submit_queues=1",
        "hw_queue_depth=1",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Files of the disk's queue, and what they get. BFQ waits for the next request of whom
/// it serves if the disk has a head to move, as this one is said to have.
fn queue(disk: Disk) -> Vec<(&'static str, String)> {
    let mut files = vec![
        ("scheduler", disk.name().to_owned()),
        ("rotational", "1".to_owned()),
    ];
    if disk != Disk::None {
        files.push(("nr_requests", HELD.to_string()));
    }
    if disk == Disk::Bfq {
        // As its documentation asks of servers: else a process that has just begun, as a
        // parallel worker has, goes before others for seconds.
        files.push(("iosched/low_latency", "0".to_owned()));
    }
    files
}

/// Loads a driver, unless the kernel has it built in.
fn load(dir: &Path, name: &str, options: &[String]) -> Result<()> {
    let file: PathBuf = dir.join(name).with_extension("ko");
    match file.try_exists() {
        Ok(true) => {}
        Ok(false) if options.is_empty() => return Ok(()),
        Ok(false) => return Err(Error::file("find", &file)(io::ErrorKind::NotFound.into())),
        Err(error) => return Err(Error::file("find", &file)(error)),
    }
    let file = file.to_string_lossy();
    let mut arguments = vec![file.as_ref()];
    arguments.extend(options.iter().map(String::as_str));
    busybox("insmod", &arguments)
}

fn busybox(applet: &str, arguments: &[&str]) -> Result<()> {
    output(applet, Command::new("busybox").arg(applet).args(arguments)).map(drop)
}

/// MB that were read from the cell's disk, if it has one.
pub(super) fn read_mb(config: &CellConfig) -> Result<Option<f64>> {
    if config.disk == Disk::Memory {
        return Ok(None);
    }
    let text = fs::read_to_string(STAT).map_err(Error::file("read", Path::new(STAT)))?;
    Ok(sectors_read(&text).map(|sectors| sectors as f64 * 512e-6))
}

fn sectors_read(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(2)?.parse().ok()
}

/// The server's settings where its files are on a disk.
pub(super) fn server_settings(config: &CellConfig) -> Vec<(&'static str, String)> {
    if config.disk == Disk::Memory {
        return Vec::new();
    }
    let on = if config.io_priority { "on" } else { "off" };
    vec![
        ("debug_io_direct", "data".to_owned()),
        // As by default: else a commit also writes where in the file its record is.
        ("wal_init_zero", "on".to_owned()),
        // A scan takes eight processes, and the extension one.
        ("max_worker_processes", "16".to_owned()),
        ("giveway.io_priority", on.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cell_with_a_disk_has_settings_for_one() {
        let mut config = CellConfig::default();
        assert!(Mounted::make(&config).unwrap().is_none());
        assert_eq!(server_settings(&config), []);
        config.disk = Disk::Bfq;
        let off = ("giveway.io_priority", "off".to_owned());
        assert!(server_settings(&config).contains(&off));
        config.io_priority = true;
        assert!(!server_settings(&config).contains(&off));
    }

    #[test]
    fn a_scheduler_has_room_for_all_requests_and_none_needs_none() {
        let held = |disk| queue(disk).iter().any(|(name, _)| *name == "nr_requests");
        assert_eq!([Disk::None, Disk::MqDeadline].map(held), [false, true]);
        assert_eq!(queue(Disk::MqDeadline)[0].1, "mq-deadline");
        assert!(options(1000).contains(&"completion_nsec=1000000".to_owned()));
    }

    #[test]
    fn what_was_read_is_in_the_kernel_s_units() {
        let stat = "     120        0     2048      310      7  0  56  9  0 12 319 0 0 0 0 0 0\n";
        assert_eq!(sectors_read(stat), Some(2048));
        assert_eq!(read_mb(&CellConfig::default()).unwrap(), None);
    }

    #[test]
    fn a_missing_driver_of_the_disk_is_named() {
        let dir = tempfile::tempdir().unwrap();
        load(dir.path(), "bfq", &[]).unwrap();
        let error = load(dir.path(), "null_blk", &options(1)).unwrap_err();
        assert!(error.to_string().contains("null_blk.ko"), "{error}");
    }
}
