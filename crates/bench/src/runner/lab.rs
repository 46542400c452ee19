//! `giveway lab`: commands in a virtual machine whose kernel has sched_ext.
//!
//! The guest image is that of the benchmarks, so that there is one to build
//! and the database is at hand in `giveway lab shell`. This program, `giveway` and
//! `scx_ufs` travel with every job as they are now, not with the image.

mod lacks;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use giveway_lab::{CacheEntry, Clock, Costs, Job, Lab, LabSpec, Machine};

use crate::runner::executors::{image_layer, open};
use crate::runner::steps::Steps;
use giveway_command::{Context, Failure, program};

/// Run commands in a virtual machine whose kernel has sched_ext
///
/// The first use builds the lab, which takes some minutes; 'giveway lab build'
/// does only that.
#[derive(Args, Debug)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand, Debug)]
enum LabCommand {
    /// Run a command as root in a fresh guest
    Run(RunArgs),
    /// Open a shell in a fresh guest; 'exit' ends it
    Shell(ShellArgs),
    /// Build whatever of the lab is missing
    Build(BuildArgs),
    /// Say what of the lab is built, without building anything
    Info,
    /// Say what the lab has and lacks here, as JSON, without building anything
    #[command(hide = true)]
    Lacks,
    /// Remove everything the lab keeps on disk
    Clean,
}

#[derive(Args, Debug)]
struct RunArgs {
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    job: JobArgs,
    /// Directory to which the guest's /results is copied
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// The command and its arguments, run in /lab
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Args, Debug)]
struct ShellArgs {
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    job: JobArgs,
}

#[derive(Args, Debug)]
struct BuildArgs {
    /// Look for a newer kernel even if there is one
    #[arg(long, conflicts_with = "kernel")]
    refresh_kernel: bool,
    #[command(flatten)]
    kernel: KernelArgs,
}

