//! An engine in a process of its own, which is stopped while others have their turns.
//!
//! ```text
//!   this program                              giveway-bench oltp-engine
//!     SIGCONT, a line with an Order ─────────►  does it
//!     a line with an Answer, SIGSTOP ◄────────
//! ```
//!
//! Engines with threads in the background would otherwise compact and write out in the
//! turns of those that have none. Each has an allocator and an address space to itself,
//! and its CPU time and memory can be told.
//!
//! The process ends with its input, and by the kernel's hand with the thread that started
//! it, so none stays behind that is stopped.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use giveway_command::{Context as _, Failure};
use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::statvfs::statvfs;
use nix::sys::time::TimeValLike as _;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::row::OltpEngine;
use super::store::{self, Size};
use super::turn::{Loaded, Took, Turn};
use crate::harness::error::{Error, Result};
use crate::harness::files::PrivateDir;

/// What a process is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) engine: OltpEngine,
    pub(super) rows: u64,
    pub(super) columns: u32,
    pub(super) threads: u32,
    pub(super) seed: u64,
    /// Where files go.
    pub(super) dir: PathBuf,
}

#[derive(Serialize, Deserialize)]
enum Order {
    /// Loads rows; the first order.
    Load(Setup),
    Turn(Turn),
}

#[derive(Serialize, Deserialize)]
enum Answer {
    /// The engine's version.
    Loaded(String),
    Took(Used),
    Failed(String),
}

/// What came of a turn, and what the process used for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Used {
    pub(super) took: Took,
    /// CPU time per second.
    pub(super) cpus: f64,
    pub(super) memory_mib: u64,
    /// Of that, what the process sees by huge pages.
    pub(super) huge_mib: u64,
}

/// Of the hidden command, which is told everything by its input.
#[derive(Args, Debug)]
pub(super) struct EngineArgs {}

/// The hidden command's name.
pub(super) const COMMAND: &str = "oltp-engine";

/// Has glibc's allocator, which RocksDB, SQLite and LMDB use, ask for huge pages where it
/// has 2 MiB and more: mimalloc, which those in Rust use, and giveway's heap do so anyway.
const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// Obeys until the input ends.
pub(super) fn serve(_: &EngineArgs) -> Result<(), Failure> {
    prctl::set_pdeathsig(Signal::SIGKILL).cannot("end with the process that started this one")?;
    // SAFETY: the first thing that the command does: there is one thread, and no engine yet.
    unsafe { store::begin_process() };
    let mut out = std::io::stdout().lock();
    let mut host = None;
    for line in std::io::stdin().lock().lines() {
        let order = serde_json::from_str(&line?).cannot("read an order")?;
        let answer =
            obey(&mut host, order).unwrap_or_else(|error| Answer::Failed(error.to_string()));
        serde_json::to_writer(&mut out, &answer).cannot("answer")?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

/// A table with its rows.
struct Host {
    setup: Setup,
    loaded: Loaded,
}

fn obey(host: &mut Option<Host>, order: Order) -> Result<Answer> {
    match (order, host) {
        (Order::Load(setup), host) => {
            let size = Size {
                rows: setup.rows,
                columns: setup.columns as usize,
                threads: setup.threads as usize,
            };
            let (store, version) = store::open(setup.engine, size, &setup.dir)?;
            let loaded =
                Loaded::new(store, size, setup.seed).map_err(|failed| failed.of(setup.engine))?;
            *host = Some(Host { setup, loaded });
            Ok(Answer::Loaded(version))
        }
        (Order::Turn(_), None) => Err(Error::Config("no rows were loaded".to_owned())),
        (Order::Turn(turn), Some(Host { setup, loaded })) => {
            let (begun, cpu) = (Instant::now(), cpu_time()?);
            let took = loaded
                .run(&turn)
                .map_err(|failed| failed.of(setup.engine))?;
            let cpus = (cpu_time()? - cpu).as_secs_f64() / begun.elapsed().as_secs_f64();
            Ok(Answer::Took(Used {
                took,
                cpus,
                memory_mib: (memory_kib(&["Anonymous"])? + file_kib(&setup.dir)?) / 1024,
                huge_mib: memory_kib(&["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"])? / 1024,
            }))
        }
    }
}

/// CPU time of this process so far.
fn cpu_time() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(|error| {
        Error::file("ask for the CPU time of", Path::new("/proc/self"))(error.into())
    })?;
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(us.unsigned_abs()))
}

/// Memory of this process, by the kernel's names of its kinds.
fn memory_kib(kinds: &[&str]) -> Result<u64> {
    let path = Path::new("/proc/self/smaps_rollup");
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    let of = |line: &str| {
        let (kind, kib) = line.strip_suffix(" kB")?.split_once(':')?;
        kinds
            .contains(&kind)
            .then(|| kib.trim().parse::<u64>().ok())?
    };
    Ok(text.lines().filter_map(of).sum())
}

