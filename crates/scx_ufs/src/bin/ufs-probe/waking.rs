//! A claim about what a wake-up is charged.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::ufs::Ufs;

/// Wake-ups of each thread.
const ROUNDS: u32 = 1000;

/// Takes part on `cpu`: it answers each byte. Returns the thread's CPU time of a round.
fn answer(mut end: UnixStream, cpu: usize, begins: bool) -> Result<Duration> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &cpus)?;
    let mut byte = [0];
    if begins {
        end.write_all(&byte)?;
    }
    let before = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    for _ in 0..ROUNDS {
        end.read_exact(&mut byte)?;
        end.write_all(&byte)?;
    }
    let after = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok((Duration::from(after) - Duration::from(before)) / ROUNDS)
}

/// The CPU time that a round takes one of two threads on two CPUs that wake each other.
fn round() -> Result<Duration> {
    let (one, other) = UnixStream::pair()?;
    // Else the last answer finds nobody, and its write fails.
    let _open = (one.try_clone()?, other.try_clone()?);
    let other = thread::spawn(move || answer(other, 1, false));
    let used = answer(one, 0, true)?;
    other.join().ok().context("the other thread panicked")??;
    Ok(used)
}

/// Two threads that wake each other find each other's CPU halted each time. The time that
/// it takes to go on is nobody's: they are charged about as much as without UFS.
pub(crate) fn halted(ufs: &mut Ufs) -> Result<String> {
    let without = round()?;
    ufs.load(&[])?;
    let with = round()?;
    let told = format!("a round is charged {with:.1?}, without UFS {without:.1?}");
    match with < without.mul_f64(1.5) {
        true => Ok(told),
        false => bail!("{told}: at most 1.5 times that"),
    }
}
