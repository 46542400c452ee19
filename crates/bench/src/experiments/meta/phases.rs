//! Phases in which what matters changes, under single schedulers, the paper's
//! four policies, and the phase-aware one.
//!
//! ```text
//!   training     each scheduler alone ──► measurements ─┬─► equal turns ──► time of a swap
//!                                                       │                      │
//!   evaluation   each scheduler alone ──► rows          │                      │
//!                four policies ◄────────────────────────┤                      │
//!                phase-aware   ◄────────────────────────┴──────────────────────┘
//! ```
//!
//! The policies are compared under a load that they have not seen: the training runs
//! have another seed, other numbers of threads, other pauses ([`Shape`]) and shorter
//! phases. Everything that a policy knows comes from them. All rows are kept, and each
//! says which stage it is of and the seeds of both.
//!
//! An application is measured in its own phases, beside the other's upkeep.
//!
//! The part `held-out` has the same training. Its evaluation has other applications:
//! nginx and a compile job in the places of OLTP and batch ([`programs`]).
//!
//! UFS takes part as three rows:
//!
//! | row | time-sensitive | background | right in |
//! | --- | --- | --- | --- |
//! | `ufs-oltp` | all of OLTP | all of batch | bursts |
//! | `ufs-batch` | all of batch | all of OLTP | windows |
//! | `ufs-upkeep` | everything else | the upkeep of both | all phases |
//!
//! `ufs-upkeep` needs no metascheduler, so it is the rival that matters. Policies may
//! choose it as any other scheduler.
//!
//! Known weakness: training and evaluation run in one guest, on the same machine. What
//! is held out is the load, or the applications, and not the machine.

use std::time::Duration;

use giveway_metasched::measurements::{Company, MachineNote, Measurements, Reading};
use giveway_metasched::policy::{self, Goal, Policy};
use giveway_metasched::scheduler::EEVDF;

use super::driver::{Driver, Seen};
use super::groups::{Groups, ThreadGroup};
use super::load::{Load, Phase, Shape};
use super::row::{MetaRow, PhaseRow, Stage, Under};
use super::{MetaPlan, Part, programs};
use crate::harness::Progress;
use crate::harness::error::{Error, Result};

/// UFS for bursts, for windows, and for both. Cgroups without a label are
/// time-sensitive, so the last one needs no other label.
pub(super) const UFS_ROWS: &str = "\
[[scheduler]]
name = 'ufs-oltp'
command = ['scx_ufs', '--no-hints', '--time-sensitive-label', 'oltp', '--background-label', 'batch']
standby = ['--standby']
ops = 'ufs'
[[scheduler]]
name = 'ufs-batch'
command = ['scx_ufs', '--no-hints', '--time-sensitive-label', 'batch', '--background-label', 'oltp']
standby = ['--standby']
ops = 'ufs'
[[scheduler]]
name = 'ufs-upkeep'
command = ['scx_ufs', '--no-hints', '--background-label', 'upkeep']
standby = ['--standby']
ops = 'ufs'
";
const UFS_NAMES: [&str; 3] = ["ufs-oltp", "ufs-batch", "ufs-upkeep"];

/// How long a scheduler may take to load, for the configuration: the verifier needs 57 s
/// for scx_lavd and 101 s for scx_flow in the lab, which has no other load then and counts
/// 4 ns for each instruction. A metascheduler has no patience for that by itself.
const LIMITS: &str = "[limits]\nstart_s = 300\n";
/// How long all that a policy wants may take to load.
const LIMIT: Duration = Duration::from_secs(660);

/// What the seed of a repeat's training exceeds that of its evaluation by. There are
/// fewer repeats, so no repeat is trained with the seed that another is compared with.
const TRAINING_SEED: u64 = 1_000_000;

/// How long a phase of the training is, as a share of one of the evaluation.
const TRAINING_PHASE: f64 = 0.5;

/// How long each of two schedulers is in force while swaps are timed, in milliseconds.
const SWAP_TURN_MS: f64 = 500.0;

/// Two applications.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Applications {
    /// Threads of this process: OLTP and batch.
    Threads(Shape),
    /// nginx and a compile job.
    Programs(Shape),
}