fn file_kib(dir: &Path) -> Result<u64> {
    let mut kib = 0;
    for entry in fs::read_dir(dir).map_err(Error::file("list", dir))? {
        let path = entry.map_err(Error::file("list", dir))?.path();
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => kib += file_kib(&path)?,
            Ok(metadata) => kib += metadata.blocks() / 2,
            // Engines remove their files when they like.
            Err(_) => {}
        }
    }
    Ok(kib)
}

/// Files of all engines together for a row, at most: rows, those that are added, and what
/// logs and compaction hold beside them.
const FILES_BYTES: u64 = 10 << 10;

/// Makes sure of a directory for the files of engines with so many rows: what processes
/// that were killed have left there is removed, and there is space.
pub(super) fn make_room(dir: &Path, rows: u64) -> Result<()> {
    fs::create_dir_all(dir).map_err(Error::file("create", dir))?;
    PrivateDir::sweep(dir);
    let of = |error: nix::Error| Error::file("ask for the space in", dir)(error.into());
    let system = statvfs(dir).map_err(of)?;
    let mib = |bytes: u64| bytes >> 20;
    let free = system.blocks_available() * system.fragment_size();
    let needed = rows.saturating_mul(FILES_BYTES);
    match free < needed {
        true => Err(Error::Config(format!(
            "{} has {} MiB left, and files of {rows} rows may take {} MiB: name a larger tmpfs by \
             --dir, or give fewer --rows",
            dir.display(),
            mib(free),
            mib(needed)
        ))),
        false => Ok(()),
    }
}

/// An engine's process, stopped but while it is asked.
pub(super) struct Process {
    engine: OltpEngine,
    version: String,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Removed after the process has ended.
    _dir: PrivateDir,
}

impl Process {
    /// Starts it and has it load the rows. Its files go below the setup's directory.
    pub(super) fn start(setup: &Setup) -> Result<Self> {
        // This program, also when its file has become another.
        let own = Path::new("/proc/self/exe");
        let dir = PrivateDir::new(&setup.dir, None)?;
        let mut child = Command::new(own)
            .arg(COMMAND)
            .env(HUGE_PAGES.0, HUGE_PAGES.1)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Who interrupts this program lets the cell end.
            .process_group(0)
            .spawn()
            .map_err(Error::file("start", own))?;
        let setup = Setup {
            dir: dir.path().to_owned(),
            ..setup.clone()
        };
        let mut process = Process {
            engine: setup.engine,
            version: String::new(),
            orders: child.stdin.take().expect("it is piped"),
            answers: BufReader::new(child.stdout.take().expect("it is piped")),
            child,
            _dir: dir,
        };
        match process.ask(&Order::Load(setup))? {
            Answer::Loaded(version) => process.version = version,
            _ => return Err(process.failed("it answers something else".to_owned())),
        }
        Ok(process)
    }

    pub(super) fn engine(&self) -> OltpEngine {
        self.engine
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Has it take a turn.
    pub(super) fn turn(&mut self, turn: Turn) -> Result<Used> {
        match self.ask(&Order::Turn(turn))? {
            Answer::Took(used) => Ok(used),
            _ => Err(self.failed("it answers something else".to_owned())),
        }
    }

    fn ask(&mut self, order: &Order) -> Result<Answer> {
        self.signal(Signal::SIGCONT)?;
        let mut line = serde_json::to_string(order).expect("orders are plain data");
        line.push('\n');
        let mut answer = String::new();
        let said = self
            .orders
            .write_all(line.as_bytes())
            .and_then(|()| self.answers.read_line(&mut answer));
        match said {
            Ok(1..) => {}
            Ok(0) | Err(_) => {
                let mut reason = match self.child.wait() {
                    Ok(status) => format!("its process ended: {status}"),
                    Err(error) => error.to_string(),
                };
                if reason.contains("SIGBUS") {
                    // What a write to a mapped file brings that finds no page.
                    reason.push_str(
                        ": its files have filled --dir; give a larger tmpfs, or fewer --rows",
                    );
                }
                return Err(self.failed(reason));
            }
        }
        self.signal(Signal::SIGSTOP)?;
        match serde_json::from_str(&answer) {
            Ok(Answer::Failed(reason)) => Err(Error::Config(reason)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.failed(error.to_string())),
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.child.id() as i32), signal)
            .map_err(|error| self.failed(format!("it cannot be sent {signal}: {error}")))
    }

    fn failed(&self, reason: String) -> Error {
        Error::Queries {
            who: self.engine.name().to_owned(),
            reason,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself. Nothing of it is needed any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
