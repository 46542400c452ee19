//! Copies of the BPF program's counters, taken while it runs.
//!
//! All of it lies in the program's own memory, which is mapped here: a copy takes
//! no system call. A copy may be a few events apart from itself, and a group or a
//! slot that changes hands meanwhile may show some of either owner's counts once.

use std::collections::BTreeMap;

use giveway_hints::slot::Table;
// The header has an enum of that name, too.
use ::giveway_tier::Tier;

use crate::bpf_intf::*;
use crate::bpf_skel::{BpfSkel, types};
use crate::counters::{Counters, Work};
use crate::lock_weights::Known;
use crate::users::slot_bits;

/// A cgroup that UFS knows.
#[derive(Clone, Debug)]
pub(crate) struct Cgroup {
    /// The kernel's number: that of its directory's inode.
    pub id: u64,
    /// From the top; each name as far as UFS keeps it, 31 bytes.
    pub path: String,
    pub tier: Tier,
    pub weight: u32,
    pub throttles: u64,
    pub throttled_ns: u64,
    pub work: Work,
}

/// A thread with a hint slot.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    /// Its number in the loader's pid namespace.
    pub tid: u32,
    pub tier: Tier,
    pub work: Work,
}

/// One look at everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// By CPU number.
    pub cpus: BTreeMap<u32, Counters>,
    /// That UFS takes to be idle.
    pub nr_idle_cpus: u64,
    pub nr_cgroups: u64,
    pub cgroups: Vec<Cgroup>,
    /// By number of the slot.
    pub threads: BTreeMap<u32, Thread>,
}

impl Snapshot {
    /// Looks at the CPUs `cpus` of a loaded program, and at the owners of the
    /// slots of `tables`, which are in the order of their numbers.
    pub(crate) fn take(skel: &BpfSkel<'_>, cpus: &[u32], tables: &[(u32, Table)]) -> Self {
        let bss = skel.maps.bss_data.as_ref().expect("the program has a .bss");
        let data = skel
            .maps
            .data_data
            .as_ref()
            .expect("the program has a .data");
        let groups: Vec<types::group> = groups(skel).map(copied).collect();
        let places: Vec<Place> = groups.iter().map(Place::of).collect();
        let cgroups = groups
            .iter()
            .enumerate()
            .filter(|(_, group)| group.cgid > 0);
        let slots = (0u32..).zip(tables).flat_map(|(number, (_, table))| {
            let owned = (1..table.nr_slots()).filter(|&page| table.has_owner(page));
            owned.map(move |page| number << slot_bits(table.nr_slots()) | page)
        });
        let threads = slots
            .map(|slot| (slot, copied(&bss.slot_states[slot as usize])))
            .filter(|(_, state)| state.pid > 0);
        Self {
            cpus: cpus
                .iter()
                .map(|&cpu| (cpu, counters(&bss.cpu_stats[cpu as usize])))
                .collect(),
            nr_idle_cpus: copied(&bss.idle_cpus)
                .iter()
                .map(|word| u64::from(word.count_ones()))
                .sum(),
            nr_cgroups: copied(&data.live_groups).into(),
            cgroups: cgroups
                .map(|(index, group)| Cgroup {
                    id: group.cgid,
                    path: path_of(&places, index),
                    tier: tier(group.tier),
                    weight: group.weight,
                    throttles: copied(&bss.limits[index].throttles),
                    throttled_ns: copied(&bss.limits[index].throttled_ns),
                    work: group_work(&bss.group_work[index]),
                })
                .collect(),
            threads: threads
                .map(|(slot, state)| (slot, Thread::of(&state)))
                .collect(),
        }
    }
}

impl Thread {
    fn of(state: &types::slot_state) -> Self {
        Self {
            tid: state.pid,
            tier: tier(state.tier),
            work: Work {
                run_ns: state.report.run_ns,
                preempted: state.report.preempted,
                boosted_runs: state.boosted_runs,
                floor_runs: state.floor_runs,
                wake_ns_log2: state.wake_ns_log2.map(u64::from),
            },
        }
    }
}

