//! What an experiment does in virtual machines, from outside and from inside.
//!
//! ```text
//!   host    plan ─► file, with programs ─► Host::run_plan ──────────► report, signed
//!                                              │                     ▲
//!   guest                   `giveway-bench COMMAND --config plan` ─► report
//! ```
//!
//! COMMAND is a hidden one that measures one cell; an experiment that runs
//! natively, too, hands its own command line over instead ([`Host::run`]). A
//! guest knows neither the day nor a name, so the host signs its report. `prepare`
//! runs while the guest image is made.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use crate::cell::config::CellConfig;
use crate::cell::record::CellRecord;
use crate::cell::row::Row;
use crate::cell::run_cell;
use crate::harness::Progress;
use crate::harness::environment::{Environment, Provenance, own_digest};
use crate::report::{Record, Report};
use crate::runner::clock::ClockArgs;
use crate::workload::dataset::{self, DATASET_VERSION, DatasetSpec};
use clap::Args;
use giveway_lab::{Clock, Costs, Job, Lab, Machine};
use serde::Serialize;
use serde::de::DeserializeOwned;

use giveway_command::{Context, Failure};

/// Where a guest has the files of its job.
pub(crate) const GUEST_FILES: &str = "/lab";
/// This program, as a guest knows it.
const PROGRAM: &str = "giveway-bench";
/// The plan's file there.
const PLAN: &str = "plan.json";
/// The report of a guest's command, where the guest has it, and in what comes
/// back.
pub(crate) const GUEST_REPORT: &str = "/results/report.json";
const REPORT: &str = "report.json";
/// What a guest takes from the host beside its memory, in MiB.
const OVERHEAD_MIB: u64 = 1024;
/// Last lines of a failed cell that are kept.
const TAIL_LINES: usize = 12;

/// A file of the host and its name in a guest.
pub(crate) type HostFile = (PathBuf, String);

/// Boots guests, hands them their files, and signs their reports.
pub(crate) struct Host {
    lab: Lab,
    clock: ClockArgs,
    /// What reports say of the host.
    environment: Environment,
}

impl Host {
    /// The host of this lab's guests.
    ///
    /// # Errors
    /// KVM was asked for and boots no guest here.
    pub(crate) fn of(lab: Lab, clock: ClockArgs) -> Result<Self, Failure> {
        if clock.is_kvm() && !lab.kvm_usable() {
            return Err(Failure::new("KVM boots no guest on this machine")
                .with_remedy("'giveway lab info' tells more; without --kvm guests are emulated"));
        }
        let mut environment = Environment::probe("");
        environment.provenance.program = own_digest();
        environment.provenance.emulator = entry(&lab.qemu());
        environment.provenance.image = entry(lab.image());
        Ok(Host {
            lab,
            clock,
            environment,
        })
    }

    /// How many guests with this memory run at once.
    pub(crate) fn width(&self, guest_mib: u32) -> usize {
        if self.clock.is_kvm() {
            1
        } else {
            width(guest_mib)
        }
    }

    /// Measures a plan with a hidden command in a guest of its own.
    ///
    /// # Errors
    /// A guest that failed, or a command in it, with its last lines.
    pub(crate) fn run_plan<R: Record>(
        &self,
        machine: &Machine,
        command: &str,
        plan: &impl Serialize,
        files: &[HostFile],
        line: &mut dyn FnMut(&str),
    ) -> Result<Report<R>, Failure> {
        let mut file = tempfile::NamedTempFile::new().cannot("make a temporary file")?;
        serde_json::to_writer(&mut file, plan)?;
        file.flush()?;
        let mut files = files.to_vec();
        files.push((file.path().to_owned(), PLAN.to_owned()));
        let arguments = cell_arguments(command, self.clock.name(machine.clock));
        self.run(machine, &arguments, &files, line)
    }

