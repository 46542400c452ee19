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
use nix::sys::time::TimeValLike as _;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::row::OltpEngine;
use super::store;
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
}

/// Of the hidden command, which is told everything by its input.
#[derive(Args, Debug)]
pub(super) struct EngineArgs {}

/// The hidden command's name.
pub(super) const COMMAND: &str = "oltp-engine";

/// Obeys until the input ends.
pub(super) fn serve(_: &EngineArgs) -> Result<(), Failure> {
    prctl::set_pdeathsig(Signal::SIGKILL).cannot("end with the process that started this one")?;
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
            let (columns, threads) = (setup.columns as usize, setup.threads as usize);
            let (store, version) = store::open(setup.engine, columns, threads, &setup.dir)?;
            let loaded = Loaded::new(store, (setup.rows, columns), threads, setup.seed)
                .map_err(|failed| failed.of(setup.engine))?;
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
                memory_mib: memory_mib(&setup.dir)?,
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

/// Memory of this process that is its own, and that of its files on tmpfs.
fn memory_mib(dir: &Path) -> Result<u64> {
    let path = Path::new("/proc/self/status");
    let status = fs::read_to_string(path).map_err(Error::file("read", path))?;
    let anonymous = status.lines().find_map(|line| {
        let kib = line.strip_prefix("RssAnon:")?.strip_suffix(" kB")?;
        kib.trim().parse::<u64>().ok()
    });
    Ok((anonymous.unwrap_or(0) + file_kib(dir)?) / 1024)
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
        let own = std::env::current_exe();
        let own = own.map_err(Error::file("find", Path::new("/proc/self/exe")))?;
        let dir = PrivateDir::new(&setup.dir, None)?;
        let mut child = Command::new(&own)
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Who interrupts this program lets the cell end.
            .process_group(0)
            .spawn()
            .map_err(Error::file("start", &own))?;
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
                let status = self
                    .child
                    .wait()
                    .map_or_else(|e| e.to_string(), |s| s.to_string());
                return Err(self.failed(format!("its process ended: {status}")));
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
