//! Has tiers and weights count at the kernel's locks, on kernels with CFL.
//!
//! There cgroups share the hold time of some locks by `lock.weight`, hierarchically, as
//! they share CPU time by `cpu.weight` (docs/design/cfl-kernel.md). UFS knows the tier and
//! `cpu.weight` of each cgroup, whatever they come from: names, marks, `cpu.idle`. Once a
//! second `lock.weight` follows them:
//!
//! ```text
//!                        tier  cpu.weight  lock.weight
//!   /                    ts
//!   ├ system.slice       ts    100           100  as at the CPU
//!   │ └ web              ts    200           200  as at the CPU
//!   └ background.slice   bg    100             1  of its tier, which is not its parent's
//!     ├ report           bg     50            50  as at the CPU
//!     └ time_sensitive   ts    100         10000  of its tier
//! ```
//!
//! Siblings of a cgroup in another tier keep their weights, so a background cgroup has 1
//! part beside 100 of each sibling that has the default weight. Giving the siblings 10000
//! would change nearly every cgroup, and they would outweigh the threads in their parent
//! itself, kernel threads among them, which count as a child of weight 100.
//!
//! How weights are set, put back, and left alone where they are an administrator's, is in
//! [`giveway_machine::lock_weights`]. A cgroup's directory is found by number, for UFS
//! knows names up to 31 bytes only.
//!
//! A step ends after [`STEP_MAX`]. The next one goes on with the cgroups that are left.
//!
//! Known weaknesses: what the kernel has refused is tried again only with another weight. A
//! weight that was set is not set again if the controller is disabled and enabled since.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use giveway_machine::cgroup::{Cgroup, MOUNT};
use giveway_machine::lock_weights::{self, RECORD};
use giveway_tier::{Tier, Weight};

/// How long a step goes on.
const STEP_MAX: Duration = Duration::from_millis(100);

/// What the user wants a cgroup in another tier than its parent to weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Nothing is set.
    None,
    /// Indexed by tier.
    ByTier([Weight; 2]),
}

impl Wanted {
    /// Indexed by tier; none if nothing is set.
    pub(crate) fn by_tier(self) -> Option<[Weight; 2]> {
        match self {
            Wanted::None => None,
            Wanted::ByTier(weights) => Some(weights),
        }
    }
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Wanted::None);
        }
        let (high, low) = text.split_once(':').ok_or_else(|| {
            "write two weights, as in 10000:1 (time-sensitive and background), or none".to_owned()
        })?;
        let weight = |text: &str| text.parse::<Weight>().map_err(|error| error.to_string());
        let mut weights = [Weight::DEFAULT; 2];
        weights[Tier::TimeSensitive as usize] = weight(high)?;
        weights[Tier::Background as usize] = weight(low)?;
        Ok(Wanted::ByTier(weights))
    }
}

/// A cgroup as UFS knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The number of its directory; 0: the cgroup has ended.
    pub id: u64,
    /// Its parent's index; the root is its own.
    pub parent: usize,
    pub tier: Tier,
    /// `cpu.weight`.
    pub weight: u32,
}

/// What is set while UFS is attached.
pub(crate) struct LockWeights {
    top: PathBuf,
    record: PathBuf,
    /// Indexed by tier.
    by_tier: [Weight; 2],
    /// None before the first step.
    set: Option<lock_weights::LockWeights>,
    /// The weight that each cgroup was given, or was to be given, by its number; others
    /// have what Linux gives a new one.
    tried: HashMap<u64, Weight>,
    has_failed: bool,
}

impl LockWeights {
    /// None if the kernel's locks do not heed weights.
    pub(crate) fn new(by_tier: [Weight; 2]) -> Option<Self> {
        Self::at(Path::new(MOUNT), Path::new(RECORD), by_tier)
    }

    fn at(top: &Path, record: &Path, by_tier: [Weight; 2]) -> Option<Self> {
        Cgroup::at(top).offers("lock").then(|| LockWeights {
            top: top.to_path_buf(),
            record: record.to_path_buf(),
            by_tier,
            set: None,
            tried: HashMap::new(),
            has_failed: false,
        })
    }

