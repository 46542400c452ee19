//! `scx_ufs` as a child process.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use giveway_machine::sched_ext::SchedExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::cgroup::Cgroup;

const LOG: &str = "/tmp/ufs-probe.scx_ufs.log";
/// The verifier takes seconds under emulation.
pub(crate) const LOAD_LIMIT: Duration = Duration::from_secs(120);

/// The loader: not started, or running since some claim started it.
pub(crate) struct Ufs {
    binary: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    child: Option<Child>,
    /// Invariants that a loader has found broken, as it says in its statistics.
    broken: Vec<String>,
}

/// What the kernel says about sched_ext.
pub(crate) fn state() -> String {
    SchedExt::this().state().word().to_owned()
}

/// How often a scheduler was enabled since boot.
pub(crate) fn enable_seq() -> u64 {
    SchedExt::this().loads().unwrap_or(0)
}

/// Waits until `done`, for `limit` at most.
pub(crate) fn wait_until(
    what: &str,
    limit: Duration,
    mut done: impl FnMut() -> bool,
) -> Result<Duration> {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > limit {
            bail!("{what}: not within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(start.elapsed())
}

impl Ufs {
    pub(crate) fn new(binary: PathBuf) -> Self {
        Self {
            binary,
            args: Vec::new(),
            env: Vec::new(),
            child: None,
            broken: Vec::new(),
        }
    }

    /// The loader's program.
    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// Has UFS loaded with exactly these arguments; loading takes a while, so a
    /// loader that has them is kept.
    pub(crate) fn load(&mut self, args: &[&str]) -> Result<()> {
        self.load_with(args, &[])
    }

    /// The same, with these environment variables.
    pub(crate) fn load_with(&mut self, args: &[&str], env: &[(&str, &str)]) -> Result<()> {
        let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let env: Vec<_> = env.iter().map(own).collect();
        if self.child.is_some() && self.args == args && self.env == env && state() == "enabled" {
            return Ok(());
        }
        self.args = args.iter().map(|&arg| arg.to_owned()).collect();
        self.env = env;
        let (args, env) = (self.args.clone(), self.env.clone());
        self.start(|command| {
            command.args(args).envs(env);
        })
    }

    /// Has UFS loaded with defaults by a loader that is in `group`.
    pub(crate) fn load_inside(&mut self, group: &Cgroup) -> Result<()> {
        self.args.clear();
        self.env.clear();
        self.start(|command| group.admit(command))
    }

    /// Starts another loader with these arguments and nothing on standard input;
    /// its exit status and what it printed.
    pub(crate) fn run_another(&self, args: &[&str]) -> Result<(ExitStatus, String)> {
        let mut other = self.start_another("other", args)?;
        drop(other.child.stdin.take());
        Ok((other.end()?, other.said()))
    }

    /// Starts another loader with these arguments; `name` tells it from others.
    pub(crate) fn start_another(&self, name: &str, args: &[&str]) -> Result<Other> {
        let log = PathBuf::from(format!("/tmp/ufs-probe.{name}.log"));
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        let child = Command::new(&self.binary)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        Ok(Other { child, log })
    }

    /// Starts a new loader, made ready by `ready`.
    fn start(&mut self, ready: impl FnOnce(&mut Command)) -> Result<()> {
        self.stop(Signal::SIGTERM)?;
        let log = File::create(LOG).context(LOG)?;
        let mut command = Command::new(&self.binary);
        ready(&mut command);
        let child = command
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        self.child = Some(child);
        wait_until("loading UFS", LOAD_LIMIT, || state() == "enabled").with_context(log_tail)?;
        // Tasks move over and the statistics socket opens after that.
        wait_until("statistics", LOAD_LIMIT, || self.stats().is_ok()).map(drop)
    }

    /// The loader's process.
    pub(crate) fn pid(&self) -> Result<Pid> {
        let child = self.child.as_ref().context("scx_ufs is not running")?;
        Ok(Pid::from_raw(child.id() as i32))
    }

    /// Sends `signal`, if the loader runs, and waits for its end.
    pub(crate) fn stop(&mut self, signal: Signal) -> Result<Option<ExitStatus>> {
        if self.child.is_none() {
            return Ok(None);
        }
        self.note_broken();
        let _ = kill(self.pid()?, signal);
        self.wait().map(Some)
    }

    /// Notes which counters of broken invariants are not 0.
    fn note_broken(&mut self) {
        if !self.is_running() || state() != "enabled" {
            return;
        }
        let stats = self.stats().unwrap_or_default();
        let counters = stats.as_object().into_iter().flatten();
        let broken = counters
            .filter(|(name, _)| name.starts_with("nr_broken_") || *name == "nr_no_context")
            .filter(|(_, count)| count.as_u64() != Some(0))
            .map(|(name, count)| format!("{name} is {count}"));
        self.broken.extend(broken);
    }

    /// Fails if UFS has found one of its invariants broken since this was last called.
    pub(crate) fn check_invariants(&mut self) -> Result<()> {
        self.note_broken();
        let broken = std::mem::take(&mut self.broken);
        if !broken.is_empty() {
            bail!("broken invariants: {}", broken.join(", "));
        }
        Ok(())
    }

    /// Waits for the loader's end and for the kernel's own scheduler.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        let mut child = self.child.take().context("scx_ufs is not running")?;
        let status = end_of(&mut child).with_context(log_tail)?;
        wait_until("the kernel's scheduler", LOAD_LIMIT, || {
            state() == "disabled"
        })?;
        Ok(status)
    }

    /// Whether the loader runs.
    pub(crate) fn is_running(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// What scx_ufs has printed.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(LOG).unwrap_or_default()
    }

    /// A sample of the statistics.
    pub(crate) fn stats(&self) -> Result<Value> {
        scx_stats::StatsClient::new()
            .connect(None)?
            .request::<Value>("stats", vec![])
    }

    /// CPU time of `tier` so far, in seconds.
    pub(crate) fn tier_seconds(&self, tier: &str) -> Result<f64> {
        let ns = self.stats()?["tiers"][tier]["run_ns"]
            .as_u64()
            .context("no run_ns")?;
        Ok(ns as f64 / 1e9)
    }

    /// Fails unless UFS is loaded and has not been reloaded since `seq`.
    pub(crate) fn still_loaded_since(&self, seq: u64) -> Result<()> {
        if state() != "enabled" || enable_seq() != seq {
            bail!("UFS did not stay loaded: state {}\n{}", state(), log_tail());
        }
        Ok(())
    }
}

impl Drop for Ufs {
    fn drop(&mut self) {
        let _ = self.stop(Signal::SIGTERM);
    }
}

/// A loader beside that of [`Ufs`]; dropping it kills it.
pub(crate) struct Other {
    child: Child,
    log: PathBuf,
}

impl Other {
    /// Gives it a line to read.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().context("it reads nothing")?;
        Ok(writeln!(input, "{line}")?)
    }

    /// What it has printed.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn stop(&mut self) -> Result<ExitStatus> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM)?;
        self.end()
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> Result<ExitStatus> {
        end_of(&mut self.child)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a loader's end.
fn end_of(child: &mut Child) -> Result<ExitStatus> {
    let mut status = None;
    wait_until("the end of scx_ufs", LOAD_LIMIT, || {
        status = child.try_wait().ok().flatten();
        status.is_some()
    })?;
    status.context("no exit status")
}

fn log_tail() -> String {
    let log = fs::read_to_string(LOG).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
