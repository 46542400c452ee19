//! A sched_ext scheduler as a program: started, found in force, and stopped.
//!
//! The kernel says in `/sys/kernel/sched_ext/state` whether one is in force and
//! in `root/ops` which. How a scheduler is called there, and with which options
//! it is started, is its row in the metascheduler's table; one that has none is
//! called as its program without `scx_`, and started without options.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use giveway_machine::sched_ext::{SchedExt, State};
use giveway_metasched::scheduler::{Scheduler as Known, Table};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cgroup::Share;
use super::layers::layers;
use crate::harness::error::{Error, Result};
use crate::harness::files::PrivateDir;
use crate::harness::scheduler::Scheduler;
use crate::workload::postgres::last_lines;

/// Loading includes the verifier, which takes seconds on a slow machine, and
/// longer for schedulers that are larger than UFS.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The scheduler that is told of the cell's cgroups by options.
const LAYERED: &str = "scx_layered";
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// A scheduler that this process started; stopped when dropped.
#[derive(Debug)]
pub(crate) struct Loaded {
    child: Child,
    known: Known,
    log: PathBuf,
    _dir: PrivateDir,
}

/// What is known of the scheduler that a program is.
fn known(program: &str) -> Known {
    let row = Table::known().get(program).cloned();
    row.unwrap_or_else(|| Known {
        name: program.to_owned(),
        command: vec![program.to_owned()],
        ops: program.strip_prefix("scx_").unwrap_or(program).to_owned(),
        ..Known::eevdf()
    })
}

/// The program of a scheduler as a command line without options: the file that is given,
/// or its name, to be found in PATH. Nothing for the kernel's own.
pub(crate) fn program(scheduler: &Scheduler, given: &Path) -> Vec<String> {
    let named = scheduler.program();
    let program = named.map(|name| match given.as_os_str().is_empty() {
        true => name,
        false => given.display().to_string(),
    });
    program.into_iter().collect()
}

/// The command line of a scheduler for a cell with these cgroups: what was given,
/// or its program, found in PATH; and its options.
fn command_line(known: &Known, given: &[String], shares: &[Share]) -> Vec<String> {
    let (program, usual) = known.command.split_first().expect("it is not the kernel's");
    let mut line = match given {
        [] => vec![program.clone()],
        given => given.to_vec(),
    };
    match known.name == LAYERED {
        true => line.push(layers(shares)),
        false => line.extend_from_slice(usual),
    }
    line
}

impl Loaded {
    /// Starts the scheduler, if it is a sched_ext one, for work in these cgroups,
    /// and waits until it is in force. For the others, makes sure that none is.
    /// Without a command its program is looked for in PATH.
    pub(crate) fn start(
        scheduler: &Scheduler,
        command: &[String],
        shares: &[Share],
    ) -> Result<Option<Self>> {
        let kernel = SchedExt::this();
        if let State::Enabled(ops) = kernel.state() {
            return Err(Error::Config(format!(
                "the sched_ext scheduler {ops} is in force: stop it first (`giveway stop`, or end \
                 its program)"
            )));
        }
        let Some(program) = scheduler.program() else {
            return Ok(None);
        };
        if !kernel.is_there() {
            return Err(Error::Config(format!(
                "{program} needs a kernel with sched_ext (6.12 or newer, CONFIG_SCHED_CLASS_EXT)"
            )));
        }
        let known = known(&program);
        let mut command = command_line(&known, command, shares);
        command.extend(scheduler.options().iter().map(ToString::to_string));
        let dir = PrivateDir::new(&std::env::temp_dir(), None)?;
        let log = dir.path().join("log");
        let out = File::create(&log).map_err(Error::file("create", &log))?;
        let err = out.try_clone().map_err(Error::file("open", &log))?;
        let child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(Error::file("start", command[0].as_ref()))?;
        let mut this = Loaded {
            child,
            known,
            log,
            _dir: dir,
        };
        this.wait_until_enabled()?;
        Ok(Some(this))
    }