    /// Sets the weights of cgroups whose tier or weight has changed. `groups` are all that
    /// UFS knows, the root first.
    ///
    /// # Errors
    /// If weights could not be put back after a crash. Then no more are set.
    pub(crate) fn step(&mut self, groups: &[Known]) -> Result<()> {
        if self.has_failed {
            return Ok(());
        }
        let end = Instant::now() + STEP_MAX;
        let known: HashSet<u64> = groups.iter().map(|group| group.id).collect();
        self.tried.retain(|id, _| known.contains(id));
        let mut wanted = Vec::new();
        for (index, group) in groups.iter().enumerate().skip(1) {
            let weight = self.weight(groups, group);
            let tried = self.tried.get(&group.id).copied().unwrap_or_default();
            if group.id == 0 || weight == tried {
                continue;
            }
            if Instant::now() >= end {
                break;
            }
            // It may not be there yet, or no longer.
            if let Some(dir) = dir_of(&self.top, groups, index) {
                self.tried.insert(group.id, weight);
                wanted.push((dir, weight.get()));
            }
        }
        let new = || lock_weights::LockWeights::new(&self.top, &self.record);
        let done = self.set.get_or_insert_with(new).set(&wanted);
        self.has_failed = done.is_err();
        done.with_context(|| format!("cannot write {}", self.record.display()))
    }

    /// Puts all weights back that are as they were set.
    pub(crate) fn put_back(&mut self) {
        if let Some(mut set) = self.set.take() {
            set.put_back();
        }
        self.tried.clear();
        self.has_failed = false;
    }

    /// What a cgroup weighs at locks.
    fn weight(&self, groups: &[Known], group: &Known) -> Weight {
        let above = groups.get(group.parent).map(|parent| parent.tier);
        match above.is_some_and(|above| above != group.tier) {
            true => self.by_tier[group.tier as usize],
            false => Weight::try_from(group.weight).unwrap_or_default(),
        }
    }
}

