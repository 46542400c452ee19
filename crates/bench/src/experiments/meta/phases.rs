//! Phases in which what matters changes, under single schedulers, the paper's
//! four policies, and the phase-aware one.
//!
//! ```text
//!   each scheduler alone ──► rows ──► measurements ──► four policies ──► rows
//!                                          └─────────► phase-aware   ──► row
//! ```
//!
//! An application is measured in its own phases, beside the other's upkeep, so
//! the runs under single schedulers are the measurements which the policies need,
//! too.
//!
//! UFS takes part as two rows: one for which OLTP is time-sensitive and batch
//! background, and one the other way round. Either is right in half of the
//! phases. Somebody who gives the upkeep cgroups of their own tier needs neither:
//! what is shown is what following phases brings where the tiers are those of
//! whole applications.

use std::time::Duration;

use giveway_metasched::measurements::{Company, MachineNote, Measurements, Reading};
use giveway_metasched::policy::Policy;
use giveway_metasched::scheduler::EEVDF;

use super::MetaPlan;
use super::driver::{Driver, Seen};
use super::groups::{Groups, ThreadGroup};
use super::load::{Load, Phase};
use super::row::{MetaRow, PhaseRow, Under};
use crate::harness::Progress;
use crate::harness::error::{Error, Result};

/// UFS for bursts, and for windows.
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
";
const UFS_NAMES: [&str; 2] = ["ufs-oltp", "ufs-batch"];

/// Loading takes no longer, in the lab neither.
const LIMIT: Duration = Duration::from_secs(120);

/// Measures all of it.
pub(super) fn run(plan: &MetaPlan, line: Progress<'_>) -> Result<Vec<MetaRow>> {
    let mut rows: Vec<PhaseRow> = Vec::new();
    let singles = [EEVDF].into_iter().chain(UFS_NAMES);
    for name in singles.chain(plan.schedulers.iter().map(String::as_str)) {
        let under = Under::Single { name: name.into() };
        let config = format!("{UFS_ROWS}[[turn]]\nscheduler = '{name}'\ntimeslice_ms = 60000\n");
        rows.push(measure(plan, under, &config, line)?);
    }
    let dir = tempfile::tempdir().map_err(|error| Error::Meta(error.to_string()))?;
    let path = dir.path().join("measurements.json");
    let written = measurements(&rows).write(&path);
    written.map_err(|error| Error::Meta(error.to_string()))?;
    let applications = [("oltp", ThreadGroup::Serve), ("batch", ThreadGroup::Jobs)]
        .map(|(name, place)| {
            let cgroup = place.cgroup();
            format!("[[application]]\nname = '{name}'\ncommand = ['true']\ncgroup = '{cgroup}'\n")
        })
        .concat();
    let config = |first: &str| {
        let file = path.display();
        format!("{first}measurements = '{file}'\n{UFS_ROWS}{applications}")
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
            rows.push(measure(plan, under, &config(&first), line)?);
        }
    }
    let swap_ms = plan.swap_ms.or_else(|| switch_ms(&rows));
    let swap_ms = swap_ms.ok_or_else(|| {
        Error::Meta("no policy switched, so nothing says what that takes: give --swap-ms".into())
    })?;
    let first = format!("policy = 'phase_aware'\nswap_ms = {swap_ms}\n");
    let under = Under::PhaseAware { swap_ms };
    rows.push(measure(plan, under, &config(&first), line)?);
    Ok(rows.into_iter().map(MetaRow::Phases).collect())
}

/// What a switch took, in milliseconds: of the means of all runs, the median.
fn switch_ms(rows: &[PhaseRow]) -> Option<f64> {
    let mut means: Vec<f64> = rows.iter().filter_map(|row| row.switch_ms).collect();
    means.sort_by(f64::total_cmp);
    means.get(means.len() / 2).copied()
}

/// What single schedulers did, as policies read it. One that misbehaved is left
/// out. An application that got nothing done would have got less than one thing done,
/// in no less than the time it had.
fn measurements(rows: &[PhaseRow]) -> Measurements {
    let mut all = Measurements::new(MachineNote::default());
    for row in rows.iter().filter(|row| row.faults.is_empty()) {
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

/// One run: the metascheduler by this configuration, phase after phase.
fn measure(plan: &MetaPlan, under: Under, config: &str, line: Progress<'_>) -> Result<PhaseRow> {
    line(&format!("phases: {under}"));
    let _groups = Groups::make()?;
    let load = Load::start(plan.seed)?;
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
        Under::Fixed { .. } | Under::PhaseAware { .. } => {
            driver.wait("schedulers loaded ahead", LIMIT, Seen::is_at_rest)?;
        }
    }
    let starts = driver.seen().starts();
    let phase = Duration::from_secs_f64(plan.phase_s);
    for _ in 0..plan.cycles {
        for now in [Phase::Burst, Phase::Window] {
            load.enter(now);
            std::thread::sleep(phase);
        }
    }
    load.enter(Phase::Rest);
    let starts = driver.seen().starts() - starts;
    // A scheduler that starves an application keeps it from ending, too.
    let seen = driver.end()?;
    let (oltp, batch) = load.end()?;
    let switch_mean_s = seen.status.as_ref().and_then(|status| status.switch_mean_s);
    if oltp.errors > 0 {
        return Err(Error::Meta(format!(
            "{} wrong or missing answers",
            oltp.errors
        )));
    }
    let seconds = plan.phase_s * f64::from(plan.cycles);
    let p99_ms = |p99_s: Option<f64>| p99_s.unwrap_or_default() * 1e3;
    let row = PhaseRow {
        under,
        phase_s: plan.phase_s,
        cycles: plan.cycles,
        oltp_per_s: oltp.count() as f64 / seconds,
        oltp_p99_ms: p99_ms(oltp.p99_s()),
        batch_per_s: batch.count() as f64 / seconds,
        batch_p99_ms: p99_ms(batch.p99_s()),
        starts,
        switch_ms: switch_mean_s.map(|s| s * 1e3),
        faults: seen.faults().map(str::to_owned).collect(),
        repeat: plan.repeat,
        seed: plan.seed,
    };
    line(&format!(
        "  OLTP {:.0}/s, {:.1} ms; batch {:.1}/s, {:.1} ms; {} starts",
        row.oltp_per_s, row.oltp_p99_ms, row.batch_per_s, row.batch_p99_ms, row.starts
    ));
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use giveway_metasched::config::Config;

    fn row(name: &str, oltp_per_s: f64, faults: &[&str]) -> PhaseRow {
        PhaseRow {
            under: Under::Single { name: name.into() },
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

    #[test]
    fn a_switch_is_what_it_took_in_most_runs() {
        let rows = [Some(90.0), None, Some(300.0), Some(120.0)].map(|switch_ms| PhaseRow {
            switch_ms,
            ..row(EEVDF, 100.0, &[])
        });
        assert_eq!(switch_ms(&rows), Some(120.0));
        assert_eq!(switch_ms(&rows[1..2]), None);
    }

    #[test]
    fn the_rows_of_ufs_are_ones_that_a_configuration_takes() {
        let config = Config::parse(UFS_ROWS, "f".as_ref()).unwrap();
        for name in UFS_NAMES {
            assert!(!config.table.get(name).unwrap().standby.is_empty());
        }
    }
}
