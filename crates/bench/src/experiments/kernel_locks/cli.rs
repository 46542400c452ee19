//! `giveway bench kernel-locks`: from options to a report.
//!
//! A cell of the pool is one part, one lock and one repeat, in a guest of its own.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::{Args, ValueEnum};
use giveway_command::{Context, Failure};
use giveway_lab::{Clock, Machine};

use crate::experiments::kernel_locks::{KernelLocksPlan, KernelLocksRow, Lock, Part, run};
use crate::report::Report;
use crate::runner::clock::ClockArgs;
use crate::runner::executors;
use crate::runner::experiment::{Experiment, GuestCommand};
use crate::runner::guest::{self, CellArgs, Host};
use crate::runner::pool::Executor;
use crate::runner::results::{RepeatArgs, ResultArgs, interruptible, positive};

/// The kernel's series in the lab.
const SERIES: &str = "cfl";
/// Memory of a guest.
const GUEST_MIB: u32 = 1024;
/// The file system: room for 16000 files, and the disk that it is copied to.
const FILES: u32 = 16_000;
const DISK_MIB: u32 = 32;

/// What a plan has unless it is told otherwise.
pub(super) fn usual() -> KernelLocksPlan {
    KernelLocksPlan {
        part: Part::Rename,
        lock: Lock::Cfl,
        cpus: 16,
        sockets: 1,
        // G#2's sections are about 6 times G#1's, the paper's 5.7.
        files: 430,
        settle_s: 0.2,
        seconds: 0.5,
        repeat: 0,
        seed: 1,
    }
}

/// The same for a part. A blog server and its batch need a CPU each, and operations that
/// take microseconds need windows of milliseconds.
fn usual_of(part: Part) -> KernelLocksPlan {
    match part {
        Part::Blogbench => KernelLocksPlan {
            cpus: 64,
            sockets: 4,
            settle_s: 0.002,
            seconds: 0.006,
            ..usual()
        },
        _ => usual(),
    }
}

/// Measure how two cgroups share a lock of the kernel, stock and under CFL
///
/// Threads of two cgroups rename files between directories, the one with short, the other
/// with long sections of one mutex; or a blog server shares a spinlock with a batch. Runs
/// in the lab, on a kernel that is built once, which
/// takes twenty minutes or more. See docs/measure/locks.md.
#[derive(Args, Debug)]
pub(crate) struct KernelLocksArgs {
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST",
          default_values_t = Part::value_variants().to_vec())]
    parts: Vec<Part>,
    /// What to compare; `weights` is of CFL alone
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST",
          default_values_t = Lock::value_variants().to_vec())]
    locks: Vec<Lock>,
    /// CPUs of the guest [default: 16; blogbench 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: Option<u32>,
    /// Sockets that they are spread over, each a NUMA node [default: 1; blogbench 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8))]
    sockets: Option<u32>,
    /// Files in the full directory
    #[arg(long, default_value_t = usual().files, value_name = "N",
          value_parser = clap::value_parser!(u32).range(..=i64::from(FILES - 1000)))]
    files: u32,
    /// Length of each window [default: 0.5; blogbench 0.006]
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    seconds: Option<f64>,
    /// Fail if the kernel has not been built yet
    #[arg(long)]
    no_build: bool,
    #[command(flatten)]
    repeats: RepeatArgs,
    #[command(flatten)]
    clock: ClockArgs,
    #[command(flatten)]
    results: ResultArgs,
}

/// Measures and reports; answers with the exit status.
fn kernel_locks(args: &KernelLocksArgs) -> Result<u8, Failure> {
    let plans = args.plans()?;
    if args.no_build {
        require_kernel(giveway_lab::has_series(SERIES))?;
    }
    let stop = interruptible()?;
    // First what may fail at once: the lab may build a kernel.
    let image = file_system()?;
    let guests = Guests {
        host: Host::of(executors::open_series(SERIES)?, args.clock)?,
        image,
    };
    let width = guests.host.width(GUEST_MIB).min(plans.len());
    eprintln!(
        "measuring in the lab, {} guests, {width} at a time",
        plans.len()
    );
    args.results
        .run(&plans, KernelLocksPlan::title, &guests, width, &stop)
}

