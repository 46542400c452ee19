//! Lock experiments in virtual machines, one guest for each cell. The guest
//! runs this very command natively; its clock is the lab's.

use std::path::Path;
use std::time::Duration;

use crate::experiments::locks::{LockPlan, LockRow};
use crate::report::Report;
use giveway_lab::{Clock, Machine};

use super::cell::{Cell, numbered};
use crate::runner::clock::ClockArgs;
use crate::runner::executors;
use crate::runner::guest::{GUEST_REPORT, Host, HostFile};
use crate::runner::pool::Executor;
use giveway_command::Failure;

/// Memory of a guest: threads, their stacks, and little else.
const GUEST_MIB: u32 = 1024;

/// Guests that are alike.
pub(crate) struct Guests {
    host: Host,
    machine: Machine,
}

impl Guests {
    /// Builds what is missing of the lab; any image will do.
    pub(crate) fn open(cpus: u32, numa_nodes: u32, clock: ClockArgs) -> Result<Self, Failure> {
        Ok(Guests {
            host: Host::of(executors::open(false)?, clock)?,
            machine: machine(cpus, numa_nodes),
        })
    }

    /// How many of them run at once.
    pub(crate) fn width(&self) -> usize {
        self.host.width(self.machine.memory_mib)
    }

    fn measure(&self, cell: &Cell, line: &mut dyn FnMut(&str)) -> Result<Report<LockRow>, Failure> {
        let machine = Machine {
            seed: cell.plan.seed,
            timeout: limit(&cell.plan, self.machine.cpus)?,
            ..self.machine.clone()
        };
        let libraries = cell.plan.libraries.iter();
        let libraries: Vec<HostFile> = libraries
            .map(|library| (library.path.clone(), file_name(&library.path)))
            .collect();
        let arguments = arguments(&cell.plan);
        let report = self.host.run(&machine, &arguments, &libraries, line)?;
        Ok(numbered(report, cell))
    }
}

impl Executor<Cell, Report<LockRow>> for Guests {
    fn run(&self, cell: &Cell, line: &mut dyn FnMut(&str)) -> Result<Report<LockRow>, String> {
        self.measure(cell, line)
            .map_err(|failure| failure.message())
    }
}

fn machine(cpus: u32, numa_nodes: u32) -> Machine {
    Machine {
        cpus,
        // A node is a socket, as on the paper's machine.
        sockets: numa_nodes,
        numa_nodes,
        memory_mib: GUEST_MIB,
        clock: Clock::LOCKSTEP,
        ..Machine::default()
    }
}

/// Emulation takes up to a host second for each second of each CPU that is
/// busy.
fn limit(plan: &LockPlan, cpus: u32) -> Result<Duration, Failure> {
    let rows = plan.rows()? as f64;
    let measured = Duration::from_secs_f64(rows * (plan.seconds * 1.1 + 0.5));
    Ok(Duration::from_secs(600) + measured * cpus)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The command line, without the program, that measures the plan in a guest.
fn arguments(plan: &LockPlan) -> Vec<String> {
    let join = |items: Vec<String>| items.join(",");
    let mut arguments: Vec<String> = ["locks", "--clock", "native"].map(str::to_owned).into();
    let mut option = |name: &str, value: String| {
        arguments.extend([format!("--{name}"), value]);
    };
    let names = plan.experiments.iter().map(|experiment| experiment.name());
    option("experiment", join(names.map(str::to_owned).collect()));
    if !plan.threads.is_empty() {
        option(
            "threads",
            join(plan.threads.iter().map(u32::to_string).collect()),
        );
    }
    if !plan.locks.is_empty() {
        option("locks", join(plan.locks.clone()));
    }
    for library in &plan.libraries {
        let file = file_name(&library.path);
        option("library", format!("{}=/lab/{file}", library.name));
    }
    option("seconds", plan.seconds.to_string());
    option("seed", plan.seed.to_string());
    option("scale", plan.scale.to_string());
    option("json", GUEST_REPORT.to_owned());
    option("results", "/results/raw".to_owned());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::locks::LockExperiment;

    #[test]
    fn the_guest_measures_what_was_asked_for() {
        let plan = LockPlan {
            experiments: vec![LockExperiment::Convoy],
            locks: vec!["cfl".to_owned(), "mcs".to_owned()],
            libraries: vec!["mine=../x/libmine.so".parse().unwrap()],
            threads: vec![16, 32],
            seconds: 0.5,
            seed: 7,
            scale: 20.0,
            ..LockPlan::default()
        };
        assert_eq!(
            arguments(&plan).join(" "),
            "locks --clock native --experiment convoy --threads 16,32 \
             --locks cfl,mcs --library mine=/lab/libmine.so --seconds 0.5 --seed 7 --scale 20 \
             --json /results/report.json --results /results/raw"
        );
    }

    #[test]
    fn a_numa_node_is_a_socket() {
        let machine = machine(16, 4);
        assert_eq!(
            (machine.cpus, machine.sockets, machine.numa_nodes),
            (16, 4, 4)
        );
    }
}
