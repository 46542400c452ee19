//! The part of cgroup v2 that Giveway needs: a leaf of its own for one run,
//! and a list of the cgroups that carry a tier.
//!
//! ```text
//! BASE                      top of the hierarchy, or of the user's own part
//! └ giveway                 +cpu +cpuset +io +lock in subtree_control, as in BASE
//!   ├ time_sensitive        cpu.weight 10000
//!   │ └ run-4711            cpu.weight as asked for; removed after the run
//!   └ background            cpu.weight 1
//!     └ run-4712
//! ```
//!
//! UFS reads the tier from the directory's name: the tier's own, or where UFS was loaded
//! with other labels one of those. The weights of the two tier
//! directories are for machines without UFS: Linux's own scheduler then gives
//! background work 1 part of 10001 when both tiers are busy, the nearest it
//! can come (and, as the paper shows, not near enough). What the directories weigh at
//! the disk and at locks is in `weights`.
//!
//! Root uses the top of the hierarchy. Other users may move a process only
//! inside a part whose `cgroup.procs` they may write, up to the common
//! ancestor (cgroup-v2.rst, "Delegation Containment"); BASE is then the
//! highest such ancestor of the caller's own cgroup.
//!
//! Known weaknesses: a run whose supervisor dies of SIGKILL leaves its leaf
//! behind; the next run in the tier removes the leaves of dead supervisors. An
//! unprivileged caller cannot read the marks on its own cgroups, so `run` may accept a
//! tier above its own; UFS does not raise the leaf then, for root has not named it.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::iter;
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::Duration;

use giveway_machine::cgroup::{self, Cgroup};
use giveway_tier::rule::Rule;
use giveway_tier::{Tier, Weight, mark};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use giveway_command::{Context, Failure};

use crate::{disk, weights};

/// The directory under BASE that holds everything Giveway makes.
const OURS: &str = "giveway";
/// Where a caller that sits alone in its delegated cgroup steps aside to.
const CALLER: &str = "giveway-caller";

/// Why a hierarchy has not all controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// cgroup v1 is mounted, and a controller can be in one version only.
    ByV1,
    /// What is mounted is not the machine's own hierarchy but a cgroup in it, as in a
    /// container: it has what was given to it.
    ByMachine,
    /// The kernel was built without.
    ByKernel,
}

impl Withheld {
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Withheld::ByV1 => "boot with systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all",
            Withheld::ByMachine => {
                "run this on the machine itself; in a container, mount the machine's \
                 /sys/fs/cgroup (docs/operate/kubernetes.md)"
            }
            Withheld::ByKernel => "boot a kernel with CONFIG_CGROUP_SCHED=y CONFIG_CPUSETS=y",
        }
    }
}

/// What follows the names of the controllers.
impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Withheld::ByV1 => "held by cgroup v1",
            Withheld::ByMachine => "not given to this part of the machine's hierarchy",
            Withheld::ByKernel => "not built into this kernel",
        })
    }
}

/// Whether a mount table (`/proc/self/mountinfo`) has a hierarchy of cgroup v1.
pub(crate) fn has_v1(mountinfo: &str) -> bool {
    mountinfo.contains(" - cgroup ")
}

/// A mounted cgroup v2 hierarchy.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    mount: PathBuf,
}

impl Hierarchy {
    /// The hierarchy at `mount`.
    pub(crate) fn at(mount: impl Into<PathBuf>) -> Self {
        Hierarchy {
            mount: mount.into(),
        }
    }

    /// The hierarchy that a mount table (`/proc/self/mountinfo`) names.
    pub(crate) fn in_mounts(mountinfo: &str) -> Option<Self> {
        cgroup::mount_in(mountinfo).map(Hierarchy::at)
    }

