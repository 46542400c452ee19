//! Inversion in virtual machines, one guest for each plan. The guest gets this
//! program, the scheduler, the server and the plan as a file.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use giveway_bench::inversion::{InversionPlan, InversionRow};
use giveway_bench::setup::Hints;
use giveway_bench::{Environment, Report, Scheduler};
use giveway_lab::{Clock, Job, Lab, Machine};

use crate::bench::COMMIT;
use crate::bench::guest::CellArgs;
use crate::bench::place::{GUEST_REPORT, report_of, scheduler_file, server_dir, width};
use crate::bench::pool::Place;
use crate::error::{Context, Failure};
use crate::lab;

/// Where a guest has the server and the scheduler's program.
pub(super) const GUEST_SERVER: &str = "/lab/postgres";
pub(super) const GUEST_PROGRAM: &str = "/lab/scheduler";
/// Memory of a guest: the image's data, copied to a tmpfs, and a small server.
const GUEST_MIB: u32 = 3072;
/// One CPU for the sessions, one for everything else.
const CPUS: u32 = 2;

/// Guests that are alike but for their schedulers and servers.
pub(super) struct Guests {
    lab: Lab,
    servers: Vec<(Hints, PathBuf)>,
    programs: Vec<(Scheduler, PathBuf)>,
    /// What rows say of the host: a guest knows neither the day nor a name.
    host: Environment,
}

impl Guests {
    /// Finds what the plans need, and builds what is missing of the lab.
    ///
    /// # Errors
    /// A server or scheduler that was not built, with the remedy.
    pub(super) fn open(plans: &[InversionPlan]) -> Result<Self, Failure> {
        let (mut servers, mut programs) = (Vec::new(), Vec::new());
        for plan in plans {
            let hints = plan.treatment.hints;
            servers.push((hints, server_dir(hints.build())?));
            if let Some(file) = scheduler_file(&plan.treatment.scheduler)? {
                programs.push((plan.treatment.scheduler.clone(), file));
            }
        }
        Ok(Guests {
            lab: lab::open(false)?,
            servers,
            programs,
            host: Environment::without_server(Clock::LOCKSTEP.name(), COMMIT),
        })
    }

    /// How many of them run at once.
    pub(super) fn width() -> usize {
        width(GUEST_MIB)
    }

    fn job(&self, plan: &InversionPlan, file: &Path) -> Result<Job, Failure> {
        let argv = [
            "giveway",
            "bench",
            "inversion-cell",
            "--config",
            "/lab/plan.json",
            "--out",
            GUEST_REPORT,
            "--clock",
            Clock::LOCKSTEP.name(),
        ];
        let own = std::env::current_exe().cannot("find this program's file")?;
        let mut job = Job::new(argv).file(own, "giveway").file(file, "plan.json");
        let server = self
            .servers
            .iter()
            .find(|(of, _)| *of == plan.treatment.hints);
        if let Some((_, dir)) = server {
            job = job.file(dir, "postgres");
        }
        let program = self
            .programs
            .iter()
            .find(|(of, _)| *of == plan.treatment.scheduler);
        if let Some((_, file)) = program {
            job = job.file(file, "scheduler");
        }
        Ok(job)
    }

    fn measure(
        &self,
        plan: &InversionPlan,
        line: &mut dyn FnMut(&str),
    ) -> Result<Report<InversionRow>, Failure> {
        let mut file = tempfile::NamedTempFile::new().cannot("make a temporary file")?;
        serde_json::to_writer(&mut file, plan)?;
        file.flush()?;
        let job = self.job(plan, file.path())?;
        let mut report: Report<InversionRow> = report_of(&self.lab, &machine(plan), &job, line)?;
        report.environment.date.clone_from(&self.host.date);
        report.environment.machine.clone_from(&self.host.machine);
        Ok(report)
    }
}

impl Place<InversionPlan, Report<InversionRow>> for Guests {
    fn run(
        &self,
        plan: &InversionPlan,
        line: &mut dyn FnMut(&str),
    ) -> Result<Report<InversionRow>, String> {
        self.measure(plan, line)
            .map_err(|failure| failure.message())
    }
}

/// The same plan gives the same machine, and that the same rows.
fn machine(plan: &InversionPlan) -> Machine {
    // Each lock is played twice and takes a hold, or up to the limit and a hold;
    // an emulated second takes up to ten of the host's.
    let locks = u32::try_from(plan.locks.len()).unwrap_or(u32::MAX);
    let cell = Duration::from_secs_f64(plan.limit_s + 3.0 * plan.hold_s + 10.0);
    Machine {
        cpus: CPUS,
        memory_mib: GUEST_MIB,
        clock: Clock::LOCKSTEP,
        seed: plan.seed,
        timeout: Duration::from_secs(900) + cell * locks * 10,
        ..Machine::default()
    }
}

/// Plays a plan on this machine: what runs in each guest.
pub(in crate::bench) fn cell(args: &CellArgs) -> Result<(), Failure> {
    let file = File::open(&args.config).cannot(format_args!("open {}", args.config.display()))?;
    let plan: InversionPlan = serde_json::from_reader(BufReader::new(file))
        .cannot(format_args!("read {}", args.config.display()))?;
    let report = plan.run(&args.clock, COMMIT, &mut |line| println!("{line}"))?;
    Ok(report.write(&args.out)?)
}
