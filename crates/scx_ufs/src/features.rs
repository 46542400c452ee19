//! What UFS uses of kernels and can do without.
//!
//! UFS is for Linux 6.12 and later. Most of what has changed since are names and
//! forms of functions, which the headers of the scx project take care of
//! (`compat.bpf.h`). What an older kernel lacks altogether is here, in one list:
//! the loader goes by it, and `giveway doctor` prints it (`--kernel-lacks`).
//!
//! | | how the program does without |
//! | --- | --- |
//! | cpu.max | the callback is left out by `scx_ops_load!`, `limits_on` is false |
//! | cpu.idle | the callback is left out likewise; a cgroup's first value is read from the kernel's own structure |
//! | real-time tasks | nothing can be done: the kernel gives its own scheduler a reserve, and sched_ext none |
//! | time | `scx_bpf_now()` is `bpf_ktime_get_ns()` |
//! | queues | `__COMPAT_scx_bpf_dsq_peek()` is an iterator |
//!
//! What a kernel has is asked of its type information, not of its version, since
//! distributions take changes back into older kernels. One has nothing to be told by.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use giveway_machine::sched_ext;
use nix::sys::utsname::uname;
use scx_utils::compat::{ksym_exists, struct_has_field};
use serde::Serialize;

/// What a kernel has to have, and how to get it.
const NEEDED: [(&str, &str); 2] = [
    (
        sched_ext::DIR,
        "no sched_ext: boot Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT=y",
    ),
    (
        "/sys/kernel/btf/vmlinux",
        "no type information: boot one with CONFIG_DEBUG_INFO_BTF=y",
    ),
];

/// Something that a kernel has or lacks.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Feature {
    /// What is concerned.
    name: &'static str,
    /// What happens where the kernel lacks it.
    without: &'static str,
    /// The first version of Linux that has it.
    since: &'static str,
    #[serde(skip)]
    has: fn() -> Result<bool>,
}

/// A callback reports changes of cpu.max. It came together with the numbers that
/// a cgroup has when it becomes known.
pub(crate) const CPU_MAX: Feature = Feature {
    name: "cpu.max",
    without: "cpu.max is not enforced",
    since: "6.17",
    has: || struct_has_field("sched_ext_ops", "cgroup_set_bandwidth"),
};

/// A callback reports changes of cpu.idle.
pub(crate) const CPU_IDLE: Feature = Feature {
    name: "cpu.idle",
    without: "cpu.idle counts as it is when UFS is loaded or the cgroup is made",
    since: "6.19",
    has: || struct_has_field("sched_ext_ops", "cgroup_set_idle"),
};

/// The kernel keeps a twentieth of each CPU from real-time tasks for sched_ext.
const REAL_TIME: Feature = Feature {
    name: "real-time tasks",
    without: "real-time tasks that want every CPU for 30 s end UFS",
    since: "7.0",
    has: || struct_has_field("rq", "ext_server"),
};

/// A clock that is read once for a callback.
const CLOCK: Feature = Feature {
    name: "time",
    without: "UFS reads the hardware's clock, which costs more",
    since: "6.14",
    has: || ksym_exists("scx_bpf_now"),
};

/// The head of a queue can be seen without its lock. The function is there since 6.19
/// and misses tasks at first.
const PEEK: Feature = Feature {
    name: "queues",
    without: "UFS locks a queue to see its head, which costs more",
    since: "7.1",
    has: || {
        let kernel = uname().context("cannot ask for the kernel's version")?;
        Ok(version(&kernel.release().to_string_lossy()) >= Some((7, 1)))
    },
};

const ALL: [Feature; 5] = [CPU_MAX, CPU_IDLE, REAL_TIME, CLOCK, PEEK];

impl Feature {
    /// # Errors
    /// The kernel has no sched_ext, or no type information.
    pub(crate) fn is_there(&self) -> Result<bool> {
        (self.has)().with_context(|| format!("cannot tell what this kernel has for {}", self.name))
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (before Linux {})", self.without, self.since)
    }
}

/// Refuses a kernel that no scheduler can be loaded into.
///
/// # Errors
/// The kernel has no sched_ext, or no type information.
pub(crate) fn needed() -> Result<()> {
    for (path, without) in NEEDED {
        if !Path::new(path).exists() {
            bail!("this kernel has {without}");
        }
    }
    Ok(())
}

/// What this kernel lacks.
///
/// # Errors
/// As [`needed`] and [`Feature::is_there`].
pub(crate) fn lacking() -> Result<Vec<Feature>> {
    needed()?;
    let mut lacking = Vec::new();
    for feature in ALL {
        if !feature.is_there()? {
            lacking.push(feature);
        }
    }
    Ok(lacking)
}

/// Major and minor version of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_said_in_json_and_in_words() {
        let json = serde_json::to_string(&[CPU_MAX]).unwrap();
        assert_eq!(
            json,
            r#"[{"name":"cpu.max","without":"cpu.max is not enforced","since":"6.17"}]"#
        );
        let words = CPU_MAX.to_string();
        assert_eq!(words, "cpu.max is not enforced (before Linux 6.17)");
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert!(version("6.12.107-lab") < Some((7, 1)));
        assert!(version("7.10.1+deb14-amd64") >= Some((7, 1)));
        assert_eq!(version("weird"), None);
    }
}