impl KernelLocksArgs {
    /// Repeats outside, so that what is compared was measured close together.
    fn plans(&self) -> Result<Vec<KernelLocksPlan>, Failure> {
        let mut plans = Vec::new();
        for (repeat, seed) in self.repeats.seeds() {
            for &part in &self.parts {
                let locks = self.locks.iter().filter(|lock| is_of(part, **lock));
                let usual = usual_of(part);
                plans.extend(locks.map(|&lock| KernelLocksPlan {
                    part,
                    lock,
                    cpus: self.cpus.unwrap_or(usual.cpus),
                    sockets: self.sockets.unwrap_or(usual.sockets),
                    files: self.files,
                    seconds: self.seconds.unwrap_or(usual.seconds),
                    repeat,
                    seed,
                    ..usual
                }));
            }
        }
        match plans.is_empty() {
            true => Err(Failure::usage("`weights` is of CFL alone").with_remedy("--locks cfl")),
            false => Ok(plans),
        }
    }
}

/// Whether a part is measured under a lock: others than CFL do not know weights, and
/// without prevention of starvation only who begins differs.
fn is_of(part: Part, lock: Lock) -> bool {
    match part {
        Part::Rename => true,
        Part::RenameFair | Part::Blogbench => lock != Lock::CflNs,
        Part::Weights => lock == Lock::Cfl,
    }
}

/// Refuses to measure without the kernel.
fn require_kernel(is_there: bool) -> Result<(), Failure> {
    match is_there {
        true => Ok(()),
        false => Err(Failure::new(
            "the CFL kernel has not been built, which takes twenty minutes or more",
        )
        .with_remedy("giveway lab run --kernel cfl -- true")),
    }
}