impl Applications {
    fn start(self, seed: u64) -> Result<Load> {
        match self {
            Applications::Threads(shape) => Load::start(seed, shape),
            Applications::Programs(shape) => programs::start(seed, shape),
        }
    }

    /// What matters in bursts, and in windows.
    fn names(self) -> [&'static str; 2] {
        match self {
            Applications::Threads(_) => ["OLTP", "batch"],
            Applications::Programs(_) => ["nginx", "gcc"],
        }
    }
}

/// A stage of a plan: its applications, seed and phases.
struct Runs<'a> {
    plan: &'a MetaPlan,
    stage: Stage,
    applications: Applications,
    seed: u64,
    phase_s: f64,
}

impl Runs<'_> {
    fn training(plan: &MetaPlan) -> Runs<'_> {
        Runs {
            plan,
            stage: Stage::Training,
            applications: Applications::Threads(Shape::TRAINING),
            seed: training_seed(plan),
            phase_s: plan.phase_s * TRAINING_PHASE,
        }
    }

    fn evaluation(plan: &MetaPlan) -> Runs<'_> {
        Runs {
            plan,
            stage: Stage::Evaluation,
            applications: match plan.part {
                Part::HeldOut => Applications::Programs(Shape::EVALUATION),
                _ => Applications::Threads(Shape::EVALUATION),
            },
            seed: plan.seed,
            phase_s: plan.phase_s,
        }
    }

    /// A run under each scheduler alone.
    fn singles(&self, line: Progress<'_>) -> Result<Vec<PhaseRow>> {
        let others = self.plan.schedulers.iter().map(String::as_str);
        let names = [EEVDF].into_iter().chain(UFS_NAMES).chain(others);
        let rows = names.map(|name| {
            let under = Under::Single { name: name.into() };
            let config =
                format!("{UFS_ROWS}{LIMITS}[[turn]]\nscheduler = '{name}'\ntimeslice_ms = 60000\n");
            self.measure(under, &config, line)
        });
        rows.collect()
    }

    /// One run: the metascheduler by this configuration, phase after phase.
    fn measure(&self, under: Under, config: &str, line: Progress<'_>) -> Result<PhaseRow> {
        line(&format!("{}: {}: {under}", self.plan.part, self.word()));
        let _groups = Groups::make()?;
        let load = self.applications.start(self.seed)?;
        let driver = Driver::start(config)?;
        match &under {
            Under::Single { name } if name != EEVDF => {
                driver.wait(name, LIMIT, |seen| {
                    let faulty = seen.faults().next().is_some();
                    faulty || seen.status.as_ref().is_some_and(|s| s.in_force(name))
                })?;
            }
            Under::Single { .. } => {}
            // All that may be wanted waits loaded, but what is in force.
            Under::Fixed { .. } | Under::Turns { .. } | Under::PhaseAware { .. } => {
                driver.wait("schedulers loaded ahead", LIMIT, Seen::is_at_rest)?;
            }
        }
        let starts = driver.seen().starts();
        let phase = Duration::from_secs_f64(self.phase_s);
        for _ in 0..self.plan.cycles {
            for now in [Phase::Burst, Phase::Window] {
                load.enter(now)?;
                std::thread::sleep(phase);
            }
        }
        load.enter(Phase::Rest)?;
        let starts = driver.seen().starts() - starts;
        // A scheduler that starves an application keeps it from ending, too.
        let seen = driver.end()?;
        let (oltp, batch) = load.end()?;
        let switch_mean_s = seen.status.as_ref().and_then(|status| status.switch_mean_s);
        let errors = oltp.errors + batch.errors;
        if errors > 0 {
            return Err(Error::Meta(format!("{errors} wrong or missing answers")));
        }
        let seconds = self.phase_s * f64::from(self.plan.cycles);
        let p99_ms = |p99_s: Option<f64>| p99_s.unwrap_or_default() * 1e3;
        let row = PhaseRow {
            under,
            stage: Some(self.stage),
            training_seed: Some(training_seed(self.plan)),
            phase_s: self.phase_s,
            cycles: self.plan.cycles,
            oltp_per_s: oltp.count() / seconds,
            oltp_p99_ms: p99_ms(oltp.p99_s()),
            batch_per_s: batch.count() / seconds,
            batch_p99_ms: p99_ms(batch.p99_s()),
            starts,
            switch_ms: switch_mean_s.map(|s| s * 1e3),
            faults: seen.faults().map(str::to_owned).collect(),
            repeat: self.plan.repeat,
            seed: self.seed,
        };
        let [first, second] = self.applications.names();
        line(&format!(
            "  {first} {:.0}/s, {:.1} ms; {second} {:.1}/s, {:.1} ms; {} starts",
            row.oltp_per_s, row.oltp_p99_ms, row.batch_per_s, row.batch_p99_ms, row.starts
        ));
        Ok(row)
    }

    fn word(&self) -> &'static str {
        match self.stage {
            Stage::Training => "training",
            Stage::Evaluation => "evaluation",
        }
    }
}