    /// Runs this program with arguments that make it write [`GUEST_REPORT`].
    ///
    /// # Errors
    /// As above.
    pub(crate) fn run<R: Record>(
        &self,
        machine: &Machine,
        arguments: &[String],
        files: &[HostFile],
        line: &mut dyn FnMut(&str),
    ) -> Result<Report<R>, Failure> {
        let machine = &Machine {
            clock: self.clock.of(machine.clock),
            ..machine.clone()
        };
        let own = std::env::current_exe().cannot("find this program's file")?;
        let argv = [PROGRAM]
            .into_iter()
            .chain(arguments.iter().map(String::as_str));
        let mut job = Job::new(argv).file(own, PROGRAM);
        for (path, name) in files {
            job = job.file(path, name);
        }
        let mut tail = Tail::default();
        let outcome = self.lab.run(machine, &job, &mut |text| {
            tail.push(text);
            line(text);
        })?;
        if outcome.status != 0 {
            return Err(Failure::new(format_args!(
                "the guest's command ended with status {}; its last lines:\n  {}",
                outcome.status,
                tail.text()
            )));
        }
        let mut report: Report<R> = Report::read(&outcome.results().join(REPORT))?;
        let name = self.clock.name(machine.clock);
        sign(
            &mut report.environment,
            &self.environment,
            machine.clock,
            name,
        );
        Ok(report)
    }
}

/// The command line, without the program, that runs a plan in a guest.
fn cell_arguments(command: &str, clock: &str) -> Vec<String> {
    let plan = format!("{GUEST_FILES}/{PLAN}");
    let line = [command, "--config", &plan, "--out", GUEST_REPORT];
    let clock = ["--clock", clock];
    line.into_iter().chain(clock).map(str::to_owned).collect()
}

/// Says in a guest's report what only the host knows.
fn sign(environment: &mut Environment, host: &Environment, clock: Clock, name: &str) {
    environment.date.clone_from(&host.date);
    environment.machine.clone_from(&host.machine);
    name.clone_into(&mut environment.clock);
    environment.provenance = Provenance {
        quantum_ns: clock.quantum_ns(),
        causal: clock.is_causal(),
        costs: clock.costs().map_or_else(String::new, Costs::name),
        ..host.provenance.clone()
    };
}

/// The name of the entry of the lab's cache in which a file lies: what it is and the
/// digest of what it was made from.
fn entry(file: &Path) -> String {
    let name = file.parent().and_then(Path::file_name);
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// How many emulated guests run at once: they cannot disturb each other's clock, but
/// each takes one host CPU and its memory.
fn width(guest_mib: u32) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = available_mib().unwrap_or(u64::MAX) / (u64::from(guest_mib) + OVERHEAD_MIB);
    cpus.min(usize::try_from(memory).unwrap_or(cpus)).max(1)
}

fn available_mib() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib >> 10)
}

/// The last lines of a console.
#[derive(Default)]
struct Tail(VecDeque<String>);

impl Tail {
    fn push(&mut self, line: &str) {
        if self.0.len() == TAIL_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line.to_owned());
    }

    fn text(&self) -> String {
        Vec::from_iter(self.0.iter().map(String::as_str)).join("\n  ")
    }
}

#[derive(Args, Debug)]
pub(crate) struct PrepareArgs {
    /// Directory to make; must not exist or be empty
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// TPC-C warehouses
    #[arg(long, default_value_t = DatasetSpec::default().warehouses, value_name = "N")]
    warehouses: u32,
    /// TPC-H scale factor
    #[arg(long, default_value_t = DatasetSpec::default().tpch_scale, value_name = "SF")]
    tpch_scale: f64,
    /// Seed of the data
    #[arg(long, default_value_t = DatasetSpec::default().seed, value_name = "N")]
    seed: u64,
}

#[derive(Args, Debug)]
pub(crate) struct CellArgs {
    /// The cell or plan, as JSON
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Report with its rows
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Name of the clock, for the report
    #[arg(long, default_value = "real")]
    clock: String,
}

