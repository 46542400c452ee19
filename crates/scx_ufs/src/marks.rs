//! Writes the tiers of cgroups that root has marked into the BPF program.
//!
//! The program gives a cgroup its tier by its name when the cgroup is made. A mark
//! ([`giveway_tier::mark`]) may be set or removed later, and the kernel does not tell. So
//! once a second the hierarchy is walked from the top: a cgroup's tier
//! is that of its mark, else of its name if that may count, else background if the
//! program knows that its `cpu.idle` is 1, else its parent's. Where
//! the program has another one, it is written there, and `tier_moves` is moved on: every task then
//! looks its cgroup's tier up, at its next wake-up, enqueue, tick or switch.
//!
//! Invariants
//! 1. Only marks make a difference: without any, the walk computes the tiers that the
//!    program gave. (not asserted: `cpu.idle` and cgroups change during a walk)
//! 2. The root's tier is never written: kernel threads are its tasks. (asserted in
//!    `round`: the walk gives the root no tier)
//!
//! Known weaknesses: the program may give the number of a cgroup that ends during
//! the walk to another, which then has the wrong tier for a second. A task that
//! waits in a queue changes its tier when it runs. A cgroup made below a marked
//! one takes its tier at once; a mark of its own counts after a second at most.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use giveway_machine::cgroup::MOUNT;
use giveway_tier::rule::Rule;
use giveway_tier::{Tier, mark};
use log::{info, warn};

use crate::bpf_skel::{BpfSkel, types};

/// What a round goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    rule: Rule,
    /// What the latest round failed of, so that it is said once.
    failure: String,
}

impl Marks {
    pub(crate) fn new(rule: &Rule) -> Self {
        Marks {
            rule: rule.clone(),
            failure: String::new(),
        }
    }

    /// Looks at every cgroup, and tells the program what is different.
    pub(crate) fn round(&mut self, skel: &mut BpfSkel<'_>) {
        let bss = skel.maps.bss_data.as_mut().expect("the program has a .bss");
        let idle = idle(&bss.groups[1..]);
        let (tiers, failure) =
            self.tiers(Path::new(MOUNT), &idle, &mark::read, &mark::named_by_root);
        debug_assert!(
            !tiers.contains_key(&bss.groups[0].cgid),
            "the walk gave the root cgroup a tier"
        );
        let moved = write_tiers(&tiers, &mut bss.groups[1..]);
        if moved > 0 {
            info!("{moved} cgroups are in another tier than before");
            // SAFETY: a live, aligned integer, which both sides change by atomic
            // additions only.
            let moves = unsafe { AtomicU64::from_ptr(&raw mut bss.tier_moves) };
            // The tiers before the number that says they have changed.
            moves.fetch_add(1, Ordering::Release);
        }
        if failure != self.failure && !failure.is_empty() {
            warn!("a cgroup's mark is not heeded: {failure}");
        }
        self.failure = failure;
    }

    /// The tiers of the cgroups below `top`, by their numbers, and of what reading
    /// a mark failed. `idle` are the numbers of those whose `cpu.idle` is 1; `mark` reads
    /// one; `by_root` says whether root has chosen a name.
    fn tiers(
        &self,
        top: &Path,
        idle: &HashSet<u64>,
        mark: &dyn Fn(&Path) -> io::Result<Option<Tier>>,
        by_root: &dyn Fn(&Path) -> bool,
    ) -> (HashMap<u64, Tier>, String) {
        let mut failure = String::new();
        let mut tiers = HashMap::new();
        let mut waiting: Vec<(PathBuf, Tier)> = vec![(top.to_path_buf(), self.rule.default_tier)];
        while let Some((dir, inherited)) = waiting.pop() {
            // It may have ended since it was seen.
            let Ok(entries) = fs::read_dir(&dir) else {
                continue;
            };
            for entry in entries.flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                let path = entry.path();
                let marked = match mark(&path) {
                    Ok(marked) => marked,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => {
                        failure = format!("{}: {error}", path.display());
                        None
                    }
                };
                let named = || self.rule.of_name(entry.file_name().to_str()?);
                let counts = |&tier: &Tier| tier <= inherited || by_root(&path);
                let idles = || idle.contains(&entry.ino()).then_some(Tier::Background);
                let tier = marked.or_else(|| named().filter(counts)).or_else(idles);
                let tier = tier.unwrap_or(inherited);
                tiers.insert(entry.ino(), tier);
                waiting.push((path, tier));
            }
        }
        (tiers, failure)
    }
}

