//! Resets BPF state between two attachments.
//!
//! The kernel can attach a loaded scheduler any number of times, one after the other, and
//! each time initializes it with every cgroup and task. So state of the attachment
//! before must be reset, in several places:
//!
//! | state | reset by |
//! | --- | --- |
//! | variables: CPUs, groups, slots, counters, clocks | this module, while nothing is attached |
//! | contexts of tasks | `ufs_init_task`, which zeroes them |
//! | groups of cgroups | `ufs_cgroup_init`, which assigns them again |
//! | runnable tree, numbers given back | `ufs_init`; nodes go to their stashes |
//! | timers | `ufs_exit` cancels the floor's; those of reweight and release run once; those of limits end with `ufs_cgroup_exit` |
//! | dispatch queues | the kernel, at the end of the attachment |
//! | hint table | not reset: its clients keep it |
//!
//! Constants stay. If the set of CPUs has changed since, the kernel refuses the
//! attachment, and UFS is loaded again.

use anyhow::{Context as _, Result};
use libbpf_rs::{MapCore as _, MapFlags};

use crate::bpf_skel::BpfSkel;

/// The only key of a map that holds variables.
const ALL: [u8; 4] = [0; 4];

/// The program's variables as they were before it was first attached.
pub(crate) struct InitialState {
    /// Those with an initial value other than 0.
    data: Vec<u8>,
}

impl InitialState {
    /// That of a program that has just been loaded.
    pub(crate) fn of(skel: &BpfSkel<'_>) -> Result<InitialState> {
        let data = skel.maps.data.lookup(&ALL, MapFlags::ANY)?;
        Ok(InitialState {
            data: data.context("the program has no .data")?,
        })
    }

    /// Resets the program's variables. The program must not be attached.
    pub(crate) fn restore(&self, skel: &BpfSkel<'_>) -> Result<()> {
        let zeros = vec![0; skel.maps.bss.value_size() as usize];
        skel.maps.bss.update(&ALL, &zeros, MapFlags::ANY)?;
        skel.maps.data.update(&ALL, &self.data, MapFlags::ANY)?;
        Ok(())
    }
}
