//! The two executors of cells: this machine, and virtual ones.
//!
//! The lab's guests get this program, the schedulers and the cell as a file;
//! the data lies in the image. Both produce the same report of one row,
//! which each experiment takes as a row of its own kind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cell::config::CellConfig;
use crate::cell::record::CellRecord;
use crate::cell::row::Row;
use crate::cell::setup::{Build, Disk};
use crate::harness::scheduler::Scheduler;
use crate::report::Report;
use crate::workload::background::Job;
use crate::workload::dataset::{self, DATASET_VERSION, DatasetSpec};
use giveway_lab::{Clock, Lab, LabSpec, Layer, Machine};
use giveway_metasched::scheduler::{self, Table};

use crate::runner::clock::ClockArgs;
use crate::runner::guest::{self, GUEST_FILES, Host, HostFile};
use crate::runner::pool::Executor;
use crate::runner::steps::Steps;
use giveway_command::{Context, Failure};

/// Where the data lies, in the guest image.
pub(crate) const GUEST_DATA: &str = "/var/lib/giveway/bench";
/// Where it lies natively; the server's user must be able to reach it, so it
/// cannot be below root's home.
const NATIVE_DATA: &str = "/var/lib/giveway";
/// The major version of the server in the guest image.
const GUEST_POSTGRESQL: u32 = 17;
/// Memory of a measuring guest, but for what warehouses take.
const GUEST_MIB: u32 = 2048;
/// The name of a scheduler's program among a guest's files.
const GUEST_SCHEDULER: &str = "scheduler";
/// The name of a server among a guest's files.
const GUEST_SERVER: &str = "postgres";
/// What a disk adds: its data is in the guest's memory.
const DISK_MIB: u32 = 1024;
/// What a disk's schedulers and the disk are in the kernel, in the order in which they load.
const DRIVERS: [&str; 4] = ["configfs", "mq-deadline", "bfq", "null_blk"];
/// A warehouse's, on a tmpfs and once more in PostgreSQL's buffers.
const WAREHOUSE_MIB: u32 = 256;

/// Data for cells: a warehouse for each terminal, and for each server CPU.
pub(crate) fn dataset_for(cells: &[CellConfig]) -> DatasetSpec {
    let usual = DatasetSpec::default();
    let warehouses = cells
        .iter()
        .map(|cell| cell.terminal_count().max(cell.cpus));
    DatasetSpec {
        warehouses: warehouses.fold(usual.warehouses, u32::max),
        ..usual
    }
}

/// What a guest with this data takes.
fn memory_mib(spec: &DatasetSpec) -> u32 {
    GUEST_MIB + WAREHOUSE_MIB * spec.warehouses
}

/// What the guest image needs beyond Debian: the usual data.
pub(crate) fn image_layer() -> Result<Layer, Failure> {
    layer(&DatasetSpec::default(), Vec::new())
}

/// The lab with the image that benchmarks use.
pub(crate) fn open(refresh_kernel: bool) -> Result<Lab, Failure> {
    open_with(image_layer()?, refresh_kernel)
}

/// The lab with an image that has this layer.
pub(crate) fn open_with(layer: Layer, refresh_kernel: bool) -> Result<Lab, Failure> {
    let spec = LabSpec {
        layer: Some(layer),
        refresh_kernel,
        ..LabSpec::default()
    };
    Ok(Lab::open(&spec, &Steps::new())?)
}

/// The lab with the newest kernel of a series and the image of every guest, for what needs
/// no data.
pub(crate) fn open_series(series: &str) -> Result<Lab, Failure> {
    let spec = LabSpec {
        series: Some(series.to_owned()),
        ..LabSpec::default()
    };
    Ok(Lab::open(&spec, &Steps::new())?)
}

/// What the background jobs of cells take beside a guest's PostgreSQL.
fn packages(cells: &[CellConfig]) -> Vec<String> {
    let all = cells
        .iter()
        .flat_map(|cell| cell.job.packages(GUEST_POSTGRESQL));
    let each: BTreeSet<String> = all.collect();
    each.into_iter().collect()
}

