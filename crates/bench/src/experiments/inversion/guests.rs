//! Inversion in virtual machines, one guest for each plan. The guest gets this
//! program, the scheduler, the server and the plan as a file.

use std::time::Duration;

use crate::cell::setup::Hints;
use crate::experiments::inversion::{InversionPlan, InversionRow};
use crate::report::Report;
use giveway_lab::{Clock, Machine};

use crate::runner::clock::ClockArgs;
use crate::runner::executors;
use crate::runner::executors::{LabServer, SchedulerPrograms};
use crate::runner::guest::{self, CellArgs, Host, HostFile};
use crate::runner::pool::Executor;
use giveway_command::Failure;

/// Memory of a guest: the image's data, copied to a tmpfs, and a small server.
const GUEST_MIB: u32 = 3072;
/// One CPU for the sessions, one for everything else.
const CPUS: u32 = 2;

/// Guests that are alike but for their schedulers and servers.
pub(crate) struct Guests {
    host: Host,
    servers: Vec<(Hints, LabServer)>,
    programs: SchedulerPrograms,
}

impl Guests {
    /// Finds what the plans need, and builds what is missing of the lab.
    ///
    /// # Errors
    /// A server or scheduler that was not built, with the remedy.
    pub(crate) fn open(plans: &[InversionPlan], clock: ClockArgs) -> Result<Self, Failure> {
        let mut servers = Vec::new();
        for plan in plans {
            let hints = plan.treatment.hints;
            servers.push((hints, LabServer::find(hints.build())?));
        }
        let schedulers = plans.iter().map(|plan| &plan.treatment.scheduler);
        let programs = SchedulerPrograms::find(schedulers)?;
        Ok(Guests {
            host: Host::of(executors::open(false)?, clock)?,
            servers,
            programs,
        })
    }

    /// How many of them run at once.
    pub(crate) fn width(&self) -> usize {
        self.host.width(GUEST_MIB)
    }

    /// The server and the scheduler that a plan takes, as a guest knows them.
    fn files(&self, plan: &InversionPlan) -> Vec<HostFile> {
        let treatment = &plan.treatment;
        let server = self.servers.iter().find(|(of, _)| *of == treatment.hints);
        let server = server.map(|(_, server)| server.file());
        let program = self.programs.file(&treatment.scheduler);
        server.into_iter().chain(program).collect()
    }
}

impl Executor<InversionPlan, Report<InversionRow>> for Guests {
    fn run(
        &self,
        plan: &InversionPlan,
        line: &mut dyn FnMut(&str),
    ) -> Result<Report<InversionRow>, String> {
        let (machine, files) = (machine(plan), self.files(plan));
        self.host
            .run_plan(&machine, "inversion-cell", plan, &files, line)
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
pub(crate) fn cell(args: &CellArgs) -> Result<(), Failure> {
    guest::run_plan(args, |plan: &InversionPlan, clock, line| {
        plan.run(clock, line)
    })
}
