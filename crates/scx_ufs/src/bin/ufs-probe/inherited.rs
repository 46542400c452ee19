//! Claims about the hints that threads and children take from a process.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use giveway_hints::slot::Table;
use giveway_tier::Tier;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{ForkResult, Uid, fork, gettid, setuid};

use crate::cgroup::Cgroup;
use crate::hinting::NOBODY;
use crate::ufs::Ufs;
use crate::worker::{Worker, burn_for};

const MS: Duration = Duration::from_millis(1);

/// A thread that says nothing, and a child, of a process that has a slot.
struct Family {
    parent: Worker,
    thread: Worked,
    child: Worked,
}

/// CPU time of a task that is not our child.
struct Worked(String);

impl Worked {
    fn seconds(&self) -> Result<f64> {
        let text = fs::read_to_string(&self.0).with_context(|| self.0.clone())?;
        let ns: f64 = text.split(' ').next().unwrap_or_default().parse()?;
        Ok(ns / 1e9)
    }
}

impl Family {
    fn start(group: &Cgroup, tier: &str, child_id: u32) -> Result<Self> {
        let args = [tier.to_owned(), child_id.to_string()];
        let mut parent = Worker::start(group, &[0], "family", &args)?;
        let line = parent.line().context("a family said nothing")?;
        let (thread, child) = line.split_once(' ').context("a family of one")?;
        Ok(Self {
            thread: Worked(format!("/proc/{}/task/{thread}/schedstat", parent.pid())),
            child: Worked(format!("/proc/{child}/schedstat")),
            parent,
        })
    }

    /// What thread, child and `other` used of a second, once they have settled.
    fn used(&self, other: &Worker) -> Result<[f64; 3]> {
        let now = || -> Result<[f64; 3]> {
            let (thread, child) = (self.thread.seconds()?, self.child.seconds()?);
            Ok([thread, child, other.seconds()?])
        };
        sleep(2000 * MS);
        let before = now()?;
        sleep(1000 * MS);
        let after = now()?;
        Ok(std::array::from_fn(|i| after[i] - before[i]))
    }
}

/// A process of a time-sensitive cgroup says that it may wait. Its thread and its child,
/// which say nothing, leave the CPU to one that does not. The thread follows the
/// process back; the child stays until it says otherwise itself. What waits follows when
/// it runs, which the floor sees to.
pub(crate) fn follow(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&["--floor-deadline-ms", "1000"])?;
    let top = Cgroup::top()?;
    let sensitive = top.child("time_sensitive", 100)?;
    let family = Family::start(&sensitive, "background", 0)?;
    let burner = Worker::burner(&sensitive, &[0])?;
    let mut told = Vec::new();
    let mut look = |when: &str| -> Result<[f64; 3]> {
        let used = family.used(&burner)?;
        let [thread, child, other] = used;
        told.push(format!(
            "{when} thread {thread:.2} s, child {child:.2} s, other {other:.2} s"
        ));
        Ok(used)
    };
    // The floor gives 5 % at most.
    let [lowered, lowered_child, urgent] = look("lowered")?;
    family.parent.signal(Signal::SIGUSR1)?;
    let [back, child_then, _] = look("process back")?;
    let child = family.child.0.split('/').nth(2).context("no child")?;
    let child = nix::unistd::Pid::from_raw(child.parse()?);
    nix::sys::signal::kill(child, Signal::SIGUSR1)?;
    let [_, child_back, _] = look("child back")?;
    let told = told.join("; ");
    if lowered > 0.1 || lowered_child > 0.1 || urgent < 0.8 {
        bail!("{told}");
    }
    if !(0.35..0.65).contains(&back) || child_then > 0.1 || !(0.2..0.5).contains(&child_back) {
        bail!("{told}");
    }
    Ok(told)
}

/// A process of root raises itself above its background cgroup. Its child, which has
/// become another user and has not the right, is what the cgroup is.
pub(crate) fn rights(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let background = top.child("background", 100)?;
    let family = Family::start(&background, "time_sensitive", NOBODY)?;
    let burner = Worker::burner(&background, &[0])?;
    let [thread, child, other] = family.used(&burner)?;
    let told = format!("thread {thread:.2} s, child {child:.2} s, other {other:.2} s");
    if thread < 0.8 || child > 0.15 {
        bail!("{told}");
    }
    Ok(told)
}

static SIGNALLED: AtomicBool = AtomicBool::new(false);

extern "C" fn signalled(_: nix::libc::c_int) {
    SIGNALLED.store(true, Ordering::Relaxed);
}

/// Has a slot that asks for `tier`, a thread that burns, and a child that burns as user
/// `child_id`. Prints their numbers. At SIGUSR1 the process, or the child, claims that
/// it is time-sensitive.
pub(crate) fn family(tier: Tier, child_id: u32) -> Result<()> {
    let action = SigAction::new(
        SigHandler::Handler(signalled),
        SaFlags::empty(),
        SigSet::empty(),
    );
    // SAFETY: the handler stores to an atomic and does nothing else.
    unsafe { sigaction(Signal::SIGUSR1, &action)? };
    let table = Table::open(None)?;
    let slot = table.attach().context("no slot is free")?;
    slot.set_tier(tier);
    // SAFETY: there is one thread yet.
    let child = match unsafe { fork()? } {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            setuid(Uid::from_raw(child_id))?;
            while !SIGNALLED.load(Ordering::Relaxed) {
                burn_for(MS);
            }
            let own = table.attach().context("no slot is free")?;
            own.set_tier(Tier::TimeSensitive);
            loop {
                burn_for(1000 * MS);
            }
        }
    };
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let _ = tell.send(gettid());
        loop {
            burn_for(1000 * MS);
        }
    });
    println!("{} {child}", told.recv()?);
    while !SIGNALLED.load(Ordering::Relaxed) {
        sleep(5 * MS);
    }
    slot.set_tier(Tier::TimeSensitive);
    loop {
        sleep(1000 * MS);
    }
}