fn training_seed(plan: &MetaPlan) -> u64 {
    plan.seed.wrapping_add(TRAINING_SEED)
}

/// Measures all of it.
pub(super) fn run(plan: &MetaPlan, line: Progress<'_>) -> Result<Vec<MetaRow>> {
    let training = Runs::training(plan);
    let mut rows = training.singles(line)?;
    let learnt = measurements(&rows);
    let swap_ms = match plan.swap_ms {
        Some(given) => given,
        None => {
            let pair = swap_pair(&learnt)?;
            let (under, config) = turns(&pair);
            let row = training.measure(under, &config, line)?;
            let swap_ms = row.switch_ms;
            rows.push(row);
            swap_ms.ok_or_else(|| {
                let pair = pair.join(" and ");
                Error::Meta(format!(
                    "no swap between {pair} in training: give --swap-ms"
                ))
            })?
        }
    };
    let dir = tempfile::tempdir().map_err(|error| Error::Meta(error.to_string()))?;
    let path = dir.path().join("measurements.json");
    let written = learnt.write(&path);
    written.map_err(|error| Error::Meta(error.to_string()))?;
    let evaluation = Runs::evaluation(plan);
    rows.extend(evaluation.singles(line)?);
    let applications = [("oltp", ThreadGroup::Serve), ("batch", ThreadGroup::Jobs)]
        .map(|(name, place)| {
            let cgroup = place.cgroup();
            format!("[[application]]\nname = '{name}'\ncommand = ['true']\ncgroup = '{cgroup}'\n")
        })
        .concat();
    let config = |first: &str| {
        let file = path.display();
        format!("{first}measurements = '{file}'\n{UFS_ROWS}{LIMITS}{applications}")
    };
    for policy in Policy::ALL {
        for &base_timeslice_ms in &plan.base_timeslices_ms {
            let first = format!(
                "policy = '{}'\nbase_timeslice_ms = {base_timeslice_ms}\n",
                policy.word()
            );
            let under = Under::Fixed {
                policy,
                base_timeslice_ms,
            };
            rows.push(evaluation.measure(under, &config(&first), line)?);
        }
    }
    let first = format!("policy = 'phase_aware'\nswap_ms = {swap_ms}\n");
    let under = Under::PhaseAware { swap_ms };
    rows.push(evaluation.measure(under, &config(&first), line)?);
    let kind = match plan.part {
        Part::HeldOut => MetaRow::HeldOut,
        _ => MetaRow::Phases,
    };
    Ok(rows.into_iter().map(kind).collect())
}

/// The schedulers between which a swap is timed: those that the applications prefer.
/// If both prefer the same, or one prefers EEVDF, no policy swaps from one loaded
/// scheduler to another; then it is between two rows of UFS.
fn swap_pair(learnt: &Measurements) -> Result<[String; 2]> {
    let choices = policy::choose(learnt, Goal::Throughput, |_| true);
    let choices = choices.map_err(|error| Error::Meta(error.to_string()))?;
    let preferred: Vec<&str> = choices.iter().map(|c| c.preferred.as_str()).collect();
    Ok(match preferred[..] {
        [one, other] if one != other && !preferred.contains(&EEVDF) => [one, other],
        _ => ["ufs-oltp", "ufs-batch"],
    }
    .map(str::to_owned))
}

