//! Sessions in cgroups: a static tree per tier and weight, for those who ask.
//!
//! UFS obeys a slot in whatever cgroup its owner is, at once. But other tools
//! know cgroups only: `systemd-cgtop`, the controllers of memory and I/O, and
//! Linux's own scheduler while UFS is not loaded. With `--session-cgroups DIR`
//! the processes of a server are also *moved*, as the extension of the paper
//! does (000, Section 5.3), by this daemon instead of by the server, which then
//! needs no right to any cgroup:
//!
//! ```text
//! DIR                      the server's, delegated by its service manager
//! ├ server                 processes found in DIR itself: a cgroup that shares
//! │                        out CPU time has none of its own
//! ├ time_sensitive         cpu.weight 10000, as in `giveway run`
//! │ ├ weight-1             cpu.weight 1
//! │ └ ... weight-10000     sessions of the tier, by the nearest of WEIGHTS
//! └ background             cpu.weight 1
//!   └ ...
//! ```
//!
//! The two tiers' directories bear the first label of each tier. Once a second
//! every slot is compared with the cgroup that its owner is in; nothing else is
//! remembered, so a restart goes on where the load before was.
//!
//! Invariants
//! 1. A process is moved only from DIR or below to a place in DIR, never out of a
//!    foreign cgroup, whatever slots say. (asserted in `try_round`)
//! 2. A slot moves only the process that it names as its owner, in this pid namespace,
//!    and only if that is a whole process of the table's user. (not asserted: `/proc`
//!    decides, and a number may come into use again)
//! 3. A move raises a process above DIR's own tier, that of a mark included, only if the
//!    process may rise by a slot: root, and the group of `--hint-raise-group`.
//!    (asserted in `try_round`)
//! 4. A process in the tree without a slot, or whose slot has no tier, goes back to its
//!    parent's cgroup if that is in DIR and outside the tree. A child of a session has
//!    its parent in the tree, and stays. (not asserted: `place` says just this; tested)
//!
//! Departure from the paper: there any weight gets a cgroup of its own when it
//! is first used; here there are a few, so that what users set cannot fill the
//! kernel with cgroups. UFS sees the exact weight in the slot.
//!
//! Known weaknesses: a transaction that is over within the second is seen by
//! UFS only. The kernel takes a process by its number: one that comes into use
//! again between the look and the move is moved, and back a second later.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use giveway_hints::slot::Table;
use giveway_machine::cgroup::{Cgroup, MOUNT, of_process};
use giveway_tier::rule::Rule;
use giveway_tier::{Tier, Weight};
use log::{info, warn};

mod person;

use person::Person;

/// Weights that have a cgroup: three to a decade.
const WEIGHTS: [u32; 10] = [1, 10, 20, 50, 100, 200, 500, 1000, 3000, 10_000];
/// Where processes step aside to that are in DIR itself.
const ASIDE: &str = "server";

/// The sessions' tree, which may have to be made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sessions {
    /// DIR as in `/proc/PID/cgroup`: below the mount, with a slash before it.
    dir: PathBuf,
    /// Names of the tiers' directories, indexed by tier.
    names: [String; 2],
    /// DIR's own tier: by its name, until UFS reports another.
    tier: Tier,
    raise_gid: u32,
    /// What the latest round failed of, so that it is said once.
    failure: String,
}

/// Of the weights that have a cgroup, the nearest by ratio.
fn nearest(weight: Weight) -> u32 {
    let distance = |candidate: &u32| {
        let ratio = f64::from(*candidate) / f64::from(weight.get());
        ratio.max(1.0 / ratio)
    };
    *WEIGHTS
        .iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
        .expect("there are weights")
}

