//! The two places where a cell can run: this machine, and a virtual one.
//!
//! The lab's guests get this program, the schedulers and the cell as a file;
//! the data lies in the image. Both places produce the same report of one row.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use giveway_bench::dataset::{self, DATASET_VERSION, DatasetSpec};
use giveway_bench::setup::Build;
use giveway_bench::{CellConfig, Environment, Record, Report, Scheduler};
use giveway_lab::{Clock, Job, Lab, Layer, Machine};

use super::guest;
use super::pool::Place;
use crate::error::{Context, Failure};
use crate::lab;
use crate::output::Steps;
use crate::service;

/// Where the data lies, in the guest image.
pub(super) const GUEST_DATA: &str = "/var/lib/giveway/bench";
/// Where it lies natively; the server's user must be able to reach it, so it
/// cannot be below root's home.
const NATIVE_DATA: &str = "/var/lib/giveway";
/// Where a guest has the files of its job.
const GUEST_FILES: &str = "/lab";
/// Memory of a measuring guest: PostgreSQL, and its data on a tmpfs.
const GUEST_MIB: u32 = 3072;
/// What a guest takes from the host beside its memory, in MiB.
const OVERHEAD_MIB: u64 = 1024;
/// The report of a guest's command, where the guest has it, and in what comes
/// back.
pub(super) const GUEST_REPORT: &str = "/results/report.json";
const REPORT: &str = "report.json";
/// Last lines of a failed cell that are kept.
const TAIL_LINES: usize = 12;

/// Data for an experiment on `cpus` server CPUs: a warehouse per terminal.
pub(super) fn dataset_for(cpus: u32) -> DatasetSpec {
    let usual = DatasetSpec::default();
    DatasetSpec {
        warehouses: usual.warehouses.max(cpus),
        ..usual
    }
}

/// What the guest image needs beyond Debian: the usual data.
pub(crate) fn image_layer() -> Result<Layer, Failure> {
    layer(&DatasetSpec::default())
}

fn layer(spec: &DatasetSpec) -> Result<Layer, Failure> {
    let own = std::env::current_exe().cannot("find this program's file")?;
    let program = own.file_name().unwrap_or_default().to_string_lossy();
    let mut command = vec![format!("/layer/{program}")];
    command.extend(["bench", "prepare", "--data", GUEST_DATA].map(str::to_owned));
    command.extend([
        format!("--warehouses={}", spec.warehouses),
        format!("--tpch-scale={}", spec.tpch_scale),
        format!("--seed={}", spec.seed),
    ]);
    Ok(Layer {
        key: name_of(spec),
        files: vec![own],
        command,
        ..Layer::default()
    })
}

/// A name that differs whenever the data would.
fn name_of(spec: &DatasetSpec) -> String {
    format!(
        "bench-{DATASET_VERSION}-{}-{}-{}",
        spec.warehouses, spec.tpch_scale, spec.seed
    )
}

/// The file of a sched_ext scheduler: beside this program, or in PATH. None for
/// the kernel's own.
pub(super) fn scheduler_file(scheduler: &Scheduler) -> Result<Option<PathBuf>, Failure> {
    let Some(name) = scheduler.program() else {
        return Ok(None);
    };
    match service::find_program(&name) {
        Some(path) => Ok(Some(path)),
        None => Err(Failure::new(format_args!(
            "{name} is neither beside this program nor in PATH"
        ))
        .with_remedy(match scheduler {
            Scheduler::Ufs => "make build, or make install".to_owned(),
            _ => format!("cargo install {name}"),
        })),
    }
}

/// Where `postgres/lab-server.sh` leaves a server of PostgreSQL 17, whose data
/// is the image's.
pub(super) fn server_dir(build: Build) -> Result<PathBuf, Failure> {
    let name = format!("postgres/lab-17-{build}");
    // The link is followed here: a guest gets the directory.
    match giveway_lab::cache_root().join(name).canonicalize() {
        Ok(dir) => Ok(dir),
        Err(_) => Err(
            Failure::new(format_args!("there is no {build} PostgreSQL for the lab"))
                .with_remedy("make servers"),
        ),
    }
}

/// What cells run, on this machine: programs of schedulers, and servers that
/// were built for the lab.
struct Programs {
    schedulers: Vec<(Scheduler, PathBuf)>,
    servers: Vec<(Build, PathBuf)>,
}

