//! Writes the tiers of cgroups that root has marked into the BPF program.
//!
//! The program gives a cgroup its tier by its name when the cgroup is made. A mark
//! ([`giveway_tier::mark`]) may be set or removed later, and the kernel does not tell. So
//! the hierarchy is walked from the top, again and again: a cgroup's tier
//! is that of its mark, else of its name if that may count, else background if the
//! program knows that its `cpu.idle` is 1, else its parent's. At the end of a walk, where
//! the program has another one, it is written there, and `tier_moves` is moved on: every task then
//! looks its cgroup's tier up, at its next wake-up, enqueue, tick or switch.
//!
//! A walk pauses after [`STEP_MAX`] and goes on when it is called again, a second later:
//! users make as many cgroups as they like, and neither this process's time nor the answers
//! that it owes others are theirs.
//!
//! Invariants
//! 1. Only marks make a difference: without any, the walk computes the tiers that the
//!    program gave. (not asserted: `cpu.idle` and cgroups change during a walk)
//! 2. The root's tier is never written: kernel threads are its tasks. (asserted in
//!    `round`: the walk gives the root no tier)
//!
//! Known weaknesses: the program may give the number of a cgroup that ends during
//! the walk to another, which then has the wrong tier until the next. A task that
//! waits in a queue changes its tier when it runs. A cgroup made below a marked
//! one takes its tier at once; a mark of its own counts after the next walk: that is a
//! second at most, and one more for each two thousand cgroups or so. The kernel tells no
//! mark of a cgroup whose path has more than 4096 bytes; it is in its parent's tier.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use giveway_machine::cgroup::MOUNT;
use giveway_tier::rule::Rule;
use giveway_tier::{Tier, mark};
use log::{info, warn};

use crate::bpf_skel::{BpfSkel, types};

/// How long a walk goes on at a time.
const STEP_MAX: Duration = Duration::from_millis(100);
/// How long the first one does, so that marks count from the start.
const FIRST_STEP_MAX: Duration = Duration::from_secs(2);
/// A failure is said again after this time at the earliest, whatever its text: users choose
/// the names in it.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// How much of a failure is said, in characters.
const SAID_MAX: usize = 200;

/// What a walk goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    rule: Rule,
    /// The walk that has paused.
    walk: Option<Walk>,
    has_walked: bool,
    /// When it was said last that a mark is not heeded.
    said: Option<Instant>,
}

/// A walk on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Walk {
    /// Where it has not been yet, with the tier above.
    waiting: Vec<(PathBuf, Tier)>,
    /// The numbers of the cgroups whose `cpu.idle` was 1 when it began.
    idle: HashSet<u64>,
    /// The tiers of cgroups by their numbers.
    tiers: HashMap<u64, Tier>,
    /// Of what reading a mark failed, if it did.
    failure: String,
}

impl Marks {
    pub(crate) fn new(rule: &Rule) -> Self {
        Marks {
            rule: rule.clone(),
            walk: None,
            has_walked: false,
            said: None,
        }
    }

    /// Looks at cgroups for as long as a step takes. After the last one, tells the program
    /// what is different.
    pub(crate) fn step(&mut self, skel: &mut BpfSkel<'_>) {
        let bss = skel.maps.bss_data.as_mut().expect("the program has a .bss");
        let paused = self.walk.take();
        let begin = || self.walk_from(Path::new(MOUNT), idle(&bss.groups[1..]));
        let mut walk = paused.unwrap_or_else(begin);
        let end = Instant::now()
            + match self.has_walked {
                true => STEP_MAX,
                false => FIRST_STEP_MAX,
            };
        self.has_walked = true;
        let is_over = || Instant::now() >= end;
        if !self.go_on(&mut walk, &mark::read, &mark::named_by_root, &is_over) {
            self.walk = Some(walk);
            return;
        }
        let Walk { tiers, failure, .. } = walk;
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
        let may_say = self.said.is_none_or(|at| at.elapsed() >= SAY_EVERY);
        if !failure.is_empty() && may_say {
            warn!("a cgroup's mark is not heeded: {}", end_of(&failure));
            self.said = Some(Instant::now());
        }
    }