impl Sessions {
    /// For the server whose cgroup is `dir`, by this rule and with these rights.
    pub(crate) fn new(dir: &Path, rule: &Rule, raise_gid: u32) -> Result<Self> {
        let below = dir.strip_prefix(MOUNT).ok();
        let Some(below) = below.filter(|below| below.iter().next().is_some()) else {
            bail!(
                "--session-cgroups {} is no cgroup below {MOUNT}: name the server's, as in \
                 {MOUNT}/system.slice/postgresql.service",
                dir.display()
            );
        };
        let mut names = [String::new(), String::new()];
        for tier in Tier::ALL {
            let Some(label) = rule.labels[tier as usize].first() else {
                bail!("--session-cgroups needs a label for each tier: the {tier} one has none");
            };
            names[tier as usize].clone_from(label);
        }
        let dir = Path::new("/").join(below);
        Ok(Sessions {
            tier: rule.of_path(&dir),
            dir,
            names,
            raise_gid,
            failure: String::new(),
        })
    }

    /// The kernel's number of DIR's cgroup; none while it is not there.
    pub(crate) fn number(&self) -> Option<u64> {
        let about = fs::metadata(self.on_disk(&self.dir).dir()).ok()?;
        Some(about.ino())
    }

    /// Sets the tier that DIR has in UFS.
    pub(crate) fn set_tier(&mut self, tier: Tier) {
        self.tier = tier;
    }

    /// Compares all slots in the tables of these users with the cgroups of their owners,
    /// once.
    pub(crate) fn round(&mut self, tables: &[(u32, Table)], namespace: u32) {
        let failure = match self.try_round(tables, namespace) {
            Ok(()) => String::new(),
            Err(error) => format!("{error:#}"),
        };
        if failure != self.failure && !failure.is_empty() {
            warn!("sessions stay in their cgroups: {failure}");
        } else if failure != self.failure {
            info!("sessions are moved to cgroups in {}", self.dir.display());
        }
        self.failure = failure;
    }

    fn try_round(&self, tables: &[(u32, Table)], namespace: u32) -> Result<()> {
        if !self
            .on_disk(&self.leaf(Tier::Background, WEIGHTS[0]))
            .dir()
            .exists()
        {
            self.make()?;
        }
        let mut asked: HashMap<u32, Option<(Tier, Weight)>> = HashMap::new();
        let said = tables
            .iter()
            .flat_map(|(uid, table)| table.said().map(move |said| (*uid, said)))
            .filter(|(_, said)| said.namespace == namespace);
        for (uid, said) in said {
            if Person::of(said.tid).is_some_and(|person| person.user == uid) {
                asked.insert(said.tid, said.tier.map(|tier| (tier, said.weight)));
            }
        }
        for tier in Tier::ALL {
            for weight in WEIGHTS {
                for pid in self.processes(&self.leaf(tier, weight))? {
                    asked.entry(pid).or_insert(None);
                }
            }
        }
        for (pid, asked) in asked {
            let (Some(now), Some(person)) = (of_process(pid), Person::of(pid)) else {
                continue;
            };
            if person.leader != pid {
                continue;
            }
            let may_rise = person.may_rise(self.raise_gid);
            let parent = of_process(person.parent);
            if let Some(place) = self.place(&now, asked, may_rise, parent.as_deref()) {
                debug_assert!(
                    now.starts_with(&self.dir) && place.starts_with(&self.dir),
                    "process {pid} moved from {} to {}",
                    now.display(),
                    place.display()
                );
                debug_assert!(
                    may_rise
                        || self.tier == Tier::TimeSensitive
                        || !place
                            .starts_with(self.dir.join(&self.names[Tier::TimeSensitive as usize])),
                    "process {pid} raised to {} without the right",
                    place.display()
                );
                self.put(pid, &place)?;
            }
        }
        Ok(())
    }