    /// The hierarchy of this machine, with the cpu controller in it.
    pub(crate) fn with_cpu() -> Result<Self, Failure> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").cannot("read the mount table")?;
        let found = Hierarchy::in_mounts(&mounts).ok_or_else(|| {
            Failure::new("cgroup v2 is not mounted").with_remedy(
                "mount -t cgroup2 none /sys/fs/cgroup, or boot with \
                 systemd.unified_cgroup_hierarchy=1",
            )
        })?;
        if !found.controllers().iter().any(|name| name == "cpu") {
            let withheld = found.withheld(&mounts);
            return Err(Failure::new(format_args!(
                "cgroup v2 at {} has no cpu controller: {withheld}",
                found.mount.display()
            ))
            .with_remedy(withheld.remedy()));
        }
        Ok(found)
    }

    /// Where it is mounted.
    pub(crate) fn mount(&self) -> &Path {
        &self.mount
    }

    /// The controllers it offers at the top.
    pub(crate) fn controllers(&self) -> Vec<String> {
        Cgroup::at(&self.mount).words("cgroup.controllers")
    }

    /// Why it lacks controllers, where it does, by the mount table that names it.
    pub(crate) fn withheld(&self, mountinfo: &str) -> Withheld {
        // Every cgroup has this file but the top one of the machine.
        let is_part = self.mount.join("cgroup.type").exists();
        match (has_v1(mountinfo), is_part) {
            (true, _) => Withheld::ByV1,
            (false, true) => Withheld::ByMachine,
            (false, false) => Withheld::ByKernel,
        }
    }

    /// The highest directory in which a caller in the cgroup `own` (a path as
    /// in `/proc/self/cgroup`) may make cgroups and move processes.
    fn base(&self, own: &Path, is_root: bool) -> Result<PathBuf, Failure> {
        if is_root {
            return Ok(self.mount.clone());
        }
        let own = Cgroup::below(&self.mount, own);
        let own = own.dir();
        own.ancestors()
            .take_while(|dir| dir.starts_with(&self.mount) && writable(dir))
            .last()
            .map(Path::to_path_buf)
            .ok_or_else(|| {
                Failure::new(format_args!(
                    "this user may not make cgroups: {} is not delegated to them",
                    own.display()
                ))
                .with_remedy(
                    "put 'systemd-run --user --scope -p Delegate=yes' before the command, \
                     or use sudo",
                )
            })
    }

    /// Makes the leaf for one run and the directories above it.
    ///
    /// Without the cpu controller (a delegated part may lack it) the leaf has a
    /// tier but no weight, which is an error only if one was asked for.
    pub(crate) fn leaf(
        &self,
        tier: Tier,
        weight: Option<Weight>,
        caller: &Caller,
        rule: &Rule,
    ) -> Result<Leaf, Failure> {
        let base = self.base(&caller.cgroup, caller.is_root)?;
        let ours = base.join(OURS);
        let Some(parent) = self.of_tier(&ours, tier, rule) else {
            return Err(Failure::new(format_args!(
                "the loaded UFS has no label for the {tier} tier"
            ))
            .with_remedy(format_args!(
                "load it with one: giveway stop; giveway start -- --{}-label={tier}",
                tier.name().replace('_', "-")
            )));
        };
        enable(&base, caller.pid)?;
        make(&ours)?;
        enable(&ours, caller.pid)?;
        for tier in Tier::ALL {
            // One that UFS has no name for has no runs.
            if let Some(dir) = self.of_tier(&ours, tier, rule) {
                make(&dir)?;
                // An administrator's weight stays, as elsewhere.
                if weight_of(&dir) == Some(Weight::DEFAULT.get()) {
                    let weight = tier.cgroup_weight().to_string();
                    write_if_there(&dir.join("cpu.weight"), &weight)?;
                }
                weights::weigh(&dir, tier.cgroup_weight());
            }
        }
        enable(&parent, caller.pid)?;
        sweep(&parent);
        let time_sensitive = self.of_tier(&ours, Tier::TimeSensitive, rule);
        let runs = weights::Runs::at(ours, time_sensitive);
        let leaf = Leaf::make(&parent, caller.pid, runs)?;
        disk::classify(&leaf.dir, tier);
        if let Some(weight) = weight {
            weights::weigh(&leaf.dir, weight);
            let set = write_if_there(&leaf.dir.join("cpu.weight"), &weight.to_string())?;
            if !set {
                return Err(Failure::new(format_args!(
                    "cannot set weight {weight}: the cpu controller is not delegated to {}",
                    base.display()
                ))
                .with_remedy(
                    "let systemd delegate it ('sudo systemctl edit user@.service', [Service], \
                     Delegate=cpu cpuset memory pids) and log in again; or leave out --weight",
                ));
            }
        }
        Ok(leaf)
    }

    /// The directory in `ours` that is in this tier by its name.
    fn of_tier(&self, ours: &Path, tier: Tier, rule: &Rule) -> Option<PathBuf> {
        let labels = rule.labels[tier as usize].iter().map(String::as_str);
        let mut dirs = iter::once(tier.name())
            .chain(labels)
            .map(|name| ours.join(name));
        dirs.find(|dir| rule.of_path(self.relative(dir)) == tier)
    }

    /// Every cgroup that has a tier of its own by this rule, or which is marked, the
    /// outermost first. Only root can see marks.
    pub(crate) fn labelled(&self, rule: &Rule) -> Vec<Labelled> {
        let mark = |dir: &Path| mark::read(dir).ok().flatten();
        self.labelled_by(rule, &mark, &mark::named_by_root)
    }

    fn labelled_by(
        &self,
        rule: &Rule,
        mark: &dyn Fn(&Path) -> Option<Tier>,
        by_root: &dyn Fn(&Path) -> bool,
    ) -> Vec<Labelled> {
        let mut found: Vec<Labelled> = Vec::new();
        // Of each of them, the next one above it. Each cgroup is read once: users nest
        // labelled ones as deep as they like.
        let mut above: Vec<Option<usize>> = Vec::new();
        let mut queue = VecDeque::from([(self.mount.clone(), rule.default_tier, false, None)]);
        while let Some((dir, inherited, inside, outer)) = queue.pop_front() {
            for child in Cgroup::at(&dir).children() {
                let mark = mark(&child);
                let own = own_tier(&child, inherited, rule, mark, by_root);
                let tier = own.unwrap_or(inherited);
                // A labelled cgroup and its direct children are worth a line
                // each: the children are what weights divide the tier between.
                let mut listed = outer;
                if own.is_some() || mark.is_some() || inside {
                    above.push(outer);
                    listed = Some(found.len());
                    found.push(Labelled {
                        tier,
                        mark,
                        path: self.relative(&child).to_path_buf(),
                        weight: weight_of(&child),
                        tasks: 0,
                    });
                }
                if let Some(listed) = listed {
                    found[listed].tasks += threads(&child);
                }
                queue.push_back((child.clone(), tier, own.is_some(), listed));
            }
        }
        for at in (0..found.len()).rev() {
            if let Some(above) = above[at] {
                found[above].tasks += found[at].tasks;
            }
        }
        found
    }

    /// The tier of the cgroup at `path` (as in `/proc/self/cgroup`), by the cgroups on the
    /// way to it. Only root can see marks.
    pub(crate) fn tier_at(&self, path: &Path, rule: &Rule) -> Tier {
        let mark = |dir: &Path| mark::read(dir).ok().flatten();
        self.tier_at_by(path, rule, &mark, &mark::named_by_root)
    }

    fn tier_at_by(
        &self,
        path: &Path,
        rule: &Rule,
        mark: &dyn Fn(&Path) -> Option<Tier>,
        by_root: &dyn Fn(&Path) -> bool,
    ) -> Tier {
        let mut dir = self.mount.clone();
        let mut tier = rule.default_tier;
        for component in path.components() {
            if let Component::Normal(name) = component {
                dir.push(name);
                tier = own_tier(&dir, tier, rule, mark(&dir), by_root).unwrap_or(tier);
            }
        }
        tier
    }

    fn relative<'a>(&self, dir: &'a Path) -> &'a Path {
        dir.strip_prefix(&self.mount).unwrap_or(dir)
    }
}

