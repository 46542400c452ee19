//! `giveway bench meta`: from options to a report.
//!
//! A cell of the pool is one part and one repeat: a guest with the programs of
//! all schedulers that take part (`guests`).

#[cfg(test)]
use crate::report::Report;
use crate::runner::clock::ClockArgs;
use crate::runner::experiment::{Experiment, GuestCommand};
use std::path::PathBuf;

use crate::experiments::meta::{MetaPlan, Part, applications};
use clap::Args;
use giveway_metasched::scheduler::Table;

use crate::runner::executors::find_scheduler;
use crate::runner::guest::{self, CellArgs};
use crate::runner::results::{RepeatArgs, ResultArgs, interruptible, positive};
use giveway_command::Failure;

use super::guests::{self, CORPUS_SEED, Guests};

/// Base timeslices of phases, in milliseconds: a few turns of each.
const PHASES_SLICES: [f64; 1] = [500.0];
/// Those of the applications, whose curve is wanted.
const APPLICATIONS_SLICES: [f64; 3] = [500.0, 1000.0, 2000.0];

/// Measure what a metascheduler costs, brings and risks
///
/// In the lab: what switching between schedulers takes, with and without loading
/// ahead; two applications in alternating phases under single schedulers, under
/// the four policies of fixed slices, and under the phase-aware one; nginx and a
/// compile job, from which no policy has learnt, in the same phases; many swaps
/// under load while processes are killed and stopped; a web application and its back
/// end under each scheduler and under tuned policies. See docs/measure/metascheduler.md.
#[derive(Args, Debug)]
pub(crate) struct MetaArgs {
    /// Parts: switch, phases, held-out, swaps, applications
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
    /// Length of a run of an application, in whole seconds
    #[arg(long, default_value_t = 10, value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    run_s: u32,
    /// Runs of each application under each scheduler and policy
    #[arg(long, default_value_t = 3, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Base timeslices of the policies of fixed slices, in milliseconds
    /// [default: 500; of applications 500,1000,2000]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = positive)]
    base_timeslices: Option<Vec<f64>>,
    /// What the phase-aware policy takes a swap for, in milliseconds
    /// [default: what one took in training]
    #[arg(long, value_name = "MS", value_parser = positive)]
    swap_ms: Option<f64>,
    #[command(flatten)]
    repeats: RepeatArgs,
    #[command(flatten)]
    clock: ClockArgs,
    #[command(flatten)]
    results: ResultArgs,
}

/// Measures and reports; answers with the exit status.
pub(crate) fn meta(args: &MetaArgs) -> Result<u8, Failure> {
    let known = Table::known();
    let schedulers = args.schedulers(&known)?;
    let programs = guests::scheduler_programs(&known, &schedulers)?;
    let plans = args.plans(&schedulers)?;
    let stop = interruptible()?;
    let guests = Guests::open(&args.parts, programs, args.clock)?;
    let width = guests.width().min(plans.len());
    eprintln!("schedulers: eevdf, scx_ufs, {}", schedulers.join(", "));
    let title = |plan: &MetaPlan| format!("{}, repeat {}", plan.part, plan.repeat + 1);
    args.results.run(&plans, title, &guests, width, &stop)
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
                Part::Switch | Part::Phases | Part::HeldOut => self.switches,
                Part::Swaps => self.starts,
                Part::Applications => self.runs,
            },
            phase_s: self.phase_s,
            cycles: self.cycles,
            run_s: self.run_s,
            prepared: guests::APPLICATION.into(),
            base_timeslices_ms: match (&self.base_timeslices, part) {
                (Some(given), _) => given.clone(),
                (None, Part::Applications) => APPLICATIONS_SLICES.to_vec(),
                (None, _) => PHASES_SLICES.to_vec(),
            },
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

/// Runs a plan on this machine: what runs in each guest.
pub(crate) fn cell(args: &CellArgs) -> Result<(), Failure> {
    guest::run_plan(args, |plan: &MetaPlan, clock, line| plan.run(clock, line))
}