/// The directory of the cgroup at `index`, by the numbers of those above it.
fn dir_of(top: &Path, groups: &[Known], index: usize) -> Option<PathBuf> {
    let mut numbers = Vec::new();
    let mut at = index;
    while at != 0 {
        let group = groups.get(at)?;
        // A parent that was reused meanwhile must not make a circle of this.
        if numbers.len() == groups.len() {
            return None;
        }
        numbers.push(group.id);
        at = group.parent;
    }
    let mut dir = top.to_path_buf();
    for number in numbers.into_iter().rev() {
        let mut entries = fs::read_dir(&dir).ok()?.flatten();
        dir = entries.find(|entry| entry.ino() == number)?.path();
    }
    Some(dir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const HIGH: Tier = Tier::TimeSensitive;
    const LOW: Tier = Tier::Background;
    /// Longer than what UFS knows of a name.
    const LONG: &str = "a-service-whose-name-has-more-than-31-bytes.service";

    /// A hierarchy on a kernel with CFL, and what UFS knows of it: path, index of the
    /// parent, tier, `cpu.weight`.
    struct Machine {
        top: tempfile::TempDir,
        groups: Vec<Known>,
    }

    impl Machine {
        fn new(cgroups: &[(&str, usize, Tier, u32)]) -> Self {
            let top = tempfile::tempdir().unwrap();
            fs::write(top.path().join("cgroup.controllers"), "cpu lock\n").unwrap();
            let groups = cgroups.iter().map(|&(path, parent, tier, weight)| {
                let dir = top.path().join(path);
                fs::create_dir_all(&dir).unwrap();
                fs::write(dir.join("lock.weight"), "100\n").unwrap();
                fs::write(dir.join("cgroup.subtree_control"), "cpu lock\n").unwrap();
                Known {
                    id: fs::metadata(&dir).unwrap().ino(),
                    parent,
                    tier,
                    weight,
                }
            });
            let groups = groups.collect();
            Machine { top, groups }
        }

        fn weights(&self) -> LockWeights {
            let by_tier = "10000:1".parse::<Wanted>().unwrap().by_tier();
            let record = self.top.path().join("record");
            LockWeights::at(self.top.path(), &record, by_tier.unwrap()).unwrap()
        }

        fn read(&self, path: &str) -> String {
            let file = self.top.path().join(path).join("lock.weight");
            fs::read_to_string(file).unwrap().trim().to_owned()
        }
    }

    fn machine() -> Machine {
        Machine::new(&[
            ("", 0, HIGH, 100),
            ("system.slice", 0, HIGH, 100),
            (&format!("system.slice/{LONG}"), 1, HIGH, 200),
            ("background.slice", 0, LOW, 100),
            ("background.slice/report", 3, LOW, 50),
            ("background.slice/time_sensitive", 3, HIGH, 100),
        ])
    }

    #[test]
    fn weight_is_that_of_the_tier_where_tiers_meet_and_else_that_at_the_cpu() {
        let machine = machine();
        let mut weights = machine.weights();
        weights.step(&machine.groups).unwrap();
        let expected = [
            ("", "100"),
            ("system.slice", "100"),
            (&format!("system.slice/{LONG}"), "200"),
            ("background.slice", "1"),
            ("background.slice/report", "50"),
            ("background.slice/time_sensitive", "10000"),
        ];
        for (path, weight) in expected {
            assert_eq!(machine.read(path), weight, "{path}");
        }
        weights.put_back();
        for (path, _) in expected {
            assert_eq!(machine.read(path), "100", "{path}");
        }
    }

    #[test]
    fn weight_follows_a_tier_that_changes() {
        let mut machine = machine();
        let mut weights = machine.weights();
        weights.step(&machine.groups).unwrap();
        // It is marked time-sensitive, and what is in it with it.
        for at in [3, 4] {
            machine.groups[at].tier = HIGH;
        }
        weights.step(&machine.groups).unwrap();
        assert_eq!(machine.read("background.slice"), "100");
        assert_eq!(machine.read("background.slice/report"), "50");
        assert_eq!(machine.read("background.slice/time_sensitive"), "100");
        weights.put_back();
        assert_eq!(machine.read("background.slice/report"), "100");
    }

    #[test]
    fn weight_of_an_administrator_is_kept() {
        let machine = machine();
        let given = machine.top.path().join("background.slice/lock.weight");
        fs::write(&given, "30\n").unwrap();
        let mut weights = machine.weights();
        weights.step(&machine.groups).unwrap();
        assert_eq!(machine.read("background.slice"), "30");
        let later = machine
            .top
            .path()
            .join("background.slice/report/lock.weight");
        fs::write(&later, "40\n").unwrap();
        weights.step(&machine.groups).unwrap();
        weights.put_back();
        assert_eq!(machine.read("background.slice"), "30");
        assert_eq!(machine.read("background.slice/report"), "40");
    }

    #[test]
    fn cgroup_that_has_ended_or_whose_parent_was_reused_is_passed_over() {
        let mut machine = machine();
        machine.groups[3].id = 0;
        // A circle.
        machine.groups[1].parent = 2;
        let mut weights = machine.weights();
        weights.step(&machine.groups).unwrap();
        assert_eq!(machine.read("background.slice"), "100");
        assert_eq!(machine.read(&format!("system.slice/{LONG}")), "100");
    }

    #[test]
    fn kernel_without_cfl_has_no_weights() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("cgroup.controllers"), "cpu io\n").unwrap();
        let made = LockWeights::at(top.path(), Path::new("/none"), [Weight::DEFAULT; 2]);
        assert!(made.is_none());
    }

    #[test]
    fn weights_are_written_as_two_numbers_or_none() {
        let weights = |text: &str| text.parse::<Wanted>().map(Wanted::by_tier);
        assert_eq!(weights("none"), Ok(None));
        let [low, high] = weights("800:20").unwrap().unwrap();
        assert_eq!((low.get(), high.get()), (20, 800));
        for bad in ["", "1", "1:", "0:1", "10001:1", "1:2:3"] {
            assert!(weights(bad).is_err(), "{bad}");
        }
    }
}