impl Programs {
    fn of(cells: &[CellConfig]) -> Result<Self, Failure> {
        let mut this = Programs {
            schedulers: Vec::new(),
            servers: Vec::new(),
        };
        for cell in cells {
            if this.scheduler(cell).is_none()
                && let Some(path) = scheduler_file(&cell.scheduler)?
            {
                this.schedulers.push((cell.scheduler.clone(), path));
            }
            if this.server(cell).is_none() && cell.server != Build::Installed {
                this.servers.push((cell.server, server_dir(cell.server)?));
            }
        }
        Ok(this)
    }

    fn scheduler(&self, cell: &CellConfig) -> Option<&Path> {
        let mut found = self.schedulers.iter();
        let found = found.find(|(scheduler, _)| *scheduler == cell.scheduler);
        found.map(|(_, path)| path.as_path())
    }

    fn server(&self, cell: &CellConfig) -> Option<&Path> {
        let found = self.servers.iter().find(|(build, _)| *build == cell.server);
        found.map(|(_, path)| path.as_path())
    }
}

/// Cells on this machine itself, one at a time.
pub(super) struct Native {
    data: PathBuf,
    programs: Programs,
}

impl Native {
    /// Makes the data if it is not there.
    pub(super) fn open(spec: &DatasetSpec, cells: &[CellConfig]) -> Result<Self, Failure> {
        let programs = Programs::of(cells)?;
        let data = Path::new(NATIVE_DATA).join(name_of(spec));
        if !data.exists() {
            // Made beside and renamed, so that half-made data is never used.
            let partial = data.with_extension("partial");
            if partial.exists() {
                std::fs::remove_dir_all(&partial).cannot("remove half-made data")?;
            }
            std::fs::create_dir_all(NATIVE_DATA).cannot(format_args!("make {NATIVE_DATA}"))?;
            let steps = Steps::new();
            giveway_lab::Progress::begin(&steps, "making the data");
            dataset::prepare(&partial, spec, &mut |line| {
                giveway_lab::Progress::detail(&steps, line);
            })?;
            std::fs::rename(&partial, &data).cannot("keep the data")?;
            giveway_lab::Progress::end(&steps, "made");
        }
        Ok(Native { data, programs })
    }
}

impl Place<CellConfig, Report> for Native {
    fn run(&self, cell: &CellConfig, line: &mut dyn FnMut(&str)) -> Result<Report, String> {
        let mut cell = cell.clone();
        cell.data_dir.clone_from(&self.data);
        if let Some(path) = self.programs.scheduler(&cell) {
            cell.scheduler_command = vec![path.display().to_string()];
        }
        if let Some(path) = self.programs.server(&cell) {
            cell.server_dir = path.to_owned();
        }
        guest::measure(&cell, "native", line).map_err(|error| error.to_string())
    }
}

/// Cells in virtual machines, each with a machine of its own.
pub(super) struct Guests {
    lab: Lab,
    clock: Clock,
    programs: Programs,
    /// What rows say of the host: a guest knows neither the day nor a name.
    host: Environment,
}

impl Guests {
    /// Builds what is missing of the lab.
    pub(super) fn open(spec: &DatasetSpec, cells: &[CellConfig]) -> Result<Self, Failure> {
        let programs = Programs::of(cells)?;
        Ok(Guests {
            lab: lab::open_with(layer(spec)?, false)?,
            clock: Clock::LOCKSTEP,
            programs,
            host: Environment::probe(Clock::LOCKSTEP.name(), super::COMMIT),
        })
    }

    /// How many guests run at once.
    pub(super) fn width() -> usize {
        width(GUEST_MIB)
    }

    fn job(&self, cell: &CellConfig, file: &Path) -> Result<Job, Failure> {
        let argv = [
            "giveway",
            "bench",
            "cell",
            "--config",
            "/lab/cell.json",
            "--out",
            GUEST_REPORT,
            "--clock",
            self.clock.name(),
        ];
        let own = std::env::current_exe().cannot("find this program's file")?;
        let mut job = Job::new(argv).file(own, "giveway").file(file, "cell.json");
        if let Some(path) = self.programs.scheduler(cell) {
            job = job.file(path, cell.scheduler.program().unwrap_or_default());
        }
        if let Some(path) = self.programs.server(cell) {
            job = job.file(path, cell.server.name());
        }
        Ok(job)
    }