    /// Where a process belongs that is in the cgroup `now` and asks for this;
    /// `None`: where it is (invariants 1, 3 and 4).
    fn place(
        &self,
        now: &Path,
        asked: Option<(Tier, Weight)>,
        may_rise: bool,
        parent: Option<&Path>,
    ) -> Option<PathBuf> {
        if !now.starts_with(&self.dir) {
            return None;
        }
        let place = match asked {
            Some((tier, weight)) => {
                let highest = if may_rise {
                    Tier::TimeSensitive
                } else {
                    self.tier
                };
                self.leaf(tier.min(highest), nearest(weight))
            }
            None if self.is_ours(now) => parent
                .filter(|parent| parent.starts_with(&self.dir) && !self.is_ours(parent))?
                .to_path_buf(),
            None => return None,
        };
        (place != now).then_some(place)
    }

    /// Whether a cgroup is in the tree.
    fn is_ours(&self, cgroup: &Path) -> bool {
        let tiers = self.names.iter();
        tiers
            .map(|name| self.dir.join(name))
            .any(|top| cgroup.starts_with(top))
    }

    fn leaf(&self, tier: Tier, weight: u32) -> PathBuf {
        let top = self.dir.join(&self.names[tier as usize]);
        top.join(format!("weight-{weight}"))
    }

    fn on_disk(&self, cgroup: &Path) -> Cgroup {
        Cgroup::below(MOUNT.as_ref(), cgroup)
    }

    /// The processes in a cgroup.
    fn processes(&self, cgroup: &Path) -> Result<Vec<u32>> {
        let cgroup = self.on_disk(cgroup);
        let named = || cgroup.file("cgroup.procs").display().to_string();
        cgroup.processes().with_context(named)
    }

    /// Moves a process, unless it has ended.
    fn put(&self, pid: u32, cgroup: &Path) -> Result<()> {
        let cgroup = self.on_disk(cgroup);
        match cgroup.add(pid) {
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32) => Ok(()),
            other => other.with_context(|| {
                let path = cgroup.file("cgroup.procs");
                format!("cannot move process {pid} to {}", path.display())
            }),
        }
    }

    /// Makes the tree, or what is missing of it.
    fn make(&self) -> Result<()> {
        let dir = self.on_disk(&self.dir);
        if !dir.file("cgroup.controllers").exists() {
            bail!("{} is not there", dir.dir().display());
        }
        if !dir.offers("cpu") {
            bail!(
                "{} may not share out CPU time: set Delegate=cpu in the server's unit",
                dir.dir().display()
            );
        }
        self.step_aside()?;
        self.share_out(&self.dir)?;
        for tier in Tier::ALL {
            let top = self.dir.join(&self.names[tier as usize]);
            self.make_one(&top, tier.cgroup_weight().get())?;
            self.share_out(&top)?;
            for weight in WEIGHTS {
                self.make_one(&self.leaf(tier, weight), weight)?;
            }
        }
        Ok(())
    }

    /// Puts the processes of DIR itself into a cgroup below it. Some may be
    /// born there meanwhile, but not for ever.
    fn step_aside(&self) -> Result<()> {
        let aside = self.dir.join(ASIDE);
        for _ in 0..100 {
            let processes = self.processes(&self.dir)?;
            if processes.is_empty() {
                return Ok(());
            }
            made(&self.on_disk(&aside))?;
            for pid in processes {
                self.put(pid, &aside)?;
            }
        }
        bail!("processes keep appearing in {}", self.dir.display())
    }

    fn share_out(&self, cgroup: &Path) -> Result<()> {
        let cgroup = self.on_disk(cgroup);
        let path = || cgroup.file("cgroup.subtree_control").display().to_string();
        cgroup.enable("+cpu").with_context(path)
    }

    fn make_one(&self, cgroup: &Path, weight: u32) -> Result<()> {
        let cgroup = self.on_disk(cgroup);
        made(&cgroup)?;
        let path = || cgroup.file("cpu.weight").display().to_string();
        let written = cgroup.write("cpu.weight", &weight.to_string());
        written.with_context(path)
    }
}

