//! Claims about trust: what UFS and the machine do when something goes wrong.
//!
//! A claim does one wrong thing and then asks a [`Witness`], who was there
//! before:
//!
//! ```text
//!   who schedules    /sys/kernel/sched_ext: state, enable_seq
//!   nothing refused  /sys/kernel/sched_ext: nr_rejected
//!   why it ended     the kernel's log: "BPF scheduler ... disabled (REASON)"
//!   no harm          the kernel's log: no stall, warning, bug or runtime error
//!   nobody lost      every worker runs on, within a limit
//! ```
//!
//! Most load UFS with the kernel's limit for a wait at 4 s and the floor's
//! deadline at 1 s, so that what would take half a minute to be noticed takes
//! seconds.
//!
//! ```text
//! loaders.rs    loaders killed, out of memory, doubled, upgraded; errors in BPF
//! machine.rs    CPUs that come and go, clocks that jump, real-time hogs
//! tasks.rs      tasks stopped, traced, frozen, changed
//! crowds.rs     fork bombs, thousands of cgroups
//! holders.rs    holders of locks that stop or die
//! stress.rs     all of that at random, for as long as wanted
//! invariants.rs what must hold meanwhile
//! ```

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use giveway_machine::sched_ext::SchedExt;
use nix::libc;

use crate::ufs::{Ufs, enable_seq, state, wait_until};
use crate::worker::{Worker, used_by};

pub(crate) mod crowds;
pub(crate) mod holders;
mod invariants;
pub(crate) mod loaders;
pub(crate) mod machine;
pub(crate) mod stress;
pub(crate) mod tasks;

const MS: Duration = Duration::from_millis(1);
/// The floor's deadline under [`load_strict`].
const DEADLINE: Duration = Duration::from_secs(1);
/// The longest wait of a task then: two deadlines, and what a worker needs to
/// be seen running.
const LONGEST_WAIT: Duration = Duration::from_millis(2500);
/// How the kernel says that a loader has closed its link, or has died.
const UNREGISTERED: &str = "unregistered from user space";

/// Loads UFS so that the kernel ejects it for a wait of 4 s.
fn load_strict(ufs: &mut Ufs) -> Result<()> {
    let args = ["--floor-deadline-ms", "1000"];
    ufs.load_with(&args, &[("SCX_TIMEOUT_MS", "4000")])
}

/// Somebody who was there before the fault.
struct Witness {
    seq: u64,
    rejected: u64,
    mark: String,
}

impl Witness {
    fn new() -> Result<Self> {
        let seq = enable_seq();
        let uptime = fs::read_to_string("/proc/uptime")?;
        let mark = format!("ufs-probe: a witness at {}", uptime.trim());
        let mut log = OpenOptions::new().write(true).open("/dev/kmsg")?;
        // Without an end of line it would be seen with the next message only.
        writeln!(log, "{mark}")?;
        Ok(Self {
            seq,
            rejected: rejected()?,
            mark,
        })
    }

    /// UFS has been in force all the time, and nothing has gone wrong.
    fn ufs_stayed(&self, ufs: &Ufs) -> Result<()> {
        ufs.still_loaded_since(self.seq)?;
        self.no_harm()
    }

    /// Linux's own scheduler is in force, for that reason, and nothing else has
    /// gone wrong.
    fn eevdf_took_over(&self, reason: &str) -> Result<()> {
        if state() != "disabled" {
            bail!("the state is {}, not disabled", state());
        }
        let log = self.log()?;
        let ended = log.lines().rfind(|line| line.contains("BPF scheduler"));
        let ended = ended.context("the kernel has not said that a scheduler ended")?;
        if !ended.contains(&format!("disabled ({reason})")) {
            bail!("the kernel says: {ended}");
        }
        self.no_harm()
    }

    /// No task refused, no complaint of the kernel.
    fn no_harm(&self) -> Result<()> {
        const COMPLAINTS: &[&str] = &[
            "runtime error",
            "stall",
            "WARNING:",
            "BUG:",
            "Oops",
            "lockup",
            "blocked for more than",
        ];
        if rejected()? != self.rejected {
            bail!("the kernel has rejected tasks");
        }
        let log = self.log()?;
        let complains = |line: &&str| COMPLAINTS.iter().any(|word| line.contains(word));
        match log.lines().find(complains) {
            Some(line) => bail!("the kernel complains: {line}"),
            None => Ok(()),
        }
    }

    /// The kernel's log since.
    fn log(&self) -> Result<String> {
        let log = kernel_log()?;
        match log.rsplit_once(&self.mark) {
            Some((_, since)) => Ok(since.to_owned()),
            None => {
                let end = &log[log.floor_char_boundary(log.len().saturating_sub(2000))..];
                bail!("the kernel's log has lost '{}'; it ends:\n{end}", self.mark)
            }
        }
    }
}

fn kernel_log() -> Result<String> {
    const READ_ALL: libc::c_int = 3;
    let mut text = vec![0u8; 1 << 20];
    // SAFETY: the buffer has the length given.
    let length = unsafe {
        libc::klogctl(
            READ_ALL,
            text.as_mut_ptr().cast(),
            text.len() as libc::c_int,
        )
    };
    if length < 0 {
        return Err(std::io::Error::last_os_error()).context("the kernel's log");
    }
    text.truncate(length as usize);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn rejected() -> Result<u64> {
    SchedExt::this().rejected().context("nr_rejected")
}

/// Each of the workers uses CPU time, from now, within `limit`.
fn all_run(workers: &[&Worker], limit: Duration) -> Result<Duration> {
    let mut still = Vec::new();
    for worker in workers {
        still.push((worker.pid(), worker.seconds()?, *worker));
    }
    wait_until("every task runs on", limit, || {
        still.retain(|(_, before, worker)| worker.seconds().is_ok_and(|now| now <= *before));
        still.is_empty()
    })
    .with_context(|| {
        let lost: Vec<i32> = still.iter().map(|(pid, ..)| *pid).collect();
        format!("tasks {lost:?} are lost")
    })
}

/// Of two workers on one CPU the urgent one has it, but for the floor.
fn tiers_hold(urgent: &Worker, background: &Worker) -> Result<String> {
    let (high, low) = used_by(urgent, background, 500 * MS)?;
    let numbers = format!("{high:.2} s urgent beside {low:.2} s");
    // A few ticks of 4 ms are the floor's, and those of others.
    if high < 0.4 || low > 0.08 {
        bail!("{numbers} in half a second");
    }
    Ok(numbers)
}
