//! The report at exit: how long each lock was held and waited for.
//!
//! Text for people, with the busiest locks; JSON for programs, with all. A lock
//! is named by the symbol nearest below its address, if it is in a loaded
//! object, and by where it was first locked.
//!
//! Written at exit, when other threads may still run: numbers of one line
//! belong to about the same moment. A process that ends without running exit
//! handlers (`_exit`, a signal) leaves no report.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::sync::OnceLock;

use giveway_locks::Group;
use serde::Serialize;

use crate::config::{Format, StatsSettings};
use crate::message;
use crate::stats::LockStats;

/// Lines of locks in a text report, unless told otherwise.
const LOCKS: usize = 20;

struct Destination {
    /// Nothing: the standard error.
    path: Option<String>,
    format: Format,
    locks: usize,
}

static DESTINATION: OnceLock<Destination> = OnceLock::new();

/// Remembers where the report goes. Whether one is wanted.
///
/// # Errors
///
/// A sentence if the file cannot be written.
pub(crate) fn prepare(settings: &StatsSettings) -> Result<bool, String> {
    let Some(to) = &settings.to else {
        return match settings {
            StatsSettings {
                format: None,
                locks: None,
                ..
            } => Ok(false),
            _ => Err("stats: no destination; add to=stderr or to=FILE".to_owned()),
        };
    };
    let path = (to != "stderr").then(|| to.clone());
    if let Some(path) = &path {
        // At load, while somebody is there to read the message.
        open(path).map_err(|error| format!("stats: {path}: {error}"))?;
    }
    let destination = Destination {
        path,
        format: settings.format.unwrap_or_default(),
        locks: settings.locks.unwrap_or(LOCKS),
    };
    Ok(DESTINATION.set(destination).is_ok())
}

/// Opens the file for appending; `%p` in its name is the process's number.
fn open(path: &str) -> std::io::Result<File> {
    let path = path.replace("%p", &std::process::id().to_string());
    OpenOptions::new().create(true).append(true).open(path)
}

/// One line about a group, as the core counted it.
#[derive(Debug, Serialize)]
struct GroupLine {
    name: String,
    weight: u32,
    acquisitions: u64,
    hold_ns: u64,
    wait_ns: u64,
}

/// One line about a lock.
#[derive(Debug, Serialize)]
struct LockLine {
    /// In hexadecimal, as debuggers print it.
    address: String,
    symbol: Option<String>,
    first_locked_at: Option<String>,
    acquisitions: u64,
    contended: u64,
    hold_ns: u64,
    wait_ns: u64,
    wait_ns_max: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    program: String,
    process: u32,
    locks_left_out: u64,
    groups: Vec<GroupLine>,
    locks: Vec<LockLine>,
}

/// Writes the report about `locks` to where `prepare` was told.
pub(crate) fn write(locks: &mut [LockStats], left_out: u64) {
    let Some(destination) = DESTINATION.get() else {
        return;
    };
    locks.sort_by_key(|lock| std::cmp::Reverse((lock.wait_ns, lock.hold_ns)));
    let shown = match destination.format {
        Format::Text => destination.locks.min(locks.len()),
        Format::Json => locks.len(),
    };
    let report = Report {
        program: program(),
        process: std::process::id(),
        locks_left_out: left_out,
        groups: groups(),
        locks: locks[..shown].iter().map(line).collect(),
    };
    let text = match destination.format {
        Format::Text => text(&report, locks.len()),
        // Nothing in a report has a form that JSON lacks.
        Format::Json => serde_json::to_string(&report).unwrap_or_default() + "\n",
    };
    let (written, path) = match &destination.path {
        Some(path) => (
            open(path).and_then(|mut file| file.write_all(text.as_bytes())),
            path.as_str(),
        ),
        None => {
            // SAFETY: descriptor 2 stays open: it is taken back below.
            let mut stderr = unsafe { File::from_raw_fd(2) };
            let written = stderr.write_all(text.as_bytes());
            let _stays_open = stderr.into_raw_fd();
            (written, "stderr")
        }
    };
    if let Err(error) = written {
        message::write(format_args!("stats: {path}: {error}"));
    }
}