fn made(cgroup: &Cgroup) -> Result<()> {
    let dir = cgroup.dir();
    let made = Cgroup::make(dir).map(drop);
    made.with_context(|| format!("cannot make {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(dir: &str) -> Sessions {
        let dir = Path::new(MOUNT).join(dir);
        Sessions::new(&dir, &Rule::default(), 42).unwrap()
    }

    fn weight(number: u32) -> Weight {
        Weight::try_from(number).unwrap()
    }

    #[test]
    fn a_weight_goes_to_the_nearest_by_ratio() {
        for (asked, place) in [
            (1, 1),
            (3, 1),
            (4, 10),
            (100, 100),
            (150, 200),
            (7000, 10_000),
        ] {
            assert_eq!(nearest(weight(asked)), place, "{asked}");
        }
    }

    #[test]
    fn the_tier_of_the_server_is_that_of_the_nearest_label() {
        for (dir, tier) in [
            ("pg", Tier::TimeSensitive),
            ("background/pg", Tier::Background),
            ("background/time-sensitive-x/pg", Tier::TimeSensitive),
            ("backgrounds", Tier::TimeSensitive),
            ("a/background.b", Tier::Background),
        ] {
            assert_eq!(sessions(dir).tier, tier, "{dir}");
        }
    }

    #[test]
    fn a_session_is_moved_within_its_server_s_cgroup_only() {
        let sessions = sessions("pg");
        let asked = Some((Tier::Background, weight(100)));
        let place = |now: &str| sessions.place(Path::new(now), asked, false, None);
        let leaf = PathBuf::from("/pg/background/weight-100");
        assert_eq!(place("/pg"), Some(leaf.clone()));
        assert_eq!(place("/pg/server"), Some(leaf));
        assert_eq!(place("/pg/background/weight-100"), None);
        for foreign in ["/", "/pgx", "/other", "/background/weight-100"] {
            assert_eq!(place(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn sessions_rise_above_the_server_s_tier_only_with_the_right() {
        let sessions = sessions("background/pg");
        let asked = Some((Tier::TimeSensitive, weight(100)));
        let place =
            |may_rise| sessions.place(Path::new("/background/pg/server"), asked, may_rise, None);
        let top = Path::new("/background/pg");
        assert_eq!(place(false), Some(top.join("background/weight-100")));
        assert_eq!(place(true), Some(top.join("time_sensitive/weight-100")));
    }

    #[test]
    fn a_mark_on_the_server_s_cgroup_limits_its_sessions() {
        let mut sessions = sessions("pg");
        let asked = Some((Tier::TimeSensitive, weight(100)));
        let place = |sessions: &Sessions, may_rise| {
            sessions.place(Path::new("/pg/server"), asked, may_rise, None)
        };
        let (high, low) = ("/pg/time_sensitive/weight-100", "/pg/background/weight-100");
        assert_eq!(place(&sessions, false), Some(high.into()));
        sessions.set_tier(Tier::Background);
        assert_eq!(place(&sessions, false), Some(low.into()));
        assert_eq!(place(&sessions, true), Some(high.into()));
    }

    #[test]
    fn sessions_without_a_tier_return_to_their_parent_s_cgroup() {
        let sessions = sessions("pg");
        let place = |now: &str, parent: &str| {
            sessions.place(Path::new(now), None, false, Some(Path::new(parent)))
        };
        let leaf = "/pg/time_sensitive/weight-10";
        assert_eq!(place(leaf, "/pg/server"), Some("/pg/server".into()));
        assert_eq!(place(leaf, "/pg/background/weight-1"), None);
        assert_eq!(place(leaf, "/"), None);
        assert_eq!(place("/pg/server", "/pg"), None);
    }

    #[test]
    fn a_cgroup_must_be_below_the_top() {
        for dir in ["/sys/fs/cgroup", "/tmp/pg", "pg"] {
            let error = Sessions::new(Path::new(dir), &Rule::default(), 1);
            let text = error.unwrap_err().to_string();
            assert!(text.contains("--session-cgroups"), "{text}");
        }
    }
}