/// Every group that has ever been in use, by its index; the root's first.
pub(crate) fn known(skel: &BpfSkel<'_>) -> Vec<Known> {
    let known = groups(skel).map(|group| Known {
        id: copied(&group.cgid),
        parent: copied(&group.parent) as usize,
        tier: tier(copied(&group.tier)),
        weight: copied(&group.weight),
    });
    known.collect()
}

/// The tier in which UFS has the cgroup of this number, if it knows it.
pub(crate) fn tier_of(skel: &BpfSkel<'_>, number: u64) -> Option<Tier> {
    let found = groups(skel).find(|group| copied(&group.cgid) == number)?;
    Some(tier(copied(&found.tier)))
}

/// The groups that have ever been in use.
fn groups<'a>(skel: &'a BpfSkel<'_>) -> impl Iterator<Item = &'a types::group> {
    let (bss, data) = (&skel.maps.bss_data, &skel.maps.data_data);
    let bss = bss.as_ref().expect("the program has a .bss");
    let data = data.as_ref().expect("the program has a .data");
    bss.groups.iter().take(copied(&data.nr_groups) as usize)
}

/// A copy of what a CPU in the kernel changes meanwhile.
fn copied<T: Copy>(place: &T) -> T {
    // SAFETY: the pointer is to live, aligned, plain integers; volatile, because
    // the kernel writes them.
    unsafe { std::ptr::read_volatile(place) }
}

fn counters(cpu: &types::ufs_cpu_stats) -> Counters {
    let copy = copied(cpu);
    Counters {
        count: copy.count,
        run_ns: copy.run_ns,
        wake_ns: copy.wake_ns,
        wake_ns_log2: copy.wake_ns_log2,
        boosted_ns: copy.boosted_ns,
        boost_ns_log2: copy.boost_ns_log2,
        lock_wait_ns: copy.lock_wait_ns,
    }
}

/// The sum of a group's shards.
fn group_work(shards: &[types::ufs_work; ufs_limits_UFS_SHARDS as usize]) -> Work {
    let mut sum = Work::default();
    for shard in shards.iter().map(copied) {
        sum.add(&Work {
            run_ns: shard.run_ns,
            preempted: shard.preempted,
            boosted_runs: shard.boosted_runs,
            floor_runs: shard.floor_runs,
            wake_ns_log2: shard.wake_ns_log2.map(u64::from),
        });
    }
    sum
}

fn tier(number: u32) -> Tier {
    match number {
        0 => Tier::Background,
        _ => Tier::TimeSensitive,
    }
}

/// What a path is made of.
struct Place {
    name: String,
    parent: usize,
}

impl Place {
    fn of(group: &types::group) -> Self {
        let name: Vec<u8> = group.name.iter().map(|&c| c as u8).collect();
        let end = name.iter().position(|&c| c == 0).unwrap_or(name.len());
        Self {
            name: String::from_utf8_lossy(&name[..end]).into_owned(),
            parent: group.parent as usize,
        }
    }
}

/// The path of group `index`; group 0 is the top, and its own parent.
fn path_of(places: &[Place], index: usize) -> String {
    let mut names = Vec::new();
    let mut at = index;
    // A parent that was reused meanwhile must not make a circle of this.
    while at != 0 && names.len() < ufs_limits_UFS_DEPTH_MAX as usize {
        let Some(place) = places.get(at) else { break };
        names.push(place.name.as_str());
        at = place.parent;
    }
    names.reverse();
    format!("/{}", names.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_the_root_and_never_loop() {
        let place = |name: &str, parent| Place {
            name: name.into(),
            parent,
        };
        let mut places = vec![place("", 0), place("a", 0), place("b", 1), place("c", 2)];
        assert_eq!(path_of(&places, 0), "/");
        assert_eq!(path_of(&places, 3), "/a/b/c");
        places[1].parent = 3;
        assert_eq!(
            path_of(&places, 3).split('/').count(),
            1 + ufs_limits_UFS_DEPTH_MAX as usize
        );
    }

    #[test]
    fn tiers_are_numbered_as_in_the_header() {
        for known in Tier::ALL {
            assert_eq!(tier(known as u32), known);
        }
    }
}