fn program() -> String {
    std::fs::read_to_string("/proc/self/comm")
        .map(|name| name.trim_end().to_owned())
        .unwrap_or_default()
}

/// The groups, and the threads of none, if there are any groups.
fn groups() -> Vec<GroupLine> {
    let line = |group: Group| {
        let seen = group.statistics();
        GroupLine {
            name: seen.name,
            weight: seen.weight,
            acquisitions: seen.acquisitions,
            hold_ns: seen.hold_ns,
            wait_ns: seen.wait_ns,
        }
    };
    let mut groups: Vec<_> = Group::all().map(line).collect();
    if !groups.is_empty() {
        groups.push(line(Group::ROOT));
    }
    groups
}

fn line(lock: &LockStats) -> LockLine {
    LockLine {
        address: format!("{:#x}", lock.address),
        symbol: place(lock.address),
        first_locked_at: place(lock.site),
        acquisitions: lock.acquisitions,
        contended: lock.contended,
        hold_ns: lock.hold_ns,
        wait_ns: lock.wait_ns,
        wait_ns_max: lock.wait_ns_max,
    }
}

/// `symbol+0x10 (object)` or `object+0x1234`, as `addr2line` and debuggers
/// take it. Nothing if the address is in no loaded object.
fn place(address: usize) -> Option<String> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address, and fills `info` if it succeeds. The
    // names it points to belong to loaded objects; one that is unloaded by
    // another thread meanwhile is what every user of dladdr risks.
    unsafe {
        if libc::dladdr(std::ptr::without_provenance(address), info.as_mut_ptr()) == 0 {
            return None;
        }
        let info = info.assume_init();
        let object = CStr::from_ptr(info.dli_fname).to_string_lossy();
        let object = object.rsplit('/').next().unwrap_or_default();
        Some(match info.dli_sname.is_null() {
            true => format!("{object}+{:#x}", address - info.dli_fbase.addr()),
            false => format!(
                "{}+{:#x} ({object})",
                CStr::from_ptr(info.dli_sname).to_string_lossy(),
                address - info.dli_saddr.addr()
            ),
        })
    }
}

/// The report for people. Writing to a string cannot fail.
fn text(report: &Report, locks: usize) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "giveway-cfl: {} [{}]: {locks} locks taken",
        report.program, report.process
    );
    if !report.groups.is_empty() {
        let _ = writeln!(
            out,
            "{:>10} {:>10} {:>12} {:>12}  group",
            "weight", "taken", "held ms", "waited ms"
        );
    }
    for group in &report.groups {
        let _ = writeln!(
            out,
            "{:>10} {:>10} {:>12.3} {:>12.3}  {}",
            group.weight,
            group.acquisitions,
            ms(group.hold_ns),
            ms(group.wait_ns),
            group.name
        );
    }
    if !report.locks.is_empty() {
        let _ = writeln!(
            out,
            "{:>10} {:>10} {:>12} {:>12} {:>10}  lock",
            "taken", "waited for", "held ms", "waited ms", "longest ms"
        );
    }
    for lock in &report.locks {
        let _ = writeln!(
            out,
            "{:>10} {:>10} {:>12.3} {:>12.3} {:>10.3}  {} {}{}",
            lock.acquisitions,
            lock.contended,
            ms(lock.hold_ns),
            ms(lock.wait_ns),
            ms(lock.wait_ns_max),
            lock.address,
            lock.symbol.as_deref().unwrap_or("heap or stack"),
            (lock.first_locked_at.as_ref())
                .map(|at| format!(", first locked at {at}"))
                .unwrap_or_default(),
        );
    }
    if locks > report.locks.len() {
        let _ = writeln!(
            out,
            "and {} more locks (stats locks=N)",
            locks - report.locks.len()
        );
    }
    if report.locks_left_out > 0 {
        let _ = writeln!(
            out,
            "{} acquisitions of further locks are not counted",
            report.locks_left_out
        );
    }
    out
}

/// Nanoseconds as milliseconds.
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