/// Makes the file system that guests get. The lab needs the program for its image, too.
fn file_system() -> Result<tempfile::NamedTempFile, Failure> {
    let image = tempfile::NamedTempFile::new().cannot("make a temporary file")?;
    let output = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0"])
        .args(["-O", "^has_journal,^dir_index,^metadata_csum"])
        .args(["-N", &FILES.to_string()])
        .arg(image.path())
        .arg(format!("{}M", DISK_MIB - 8))
        .output()
        .cannot("run mke2fs")?;
    match output.status.success() {
        true => Ok(image),
        false => Err(Failure::new(format_args!(
            "mke2fs failed: {}",
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}

/// Guests that are alike but for their locks.
struct Guests {
    host: Host,
    image: tempfile::NamedTempFile,
}

impl Executor<KernelLocksPlan, Report<KernelLocksRow>> for Guests {
    fn run(
        &self,
        plan: &KernelLocksPlan,
        line: &mut dyn FnMut(&str),
    ) -> Result<Report<KernelLocksRow>, String> {
        let image: &Path = self.image.path();
        let files = [(image.to_owned(), run::IMAGE.to_owned())];
        self.host
            .run_plan(&machine(plan), "kernel-locks-cell", plan, &files, line)
            .map_err(|failure| failure.message())
    }
}

/// The disk in memory. And a kernel that takes the guest for a machine of its own where
/// spinlocks are measured: under a hypervisor it gives up their queue and their order.
fn kernel_args(part: Part) -> Vec<String> {
    let mut args = vec![format!("brd.rd_size={}", DISK_MIB << 10)];
    if part == Part::Blogbench {
        args.push("clearcpuid=hypervisor".to_owned());
    }
    args
}

/// The same plan gives the same machine, and that the same rows.
fn machine(plan: &KernelLocksPlan) -> Machine {
    Machine {
        cpus: plan.cpus,
        sockets: plan.sockets,
        numa_nodes: plan.sockets,
        memory_mib: GUEST_MIB,
        clock: Clock::LOCKSTEP,
        seed: plan.seed,
        // What a busy host adds changes no result: the limit is for guests that hang.
        timeout: Duration::from_secs(3600),
        kernel_args: kernel_args(plan.part),
        ..Machine::default()
    }
}

/// Measures a plan on this machine: what runs in each guest.
fn cell(args: &CellArgs) -> Result<(), Failure> {
    guest::run_plan(args, |plan: &KernelLocksPlan, clock, line| {
        plan.run(clock, line)
    })
}

/// The experiment, as the registry knows it.
pub(crate) struct KernelLocks;

impl Experiment for KernelLocks {
    const NAME: &'static str = super::NAME;
    const SUMMARY: &'static str = "two cgroups that rename files share a mutex or a spinlock of \
        the kernel, stock and under CFL: operations, latency, hold time, fairness";
    const SECTION: &'static str = "CFL (paper 004), Sections 2.1, 4.2, 4.4 and 4.6.2";
    const SUBJECT: &'static [&'static str] = &[
        "kernel/cfl/*.patch",
        "crates/lab/kernel/cfl.config",
        "crates/lab/kernel/guest.config",
    ];
    const QUICK: &'static str = "--parts rename --locks stock,cfl --seconds 0.1 --no-build";
    type Args = KernelLocksArgs;
    type Row = KernelLocksRow;

    fn run(args: &KernelLocksArgs) -> Result<u8, Failure> {
        kernel_locks(args)
    }

    fn guest_commands() -> Vec<GuestCommand> {
        vec![GuestCommand::new::<CellArgs>(
            "kernel-locks-cell",
            "Rename files on this machine, whose kernel has CFL",
            cell,
        )]
    }

    #[cfg(test)]
    fn sample() -> Report<Self::Row> {
        super::report::samples::report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::experiment::parse;

    fn plans(options: &str) -> Result<Vec<KernelLocksPlan>, Failure> {
        let args: KernelLocksArgs = parse(&Vec::from_iter(options.split_whitespace())).unwrap();
        args.plans()
    }

    #[test]
    fn each_part_has_the_locks_that_differ_in_it() {
        let all = plans("--repeat 2 --seed 7").unwrap();
        let count = |part, seed| {
            let of = all.iter().filter(|p| (p.part, p.seed) == (part, seed));
            of.count()
        };
        assert_eq!(count(Part::Rename, 7), 4);
        assert_eq!(count(Part::RenameFair, 8), 3);
        assert_eq!(count(Part::Weights, 8), 1);
        assert_eq!(count(Part::Blogbench, 8), 3);
        assert_eq!(all.len(), 22);
        assert_eq!(all[11].title(), "rename, stock, repeat 2");
    }

    #[test]
    fn weights_of_others_than_cfl_are_refused_with_the_remedy() {
        let error = plans("--parts weights --locks stock").unwrap_err();
        assert!(error.to_string().contains("CFL alone"), "{error}");
    }

    #[test]
    fn a_kernel_that_may_not_be_built_and_is_missing_is_named() {
        assert!(require_kernel(true).is_ok());
        let error = require_kernel(false).unwrap_err().to_string();
        assert!(
            error.contains("giveway lab run --kernel cfl -- true"),
            "{error}"
        );
    }

    #[test]
    fn sockets_are_nodes_and_the_disk_has_room_for_the_file_system() {
        let plan = KernelLocksPlan {
            sockets: 4,
            seed: 9,
            ..usual()
        };
        let machine = machine(&plan);
        let got = (machine.cpus, machine.sockets, machine.numa_nodes);
        assert_eq!((got, machine.seed), ((16, 4, 4), 9));
        assert_eq!(machine.kernel_args, ["brd.rd_size=32768"]);
        let blog = kernel_args(Part::Blogbench);
        assert_eq!(blog[1..], ["clearcpuid=hypervisor"]);
        let image = file_system().unwrap();
        let bytes = image.as_file().metadata().unwrap().len();
        assert!(bytes < u64::from(DISK_MIB) << 20);
    }
}