/// Equal turns of two schedulers.
fn turns(pair: &[String; 2]) -> (Under, String) {
    let turn =
        |name: &String| format!("[[turn]]\nscheduler = '{name}'\ntimeslice_ms = {SWAP_TURN_MS}\n");
    let config = format!("{UFS_ROWS}{LIMITS}{}{}", turn(&pair[0]), turn(&pair[1]));
    let under = Under::Turns {
        schedulers: pair.to_vec(),
        timeslice_ms: SWAP_TURN_MS,
    };
    (under, config)
}

/// What single schedulers did in training, as policies read it. One that misbehaved is
/// left out. An application that got nothing done would have got less than one thing
/// done, in no less than the time it had.
fn measurements(rows: &[PhaseRow]) -> Measurements {
    let mut all = Measurements::new(MachineNote::default());
    let is_learnt = |row: &&PhaseRow| row.stage == Some(Stage::Training) && row.faults.is_empty();
    for row in rows.iter().filter(is_learnt) {
        let Under::Single { name } = &row.under else {
            continue;
        };
        let seconds = row.phase_s * f64::from(row.cycles);
        for (application, throughput_per_s, p99_ms) in [
            ("oltp", row.oltp_per_s, row.oltp_p99_ms),
            ("batch", row.batch_per_s, row.batch_p99_ms),
        ] {
            let reading = match throughput_per_s > 0.0 {
                true => Reading {
                    throughput_per_s,
                    p99_s: p99_ms / 1e3,
                },
                false => Reading {
                    throughput_per_s: 0.5 / seconds,
                    p99_s: seconds,
                },
            };
            let cell = all.cell_mut(application, name, Company::Alone);
            cell.runs.push(reading);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use giveway_metasched::config::Config;
    use std::path::PathBuf;

    fn row(name: &str, oltp_per_s: f64, faults: &[&str]) -> PhaseRow {
        PhaseRow {
            under: Under::Single { name: name.into() },
            stage: Some(Stage::Training),
            training_seed: Some(1_000_001),
            phase_s: 1.0,
            cycles: 1,
            oltp_per_s,
            oltp_p99_ms: 2.0,
            batch_per_s: 10.0,
            batch_p99_ms: 20.0,
            starts: 0,
            switch_ms: None,
            faults: faults.iter().map(|fault| fault.to_string()).collect(),
            repeat: 0,
            seed: 1,
        }
    }

    #[test]
    fn single_runs_are_measurements_unless_the_scheduler_misbehaved() {
        let rows = [
            row(EEVDF, 100.0, &[]),
            row("ufs-oltp", 0.0, &[]),
            row("scx_x", 300.0, &["stalled"]),
        ];
        let all = measurements(&rows);
        assert_eq!(all.schedulers(), [EEVDF, "ufs-oltp"]);
        // In one second.
        let starved = all.cell("oltp", "ufs-oltp", Company::Alone).unwrap();
        assert_eq!(starved.runs[0].throughput_per_s, 0.5);
        assert_eq!(starved.runs[0].p99_s, 1.0);
        let cell = all.cell("oltp", EEVDF, Company::Alone).unwrap();
        assert_eq!(cell.runs[0].p99_s, 0.002);
    }

    fn plan(repeat: u32, seed: u64) -> MetaPlan {
        MetaPlan {
            part: Part::Phases,
            schedulers: Vec::new(),
            count: 1,
            phase_s: 2.0,
            cycles: 1,
            run_s: 1,
            prepared: PathBuf::new(),
            base_timeslices_ms: vec![500.0],
            swap_ms: None,
            repeat,
            seed,
        }
    }

    #[test]
    fn policies_learn_nothing_from_the_runs_they_are_compared_by() {
        let mut rows = [row(EEVDF, 100.0, &[]), row(EEVDF, 900.0, &[])];
        rows[1].stage = Some(Stage::Evaluation);
        let all = measurements(&rows);
        let cell = all.cell("oltp", EEVDF, Company::Alone).unwrap();
        let learnt: Vec<f64> = cell.runs.iter().map(|run| run.throughput_per_s).collect();
        assert_eq!(learnt, [100.0]);
    }

    #[test]
    fn no_repeat_is_trained_with_a_seed_or_load_that_any_is_compared_with() {
        let plans: Vec<MetaPlan> = (0..1000).map(|n| plan(n, 1 + u64::from(n))).collect();
        let seeds: Vec<u64> = plans.iter().map(|p| Runs::evaluation(p).seed).collect();
        for plan in &plans {
            let (learnt, compared) = (Runs::training(plan), Runs::evaluation(plan));
            assert!(!seeds.contains(&learnt.seed), "{}", learnt.seed);
            assert_ne!(learnt.applications, compared.applications);
            assert_ne!(learnt.phase_s, compared.phase_s);
        }
    }

    #[test]
    fn no_policy_learns_from_the_programs_that_are_held_out() {
        let plan = MetaPlan {
            part: Part::HeldOut,
            ..plan(0, 1)
        };
        let of = |runs: Runs<'_>| runs.applications.names();
        assert_eq!(of(Runs::training(&plan)), ["OLTP", "batch"]);
        assert_eq!(of(Runs::evaluation(&plan)), ["nginx", "gcc"]);
    }

    #[test]
    fn a_swap_is_timed_between_those_that_the_applications_prefer() {
        let pair = |rows: &[(&str, f64, f64)]| {
            let rows = rows
                .iter()
                .map(|&(name, oltp_per_s, batch_per_s)| PhaseRow {
                    batch_per_s,
                    ..row(name, oltp_per_s, &[])
                });
            swap_pair(&measurements(&Vec::from_iter(rows))).unwrap()
        };
        let eevdf = (EEVDF, 100.0, 10.0);
        let oltp = ("scx_x", 300.0, 1.0);
        assert_eq!(
            pair(&[eevdf, oltp, ("ufs-upkeep", 1.0, 30.0)]),
            ["scx_x", "ufs-upkeep"]
        );
        // Both prefer the same, or one prefers EEVDF: nothing would be swapped.
        for rows in [&[eevdf, ("ufs-upkeep", 300.0, 30.0)], &[eevdf, oltp]] {
            assert_eq!(pair(rows), ["ufs-oltp", "ufs-batch"]);
        }
    }

    #[test]
    fn the_turns_that_time_a_swap_are_ones_that_a_configuration_takes() {
        let (under, config) = turns(&["ufs-oltp".into(), "ufs-batch".into()]);
        let config = Config::parse(&config, "f".as_ref()).unwrap();
        let names: Vec<&str> = config.turns.iter().map(|t| t.scheduler.as_str()).collect();
        assert_eq!(names, ["ufs-oltp", "ufs-batch"]);
        assert_eq!(under.to_string(), "turns of ufs-oltp and ufs-batch, 500 ms");
    }

    #[test]
    fn ufs_upkeep_has_only_upkeep_in_the_background() {
        let config = Config::parse(UFS_ROWS, "f".as_ref()).unwrap();
        let command = config.table.get("ufs-upkeep").unwrap().command.join(" ");
        assert_eq!(command, "scx_ufs --no-hints --background-label upkeep");
        let upkeep = [ThreadGroup::OltpUpkeep, ThreadGroup::BatchUpkeep];
        for group in [ThreadGroup::Serve, ThreadGroup::Jobs]
            .iter()
            .chain(&upkeep)
        {
            let is_upkeep = upkeep.contains(group);
            assert_eq!(group.cgroup().ends_with("/upkeep"), is_upkeep);
        }
    }

    #[test]
    fn there_is_time_to_load_two_schedulers_one_after_the_other() {
        let config = Config::parse(&format!("{UFS_ROWS}{LIMITS}"), "f".as_ref()).unwrap();
        assert!(config.limits.start > Duration::from_secs(101));
        assert!(LIMIT > 2 * config.limits.start);
    }

    #[test]
    fn the_rows_of_ufs_are_ones_that_a_configuration_takes() {
        let config = Config::parse(UFS_ROWS, "f".as_ref()).unwrap();
        for name in UFS_NAMES {
            assert!(!config.table.get(name).unwrap().standby.is_empty());
        }
    }
}