    fn measure(&self, cell: &CellConfig, line: &mut dyn FnMut(&str)) -> Result<Report, Failure> {
        let in_guest = CellConfig {
            data_dir: GUEST_DATA.into(),
            server_dir: Path::new(GUEST_FILES).join(cell.server.name()),
            ..cell.clone()
        };
        let mut file = tempfile::NamedTempFile::new().cannot("make a temporary file")?;
        serde_json::to_writer(&mut file, &in_guest)?;
        file.flush()?;
        let machine = machine(cell, self.clock);
        let job = self.job(cell, file.path())?;
        let mut report: Report = report_of(&self.lab, &machine, &job, line)?;
        report.environment.date.clone_from(&self.host.date);
        report.environment.machine.clone_from(&self.host.machine);
        Ok(report)
    }
}

impl Place<CellConfig, Report> for Guests {
    fn run(&self, cell: &CellConfig, line: &mut dyn FnMut(&str)) -> Result<Report, String> {
        self.measure(cell, line)
            .map_err(|failure| failure.message())
    }
}

/// How many guests of that size run at once: they cannot disturb each other's
/// clock, but each takes one host CPU and its memory.
pub(super) fn width(guest_mib: u32) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = available_mib().unwrap_or(u64::MAX) / (u64::from(guest_mib) + OVERHEAD_MIB);
    cpus.min(usize::try_from(memory).unwrap_or(cpus)).max(1)
}

/// Boots the machine for the job and reads the report that it leaves.
///
/// # Errors
/// A guest that failed, or a command in it, with its last lines.
pub(super) fn report_of<R: Record>(
    lab: &Lab,
    machine: &Machine,
    job: &Job,
    line: &mut dyn FnMut(&str),
) -> Result<Report<R>, Failure> {
    let mut tail = Tail::default();
    let outcome = lab.run(machine, job, &mut |text| {
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
    Ok(Report::read(&outcome.results().join(REPORT))?)
}

/// The machine that measures a cell: same seed, same machine, same result.
fn machine(cell: &CellConfig, clock: Clock) -> Machine {
    // Emulation takes up to ten host seconds for a guest second on busy CPUs;
    // set-up inside the guest takes a minute or two.
    let measured = Duration::from_secs_f64(cell.warmup_s + cell.seconds);
    Machine {
        cpus: cell.cpus + cell.client_cpus,
        memory_mib: GUEST_MIB,
        clock,
        seed: cell.seed,
        timeout: Duration::from_secs(900) + measured * 30,
        ..Machine::default()
    }
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
struct Tail(std::collections::VecDeque<String>);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_terminal_has_a_warehouse() {
        assert_eq!(dataset_for(2).warehouses, DatasetSpec::default().warehouses);
        assert_eq!(dataset_for(16).warehouses, 16);
        assert_ne!(name_of(&dataset_for(2)), name_of(&dataset_for(16)));
    }

    #[test]
    fn a_cell_s_machine_has_cpus_for_server_and_clients_and_its_seed() {
        let cell = CellConfig {
            cpus: 4,
            client_cpus: 2,
            seed: 9,
            ..CellConfig::default()
        };
        let machine = machine(&cell, Clock::LOCKSTEP);
        assert_eq!((machine.cpus, machine.seed), (6, 9));
        assert_eq!(machine.clock, Clock::LOCKSTEP);
    }

    #[test]
    fn a_scheduler_that_is_not_there_is_named_with_the_remedy() {
        let under = |scheduler: Scheduler| CellConfig {
            scheduler,
            ..CellConfig::default()
        };
        let error = Programs::of(&[under("scx_nosuch".parse().unwrap())])
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("scx_nosuch") && error.contains("cargo install"),
            "{error}"
        );
        let known = Programs::of(&[under(Scheduler::Eevdf), under(Scheduler::Rr)]).unwrap();
        assert!(known.schedulers.is_empty() && known.servers.is_empty());
    }

    #[test]
    fn the_tail_keeps_the_last_lines() {
        let mut tail = Tail::default();
        (0..20).for_each(|n| tail.push(&n.to_string()));
        assert!(tail.text().starts_with("8\n  9\n") && tail.text().ends_with("19"));
    }
}
