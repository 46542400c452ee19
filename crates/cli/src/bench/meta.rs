//! `giveway bench meta`: from options to a report.
//!
//! A cell of the pool is one part and one repeat: a guest with the programs of
//! all schedulers that take part.

use std::time::Duration;

use clap::Args;
use giveway_bench::Report;
use giveway_bench::meta::{MetaPlan, MetaRow, Part};
use giveway_lab::{Clock, Machine};
use giveway_metasched::scheduler::Table;

use super::COMMIT;
use super::guest::{self, CellArgs, Host, HostFile, width};
use super::keep::{KeepArgs, RepeatArgs, interruptible, positive};
use super::pool::Place;
use crate::error::Failure;
use crate::lab;
use crate::meta::find_scheduler;

/// Memory of a guest.
const GUEST_MIB: u32 = 2048;
/// Few, since one host CPU emulates them all, and enough to be scheduled.
const CPUS: u32 = 2;

/// Measure what a metascheduler costs, brings and risks
///
/// In the lab: what switching between schedulers takes, with and without loading
/// ahead; two applications in alternating phases under single schedulers, under
/// the four policies of fixed slices, and under the phase-aware one; many swaps
/// under load while processes are killed and stopped. See docs/bench-meta.md.
#[derive(Args, Debug)]
pub(crate) struct MetaArgs {
    /// Parts: switch, phases, swaps
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = Part::ALL)]
    parts: Vec<Part>,
    /// Schedulers beside EEVDF and UFS, as 'giveway meta schedulers' names them
    /// [default: all whose programs are here]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    schedulers: Option<Vec<String>>,
    /// Switches between each pair of schedulers
    #[arg(long, default_value_t = 6, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    switches: u32,
    /// Starts of schedulers in 'swaps'
    #[arg(long, default_value_t = 100, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    starts: u32,
    /// Length of a phase
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = positive)]
    phase_s: f64,
    /// Pairs of phases in a run
    #[arg(long, default_value_t = 2, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    cycles: u32,
    /// Base timeslices of the policies of fixed slices, in milliseconds
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = [500.0],
          value_parser = positive)]
    base_timeslices: Vec<f64>,
    /// What the phase-aware policy takes a swap for, in milliseconds
    #[arg(long, default_value_t = 40.0, value_name = "MS", value_parser = positive)]
    swap_ms: f64,
    #[command(flatten)]
    repeats: RepeatArgs,
    #[command(flatten)]
    keep: KeepArgs,
}

/// Measures and reports; answers with the exit status.
pub(crate) fn meta(args: &MetaArgs) -> Result<u8, Failure> {
    let known = Table::known();
    let schedulers = args.schedulers(&known)?;
    let programs = programs(&known, &schedulers)?;
    let plans = args.plans(&schedulers)?;
    let stop = interruptible()?;
    let guests = Guests {
        host: Host::of(lab::open(false)?),
        programs,
    };
    let width = width(GUEST_MIB).min(plans.len());
    eprintln!("schedulers: eevdf, scx_ufs, {}", schedulers.join(", "));
    let title = |plan: &MetaPlan| format!("{}, repeat {}", plan.part, plan.repeat + 1);
    args.keep.measure(&plans, title, &guests, width, &stop)
}

impl MetaArgs {
    /// Those that take part beside EEVDF and UFS.
    fn schedulers(&self, known: &Table) -> Result<Vec<String>, Failure> {
        let is_other = |name: &str| !["eevdf", "scx_ufs"].contains(&name);
        let Some(names) = &self.schedulers else {
            let rows = known.rows().iter();
            let here = rows.filter(|row| {
                row.command
                    .first()
                    .is_some_and(|p| find_scheduler(p).is_some())
            });
            let names = here.map(|row| row.name.clone());
            return Ok(names.filter(|name| is_other(name)).collect());
        };
        for name in names {
            if known.get(name).is_none() {
                return Err(
                    Failure::usage(format_args!("no scheduler is called '{name}'"))
                        .with_remedy("'giveway meta schedulers' lists them"),
                );
            }
        }
        Ok(names
            .iter()
            .filter(|name| is_other(name))
            .cloned()
            .collect())
    }