/// The tier that a cgroup has of its own, as UFS decides it: by a mark, else by its name
/// if that may count, else background if its `cpu.idle` is 1.
fn own_tier(
    dir: &Path,
    inherited: Tier,
    rule: &Rule,
    mark: Option<Tier>,
    by_root: &dyn Fn(&Path) -> bool,
) -> Option<Tier> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let counts = |&tier: &Tier| tier <= inherited || by_root(dir);
    let named = || rule.of_name(&name).filter(counts);
    let is_idle = || Cgroup::at(dir).read("cpu.idle").is_ok_and(|it| it == "1");
    mark.filter(|_| rule.heeds_marks)
        .or_else(named)
        .or_else(|| is_idle().then_some(Tier::Background))
}

/// The process that asks for a leaf.
pub(crate) struct Caller {
    /// Path in the hierarchy, as `/proc/self/cgroup` has it.
    pub(crate) cgroup: PathBuf,
    pub(crate) is_root: bool,
    pub(crate) pid: u32,
}

impl Caller {
    /// This process.
    pub(crate) fn this() -> Result<Self, Failure> {
        let own = cgroup::own().cannot("read the caller's cgroup")?;
        Ok(Caller {
            cgroup: own.unwrap_or_else(|| PathBuf::from("/")),
            is_root: nix::unistd::geteuid().is_root(),
            pid: std::process::id(),
        })
    }

