//! Holders of locks that stop or die, by what they say in their hint slots.

use std::thread::sleep;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use super::{DEADLINE, MS, Witness, load_strict, tiers_hold};
use crate::cgroup::Cgroup;
use crate::hinting::{hint_count, hinted};
use crate::ufs::Ufs;
use crate::worker::{Worker, used_by};

/// A background holder, an urgent waiter, and an urgent third that wants the CPU.
struct Scene {
    holder: Worker,
    waiter: Worker,
    third: Worker,
    sensitive: Cgroup,
    _top: Cgroup,
}

impl Scene {
    fn new(domain: u64) -> Result<Self> {
        let top = Cgroup::top()?;
        let sensitive = top.child("time_sensitive", 100)?;
        let start = |kind| {
            let mut worker = Worker::start(&sensitive, &[0], kind, &[domain.to_string()])?;
            worker.line().context("it has no slot")?;
            Ok::<_, anyhow::Error>(worker)
        };
        let scene = Self {
            holder: start("holder")?,
            waiter: start("waiter")?,
            third: Worker::burner(&sensitive, &[0])?,
            sensitive,
            _top: top,
        };
        sleep(100 * MS);
        Ok(scene)
    }

    /// The holder runs ahead of the third: boosts work.
    fn is_boosted(&self) -> Result<()> {
        let (third, holder) = used_by(&self.third, &self.holder, 500 * MS)?;
        if holder < 0.3 {
            bail!("the holder is not boosted: {holder:.2} s beside {third:.2} s");
        }
        Ok(())
    }

    /// The third has the CPU.
    fn is_not_boosted(&self, when: &str) -> Result<()> {
        let (third, _) = used_by(&self.third, &self.waiter, 500 * MS)?;
        if third < 0.4 {
            bail!("{when} urgent work has only {third:.2} s of 0.5 s");
        }
        Ok(())
    }
}

/// A holder that is stopped keeps the CPU from nobody, and is boosted again
/// when it goes on.
pub(crate) fn stopped(ufs: &mut Ufs) -> Result<String> {
    load_strict(ufs)?;
    let witness = Witness::new()?;
    let scene = Scene::new(1)?;
    scene.is_boosted()?;
    scene.holder.signal(Signal::SIGSTOP)?;
    sleep(100 * MS);
    scene.is_not_boosted("while the holder is stopped")?;
    // Longer than the kernel lets a runnable task wait.
    sleep(4 * DEADLINE);
    scene.holder.signal(Signal::SIGCONT)?;
    scene.is_boosted().context("after it goes on")?;
    witness.ufs_stayed(ufs)?;
    Ok("stopped for 5 s, boosted before and after".to_owned())
}

/// Whoever dies with a hint in its slot leaves nothing of it behind: the slot is
/// free, and nobody is boosted for a dead waiter, or as the heir of a dead holder.
pub(crate) fn died(ufs: &mut Ufs) -> Result<String> {
    // Two slots: whoever comes next has the one that was left.
    ufs.load_with(
        &["--floor-deadline-ms", "1000", "--hint-slots", "2"],
        &[("SCX_TIMEOUT_MS", "4000")],
    )?;
    let witness = Witness::new()?;
    let before = hint_count(&ufs.stats()?, "slots_reclaimed");
    for round in 0..3 {
        let scene = Scene::new(round)?;
        scene.is_boosted()?;
        scene.waiter.signal(Signal::SIGKILL)?;
        sleep(100 * MS);
        tiers_hold(&scene.third, &scene.holder).context("for a dead waiter")?;
        drop(scene);

        let scene = Scene::new(round)?;
        scene.is_boosted()?;
        scene.holder.signal(Signal::SIGKILL)?;
        sleep(100 * MS);
        let (heir, attached) = hinted(&scene.sensitive, "background", 100, 0)?;
        if !attached {
            bail!("the slot of a dead holder is not free");
        }
        tiers_hold(&scene.third, &heir).context("as the heir of a dead holder")?;
    }
    sleep(100 * MS);
    let reclaimed = hint_count(&ufs.stats()?, "slots_reclaimed") - before;
    let (used, _) = giveway_hints::slot::Table::open(None)?.usage();
    // Two of each first scene, three of each second.
    if reclaimed != 15 || used != 0 {
        bail!("{reclaimed} slots taken back of 15, and {used} are left");
    }
    witness.ufs_stayed(ufs)?;
    Ok(format!("{reclaimed} slots taken back, none is left"))
}