/// Where the application is to be, and what from.
#[derive(Args, Debug)]
pub(crate) struct PrepareArgs {
    /// Directory to make; must not exist or be empty
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Directory of the Python packages' wheels
    #[arg(long, value_name = "DIR")]
    wheels: PathBuf,
    /// A Python that has pip, of the version that the wheels are for
    #[arg(long, default_value = "python3", value_name = "FILE")]
    python: PathBuf,
    /// Seed of the corpus
    #[arg(long, default_value_t = CORPUS_SEED, value_name = "N")]
    seed: u64,
}

/// Makes the application: what runs while an image is made.
pub(crate) fn prepare(args: &PrepareArgs) -> Result<(), Failure> {
    let (data, wheels, python) = (&args.data, &args.wheels, &args.python);
    let line = &mut |line: &str| eprintln!("{line}");
    Ok(applications::prepare(
        data, wheels, python, args.seed, line,
    )?)
}

/// The experiment, as the registry knows it.
pub(crate) struct Meta;

impl Experiment for Meta {
    const NAME: &'static str = "meta";
    const SUMMARY: &'static str = "what switching schedulers costs, what following phases brings beside \
        fixed slices, also to programs that no policy has learnt from, whether a \
        hundred swaps with mishaps leave any harm, and what a web application \
        does under each scheduler and while they take turns";
    const SECTION: &'static str = "Metaschedulers (paper 002), Sections 2.3, 3";
    const SUBJECT: &'static [&'static str] = &["crates/metasched/src"];
    const QUICK: &'static str =
        "--switches 2 --starts 10 --cycles 1 --run-s 4 --runs 1 --base-timeslices 500";
    type Args = MetaArgs;
    type Row = super::MetaRow;

    fn run(args: &MetaArgs) -> Result<u8, Failure> {
        meta(args)
    }

    fn guest_commands() -> Vec<GuestCommand> {
        vec![
            GuestCommand::new::<CellArgs>(
                "meta-cell",
                "Run one part of the metascheduler's experiment on this machine",
                cell,
            ),
            GuestCommand::new::<PrepareArgs>(
                "meta-prepare",
                "Make the applications of the metascheduler's experiment",
                prepare,
            ),
        ]
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

    fn args(options: &[&str]) -> MetaArgs {
        parse(options).unwrap()
    }

    #[test]
    fn every_part_and_repeat_is_a_plan_with_its_seed_and_count() {
        let plans = args(&[
            "--repeat", "2", "--seed", "7", "--starts", "50", "--runs", "4",
        ])
        .plans(&["scx_simple".into()])
        .unwrap();
        let seen: Vec<_> = plans.iter().map(|p| (p.part, p.seed, p.count)).collect();
        assert_eq!(
            seen,
            [
                (Part::Switch, 7, 6),
                (Part::Phases, 7, 6),
                (Part::HeldOut, 7, 6),
                (Part::Swaps, 7, 50),
                (Part::Applications, 7, 4),
                (Part::Switch, 8, 6),
                (Part::Phases, 8, 6),
                (Part::HeldOut, 8, 6),
                (Part::Swaps, 8, 50),
                (Part::Applications, 8, 4),
            ]
        );
    }

    #[test]
    fn base_timeslices_are_the_part_s_unless_they_are_given() {
        let slices = |options: &[&str], part| {
            let plans = args(options).plans(&[]).unwrap();
            let plan = plans.into_iter().find(|plan| plan.part == part).unwrap();
            plan.base_timeslices_ms
        };
        assert_eq!(slices(&[], Part::Phases), PHASES_SLICES);
        assert_eq!(slices(&[], Part::Applications), APPLICATIONS_SLICES);
        let given = ["--base-timeslices", "100,700"];
        for part in [Part::Phases, Part::Applications] {
            assert_eq!(slices(&given, part), [100.0, 700.0]);
        }
    }

    #[test]
    fn the_applications_of_an_image_are_prepared_by_its_command() {
        let layer = guests::application_layer(Vec::new()).unwrap();
        assert_eq!(layer.command[1], "meta-prepare");
        let options = layer.command[2..].iter().map(String::as_str);
        let args: PrepareArgs = parse(&Vec::from_iter(options)).unwrap();
        assert_eq!(args.data.display().to_string(), guests::APPLICATION);
        assert_eq!(args.seed, CORPUS_SEED);
        assert!(layer.packages.contains(&"wrk".to_owned()));
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
