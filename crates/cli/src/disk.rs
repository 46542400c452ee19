//! Tiers at the disk: the I/O priority class of a command, and what of tiers counts there.
//!
//! | the device has | what counts |
//! | --- | --- |
//! | `mq-deadline` | the class, among all requests of the device |
//! | `bfq` | `io.bfq.weight` among cgroups, the class among processes of one cgroup |
//! | io.cost | `io.weight` |
//! | `none` or `kyber`, without io.cost | nothing |
//!
//! Weights are in `weights`. `io.prio.class` counts for the requests of its own cgroup, not
//! for those of children: the leaf has it, not the tier's directory.
//!
//! All of this is best effort, as weights are.
//!
//! Known weaknesses: classes order what waits in the kernel, and a disk with a deep queue
//! takes requests of all classes. A process can leave the idle class by itself
//! (`ionice`). Writes that wait in the page cache are sent by the kernel's own threads,
//! without the class of the process that wrote; they count for the nearest cgroup above
//! that has the memory controller, mostly `giveway`, on file systems with cgroup
//! writeback. A background task may wait in the idle class while it holds a lock of the
//! file system, and an urgent task behind it waits too.

use std::path::Path;

use giveway_machine::cgroup::Cgroup;
use giveway_tier::Tier;
use nix::libc;

/// Has the requests from the cgroup `dir` count as those of its tier.
pub(crate) fn classify(dir: &Path, tier: Tier) {
    if tier == Tier::Background {
        // Best effort: see above.
        let _ = Cgroup::at(dir).write_if_there("io.prio.class", "idle");
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

    #[test]
    fn requests_of_background_cgroups_only_are_idle() {
        for (tier, class) in [(Tier::Background, "idle"), (Tier::TimeSensitive, "")] {
            let dir = tempfile::tempdir().unwrap();
            // Not on every kernel.
            classify(dir.path(), tier);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
            let file = dir.path().join("io.prio.class");
            fs::write(&file, "").unwrap();
            classify(dir.path(), tier);
            assert_eq!(fs::read_to_string(&file).unwrap(), class, "{tier}");
        }
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