    fn wait_until_enabled(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let state = SchedExt::this().state();
            if matches!(&state, State::Enabled(ops) if self.known.is_ops(ops)) {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.failure(format!("ended instead of starting ({status})")));
            }
            if Instant::now() > deadline {
                let state = state.word();
                let reason = format!("not in force after {START_TIMEOUT:?} (state '{state}')");
                return Err(self.failure(reason));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn failure(&self, reason: String) -> Error {
        let output = last_lines(&fs::read_to_string(&self.log).unwrap_or_default());
        Error::Scheduler {
            name: self.known.name.clone(),
            reason,
            output,
        }
    }

    /// The scheduler's name and version, after making sure that the kernel did
    /// not throw it out.
    pub(crate) fn confirm(&self) -> Result<String> {
        let state = SchedExt::this().state();
        if let State::Enabled(ops) = &state
            && self.known.is_ops(ops)
        {
            return Ok(ops.clone());
        }
        // Its exit report takes a moment to be written.
        std::thread::sleep(Duration::from_secs(1));
        Err(self.failure(format!(
            "no longer in force at the end of the window (state '{}')",
            state.word()
        )))
    }

    /// Stops it and waits until the kernel's own scheduler is back.
    pub(crate) fn stop(mut self) -> Result<()> {
        let status = self.end()?;
        if status.success() {
            return Ok(());
        }
        Err(self.failure(format!("reported a failure when it was stopped ({status})")))
    }

    fn end(&mut self) -> Result<ExitStatus> {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
        loop {
            let ended = self
                .child
                .try_wait()
                .map_err(Error::file("wait for", &self.log))?;
            let is_in_force = || matches!(SchedExt::this().state(), State::Enabled(_));
            if let Some(status) = ended.filter(|_| !is_in_force()) {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(self.failure(format!("did not stop within {STOP_TIMEOUT:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.end().is_err() {
            // The kernel unloads a scheduler whose program is gone.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The kernel times BPF programs while this lives.
#[derive(Debug)]
pub(crate) struct Timed(());

impl Timed {
    const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

    pub(crate) fn start() -> Result<Self> {
        fs::write(Self::SWITCH, "1").map_err(Error::file("write to", Self::SWITCH.as_ref()))?;
        Ok(Timed(()))
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let _ = fs::write(Self::SWITCH, "0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_is_known_by_its_row_or_else_by_its_program() {
        let ufs = known("scx_ufs");
        assert!(ufs.is_ops("ufs_1.0.0_x86_64_unknown_linux_gnu") && !ufs.is_ops("ufs2_1.0"));
        let mine = known("scx_mine");
        assert!(mine.is_ops("mine_0.1") && !mine.is_ops("mines") && !mine.is_ops(""));
    }

    #[test]
    fn a_program_is_the_file_that_is_given_or_its_name() {
        let line = |scheduler, given: &str| program(&scheduler, given.as_ref()).join(" ");
        assert_eq!(line(Scheduler::Ufs, ""), "scx_ufs");
        assert_eq!(line(Scheduler::Ufs, "/x/scheduler"), "/x/scheduler");
        assert_eq!(line(Scheduler::Eevdf, ""), "");
    }

    #[test]
    fn a_variant_of_ufs_is_its_program_with_options() {
        let options = Scheduler::UfsFloor.options();
        assert_eq!(options.len() % 2, 0);
        assert!(Scheduler::Ufs.options().is_empty());
        assert_eq!(program(&Scheduler::UfsFloor, "".as_ref()), ["scx_ufs"]);
    }

    #[test]
    fn a_command_line_has_the_row_s_options_and_layers_where_they_are_taken() {
        let shares = [Share::clients()];
        let line = |program: &str, given: &[&str]| {
            let given: Vec<String> = given.iter().map(|word| (*word).to_owned()).collect();
            command_line(&known(program), &given, &shares)
        };
        assert_eq!(line("scx_lavd", &[]), ["scx_lavd"]);
        assert_eq!(line("scx_mine", &["/x/mine"]), ["/x/mine"]);
        assert_eq!(line("scx_ufs", &["/x/ufs", "--v"]), ["/x/ufs", "--v"]);
        let layered = line("scx_layered", &["/x/layered"]);
        assert_eq!(layered[0], "/x/layered");
        // And not the row's example.
        assert_eq!(layered.len(), 2);
        assert!(layered[1].contains("time_sensitive.clients"), "{layered:?}");
    }
}
