//! The shape of the machine, as placement needs it: which CPUs share a core, a
//! last-level cache and a NUMA node.
//!
//! A level at which nothing is told apart is left out, so that the verifier can
//! drop what asks for it: cores with one thread each, caches that are the nodes'
//! own, a single node. Caches of a single core say nothing that the core does not.

use std::collections::BTreeMap;

use scx_utils::Topology;

use crate::bpf_intf;

const CPUS_MAX: usize = bpf_intf::ufs_limits_UFS_CPUS_MAX as usize;
const DOMAINS_MAX: usize = bpf_intf::ufs_limits_UFS_DOMAINS_MAX as usize;

/// A set of CPUs, as the BPF program has it.
pub(crate) type CpuSet = [u64; bpf_intf::ufs_limits_UFS_CPU_WORDS as usize];

/// One CPU and what it is part of; numbers differ where the things do.
#[derive(Clone, Copy, Debug)]
struct Part {
    cpu: usize,
    core: usize,
    llc: usize,
    node: usize,
}

/// Where a CPU is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first CPU of its core.
    pub core: u32,
    /// The next CPU of its core, in a circle.
    pub sibling: u32,
    /// Its last-level cache and its node, among [`Shape::domains`].
    pub llc: u32,
    pub node: u32,
}

/// The shape; by default that of a machine whose CPUs are all alike.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    pub has_threads: bool,
    pub has_llcs: bool,
    pub has_nodes: bool,
    /// By CPU.
    pub places: BTreeMap<usize, Place>,
    pub domains: Vec<CpuSet>,
}

impl Shape {
    /// The shape of this machine's online CPUs.
    pub(crate) fn of(topology: &Topology) -> Self {
        let parts = topology.all_cpus.values().map(|cpu| Part {
            cpu: cpu.id,
            core: cpu.core_id,
            llc: cpu.llc_id,
            node: cpu.node_id,
        });
        Self::new(&parts.collect::<Vec<_>>())
    }

    /// That of a machine of `cpus` CPUs with two threads to a core, and several caches
    /// and nodes if the CPUs suffice.
    pub(crate) fn of_many(cpus: usize) -> Self {
        let (of_node, of_llc) = ((cpus / 2).max(1), (cpus / 4).clamp(2, 16));
        let parts = (0..cpus).map(|cpu| Part {
            cpu,
            core: cpu / 2,
            llc: cpu / of_llc,
            node: cpu / of_node,
        });
        Self::new(&parts.collect::<Vec<_>>())
    }

    fn new(parts: &[Part]) -> Self {
        // Numbers of cores may repeat in another cache, those of caches in another node.
        let cores = sets(parts, |part| (part.node, part.llc, part.core));
        let llcs = sets(parts, |part| (part.node, part.llc, 0));
        let nodes = sets(parts, |part| (part.node, 0, 0));
        let mut shape = Self {
            has_threads: cores.len() < parts.len(),
            has_llcs: nodes.len() < llcs.len() && llcs.len() < cores.len(),
            has_nodes: nodes.len() > 1,
            ..Self::default()
        };
        for part in parts {
            let core = &cores[&(part.node, part.llc, part.core)];
            let at = core.iter().position(|&cpu| cpu == part.cpu).unwrap_or(0);
            let place = Place {
                core: core[0] as u32,
                sibling: core[(at + 1) % core.len()] as u32,
                ..Place::default()
            };
            shape.places.insert(part.cpu, place);
        }
        if shape.has_llcs {
            shape.add_domains(&llcs, |place, domain| place.llc = domain);
        }
        if shape.has_nodes {
            shape.add_domains(&nodes, |place, domain| place.node = domain);
        }
        shape
    }

    /// Whether the BPF program has room for it.
    pub(crate) fn fits(&self) -> bool {
        self.domains.len() <= DOMAINS_MAX && self.places.keys().all(|&cpu| cpu < CPUS_MAX)
    }

