//! Claims about SCHED_IDLE and `cpu.idle`: whoever says so is background.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::cgroup::Cgroup;
use crate::hinting::{NOBODY, hinted};
use crate::ufs::Ufs;
use crate::worker::{Worker, used_by};

const MS: Duration = Duration::from_millis(1);

/// What the first of two burners on one CPU has of it, once it has settled.
fn share(a: &Worker, b: &Worker) -> Result<f64> {
    sleep(200 * MS);
    let (a, b) = used_by(a, b, 1000 * MS)?;
    Ok(a / (a + b))
}

/// Fails unless each share is in its range.
fn expect(found: &[(&str, f64, std::ops::Range<f64>)]) -> Result<String> {
    let told: Vec<String> = found
        .iter()
        .map(|(what, share, _)| format!("{what} {:.1} %", share * 100.0))
        .collect();
    if let Some((what, _, wanted)) = found
        .iter()
        .find(|(_, share, range)| !range.contains(share))
    {
        bail!("{}; {what} is to be in {wanted:?}", told.join(", "));
    }
    Ok(told.join(", "))
}

/// The floor may give it some.
const NOTHING: std::ops::Range<f64> = 0.0..0.1;
const HALF: std::ops::Range<f64> = 0.4..0.6;
const ALL: std::ops::Range<f64> = 0.9..1.01;

/// A task becomes SCHED_IDLE while it runs, and is background until it is SCHED_OTHER
/// again. Its slot raises it above that with the right to, and not without.
pub(crate) fn policy(ufs: &mut Ufs) -> Result<String> {
    let group = NOBODY.to_string();
    ufs.load(&["--hint-group", &group])?;
    let top = Cgroup::top()?;
    let sensitive = top.child("time_sensitive", 100)?;
    let (idler, burner) = (
        Worker::burner(&sensitive, &[0])?,
        Worker::burner(&sensitive, &[0])?,
    );
    let mut found = vec![("SCHED_OTHER", share(&idler, &burner)?, HALF)];
    idler.set_policy(nix::libc::SCHED_IDLE)?;
    found.push(("SCHED_IDLE", share(&idler, &burner)?, NOTHING));
    idler.set_policy(nix::libc::SCHED_OTHER)?;
    found.push(("SCHED_OTHER again", share(&idler, &burner)?, HALF));
    drop(idler);
    // Beside one of another cgroup, which in the background has the same weight.
    let background = top.child("background", 100)?;
    let beside = Worker::burner(&background, &[0])?;
    drop(burner);
    for (id, what, wanted) in [
        (NOBODY, "an idle user's slot says urgent", HALF),
        (0, "an idle root's slot says urgent", ALL),
    ] {
        let (asks, attached) = hinted(&sensitive, "time_sensitive", 100, id)?;
        if !attached {
            bail!("no slot for user {id}");
        }
        asks.set_policy(nix::libc::SCHED_IDLE)?;
        found.push((what, share(&asks, &beside)?, wanted));
    }
    expect(&found)
}

/// `cpu.idle` is written while tasks run in the cgroup and below it: they are
/// background until it is 0 again, but for a cgroup with a label of its own.
pub(crate) fn cgroup(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&["--floor-deadline-ms", "1000"])?;
    follow(ufs, Duration::ZERO)
}

/// The same where marks are looked for, which finds the same.
pub(crate) fn cgroup_with_marks(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&["--cgroup-marks", "--floor-deadline-ms", "1000"])?;
    follow(ufs, 2500 * MS)
}

fn follow(ufs: &Ufs, patience: Duration) -> Result<String> {
    let top = Cgroup::top()?;
    let plain = top.child("plain", 100)?;
    let idle = top.child("idle", 100)?;
    let below = idle.child("below", 100)?;
    let (burner, follower) = (Worker::burner(&plain, &[0])?, Worker::burner(&below, &[0])?);
    let mut found = vec![("cpu.idle 0", share(&follower, &burner)?, HALF)];
    idle.set("cpu.idle", "1")?;
    // Where marks are looked for, that is once a second.
    sleep(patience);
    found.push(("cpu.idle 1", share(&follower, &burner)?, NOTHING));
    // Made below it since, and in it.
    let later = idle.child("later", 100)?;
    let newcomer = Worker::burner(&later, &[0])?;
    found.push(("a new cgroup", share(&newcomer, &burner)?, NOTHING));
    sleep(patience);
    found.push(("and later", share(&newcomer, &burner)?, NOTHING));
    drop(newcomer);
    let labelled = idle.child("time_sensitive", 10_000)?;
    let urgent = Worker::burner(&labelled, &[0])?;
    let used = share(&urgent, &follower)?;
    found.push(("a label below it", used, ALL));
    drop(urgent);
    idle.set("cpu.idle", "0")?;
    idle.set_weight(100)?;
    // What waits changes its tier when it runs, which the floor sees to.
    sleep(2500 * MS);
    found.push(("cpu.idle 0 again", share(&follower, &burner)?, HALF));
    expect(&found).map_err(|error| error.context(ufs.log()))
}
