//! A second time for a program that has been in force.
//!
//! The kernel attaches a loaded scheduler as often as one likes, one time after the
//! other, and each time asks it about every cgroup and task anew. So what UFS knew of
//! them must go, and nobody does it all:
//!
//! | what | how it is as new |
//! | --- | --- |
//! | variables: CPUs, groups, slots, counters, clocks | written here, while nothing is attached |
//! | contexts of tasks | zeroed by `ufs_init_task` |
//! | groups of cgroups | given anew by `ufs_cgroup_init` |
//! | runnable tree, numbers given back | emptied by `ufs_init`; nodes go to their stashes |
//! | timers | the floor's is cancelled by `ufs_exit`; that of prices runs once; those of limits end with `ufs_cgroup_exit` |
//! | dispatch queues | the kernel's, which go with the attachment |
//! | hint table | its clients', and stays |
//!
//! Constants stay: a machine whose CPUs have changed since is one for which the
//! kernel refuses the attachment, and UFS is loaded anew.

use anyhow::{Context as _, Result};
use libbpf_rs::{MapCore as _, MapFlags};

use crate::bpf_skel::BpfSkel;

/// The only key of a map that holds variables.
const ALL: [u8; 4] = [0; 4];

/// Variables as they were before the program was first attached.
pub(crate) struct Fresh {
    /// Those that do not begin with 0.
    data: Vec<u8>,
}

impl Fresh {
    /// Of a program that has just been loaded.
    pub(crate) fn of(skel: &BpfSkel<'_>) -> Result<Fresh> {
        let data = skel.maps.data.lookup(&ALL, MapFlags::ANY)?;
        Ok(Fresh {
            data: data.context("the program has no .data")?,
        })
    }

    /// Has the program's variables as they were. It must not be attached.
    pub(crate) fn restore(&self, skel: &BpfSkel<'_>) -> Result<()> {
        let zeros = vec![0; skel.maps.bss.value_size() as usize];
        skel.maps.bss.update(&ALL, &zeros, MapFlags::ANY)?;
        skel.maps.data.update(&ALL, &self.data, MapFlags::ANY)?;
        Ok(())
    }
}