#[derive(Args, Debug)]
struct KernelArgs {
    /// Boot the newest Linux of a series, as 6.12, or cfl, instead of the newest of all; what
    /// Debian does not build with sched_ext is built here, which takes ten to twenty minutes once;
    /// debian-6.12 is Debian's build as it is, which loads modules and no scheduler; debug is
    /// cfl with KASAN, PROVE_LOCKING and torture
    #[arg(long, value_name = "SERIES")]
    kernel: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClockKind {
    /// The host's: for functional tests
    Real,
    /// Equal speed for every CPU: for measurements
    Lockstep,
}

#[derive(Args, Debug)]
struct MachineArgs {
    #[command(flatten)]
    kernel: KernelArgs,
    /// Virtual CPUs
    #[arg(long, default_value_t = Machine::default().cpus, value_name = "N")]
    cpus: u32,
    /// Sockets the CPUs are spread over
    #[arg(long, default_value_t = Machine::default().sockets, value_name = "N")]
    sockets: u32,
    /// Hardware threads of a core
    #[arg(long, default_value_t = Machine::default().threads, value_name = "N")]
    threads: u32,
    /// NUMA nodes
    #[arg(long, default_value_t = Machine::default().numa_nodes, value_name = "N")]
    numa_nodes: u32,
    /// Memory in MiB
    #[arg(long, default_value_t = Machine::default().memory_mib, value_name = "MIB")]
    memory: u32,
    /// What time is in the guest
    #[arg(long, value_enum, default_value_t = ClockKind::Real)]
    clock: ClockKind,
    /// Lockstep: how far CPUs may be apart, in ns [default: 10000]
    #[arg(long, value_name = "NS")]
    quantum: Option<u32>,
    /// Lockstep: log2 of the ns an instruction takes [default: 2]
    #[arg(long, value_name = "N")]
    shift: Option<u8>,
    /// Lockstep: CPUs may see each other's stores up to a quantum early; faster
    #[arg(long)]
    loose: bool,
    /// Lockstep: price instructions by a cost model, as sapphire-rapids-vm, or by that in a
    /// file; --shift then follows from it
    #[arg(long, value_name = "MODEL", conflicts_with = "shift", value_parser = Costs::find)]
    costs: Option<Costs>,
    /// Seed of all randomness in the guest
    #[arg(long, default_value_t = Machine::default().seed, value_name = "N")]
    seed: u64,
    /// Limit on the run in seconds of host time
    #[arg(long, default_value_t = Machine::default().timeout.as_secs(), value_name = "SECONDS")]
    timeout: u64,
    /// CPUs with user interrupts (Intel's UINTR); KVM is then not used
    #[arg(long)]
    user_interrupts: bool,
    /// Added to the kernel's command line; may be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    kernel_arg: Vec<String>,
}

#[derive(Args, Debug)]
struct JobArgs {
    /// File or directory to put into /lab, under its own or another name
    #[arg(long, value_name = "PATH[:NAME]")]
    file: Vec<String>,
    /// Variable of the command's environment
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
}

/// Runs the subcommand; answers with the exit status.
pub(crate) fn lab(args: LabArgs) -> Result<u8, Failure> {
    match args.command {
        LabCommand::Run(args) => run(args),
        LabCommand::Shell(args) => {
            let machine = args.machine.machine()?;
            let job = args.job.fill(Job::default())?;
            boot(args.machine.kernel)?.shell(&machine, &job)?;
            Ok(0)
        }
        LabCommand::Build(args) => {
            match args.refresh_kernel {
                true => open(true)?,
                false => boot(args.kernel)?,
            };
            eprintln!("the lab is ready");
            Ok(0)
        }
        LabCommand::Info => info(),
        LabCommand::Lacks => {
            serde_json::to_writer(std::io::stdout().lock(), &lacks::findings(Path::new("/")))?;
            Ok(0)
        }
        LabCommand::Clean => {
            let freed = giveway_lab::clean()?;
            println!("{} MiB freed", freed >> 20);
            Ok(0)
        }
    }
}

/// The lab with the image that benchmarks use and this kernel.
fn boot(kernel: KernelArgs) -> Result<Lab, Failure> {
    open_as(LabSpec {
        layer: Some(image_layer()?),
        series: kernel.kernel,
        ..LabSpec::default()
    })
}

fn open_as(spec: LabSpec) -> Result<Lab, Failure> {
    Ok(Lab::open(&spec, &Steps::new())?)
}

/// Puts this program and, if they are there, `giveway` and the scheduler into a job.
pub(crate) fn with_programs(job: Job) -> Result<Job, Failure> {
    let own = std::env::current_exe().cannot("find this program's file")?;
    let others = ["giveway", "scx_ufs"].map(|name| Some((program::find(name)?, name)));
    let job = job.file(own, "giveway-bench");
    let others = others.into_iter().flatten();
    Ok(others.fold(job, |job, (file, name)| job.file(file, name)))
}

fn run(args: RunArgs) -> Result<u8, Failure> {
    let machine = args.machine.machine()?;
    let job = args.job.fill(Job::new(args.command))?;
    let lab = boot(args.machine.kernel)?;
    let mut out = std::io::stdout().lock();
    // The guest goes on when our reader is gone: its status is still wanted.
    let outcome = lab.run(&machine, &job, &mut |line| {
        let _ = writeln!(out, "{line}");
    })?;
    if let Some(dir) = &args.results {
        copy_tree(outcome.results(), dir).cannot(format_args!("write {}", dir.display()))?;
    }
    Ok(u8::try_from(outcome.status).unwrap_or(1))
}

fn info() -> Result<u8, Failure> {
    let lab = giveway_lab::cached_parts(Some(&image_layer()?));
    let built = |part: Option<String>| part.unwrap_or("not built yet".to_owned());
    let path = |path: PathBuf| path.display().to_string();
    let mut out = std::io::stdout().lock();
    writeln!(out, "kernel    {}", built(lab.kernel.map(|k| k.release())))?;
    writeln!(out, "emulator  {}", built(lab.qemu.map(path)))?;
    writeln!(out, "image     {}", built(lab.image.map(path)))?;
    let kvm = lacks::kvm(Path::new("/"), lab.kvm_usable);
    writeln!(out, "KVM       {}", kvm.detail)?;
    write!(out, "{}", listing(&giveway_lab::cache_entries()?))?;
    writeln!(out, "in {}", giveway_lab::cache_root().display())?;
    Ok(0)
}

/// What the cache holds: large parts by name, small ones and the answers of tests, which are
/// many, in one line each.
fn listing(entries: &[CacheEntry]) -> String {
    let is_answer = |entry: &&CacheEntry| entry.name.starts_with("answer-");
    let is_large = |entry: &&CacheEntry| entry.bytes >> 20 > 0;
    let (answers, parts): (Vec<&CacheEntry>, Vec<&CacheEntry>) =
        entries.iter().partition(is_answer);
    let (large, small): (Vec<&CacheEntry>, Vec<&CacheEntry>) =
        parts.into_iter().partition(is_large);
    let line = |bytes: u64, what: &str| format!("{:>8} MiB  {what}\n", bytes >> 20);
    let mut text = String::new();
    for entry in large {
        text += &line(entry.bytes, &entry.name);
    }
    for (what, group) in [("small parts", small), ("kept answers of tests", answers)] {
        if !group.is_empty() {
            let bytes = group.iter().map(|entry| entry.bytes).sum();
            text += &line(bytes, &format!("{what}: {}", group.len()));
        }
    }
    text
}

impl MachineArgs {
    fn machine(&self) -> Result<Machine, Failure> {
        let clock = match self.clock {
            ClockKind::Lockstep => self.lockstep(),
            ClockKind::Real
                if self.quantum.is_some()
                    || self.shift.is_some()
                    || self.loose
                    || self.costs.is_some() =>
            {
                return Err(Failure::usage(
                    "--quantum, --shift, --loose and --costs describe the lockstep clock",
                )
                .with_remedy("add --clock lockstep"));
            }
            ClockKind::Real => Clock::Real,
        };
        Ok(Machine {
            cpus: self.cpus,
            sockets: self.sockets,
            threads: self.threads,
            numa_nodes: self.numa_nodes,
            memory_mib: self.memory,
            clock,
            seed: self.seed,
            timeout: Duration::from_secs(self.timeout),
            user_interrupts: self.user_interrupts,
            kernel_args: self.kernel_arg.clone(),
        })
    }

