//! Claims about tasks that have used more than their share, and would be rid of that.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::errno::Errno;
use nix::libc;
use nix::unistd::{ForkResult, fork};

use crate::cgroup::Cgroup;
use crate::ufs::Ufs;
use crate::worker::{Worker, burn_for};

const MS: Duration = Duration::from_millis(1);
/// What is tried for.
const SPAN: Duration = Duration::from_secs(4);

/// Of two time-sensitive cgroups the light one has one task that wants the CPU all the time:
/// it forks and ends again and again, so that its child goes on, or is moved to and fro
/// between two such cgroups. It gets no more by that than its weight gives it.
pub(crate) fn kept(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let mut told = Vec::new();
    // Whose beginning anew would gain it most: a task that is far ahead. By weight they have
    // a hundred-and-first part of the CPU, and an eleventh or twelfth.
    for (moves, weight, most) in [(false, 1, 0.014), (true, 10, 0.14)] {
        let top = Cgroup::top()?;
        let heavy = top.child("time_sensitive", 100)?;
        let light = [
            top.child("time_sensitive-a", weight)?,
            top.child("time_sensitive-b", weight)?,
        ];
        let _burner = Worker::burner(&heavy, &[0])?;
        let kind = if moves { "burn" } else { "relay" };
        let task = Worker::start(&light[0], &[0], kind, &[])?;
        sleep(300 * MS);
        let used = || Ok::<_, anyhow::Error>(light[0].seconds()? + light[1].seconds()?);
        let before = used()?;
        let began = Instant::now();
        for turn in 1.. {
            if began.elapsed() >= SPAN {
                break;
            }
            sleep(2 * MS);
            if moves {
                fs::write(light[turn % 2].procs(), task.pid().to_string())?;
            }
        }
        let share = (used()? - before) / began.elapsed().as_secs_f64();
        told.push(format!(
            "{} {:.1} % of the CPU",
            if moves { "moved" } else { "forking" },
            share * 100.0
        ));
        if share > most {
            bail!("{}", told.join(", "));
        }
    }
    Ok(told.join(", "))
}

/// Uses less than a slice, and leaves the rest to a child, and so on. This process only
/// takes the dead in.
pub(crate) fn relay() -> Result<()> {
    // SAFETY: the calls take numbers only.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) })?;
    // SAFETY: as above; nobody asks how children ended.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    // SAFETY: there is one thread.
    if let ForkResult::Parent { .. } = unsafe { fork()? } {
        loop {
            sleep(1000 * MS);
        }
    }
    loop {
        burn_for(2 * MS);
        // SAFETY: there is one thread.
        if let ForkResult::Parent { .. } = unsafe { fork()? } {
            // SAFETY: ends the process, which has nothing to finish.
            unsafe { libc::_exit(0) };
        }
    }
}
