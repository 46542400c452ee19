//! Tiers at the disk and at the kernel's locks: weights of cgroups.
//!
//! ```text
//! BASE                       +io +lock in subtree_control, where they are offered
//! └ giveway                  100 while it holds time-sensitive runs, else 1
//!   ├ time_sensitive         10000
//!   │ └ run-4711             as asked for
//!   └ background             1
//!     └ run-4712             as asked for, io.prio.class idle;
//!                            its command: I/O priority class idle
//! ```
//!
//! The files are `io.weight`, `io.bfq.weight` and, on a kernel with CFL, `lock.weight`, by
//! which cgroups share the locks of the kernel that take part (docs/design/cfl-kernel.md).
//! What counts at which disk is in `disk`.
//!
//! Weights compare siblings. A server is no child of `giveway`, but in a service's cgroup
//! beside it. With the default weight, `giveway` and all background runs in it would get
//! as much as all services. So it has the smallest while nobody waits for a run in it.
//!
//! UFS sets `lock.weight` of other cgroups while it is loaded (`lock_weights` of `scx_ufs`).
//! It leaves alone what is not 100, and so what is set here.
//!
//! An administrator's weight stays. A cgroup's weight is replaced only if it is what Linux
//! gave the new cgroup, 100, or at `giveway` the other of its two. Weights for single
//! devices are not touched.
//!
//! All of this is best effort. Kernels lack some of the files, delegated parts of the
//! hierarchy mostly lack the controllers, and work gives way at the CPU without them.
//!
//! Known weaknesses: the leaf of a time-sensitive run whose supervisor was killed keeps the
//! weight of `giveway` up until the next such run. An administrator's 100 is taken for
//! Linux's own. cgroupfs has no compare-and-swap: a weight that is written while a run
//! begins or ends may be lost.

use std::path::{Path, PathBuf};

use giveway_machine::cgroup::Cgroup;
use giveway_tier::Weight;

/// The largest weight that BFQ takes. Below it, shares are as with `io.weight`.
const BFQ_WEIGHT_MAX: u32 = 1000;

/// Sets what the cgroup `dir` weighs at the disk and at the kernel's locks, beside its
/// siblings, unless it was given a weight before.
pub(crate) fn weigh(dir: &Path, weight: Weight) {
    // What Linux gives a new one.
    exchange(dir, Weight::DEFAULT, weight);
}

/// Sets what the cgroup `dir` weighs if it weighs `from`: another weight is an
/// administrator's.
fn exchange(dir: &Path, from: Weight, to: Weight) {
    for (file, before, max) in [
        ("io.weight", "default ", Weight::MAX.get()),
        ("io.bfq.weight", "default ", BFQ_WEIGHT_MAX),
        ("lock.weight", "", Weight::MAX.get()),
    ] {
        let line = |weight: Weight| format!("{before}{}", weight.get().min(max));
        // Lines of single devices may follow, which stay. Best effort: see above.
        Cgroup::at(dir).exchange(file, &line(from), &line(to));
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A cgroup with these files, which have what Linux writes into new ones.
    fn cgroup(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let before = match file.starts_with("io.") {
                true => "default ",
                false => "",
            };
            fs::write(dir.path().join(file), format!("{before}100\n")).unwrap();
        }
        dir
    }

    fn text(dir: &Path, file: &str) -> String {
        fs::read_to_string(dir.join(file)).unwrap()
    }

    #[test]
    fn weight_is_written_in_the_range_of_each_file_that_is_there() {
        for (weight, of_bfq) in [(Weight::MAX, 1000), (Weight::MIN, 1)] {
            let all = cgroup(&["io.weight", "io.bfq.weight", "lock.weight"]);
            weigh(all.path(), weight);
            let expected = format!("default {weight}");
            assert_eq!(text(all.path(), "io.weight"), expected);
            let expected = format!("default {of_bfq}");
            assert_eq!(text(all.path(), "io.bfq.weight"), expected);
            assert_eq!(text(all.path(), "lock.weight"), weight.to_string());
        }
        let none = cgroup(&[]);
        weigh(none.path(), Weight::MIN);
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
}