    /// Repeats outside, so that what is compared was measured close together.
    fn plans(&self, schedulers: &[String]) -> Result<Vec<MetaPlan>, Failure> {
        let plan = |(repeat, seed), part: &Part| MetaPlan {
            part: *part,
            schedulers: schedulers.to_vec(),
            count: match part {
                Part::Swaps => self.starts,
                _ => self.switches,
            },
            phase_s: self.phase_s,
            cycles: self.cycles,
            base_timeslices_ms: self.base_timeslices.clone(),
            swap_ms: self.swap_ms,
            repeat,
            seed,
        };
        let repeats = self.repeats.seeds();
        let plans: Vec<MetaPlan> = repeats
            .flat_map(|repeat| self.parts.iter().map(move |part| plan(repeat, part)))
            .collect();
        for plan in &plans {
            plan.validate()?;
        }
        Ok(plans)
    }
}

/// The programs that a guest needs, by name.
fn programs(known: &Table, schedulers: &[String]) -> Result<Vec<HostFile>, Failure> {
    let mut programs: Vec<HostFile> = Vec::new();
    let names = schedulers.iter().map(String::as_str);
    for row in names.chain(["scx_ufs"]).filter_map(|name| known.get(name)) {
        let Some(program) = row.command.first() else {
            continue;
        };
        if programs.iter().any(|(_, name)| name == program) {
            continue;
        }
        let Some(path) = find_scheduler(program) else {
            let failure = Failure::new(format_args!("{program} is not here"));
            return Err(failure.with_remedy(row.install.clone()));
        };
        programs.push((path, program.clone()));
    }
    Ok(programs)
}

/// Guests that all have the same programs.
struct Guests {
    host: Host,
    programs: Vec<HostFile>,
}

impl Place<MetaPlan, Report<MetaRow>> for Guests {
    fn run(&self, plan: &MetaPlan, line: &mut dyn FnMut(&str)) -> Result<Report<MetaRow>, String> {
        let machine = machine(plan);
        self.host
            .play(&machine, "meta-cell", plan, &self.programs, line)
            .map_err(|failure| failure.message())
    }
}

/// The same plan gives the same machine, and that the same rows.
fn machine(plan: &MetaPlan) -> Machine {
    Machine {
        cpus: CPUS,
        memory_mib: GUEST_MIB,
        clock: Clock::LOCKSTEP,
        seed: plan.seed,
        // Loading takes seconds of the guest's, and each of them ten of the host's.
        timeout: Duration::from_secs(4 * 3600),
        ..Machine::default()
    }
}

/// Runs a plan on this machine: what runs in each guest.
pub(super) fn cell(args: &CellArgs) -> Result<(), Failure> {
    guest::play(args, |plan: &MetaPlan, clock, line| {
        plan.run(clock, COMMIT, line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn args(options: &[&str]) -> MetaArgs {
        let line = ["giveway", "bench", "meta"].iter().chain(options);
        let Command::Bench(bench) = Cli::try_parse_from(line).unwrap().command else {
            panic!("not parsed as bench");
        };
        match bench.experiment {
            Some(super::super::Experiment::Meta(args)) => args,
            other => panic!("parsed as {other:?}"),
        }
    }

    #[test]
    fn every_part_and_repeat_is_a_plan_with_its_seed_and_count() {
        let plans = args(&["--repeat", "2", "--seed", "7", "--starts", "50"])
            .plans(&["scx_simple".into()])
            .unwrap();
        let seen: Vec<_> = plans.iter().map(|p| (p.part, p.seed, p.count)).collect();
        assert_eq!(
            seen,
            [
                (Part::Switch, 7, 6),
                (Part::Phases, 7, 6),
                (Part::Swaps, 7, 50),
                (Part::Switch, 8, 6),
                (Part::Phases, 8, 6),
                (Part::Swaps, 8, 50),
            ]
        );
    }

    #[test]
    fn a_scheduler_that_nobody_knows_is_refused() {
        let known = Table::known();
        let error = args(&["--schedulers", "scx_none"])
            .schedulers(&known)
            .unwrap_err();
        assert!(error.to_string().contains("meta schedulers"), "{error}");
        let both = args(&["--schedulers", "eevdf,scx_simple"]);
        assert_eq!(both.schedulers(&known).unwrap(), ["scx_simple"]);
    }
}
