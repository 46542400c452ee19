//! `giveway-bench`, or `giveway bench`: measures workloads under several schedulers, locks
//! or policies; and `giveway lab`, the virtual machine that it measures in.

use std::process::ExitCode;

use giveway_command::memory::MiMalloc;
#[cfg(feature = "experiments")]
use giveway_preempt::RegionAlloc;

/// The experiment `preempt` preempts transactions that allocate. One that is left inside
/// the allocator would hold its locks while another allocates on the same thread, so an
/// allocation is a region in which nobody is preempted. On threads that are no workers
/// this is an addition to a thread-local and its undoing.
#[cfg(feature = "experiments")]
#[global_allocator]
static ALLOCATOR: RegionAlloc<MiMalloc> = RegionAlloc(MiMalloc);

#[cfg(not(feature = "experiments"))]
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    giveway_bench::program::main()
}
