//! Tiers at the disk: weights of cgroups, and the I/O priority class of a command.
//!
//! ```text
//! BASE                       +io in subtree_control, where it is offered
//! └ giveway                  io.weight 100 while it holds time-sensitive runs, else 1
//!   ├ time_sensitive         io.weight 10000
//!   │ └ run-4711             io.weight as asked for
//!   └ background             io.weight 1
//!     └ run-4712             io.weight as asked for, io.prio.class idle;
//!                            its command: I/O priority class idle
//! ```
//!
//! What of it counts depends on the device:
//!
//! | the device has | what counts |
//! | --- | --- |
//! | `mq-deadline` | the class, among all requests of the device |
//! | `bfq` | `io.bfq.weight` among cgroups, the class among processes of one cgroup |
//! | io.cost | `io.weight` |
//! | `none` or `kyber`, without io.cost | nothing |
//!
//! Weights compare siblings. A server is no child of `giveway`, but in a service's cgroup
//! beside it. With the default weight, `giveway` and all background runs in it would get
//! as much as all services. So it has the smallest while nobody waits for a run in it.
//!
//! An administrator's weight stays. A cgroup's weight is replaced only if it is what Linux
//! gave the new cgroup, 100, or at `giveway` the other of its two. Weights for single
//! devices are not touched.
//!
//! `io.prio.class` counts for the requests of its own cgroup, not for those of children:
//! the leaf has it, not the tier's directory.
//!
//! All of this is best effort. Kernels lack some of the files, delegated parts of the
//! hierarchy mostly lack the controller, and work gives way at the CPU without them.
//!
//! Known weaknesses: classes order what waits in the kernel, and a disk with a deep queue
//! takes requests of all classes. A process can leave the idle class by itself
//! (`ionice`). Writes that wait in the page cache are sent by the kernel's own threads,
//! without the class of the process that wrote; they count for the nearest cgroup above
//! that has the memory controller, mostly `giveway`, on file systems with cgroup
//! writeback. A background task may wait in the idle class while it holds a lock of the
//! file system, and an urgent task behind it waits too. The leaf of a time-sensitive run
//! whose supervisor was killed keeps the weight of `giveway` up until the next such run. An
//! administrator's 100 is taken for Linux's own. cgroupfs has no compare-and-swap: a weight
//! that is written while a run begins or ends may be lost.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use giveway_machine::cgroup::Cgroup;
use giveway_tier::{Tier, Weight};
use nix::libc;

/// The largest weight that BFQ takes. Below it, shares are as with `io.weight`.
const BFQ_WEIGHT_MAX: u32 = 1000;

/// Sets what the cgroup `dir` weighs at the disk, beside its siblings, unless it was given a
/// weight before.
pub(crate) fn weigh(dir: &Path, weight: Weight) {
    // What Linux gives a new one.
    exchange(dir, Weight::DEFAULT, weight);
}

/// Sets what the cgroup `dir` weighs if it weighs `from`: another weight is an
/// administrator's.
fn exchange(dir: &Path, from: Weight, to: Weight) {
    for (file, max) in [
        ("io.weight", Weight::MAX.get()),
        ("io.bfq.weight", BFQ_WEIGHT_MAX),
    ] {
        let line = |weight: Weight| format!("default {}", weight.get().min(max));
        let now = Cgroup::at(dir).read(file).unwrap_or_default();
        // Lines of single devices may follow.
        if now.lines().next() == Some(&line(from)) {
            set(dir, file, &line(to));
        }
    }
}

/// Has the requests from the cgroup `dir` count as those of its tier.
pub(crate) fn classify(dir: &Path, tier: Tier) {
    if tier == Tier::Background {
        set(dir, "io.prio.class", "idle");
    }
}

/// Writes a file, if it is there and the kernel takes it.
fn set(dir: &Path, file: &str, text: &str) {
    let file = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(dir.join(file));
    if let Ok(mut file) = file {
        // Best effort: see above.
        let _ = file.write_all(text.as_bytes());
    }
}

/// The directory of all runs. Its weight follows the runs in it.
#[derive(Debug)]
pub(crate) struct Runs {
    dir: PathBuf,
    /// That of time-sensitive runs, if there can be any.
    time_sensitive: Option<PathBuf>,
}

impl Runs {
    pub(crate) fn at(dir: PathBuf, time_sensitive: Option<PathBuf>) -> Self {
        Runs {
            dir,
            time_sensitive,
        }
    }

    /// Sets the directory's weight by the runs in it. To be called after each change.
    ///
    /// Other supervisors do the same at the same time. Whoever writes last has looked once
    /// more after it wrote, and a change after that look is followed by another write. So
    /// the last weight fits the last change.
    pub(crate) fn settle(&self) {
        loop {
            let is_urgent = self.is_urgent();
            match is_urgent {
                true => exchange(&self.dir, Weight::MIN, Weight::DEFAULT),
                false => exchange(&self.dir, Weight::DEFAULT, Weight::MIN),
            }
            if self.is_urgent() == is_urgent {
                return;
            }
        }
    }

    fn is_urgent(&self) -> bool {
        let dir = self.time_sensitive.as_ref();
        dir.is_some_and(|dir| !Cgroup::at(dir).children().is_empty())
    }
}

/// `IOPRIO_WHO_PROCESS` of linux/ioprio.h: the target is a thread, 0 the calling one.
const WHO_PROCESS: libc::c_int = 1;
/// `IOPRIO_CLASS_SHIFT`: the class is above the level.
const CLASS_SHIFT: u32 = 13;