    /// The tier the caller runs in.
    pub(crate) fn tier(&self, hierarchy: &Hierarchy, rule: &Rule) -> Tier {
        hierarchy.tier_at(&self.cgroup, rule)
    }
}

/// One line of `giveway status`.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Labelled {
    pub(crate) tier: Tier,
    /// What it is marked with, whether or not that is heeded.
    pub(crate) mark: Option<Tier>,
    #[serde(serialize_with = "as_text")]
    pub(crate) path: PathBuf,
    /// `cpu.weight`, where the cpu controller is enabled.
    pub(crate) weight: Option<u32>,
    /// Threads in it and below it.
    pub(crate) tasks: usize,
}

/// The cgroup of one run; removed when dropped, if it is empty by then.
#[derive(Debug)]
pub(crate) struct Leaf {
    dir: PathBuf,
    runs: weights::Runs,
}

impl Leaf {
    fn make(parent: &Path, pid: u32, runs: weights::Runs) -> Result<Self, Failure> {
        // The plain name may be taken by a leaf that a process of the same id
        // left populated, before the counter of process ids went round.
        for suffix in 0.. {
            let dir = parent.join(match suffix {
                0 => format!("run-{pid}"),
                _ => format!("run-{pid}.{suffix}"),
            });
            match fs::create_dir(&dir) {
                Ok(()) => {
                    runs.settle();
                    return Ok(Leaf { dir, runs });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e).cannot(format_args!("make {}", dir.display())),
            }
        }
        unreachable!("the counter of suffixes does not end")
    }

    /// Opens the file through which a process moves into the leaf.
    pub(crate) fn entrance(&self) -> Result<File, Failure> {
        let path = self.dir.join("cgroup.procs");
        OpenOptions::new()
            .write(true)
            .open(&path)
            .cannot(format_args!("open {}", path.display()))
    }

    /// Its directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes the leaf; answers with the number of tasks that keep it alive.
    pub(crate) fn remove(self) -> usize {
        // A task that has ended still counts until the kernel is done with it.
        for _ in 0..50 {
            if fs::remove_dir(&self.dir).is_ok() {
                break;
            }
            let left = tasks(&self.dir);
            if left > 0 {
                return left;
            }
            thread::sleep(Duration::from_millis(10));
        }
        0
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // Fails when removed already or still populated; both are fine.
        let _ = fs::remove_dir(&self.dir);
        self.runs.settle();
    }
}