/// The numbers of the groups' cgroups whose `cpu.idle` is 1.
fn idle(groups: &[types::group]) -> HashSet<u64> {
    let seen = groups.iter().map(|group| {
        // SAFETY: live, aligned integers; volatile, because the kernel writes them.
        unsafe {
            (
                std::ptr::read_volatile(&group.cgid),
                std::ptr::read_volatile(&group.idle),
            )
        }
    });
    seen.filter(|&(cgid, idle)| cgid > 0 && idle > 0)
        .map(|(cgid, _)| cgid)
        .collect()
}

/// Writes the tier of each group that has another; returns how many there were.
fn write_tiers(tiers: &HashMap<u64, Tier>, groups: &mut [types::group]) -> usize {
    let mut moved = 0;
    for group in groups {
        // SAFETY: live, aligned integers; volatile, because the kernel writes them.
        let (cgid, has) = unsafe {
            (
                std::ptr::read_volatile(&group.cgid),
                std::ptr::read_volatile(&group.tier),
            )
        };
        let Some(&tier) = tiers.get(&cgid) else {
            continue;
        };
        if has != tier as u32 {
            // SAFETY: as above.
            unsafe { std::ptr::write_volatile(&mut group.tier, tier as u32) };
            moved += 1;
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_mark_counts_before_a_name_and_a_name_before_the_parent() {
        let top = tempfile::tempdir().unwrap();
        let marks = Marks::new(&Rule::default());
        let marked = |dir: &Path| match dir.file_name().unwrap().to_str().unwrap() {
            "low" => Ok(Some(Tier::Background)),
            "background-raised" => Ok(Some(Tier::TimeSensitive)),
            _ => Ok(None),
        };
        let cases = [
            ("plain", Tier::TimeSensitive),
            ("low", Tier::Background),
            ("low/inner", Tier::Background),
            ("low/time_sensitive", Tier::TimeSensitive),
            ("background-raised", Tier::TimeSensitive),
            ("background-raised/inner", Tier::TimeSensitive),
            ("background/inner/deep", Tier::Background),
            ("idle/inner", Tier::Background),
            ("idle/time_sensitive", Tier::TimeSensitive),
            ("idle/low", Tier::Background),
            ("background-raised/inner/idle", Tier::Background),
            // Those who have made these may step back, and not ahead.
            ("low/user/time_sensitive", Tier::Background),
            ("low/user/time_sensitive/inner", Tier::Background),
            ("plain/user/background", Tier::Background),
        ];
        let by_root = |dir: &Path| !dir.to_str().unwrap().contains("/user/");
        for (dir, _) in cases {
            fs::create_dir_all(top.path().join(dir)).unwrap();
        }
        let number = |dir: &str| fs::metadata(top.path().join(dir)).unwrap().ino();
        let idle = HashSet::from(["idle", "idle/low", "background-raised/inner/idle"].map(number));
        let (tiers, failure) = marks.tiers(top.path(), &idle, &marked, &by_root);
        assert_eq!(failure, "");
        for (dir, tier) in cases {
            assert_eq!(tiers[&number(dir)], tier, "{dir}");
        }
        // Neither the top nor anything but cgroups.
        let number = fs::metadata(top.path()).unwrap().ino();
        assert!(!tiers.contains_key(&number));
    }

    #[test]
    fn a_mark_that_cannot_be_read_is_named_unless_its_cgroup_has_ended() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("a")).unwrap();
        let marks = Marks::new(&Rule::default());
        let gone = |_: &Path| Err(io::ErrorKind::NotFound.into());
        assert_eq!(
            marks.tiers(top.path(), &HashSet::new(), &gone, &|_| true),
            (HashMap::new(), String::new())
        );
        let wrong = |_: &Path| Err(io::Error::new(io::ErrorKind::InvalidData, "urgent"));
        let (tiers, failure) = marks.tiers(top.path(), &HashSet::new(), &wrong, &|_| true);
        assert!(failure.ends_with("/a: urgent"), "{failure}");
        // It counts as none.
        assert_eq!(Vec::from_iter(tiers.into_values()), [Tier::TimeSensitive]);
    }
}