fn layer(spec: &DatasetSpec, packages: Vec<String>) -> Result<Layer, Failure> {
    let own = std::env::current_exe().cannot("find this program's file")?;
    let program = own.file_name().unwrap_or_default().to_string_lossy();
    let mut command = vec![format!("/layer/{program}")];
    command.extend(["prepare", "--data", GUEST_DATA].map(str::to_owned));
    command.extend([
        format!("--warehouses={}", spec.warehouses),
        format!("--tpch-scale={}", spec.tpch_scale),
        format!("--seed={}", spec.seed),
    ]);
    Ok(Layer {
        key: name_of(spec),
        packages,
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

/// The file of a scheduler's program, if it is on this machine.
pub(crate) fn find_scheduler(program: &str) -> Option<PathBuf> {
    scheduler::Machine::look(Path::new("/")).find(program)
}

/// The file of a sched_ext scheduler: beside this program, in PATH, or where
/// 'giveway meta schedulers --install' puts it. None for the kernel's own.
pub(crate) fn scheduler_file(scheduler: &Scheduler) -> Result<Option<PathBuf>, Failure> {
    let Some(name) = scheduler.program() else {
        return Ok(None);
    };
    if let Some(path) = find_scheduler(&name) {
        return Ok(Some(path));
    }
    let failure = Failure::new(format_args!("{name} is not installed"));
    Err(failure.with_remedy(how_to_install(&name)))
}

/// The programs of schedulers that are compared, for guests that get one each.
pub(crate) struct SchedulerPrograms(Vec<(Scheduler, PathBuf)>);

impl SchedulerPrograms {
    /// # Errors
    /// A scheduler that is not installed, with the remedy.
    pub(crate) fn find<'a>(
        schedulers: impl IntoIterator<Item = &'a Scheduler>,
    ) -> Result<Self, Failure> {
        let mut found = Vec::new();
        for scheduler in schedulers {
            if let Some(file) = scheduler_file(scheduler)? {
                found.push((scheduler.clone(), file));
            }
        }
        Ok(SchedulerPrograms(found))
    }

    /// A scheduler's program, to be given to a guest; none for the kernel's own.
    pub(crate) fn file(&self, scheduler: &Scheduler) -> Option<HostFile> {
        let found = self.0.iter().find(|(of, _)| of == scheduler);
        found.map(|(_, file)| (file.clone(), GUEST_SCHEDULER.to_owned()))
    }

    /// Where a guest then has it; empty for the kernel's own.
    pub(crate) fn in_guest(scheduler: &Scheduler) -> PathBuf {
        match scheduler.program() {
            Some(_) => Path::new(GUEST_FILES).join(GUEST_SCHEDULER),
            None => PathBuf::new(),
        }
    }
}

fn how_to_install(program: &str) -> String {
    match (program, Table::known().get(program)) {
        ("scx_ufs", _) => "make build, or make install".to_owned(),
        (_, Some(known)) => known.install.clone(),
        (_, None) => format!(
            "put {program} into a directory of PATH; 'giveway meta schedulers' lists those that \
             it can install"
        ),
    }
}

/// Where `postgres/lab-server.sh` leaves a server of PostgreSQL 17, whose data
/// is the image's.
fn server_dir(build: Build) -> Result<PathBuf, Failure> {
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

/// A server that was built for the lab, for guests that get it.
pub(crate) struct LabServer(PathBuf);

impl LabServer {
    /// # Errors
    /// One that was not built, with the remedy.
    pub(crate) fn find(build: Build) -> Result<Self, Failure> {
        Ok(LabServer(server_dir(build)?))
    }

    /// The server, to be given to a guest.
    pub(crate) fn file(&self) -> HostFile {
        (self.0.clone(), GUEST_SERVER.to_owned())
    }

    /// Where a guest then has it.
    pub(crate) fn in_guest() -> PathBuf {
        Path::new(GUEST_FILES).join(GUEST_SERVER)
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
pub(crate) struct Native {
    data: PathBuf,
    programs: Programs,
}

impl Native {
    /// Makes the data if it is not there.
    pub(crate) fn open(spec: &DatasetSpec, cells: &[CellConfig]) -> Result<Self, Failure> {
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

impl<R: CellRecord> Executor<CellConfig, Report<R>> for Native {
    fn run(&self, cell: &CellConfig, line: &mut dyn FnMut(&str)) -> Result<Report<R>, String> {
        let mut cell = cell.clone();
        cell.data_dir.clone_from(&self.data);
        if let Some(path) = self.programs.scheduler(&cell) {
            cell.scheduler_command = vec![path.display().to_string()];
        }
        if let Some(path) = self.programs.server(&cell) {
            cell.server_dir = path.to_owned();
        }
        let report = guest::measure(&cell, "native", line).map_err(|error| error.to_string())?;
        Ok(report.of_kind())
    }
}

/// Cells in virtual machines, each with a machine of its own.
pub(crate) struct Guests {
    host: Host,
    clock: Clock,
    memory_mib: u32,
    programs: Programs,
    /// Those of a disk, where cells have one.
    drivers: Vec<HostFile>,
}

impl Guests {
    /// Builds what is missing of the lab.
    pub(crate) fn open(
        spec: &DatasetSpec,
        cells: &[CellConfig],
        clock: ClockArgs,
    ) -> Result<Self, Failure> {
        let programs = Programs::of(cells)?;
        let lab = open_with(layer(spec, packages(cells))?, false)?;
        let has_disk = cells.iter().any(|cell| cell.disk != Disk::Memory);
        let drivers = DRIVERS.iter().filter_map(|name| {
            // One without a file is built into the kernel.
            Some((lab.driver(name)?, format!("{name}.ko")))
        });
        let drivers = match has_disk {
            true => drivers.collect(),
            false => Vec::new(),
        };
        Ok(Guests {
            host: Host::of(lab, clock)?,
            clock: Clock::LOCKSTEP,
            memory_mib: memory_mib(spec) + if has_disk { DISK_MIB } else { 0 },
            programs,
            drivers,
        })
    }

    /// How many of them run at once.
    pub(crate) fn width(&self) -> usize {
        self.host.width(self.memory_mib)
    }

    /// The scheduler and the server that a cell takes, as a guest knows them.
    fn files(&self, cell: &CellConfig) -> Vec<HostFile> {
        let scheduler = self.programs.scheduler(cell).zip(cell.scheduler.program());
        let server = self.programs.server(cell);
        let server = server.map(|path| (path, cell.server.name().to_owned()));
        let files = scheduler.into_iter().chain(server);
        let files = files.map(|(path, name)| (path.to_owned(), name));
        files.chain(self.drivers.iter().cloned()).collect()
    }
}

impl<R: CellRecord> Executor<CellConfig, Report<R>> for Guests {
    fn run(&self, cell: &CellConfig, line: &mut dyn FnMut(&str)) -> Result<Report<R>, String> {
        let in_guest = CellConfig {
            data_dir: GUEST_DATA.into(),
            server_dir: Path::new(GUEST_FILES).join(cell.server.name()),
            drivers_dir: GUEST_FILES.into(),
            ..cell.clone()
        };
        let (machine, files) = (machine(cell, self.clock, self.memory_mib), self.files(cell));
        let report: Result<Report<Row>, Failure> = self
            .host
            .run_plan(&machine, "cell", &in_guest, &files, line);
        report
            .map(Report::of_kind)
            .map_err(|failure| failure.message())
    }
}

/// The machine that measures a cell: same seed, same machine, same result.
fn machine(cell: &CellConfig, clock: Clock, memory_mib: u32) -> Machine {
    // Emulation takes up to ten host seconds for a guest second on busy CPUs; set-up
    // inside the guest takes a minute or two. What a busy host adds changes no result, so
    // the limit is for guests that hang.
    let measured = Duration::from_secs_f64(cell.warmup_s + cell.seconds);
    let set_up = match cell.job {
        // Every worker imports Python's libraries first.
        Job::LogisticRegression => Duration::from_secs(3600),
        _ => Duration::from_secs(2700),
    };
    Machine {
        cpus: cell.cpus + cell.client_cpus,
        memory_mib,
        clock,
        seed: cell.seed,
        timeout: set_up + measured * 100,
        ..Machine::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_terminal_has_a_warehouse() {
        let data = |cpus, terminals| {
            dataset_for(&[CellConfig {
                cpus,
                terminals,
                ..CellConfig::default()
            }])
        };
        let usual = DatasetSpec::default().warehouses;
        let of = [data(2, 0), data(16, 0), data(4, 12)];
        assert_eq!(of.each_ref().map(|spec| spec.warehouses), [usual, 16, 12]);
        assert_eq!(of.each_ref().map(memory_mib), [3072, 6144, 5120]);
        assert_ne!(name_of(&of[0]), name_of(&of[1]));
    }

    #[test]
    fn a_cell_s_machine_has_cpus_for_server_and_clients_and_its_seed() {
        let cell = CellConfig {
            cpus: 4,
            client_cpus: 2,
            seed: 9,
            ..CellConfig::default()
        };
        let machine = machine(&cell, Clock::LOCKSTEP, 3072);
        assert_eq!((machine.cpus, machine.seed), (6, 9));
        assert_eq!(machine.clock, Clock::LOCKSTEP);
        assert_eq!(machine.memory_mib, 3072);
    }

    #[test]
    fn an_image_has_what_a_job_takes_and_no_more() {
        let cell = |job| CellConfig {
            job,
            ..CellConfig::default()
        };
        assert!(packages(&[cell(Job::Q17)]).is_empty());
        let some = packages(&[cell(Job::LogisticRegression), cell(Job::LogisticRegression)]);
        assert_eq!(some, ["postgresql-plpython3-17", "python3-sklearn"]);
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
            error.contains("scx_nosuch is not installed") && error.contains("PATH"),
            "{error}"
        );
        assert_eq!(
            ["scx_layered", "scx_flatcg"].map(how_to_install),
            [
                "giveway meta schedulers --install scx_layered",
                "giveway meta schedulers --install scx_flatcg --kernel-source DIR"
            ]
        );
        let known = Programs::of(&[under(Scheduler::Eevdf), under(Scheduler::Rr)]).unwrap();
        assert!(known.schedulers.is_empty() && known.servers.is_empty());
    }
}
