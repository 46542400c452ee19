//! Claims about who may say a cgroup's tier, and about marks.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use giveway_tier::{Tier, mark};

use crate::cgroup::Cgroup;
use crate::hinting::NOBODY;
use crate::ufs::Ufs;
use crate::worker::{Worker, used_by};

/// Marks are looked for once a second.
const HEEDED: Duration = Duration::from_millis(2500);

/// Two cgroups of the same weight share a CPU. One is marked as background: what
/// runs in it already, two levels down, gets next to nothing, until the mark goes.
pub(crate) fn moves(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&["--cgroup-marks"])?;
    shares(ufs)
}

/// The same without the table of hints.
pub(crate) fn moves_without_hints(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&["--cgroup-marks", "--no-hints"])?;
    shares(ufs)
}

fn shares(ufs: &Ufs) -> Result<String> {
    let top = Cgroup::top()?;
    let other = top.child("other", 100)?;
    let pod = top.child("pod", 100)?;
    let container = pod.child("container", 100)?;
    let dir = pod.procs();
    let dir = dir.parent().context("a cgroup has a directory")?;
    let _burners = (
        Worker::burner(&other, &[0])?,
        Worker::burner(&container, &[0])?,
    );
    let share = || -> Result<f64> {
        let before = (pod.seconds()?, other.seconds()?);
        sleep(Duration::from_secs(1));
        let used = (pod.seconds()? - before.0, other.seconds()? - before.1);
        Ok(used.0 / (used.0 + used.1))
    };
    let mut found = Vec::new();
    // Between them the floor: a twentieth of a CPU once a wait is over the deadline.
    for (tier, wanted) in [
        (None, 0.4..0.6),
        (Some(Tier::Background), 0.0..0.1),
        (Some(Tier::TimeSensitive), 0.4..0.6),
        (Some(Tier::Background), 0.0..0.1),
        (None, 0.4..0.6),
    ] {
        mark::write(dir, tier)?;
        if mark::read(dir)? != tier {
            bail!("the mark {tier:?} is not there");
        }
        sleep(HEEDED);
        let share = share()?;
        found.push(format!("{:.0} %", share * 100.0));
        if !wanted.contains(&share) {
            bail!(
                "marked {tier:?} it has {share:.3}, not {wanted:?}; {found:?}\n{}",
                ufs.log()
            );
        }
    }
    Ok(format!("shares {}", found.join(", ")))
}

/// Root has given a part of the background to a user, who makes a cgroup with an
/// urgent name in it. Beside another of that name, which root has made, it gets next to
/// nothing, also after a look at the marks.
pub(crate) fn named(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&["--cgroup-marks"])?;
    let top = Cgroup::top()?;
    let background = top.child("background", 100)?;
    let own = background.child("own", 100)?;
    own.set("cgroup.subtree_control", "+cpu")?;
    let dir = own.procs();
    let dir = dir.parent().context("a cgroup has a directory")?;
    chown(dir, Some(NOBODY), None)?;
    let mut mkdir = Command::new("mkdir");
    let made = mkdir.arg(dir.join("time_sensitive")).uid(NOBODY).status()?;
    if !made.success() {
        bail!("the user cannot make a cgroup: {made}");
    }
    let user_s = own.child("time_sensitive", 100)?;
    let root_s = background.child("time_sensitive", 100)?;
    let (low, high) = (
        Worker::burner(&user_s, &[0])?,
        Worker::burner(&root_s, &[0])?,
    );
    let mut numbers = Vec::new();
    for when in ["at first", "after a look at the marks"] {
        let (low, high) = used_by(&low, &high, Duration::from_secs(1))?;
        numbers.push(format!("{low:.2} s beside {high:.2} s {when}"));
        // Some ticks are the floor's.
        if low > 0.1 || high < 0.8 {
            bail!("{}", numbers.join(", "));
        }
        sleep(HEEDED);
    }
    Ok(numbers.join(", "))
}
