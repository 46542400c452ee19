//! `giveway meta plan`: the schedule that a policy gives, before it is followed.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use giveway_metasched::config::{Config, Rule};
use giveway_metasched::measurements::{Company, Measurements};
use giveway_metasched::policy::{self, Choice, Goal, Policy, Schedule};
use giveway_metasched::scheduler::EEVDF;
use serde::Serialize;

use super::ConfigArgs;
use giveway_command::Failure;

/// Print the schedule that the configuration gives
///
/// Shows each application's preferred scheduler with what it brings, and each
/// policy's timeslices. Changes nothing.
#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Plan {
    /// What `giveway meta run` would follow; none: phases.
    schedule: Option<Schedule>,
    choices: Vec<Choice>,
    /// What every policy would give.
    policies: Vec<(Policy, Schedule)>,
    warnings: Vec<String>,
}

/// Prints the plan.
pub(super) fn plan(args: &PlanArgs) -> Result<u8, Failure> {
    let config = args.config.read()?;
    let plan = Plan::of(&config)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &plan)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", plan.text(&config))?;
    }
    out.flush()?;
    Ok(0)
}

impl Plan {
    fn of(config: &Config) -> Result<Plan, Failure> {
        let remedy = "run 'giveway meta measure' first, or write [[turn]]s into the configuration";
        let failure = |error| Failure::new(error).with_remedy(remedy);
        let (schedule, choices) = match config.schedule().map_err(failure)? {
            Some((schedule, choices)) => (Some(schedule), choices),
            None => {
                // Whatever keeps the daemon from following phases is said here, too.
                config.selector().map_err(failure)?;
                let measured = Measurements::read(&config.measurements)?;
                (None, config.choices(&measured)?)
            }
        };
        let schedule_of = |policy| {
            (
                policy,
                config.slices(policy, &choices, config.base_timeslice),
            )
        };
        let policies = match choices.is_empty() {
            true => Vec::new(),
            false => Policy::ALL.map(schedule_of).to_vec(),
        };
        let mut warnings = Vec::new();
        if let Ok(measured) = Measurements::read(&config.measurements) {
            let swap = measured.swap();
            for turn in schedule.iter().flat_map(|s| s.shorter_than(swap)) {
                warnings.push(format!(
                    "{} has {:.0?} and a swap takes {swap:.0?}: raise base_timeslice_ms",
                    turn.scheduler, turn.timeslice
                ));
            }
            warnings.extend(
                choices
                    .iter()
                    .filter_map(|c| doubt(c, &measured, config.goal)),
            );
        }
        Ok(Plan {
            schedule,
            choices,
            policies,
            warnings,
        })
    }

    fn text(&self, config: &Config) -> String {
        let mut text = String::new();
        for choice in &self.choices {
            let gain = |best: f64, eevdf: f64| (best / eevdf - 1.0) * 100.0;
            text += &format!(
                "{:<16} prefers {:<14} throughput {:+.1} %, 99 % tail latency {:+.1} % of {EEVDF}\n",
                choice.application,
                choice.preferred,
                gain(choice.best.throughput_per_s, choice.eevdf.throughput_per_s),
                gain(choice.best.p99_s, choice.eevdf.p99_s),
            );
        }
        for (policy, schedule) in &self.policies {
            let is_ours = Rule::Slices(*policy) == config.policy;
            let mark = if is_ours { '*' } else { ' ' };
            text += &format!("{mark} {:<24} {}\n", policy.word(), turns(schedule));
        }
        match &self.schedule {
            Some(schedule) if self.policies.is_empty() => {
                text += &format!("* {:<24} {}\n", "by hand", turns(schedule));
            }
            Some(_) => {}
            None => text += &format!("* {:<24} by what runs\n", "phase_aware"),
        }
        for warning in &self.warnings {
            text += &format!("warning: {warning}\n");
        }
        text
    }
}

/// Whether a preference could be chance: the best and EEVDF overlap.
fn doubt(choice: &Choice, measured: &Measurements, goal: Goal) -> Option<String> {
    let spread = |scheduler: &str| {
        let cell = measured.cell(&choice.application, scheduler, Company::Alone)?;
        match goal {
            Goal::Throughput => cell.throughput(),
            Goal::TailLatency => cell.p99(),
        }
    };
    if choice.preferred == EEVDF {
        return None;
    }
    let (best, eevdf) = (spread(&choice.preferred)?, spread(EEVDF)?);
    let overlap = best.min <= eevdf.max && eevdf.min <= best.max;
    overlap.then(|| {
        format!(
            "{} under {} and under {EEVDF} overlap in {} and {} runs: it may be chance",
            choice.application, choice.preferred, best.runs, eevdf.runs
        )
    })
}

fn turns(schedule: &Schedule) -> String {
    if let [only] = &schedule.turns[..] {
        return format!("{} all the time", only.scheduler);
    }
    let ms = |length: Duration| (length.as_secs_f64() * 1e3).round();
    let turn = |t: &policy::Turn| format!("{} {} ms", t.scheduler, ms(t.timeslice));
    let all: Vec<String> = schedule.turns.iter().map(turn).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use giveway_metasched::measurements::{MachineNote, Reading};

    #[test]
    fn the_plan_shows_choices_every_policy_and_what_to_doubt() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.json");
        let mut all = Measurements::new(MachineNote::default());
        for (application, scheduler, runs) in [
            ("web", EEVDF, [100.0, 101.0]),
            ("web", "scx_ufs", [120.0, 121.0]),
            ("batch", EEVDF, [10.0, 12.0]),
            ("batch", "scx_rusty", [11.5, 12.5]),
        ] {
            let cell = all.cell_mut(application, scheduler, Company::Alone);
            cell.runs = runs
                .map(|throughput_per_s| Reading {
                    throughput_per_s,
                    p99_s: 1.0,
                })
                .to_vec();
        }
        all.swaps.entry("scx_ufs".into()).or_default().start_s = vec![2.0];
        all.write(&path).unwrap();
        let text = format!("measurements = '{}'", path.display());
        let config = Config::parse(&text, "f".as_ref()).unwrap();
        let text = Plan::of(&config).unwrap().text(&config);
        assert!(text.contains("web              prefers scx_ufs        throughput +19.9 %"));
        assert!(
            text.contains("* delta_weighted           scx_ufs 1800 ms, scx_rusty 1800 ms"),
            "{text}"
        );
        assert!(text.contains("  round_robin "));
        assert!(
            text.contains("scx_ufs has 2s and a swap takes 2s"),
            "{text}"
        );
        assert!(text.contains("batch under scx_rusty and under eevdf overlap"));
        assert!(!text.contains("web under"), "{text}");
    }

    #[test]
    fn a_schedule_by_hand_needs_no_measurements() {
        let text = "[[turn]]\nscheduler = 'eevdf'\ntimeslice_ms = 500\n\
                    [[turn]]\nscheduler = 'scx_ufs'\ntimeslice_ms = 250";
        let config = Config::parse(text, "f".as_ref()).unwrap();
        let text = Plan::of(&config).unwrap().text(&config);
        assert_eq!(
            text,
            "* by hand                  eevdf 500 ms, scx_ufs 250 ms\n"
        );
    }
}