/// Makes the data.
pub(crate) fn prepare(args: &PrepareArgs) -> Result<(), Failure> {
    let spec = DatasetSpec {
        warehouses: args.warehouses,
        tpch_scale: args.tpch_scale,
        seed: args.seed,
    };
    Ok(dataset::prepare(&args.data, &spec, &mut |line| {
        eprintln!("{line}");
    })?)
}

/// Runs a plan on this machine and leaves its report: what a hidden command
/// does. `measure` gets the plan and the clock's name.
pub(crate) fn run_plan<Plan: DeserializeOwned, R: Record>(
    args: &CellArgs,
    measure: impl FnOnce(&Plan, &str, Progress<'_>) -> crate::harness::error::Result<Report<R>>,
) -> Result<(), Failure> {
    let file = File::open(&args.config).cannot(format_args!("open {}", args.config.display()))?;
    let plan: Plan = serde_json::from_reader(BufReader::new(file))
        .cannot(format_args!("read {}", args.config.display()))?;
    let report = measure(&plan, &args.clock, &mut |line| println!("{line}"))?;
    Ok(report.write(&args.out)?)
}

/// Measures one cell of a database workload: what the hidden `cell` does.
pub(crate) fn cell(args: &CellArgs) -> Result<(), Failure> {
    run_plan(args, measure)
}

/// One cell of a database workload as a report of one row.
pub(crate) fn measure(
    config: &CellConfig,
    clock: &str,
    progress: Progress<'_>,
) -> crate::harness::error::Result<Report<Row>> {
    let measured = run_cell(config, progress);
    let environment = environment(config, clock);
    let mut report = Report::new(Row::EXPERIMENT, environment);
    report.add(&config.scheduler, config.title(), measured)?;
    Ok(report)
}

/// This machine, with the server and the data of a cell.
fn environment(config: &CellConfig, clock: &str) -> Environment {
    let version = config.installation().and_then(|server| server.version());
    Environment {
        postgresql: version.unwrap_or_default(),
        dataset_version: DATASET_VERSION,
        ..Environment::probe(clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_finds_its_plan_where_the_host_puts_it_and_says_which_clock() {
        assert_eq!(
            cell_arguments("inversion-cell", "lockstep").join(" "),
            "inversion-cell --config /lab/plan.json --out /results/report.json \
             --clock lockstep"
        );
    }

    #[test]
    fn a_report_has_the_host_s_day_and_name_and_the_machine_s_clock() {
        let host = Environment {
            date: "2026-11-22".to_owned(),
            machine: "host".to_owned(),
            kernel: "6.1".to_owned(),
            ..Environment::default()
        };
        let mut environment = Environment {
            date: "1970-01-01".to_owned(),
            machine: "(none)".to_owned(),
            kernel: "7.2".to_owned(),
            clock: "native".to_owned(),
            ..Environment::default()
        };
        sign(&mut environment, &host, Clock::LOCKSTEP, "lockstep");
        assert_eq!(environment.provenance.quantum_ns, 10_000);
        assert!(environment.provenance.causal);
        let Environment {
            date,
            machine,
            kernel,
            clock,
            ..
        } = environment;
        assert_eq!(
            [date, machine, kernel, clock],
            ["2026-11-22", "host", "7.2", "lockstep"]
        );
    }

    #[test]
    fn a_part_of_the_lab_is_known_by_its_entry() {
        let file = Path::new("/cache/qemu-0123456789ab/qemu-system-x86_64");
        assert_eq!(entry(file), "qemu-0123456789ab");
    }

    #[test]
    fn the_tail_keeps_the_last_lines() {
        let mut tail = Tail::default();
        (0..20).for_each(|n| tail.push(&n.to_string()));
        assert!(tail.text().starts_with("8\n  9\n") && tail.text().ends_with("19"));
    }
}