    fn add_domains(&mut self, sets: &Sets, mut put: impl FnMut(&mut Place, u32)) {
        for cpus in sets.values() {
            let mut set = CpuSet::default();
            for &cpu in cpus {
                if let Some(word) = set.get_mut(cpu / 64) {
                    *word |= 1 << (cpu % 64);
                }
                if let Some(place) = self.places.get_mut(&cpu) {
                    put(place, self.domains.len() as u32);
                }
            }
            self.domains.push(set);
        }
    }
}

type Key = (usize, usize, usize);
type Sets = BTreeMap<Key, Vec<usize>>;

/// The CPUs of each thing, in order.
fn sets(parts: &[Part], key: impl Fn(&Part) -> Key) -> Sets {
    let mut sets = Sets::new();
    for part in parts {
        sets.entry(key(part)).or_default().push(part.cpu);
    }
    for cpus in sets.values_mut() {
        cpus.sort_unstable();
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `nodes` x `llcs` x `cores` x `threads`; siblings are next to each other.
    fn machine(nodes: usize, llcs: usize, cores: usize, threads: usize) -> Shape {
        let parts = (0..nodes * llcs * cores * threads).map(|cpu| Part {
            cpu,
            core: cpu / threads,
            llc: cpu / threads / cores,
            node: cpu / threads / cores / llcs,
        });
        Shape::new(&parts.collect::<Vec<_>>())
    }

    #[test]
    fn alike_cpus_have_no_shape() {
        let shape = machine(1, 1, 8, 1);
        assert!(!shape.has_threads && !shape.has_llcs && !shape.has_nodes);
        assert!(shape.domains.is_empty());
        assert_eq!(shape.places[&5].core, 5);
        assert_eq!(shape.places[&5].sibling, 5);
    }

    #[test]
    fn threads_of_a_core_form_a_circle() {
        let shape = machine(1, 1, 2, 4);
        assert!(shape.has_threads && !shape.has_llcs);
        let siblings: Vec<u32> = shape.places.values().map(|place| place.sibling).collect();
        assert_eq!(siblings, [1, 2, 3, 0, 5, 6, 7, 4]);
        assert_eq!(shape.places[&6].core, 4);
    }

    #[test]
    fn siblings_far_apart_in_number_are_found() {
        // As firmware likes to number them: first every core's first thread.
        let parts = (0..8).map(|cpu| Part {
            cpu,
            core: cpu % 4,
            llc: 0,
            node: 0,
        });
        let shape = Shape::new(&parts.collect::<Vec<_>>());
        assert_eq!(shape.places[&1].sibling, 5);
        assert_eq!(shape.places[&5].sibling, 1);
        assert_eq!(shape.places[&5].core, 1);
    }

    #[test]
    fn caches_and_nodes_are_sets_of_cpus() {
        let shape = machine(2, 2, 2, 1);
        assert!(shape.has_llcs && shape.has_nodes && !shape.has_threads);
        let domain = |index: u32| shape.domains[index as usize][0];
        let at = shape.places[&5];
        assert_eq!(
            (domain(at.llc), domain(at.node)),
            (0b0011_0000, 0b1111_0000)
        );
        assert_eq!(shape.places[&4].llc, at.llc);
        assert_ne!(shape.places[&6].llc, at.llc);
        assert!(shape.fits());
    }

    #[test]
    fn a_cache_that_is_the_nodes_or_one_cores_is_no_level() {
        assert!(!machine(2, 1, 4, 2).has_llcs);
        assert!(!machine(1, 8, 1, 2).has_llcs);
    }

    #[test]
    fn many_cpus_have_everything_there_is_to_tell_apart() {
        for cpus in [16, 64, 128, CPUS_MAX] {
            let shape = Shape::of_many(cpus);
            assert!(shape.has_threads && shape.has_llcs && shape.has_nodes);
            assert!(shape.fits() && shape.places.len() == cpus);
        }
    }

    #[test]
    fn more_domains_than_there_is_room_for_do_not_fit() {
        assert!(!machine(2, 256, 2, 1).fits());
    }
}