    /// A walk of the cgroups below `top`; `idle` are the numbers of those whose `cpu.idle`
    /// is 1.
    fn walk_from(&self, top: &Path, idle: HashSet<u64>) -> Walk {
        Walk {
            waiting: vec![(top.to_path_buf(), self.rule.default_tier)],
            idle,
            tiers: HashMap::new(),
            failure: String::new(),
        }
    }

    /// Walks until `is_over`, or to the end; whether that is reached. `mark` reads one;
    /// `by_root` says whether root has chosen a name.
    fn go_on(
        &self,
        walk: &mut Walk,
        mark: &dyn Fn(&Path) -> io::Result<Option<Tier>>,
        by_root: &dyn Fn(&Path) -> bool,
        is_over: &dyn Fn() -> bool,
    ) -> bool {
        while let Some((dir, inherited)) = walk.waiting.pop() {
            if is_over() {
                walk.waiting.push((dir, inherited));
                return false;
            }
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
                    Err(error) if error.kind() == io::ErrorKind::InvalidFilename => None,
                    Err(error) => {
                        walk.failure = format!("{}: {error}", path.display());
                        None
                    }
                };
                let named = || self.rule.of_name(entry.file_name().to_str()?);
                let counts = |&tier: &Tier| tier <= inherited || by_root(&path);
                let idles = || walk.idle.contains(&entry.ino()).then_some(Tier::Background);
                let tier = marked.or_else(|| named().filter(counts)).or_else(idles);
                let tier = tier.unwrap_or(inherited);
                walk.tiers.insert(entry.ino(), tier);
                walk.waiting.push((path, tier));
            }
        }
        true
    }
}

/// The end of a text, where the reason is.
fn end_of(text: &str) -> &str {
    let begin = text.char_indices().rev().nth(SAID_MAX - 1);
    begin.map_or(text, |(at, _)| &text[at..])
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
    use std::cell::Cell;
    use std::os::unix::fs::MetadataExt as _;

    /// A walk that has come to its end.
    fn whole(
        marks: &Marks,
        top: &Path,
        idle: &HashSet<u64>,
        mark: &dyn Fn(&Path) -> io::Result<Option<Tier>>,
        by_root: &dyn Fn(&Path) -> bool,
    ) -> Walk {
        let mut walk = marks.walk_from(top, idle.clone());
        assert!(marks.go_on(&mut walk, mark, by_root, &|| false));
        walk
    }

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
        // As it is in one go, and in as many as there are cgroups.
        for pauses in [false, true] {
            let mut walk = marks.walk_from(top.path(), idle.clone());
            let has_begun = Cell::new(false);
            let is_over = || pauses && has_begun.replace(true);
            while !marks.go_on(&mut walk, &marked, &by_root, &is_over) {
                has_begun.set(false);
            }
            assert_eq!(walk.failure, "");
            for (dir, tier) in cases {
                assert_eq!(walk.tiers[&number(dir)], tier, "{dir}");
            }
        }
        let tiers = whole(&marks, top.path(), &idle, &marked, &by_root).tiers;
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
        let none = HashSet::new();
        let walk = whole(&marks, top.path(), &none, &gone, &|_| true);
        assert_eq!((walk.tiers, walk.failure), (HashMap::new(), String::new()));
        let wrong = |_: &Path| Err(io::Error::new(io::ErrorKind::InvalidData, "urgent"));
        let walk = whole(&marks, top.path(), &none, &wrong, &|_| true);
        assert!(walk.failure.ends_with("/a: urgent"), "{}", walk.failure);
        // It counts as none.
        let tiers = Vec::from_iter(walk.tiers.into_values());
        assert_eq!(tiers, [Tier::TimeSensitive]);
        // What is too long to be asked for has none: its user has named it so.
        let long = |_: &Path| Err(io::ErrorKind::InvalidFilename.into());
        let walk = whole(&marks, top.path(), &none, &long, &|_| true);
        assert_eq!(walk.failure, "");
    }

    #[test]
    fn a_failure_is_said_by_its_end() {
        assert_eq!(end_of("/a: urgent"), "/a: urgent");
        let long = format!("/{}: urgent", "ä/".repeat(4000));
        let said = end_of(&long);
        assert!(
            said.chars().count() == SAID_MAX && said.ends_with(": urgent"),
            "{said}"
        );
    }
}
