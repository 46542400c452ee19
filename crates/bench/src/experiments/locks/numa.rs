//! Whether a lock stays on a NUMA node when it changes hands.
//!
//! Each holder leaves its thread and node behind, in a word that the lock
//! protects; the next one compares. Where it runs it knows from the CPU's
//! number, a few ns, and a table read before. On a machine with one node nothing
//! is done at all.
//!
//! Threads are tied to CPUs, in turn on every node. Left alone, those that sleep
//! most of the time are gathered on one node by the kernel, and there is nothing
//! to see.
//!
//! How many nodes there are is for the lock library to say: rows then show
//! whether it has seen them.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use giveway_locks::Topology;
use giveway_machine::topology;

/// A machine with more than one node.
#[derive(Debug)]
pub(crate) struct Numa {
    nodes: u32,
    node_of_cpu: Vec<u32>,
    next_member: AtomicUsize,
    last_thread: AtomicUsize,
    last_node: AtomicU32,
}

/// Turns that another thread had had before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handovers {
    pub(crate) all: u64,
    /// Those on one node.
    pub(crate) near: u64,
}

impl Handovers {
    pub(crate) fn add(&mut self, other: Handovers) {
        self.all += other.all;
        self.near += other.near;
    }
}

impl Numa {
    /// This machine, if it has more than one node.
    pub(crate) fn of_machine() -> Option<Self> {
        let nodes = Topology::sockets();
        let lists = (0..nodes).map(topology::cpus_of_node);
        (nodes > 1).then(|| Numa {
            nodes,
            node_of_cpu: node_of_cpu(lists),
            next_member: AtomicUsize::new(0),
            last_thread: AtomicUsize::new(0),
            last_node: AtomicU32::new(0),
        })
    }

    pub(crate) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Ties the calling thread to the CPU whose turn it is.
    pub(crate) fn settle(&self) {
        let member = self.next_member.fetch_add(1, Ordering::Relaxed);
        let cpu = cpu_of_member(&self.node_of_cpu, self.nodes, member);
        // SAFETY: `set` is plain data, zero is an empty set, and its size is
        // passed. Where it is refused, the thread runs where it may.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }

    /// Counts the turn that the calling thread, which holds the lock, begins.
    pub(crate) fn count(&self) -> Handovers {
        // SAFETY: has no preconditions.
        let cpu = unsafe { libc::sched_getcpu() };
        let cpu = usize::try_from(cpu).unwrap_or(0);
        let node = self.node_of_cpu.get(cpu).copied().unwrap_or(0);
        self.handed_to(this_thread(), node)
    }

    fn handed_to(&self, thread: usize, node: u32) -> Handovers {
        let before = self.last_thread.load(Ordering::Relaxed);
        let node_before = self.last_node.load(Ordering::Relaxed);
        self.last_thread.store(thread, Ordering::Relaxed);
        self.last_node.store(node, Ordering::Relaxed);
        let handed = before != 0 && before != thread;
        Handovers {
            all: handed.into(),
            near: (handed && node == node_before).into(),
        }
    }
}

/// A number that no other living thread has; not 0.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// The CPU of the member with this number: nodes take turns, and so do their
/// CPUs.
fn cpu_of_member(node_of_cpu: &[u32], nodes: u32, member: usize) -> usize {
    let node = member as u32 % nodes;
    let of_node = |&cpu: &usize| node_of_cpu[cpu] == node;
    let cpus: Vec<usize> = (0..node_of_cpu.len()).filter(of_node).collect();
    match cpus.len() {
        0 => 0,
        count => cpus[member / nodes as usize % count],
    }
}

/// The node of each CPU, from the nodes' CPUs.
fn node_of_cpu(lists: impl Iterator<Item = Vec<usize>>) -> Vec<u32> {
    let mut nodes = Vec::new();
    for (cpus, node) in lists.zip(0..) {
        for cpu in cpus {
            nodes.resize(nodes.len().max(cpu + 1), 0);
            nodes[cpu] = node;
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_found_in_their_nodes_lists() {
        let lists = [vec![0, 1, 4], vec![2, 3, 6, 7], vec![], vec![5]];
        assert_eq!(node_of_cpu(lists.into_iter()), [0, 0, 1, 1, 0, 3, 1, 1]);
    }

    #[test]
    fn members_take_turns_on_the_nodes() {
        let cpus = (0..6).map(|member| cpu_of_member(&[0, 0, 1, 1], 2, member));
        assert_eq!(cpus.collect::<Vec<_>>(), [0, 2, 1, 3, 0, 2]);
        // A node of memory only.
        assert_eq!(cpu_of_member(&[0, 0], 2, 1), 0);
    }

    #[test]
    fn what_counts_is_another_thread_and_the_same_node() {
        let numa = Numa {
            nodes: 2,
            node_of_cpu: vec![0, 1],
            next_member: AtomicUsize::new(0),
            last_thread: AtomicUsize::new(0),
            last_node: AtomicU32::new(0),
        };
        let mut counted = Handovers::default();
        // First; the same thread, moved; another, there; another, elsewhere.
        for (thread, node) in [(7, 0), (7, 1), (8, 1), (9, 0)] {
            counted.add(numa.handed_to(thread, node));
        }
        assert_eq!(counted, Handovers { all: 2, near: 1 });
    }
}