    fn lockstep(&self) -> Clock {
        match Clock::LOCKSTEP {
            Clock::Lockstep {
                quantum_ns, shift, ..
            } => Clock::Lockstep {
                quantum_ns: self.quantum.unwrap_or(quantum_ns),
                shift: self.shift.unwrap_or(shift),
                causal: !self.loose,
                costs: self.costs,
            },
            Clock::Real => Clock::Real,
        }
    }
}

impl JobArgs {
    fn fill(&self, job: Job) -> Result<Job, Failure> {
        let mut job = with_programs(job)?;
        for file in &self.file {
            let (path, name) = file_and_name(file)?;
            job = job.file(path, name);
        }
        for pair in &self.env {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Failure::usage(format_args!("--env {pair} lacks a value"))
                    .with_remedy("write --env NAME=VALUE")
            })?;
            job = job.env(name, value);
        }
        Ok(job)
    }
}

/// Splits `PATH[:NAME]`; the name is the path's last part unless given.
fn file_and_name(text: &str) -> Result<(PathBuf, String), Failure> {
    let (path, name) = match text.rsplit_once(':') {
        Some((path, name)) if !name.contains('/') => (PathBuf::from(path), Some(name.to_owned())),
        _ => (PathBuf::from(text), None),
    };
    let own = || Some(path.canonicalize().ok()?.file_name()?.to_str()?.to_owned());
    if !path.exists() {
        return Err(Failure::usage(format_args!(
            "--file {}: no such file",
            path.display()
        )));
    }
    match name.or_else(own) {
        Some(name) if !name.is_empty() => Ok((path, name)),
        _ => Err(
            Failure::usage(format_args!("--file {text}: it needs a name"))
                .with_remedy("write --file PATH:NAME"),
        ),
    }
}

fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_name_unless_another_is_given() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sh");
        fs::write(&path, "").unwrap();
        let path = path.display().to_string();
        assert_eq!(file_and_name(&path).unwrap().1, "a.sh");
        assert_eq!(file_and_name(&format!("{path}:job")).unwrap().1, "job");
        let missing = file_and_name("/no/such/file").unwrap_err().to_string();
        assert!(missing.contains("/no/such/file: no such file"), "{missing}");
        assert!(file_and_name(&format!("{path}:")).is_err());
    }

    #[test]
    fn small_parts_of_the_cache_share_a_line() {
        let entry = |name: &str, mib: u64| CacheEntry {
            name: name.to_owned(),
            bytes: mib << 20,
        };
        let entries = [
            entry("answer-03ce0339800f", 0),
            entry("answer-7", 2),
            entry("image-1", 900),
            entry("kernel-1", 80),
            entry("packages-1", 0),
        ];
        assert_eq!(
            listing(&entries),
            "     900 MiB  image-1\n      80 MiB  kernel-1\n       0 MiB  small parts: 1\n       \
             2 MiB  kept answers of tests: 2\n"
        );
    }

    #[test]
    fn results_are_copied_with_their_directories() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(from.path().join("d")).unwrap();
        fs::write(from.path().join("d/x"), "7").unwrap();
        let target = to.path().join("new");
        copy_tree(from.path(), &target).unwrap();
        assert_eq!(fs::read_to_string(target.join("d/x")).unwrap(), "7");
    }
}