/// Removes the leaves whose supervisor has died without doing so.
fn sweep(parent: &Path) {
    for leaf in Cgroup::at(parent).children() {
        let name = leaf.file_name().unwrap_or_default().to_string_lossy();
        let supervisor = name.strip_prefix("run-").map(|rest| {
            rest.split_once('.')
                .map_or(rest, |(pid, _)| pid)
                .parse::<u32>()
        });
        if let Some(Ok(pid)) = supervisor
            && !Path::new("/proc").join(pid.to_string()).exists()
        {
            // Refused by the kernel while the leaf is populated, as it should be.
            let _ = fs::remove_dir(&leaf);
        }
    }
}

/// Hands the cpu, cpuset, io and lock controllers down to the children of `dir`, where
/// `dir` has them.
fn enable(dir: &Path, pid: u32) -> Result<(), Failure> {
    let cgroup = Cgroup::at(dir);
    let control = cgroup.file("cgroup.subtree_control");
    for controller in ["cpu", "cpuset", "io", "lock"] {
        if !cgroup.offers(controller) || cgroup.has_below(controller) {
            continue;
        }
        let request = format!("+{controller}");
        let mut answer = cgroup.enable(&request);
        if is_busy(&answer) && step_aside(dir, pid) {
            answer = cgroup.enable(&request);
        }
        // Weights need cpu; cpuset only lets users restrict a run to CPUs later, io and lock
        // only make a run give way at the disk and at the kernel's locks, too.
        if controller == "cpu" {
            let busy = is_busy(&answer);
            answer
                .cannot(format_args!("enable {controller} in {}", control.display()))
                .map_err(|failure| match busy {
                    true => failure.with_remedy(
                        "processes live in that cgroup itself; start the command from \
                         'systemd-run --user --scope -p Delegate=yes', or as root",
                    ),
                    false => failure,
                })?;
        }
    }
    Ok(())
}

fn is_busy(answer: &io::Result<()>) -> bool {
    matches!(answer, Err(e) if e.raw_os_error() == Some(Errno::EBUSY as i32))
}

/// A cgroup with processes of its own cannot hand controllers down. Where the
/// caller is its only process (a scope made for one command), it moves into a
/// child, which is its right; other people's processes are left alone.
fn step_aside(dir: &Path, pid: u32) -> bool {
    let aside = dir.join(CALLER);
    Cgroup::at(dir).words("cgroup.procs") == [pid.to_string()]
        && Cgroup::make(aside).is_ok_and(|aside| aside.add(pid).is_ok())
}

fn make(dir: &Path) -> Result<(), Failure> {
    let made = Cgroup::make(dir).map(drop);
    made.cannot(format_args!("make {}", dir.display()))
}

/// Writes to a cgroup file; false when the kernel does not offer the file.
fn write_if_there(path: &Path, text: &str) -> Result<bool, Failure> {
    match OpenOptions::new().write(true).open(path) {
        Ok(mut file) => {
            file.write_all(text.as_bytes())
                .cannot(format_args!("write {text} to {}", path.display()))?;
            Ok(true)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e).cannot(format_args!("open {}", path.display())),
    }
}

fn writable(dir: &Path) -> bool {
    access(dir, AccessFlags::W_OK).is_ok()
        && access(&dir.join("cgroup.procs"), AccessFlags::W_OK).is_ok()
}

/// Threads in a cgroup and below it.
fn tasks(dir: &Path) -> usize {
    let below = Cgroup::at(dir).children();
    threads(dir) + below.iter().map(|child| tasks(child)).sum::<usize>()
}

/// Threads in a cgroup itself.
fn threads(dir: &Path) -> usize {
    Cgroup::at(dir).words("cgroup.threads").len()
}

/// A path as text: its names are of anybody's choice and need not be UTF-8.
fn as_text<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// `cpu.weight`, where the cpu controller is enabled.
fn weight_of(dir: &Path) -> Option<u32> {
    Cgroup::at(dir).read("cpu.weight").ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
