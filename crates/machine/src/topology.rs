//! The CPUs of the machine, and which NUMA node each is on, from sysfs and the kernel.
//!
//! Cores and caches are not told here: the scheduler, which needs them, has them from
//! the library of the scx project.

use std::fs;
use std::path::Path;

/// Where sysfs lists the nodes.
const NODES: &str = "/sys/devices/system/node";

/// The numbers in a list of CPUs as the kernel writes it: `0-3,8`. None if it is no
/// such list; an empty one has no numbers.
pub fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

/// The CPUs of a NUMA node. None for a number without a node, and for a node of memory
/// only.
pub fn cpus_of_node(node: u32) -> Vec<usize> {
    let list = Path::new(NODES).join(format!("node{node}/cpulist"));
    let text = fs::read_to_string(list).unwrap_or_default();
    cpu_list(&text).unwrap_or_default()
}

/// NUMA nodes of the machine: the highest number below `most` for which there is one,
/// plus one. At least 1. Allocates nothing.
///
/// # Panics
/// If `most` is greater than 100: numbers have two digits here.
pub fn nodes(most: u32) -> u32 {
    assert!(most <= 100, "numbers of nodes have two digits");
    let exists = |node: u32| {
        let mut path = *b"/sys/devices/system/node/node00\0";
        let digits = path.len() - 3;
        if node < 10 {
            path[digits] = b'0' + node as u8;
            path[digits + 1] = 0;
        } else {
            path[digits] = b'0' + (node / 10) as u8;
            path[digits + 1] = b'0' + (node % 10) as u8;
        }
        // SAFETY: `path` ends with a zero byte.
        unsafe { libc::access(path.as_ptr().cast(), libc::F_OK) == 0 }
    };
    (1..most)
        .rev()
        .find(|&node| exists(node))
        .map_or(1, |node| node + 1)
}

/// The NUMA node that the calling thread runs on at this moment: a system call of
/// 0.1 µs. Allocates nothing.
pub fn current_node() -> u32 {
    let mut node: libc::c_uint = 0;
    // SAFETY: the kernel writes one integer to `node`; the others are not asked for.
    unsafe {
        libc::syscall(
            libc::SYS_getcpu,
            std::ptr::null_mut::<libc::c_uint>(),
            &mut node,
            std::ptr::null_mut::<libc::c_void>(),
        )
    };
    node
}

/// How many CPUs the calling thread may use, by its affinity; those of the machine if
/// the kernel does not say. At least 1. Allocates nothing.
pub fn cpus_allowed() -> u32 {
    // SAFETY: `set` is plain data that the kernel fills in; its size is passed.
    let count = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) {
            0 => libc::CPU_COUNT(&set) as u32,
            _ => libc::sysconf(libc::_SC_NPROCESSORS_ONLN).max(1) as u32,
        }
    };
    count.max(1)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_has_numbers_and_ranges() {
        assert_eq!(cpu_list("0-2,7\n"), Some(vec![0, 1, 2, 7]));
        assert_eq!(cpu_list("3"), Some(vec![3]));
        assert_eq!(cpu_list("\n"), Some(vec![]));
        for bad in ["a", "1-", "1,,2", "-"] {
            assert_eq!(cpu_list(bad), None, "{bad}");
        }
    }

    #[test]
    fn this_machine_has_cpus_and_a_node() {
        assert!(cpus_allowed() >= 1);
        let nodes = nodes(16);
        assert!((1..=16).contains(&nodes));
        assert!(current_node() < nodes.max(16));
    }
}