/// An I/O priority class that a run gives its command. The numbers are those of ioprio(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Class {
    /// None of its own. The kernel derives one from niceness and policy.
    Unset = 0,
    /// The device serves it when it has nothing else to do.
    Idle = 3,
}

impl Class {
    /// What a command gets in the tier `wanted` from a caller in the tier `own`; none if it
    /// keeps the caller's class.
    ///
    /// Only root raises a tier, and a raised command must not keep the idle class that the
    /// caller's background run gave it. Within a tier, who chose the class keeps it.
    pub(crate) fn of_run(wanted: Tier, own: Tier, caller_is_idle: bool) -> Option<Class> {
        match (own, wanted) {
            (_, Tier::Background) => Some(Class::Idle),
            (Tier::Background, Tier::TimeSensitive) if caller_is_idle => Some(Class::Unset),
            (_, Tier::TimeSensitive) => None,
        }
    }

    /// Gives this class to the calling thread and the children it makes from now on. Can be
    /// called between fork and exec.
    pub(crate) fn take(self) {
        // Fails only in kernels without block devices.
        // SAFETY: the system call takes three numbers and no memory.
        let _ = unsafe {
            libc::syscall(
                libc::SYS_ioprio_set,
                WHO_PROCESS,
                0,
                (self as libc::c_int) << CLASS_SHIFT,
            )
        };
    }

    /// Whether the calling thread has the class idle.
    pub(crate) fn is_idle() -> bool {
        // SAFETY: the system call takes two numbers and no memory.
        let priority = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) };
        // A negative number is an error.
        priority >> CLASS_SHIFT == Class::Idle as libc::c_long
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A cgroup with these files, which have what Linux writes into new ones.
    fn cgroup(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let is_weight = file.ends_with("weight");
            let text = if is_weight { "default 100\n" } else { "" };
            fs::write(dir.path().join(file), text).unwrap();
        }
        dir
    }

    fn text(dir: &Path, file: &str) -> String {
        fs::read_to_string(dir.join(file)).unwrap()
    }

    #[test]
    fn weight_is_written_in_the_range_of_each_file_that_is_there() {
        for (weight, of_bfq) in [(Weight::MAX, 1000), (Weight::MIN, 1)] {
            let both = cgroup(&["io.weight", "io.bfq.weight"]);
            weigh(both.path(), weight);
            let expected = format!("default {weight}");
            assert_eq!(text(both.path(), "io.weight"), expected);
            let expected = format!("default {of_bfq}");
            assert_eq!(text(both.path(), "io.bfq.weight"), expected);
        }
        let none = cgroup(&[]);
        weigh(none.path(), Weight::MIN);
        classify(none.path(), Tier::Background);
        assert_eq!(fs::read_dir(none.path()).unwrap().count(), 0);
    }

    #[test]
    fn weight_of_an_administrator_is_kept() {
        let dir = cgroup(&["io.weight", "io.bfq.weight"]);
        let chosen = "default 300\n8:0 50\n";
        fs::write(dir.path().join("io.weight"), chosen).unwrap();
        weigh(dir.path(), Weight::MIN);
        assert_eq!(text(dir.path(), "io.weight"), chosen);
        // The files are two decisions.
        assert_eq!(text(dir.path(), "io.bfq.weight"), "default 1");
        let urgent = dir.path().join("web");
        fs::create_dir_all(urgent.join("run-7")).unwrap();
        let runs = Runs::at(dir.path().to_path_buf(), Some(urgent.clone()));
        runs.settle();
        assert_eq!(text(dir.path(), "io.weight"), chosen);
        fs::remove_dir(urgent.join("run-7")).unwrap();
        runs.settle();
        assert_eq!(text(dir.path(), "io.weight"), chosen);
    }

    #[test]
    fn requests_of_background_cgroups_only_are_idle() {
        for (tier, class) in [(Tier::Background, "idle"), (Tier::TimeSensitive, "")] {
            let dir = cgroup(&["io.prio.class"]);
            classify(dir.path(), tier);
            assert_eq!(text(dir.path(), "io.prio.class"), class, "{tier}");
        }
    }

    #[test]
    fn all_runs_together_weigh_little_unless_one_is_time_sensitive() {
        let dir = cgroup(&["io.weight"]);
        let urgent = dir.path().join("web");
        fs::create_dir(&urgent).unwrap();
        let runs = Runs::at(dir.path().to_path_buf(), Some(urgent.clone()));
        let weight = || {
            runs.settle();
            text(dir.path(), "io.weight").trim().to_owned()
        };
        assert_eq!(weight(), "default 1");
        fs::create_dir(urgent.join("run-7")).unwrap();
        assert_eq!(weight(), "default 100");
        fs::remove_dir(urgent.join("run-7")).unwrap();
        assert_eq!(weight(), "default 1");
    }

    #[test]
    fn only_a_raised_command_loses_the_class_idle() {
        let (high, low) = (Tier::TimeSensitive, Tier::Background);
        for own in Tier::ALL {
            assert_eq!(Class::of_run(low, own, false), Some(Class::Idle));
        }
        assert_eq!(Class::of_run(high, low, true), Some(Class::Unset));
        assert_eq!(Class::of_run(high, low, false), None);
        assert_eq!(Class::of_run(high, high, true), None);
    }

    #[test]
    fn a_thread_takes_a_class_and_loses_it() {
        Class::Idle.take();
        assert!(Class::is_idle());
        Class::Unset.take();
        assert!(!Class::is_idle());
    }
}
