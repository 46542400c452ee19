//! The one sentence that says what the reader should see, computed from the
//! numbers. It says who wins and who loses whichever way it went, and claims
//! nothing that was not measured.

use super::stats::{Cell, Summary};
use crate::cell::config::Mix;
use crate::cell::row::Row;
use crate::cell::setup::By;
use crate::harness::scheduler::Scheduler;
use crate::report::Report;
use crate::workload::background::Job;

/// A scheduler that keeps this much of SOLO's throughput is said to keep it.
const KEEPS: f64 = 0.97;

/// What the reader should see.
pub(super) fn sentence(report: &Report<Row>) -> String {
    let summary = Summary::of(report);
    let Some(ufs) = summary.cell(&Scheduler::Ufs, Mix::MinMax) else {
        return without_ufs(&summary);
    };
    let Some(kept) = summary.tps_to_solo(ufs) else {
        return "SOLO was not measured, so these numbers do not say what background work costs."
            .to_owned();
    };
    let mut parts = vec![format!(
        "With {} on every CPU, UFS {} {} of the throughput that TPC-C has alone",
        background(summary.job()),
        if kept >= KEEPS { "keeps" } else { "keeps only" },
        percent(kept)
    )];
    if let Some(tail) = p95_to_solo(&summary, ufs) {
        parts.push(format!("at {tail:.2} times its 95th percentile latency"));
    }
    let mut text = parts.join(" ");
    let rivals = rivals(&summary, kept);
    if !rivals.is_empty() {
        text.push_str(&format!(", where {rivals}"));
    }
    if let Some(roles) = by_roles(&summary, ufs) {
        text.push_str(&format!("; {roles}"));
    }
    if let Some(equal) = equal_priority(&summary) {
        text.push_str(&format!("; {equal}"));
    }
    text.push('.');
    text
}

/// What runs in the background, as the sentences name it.
fn background(job: Job) -> &'static str {
    match job {
        Job::Q17 => "background queries",
        other => other.label(),
    }
}

/// What UFS keeps when roles say it all, beside what it keeps with cgroups.
fn by_roles(summary: &Summary<'_>, ufs: &Cell<'_>) -> Option<String> {
    let roles = summary.cell_by(&Scheduler::Ufs, By::Roles, Mix::MinMax)?;
    if ufs.by == By::Roles {
        return Some("priorities were those of SQL roles".to_owned());
    }
    let kept = summary.tps_to_solo(roles)?;
    Some(format!(
        "told by SQL roles alone it keeps {}",
        percent(kept)
    ))
}

/// What the others keep under MIN:MAX: EEVDF, and the best of all.
fn rivals(summary: &Summary<'_>, ufs: f64) -> String {
    let kept = |cell: &Cell<'_>| Some((cell.scheduler.clone(), summary.tps_to_solo(cell)?));
    let others: Vec<(Scheduler, f64)> = summary
        .mix(Mix::MinMax)
        .filter(|cell| cell.scheduler != Scheduler::Ufs)
        .filter_map(kept)
        .collect();
    let mut parts = Vec::new();
    if let Some((_, eevdf)) = others.iter().find(|(name, _)| *name == Scheduler::Eevdf) {
        parts.push(format!("EEVDF keeps {}", percent(*eevdf)));
    }
    let best = others
        .iter()
        .filter(|(name, _)| *name != Scheduler::Eevdf)
        .max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((name, best)) = best {
        let better = if *best > ufs + 0.005 {
            ", more than UFS"
        } else {
            ""
        };
        parts.push(format!("{} keeps {}{better}", name.label(), percent(*best)));
    }
    parts.join(" and ")
}

/// What happens to TPC-C when the background has the same priority.
fn equal_priority(summary: &Summary<'_>) -> Option<String> {
    let ufs = summary.cell(&Scheduler::Ufs, Mix::FiftyFifty)?;
    let kept = summary.tps_to_solo(ufs)?;
    let mut text = format!("at equal priority UFS keeps {}", percent(kept));
    if let Some(queries) = summary.bg_to_solo(ufs) {
        let rounds = match summary.job() {
            Job::Q17 => "queries",
            _ => "background's rounds",
        };
        text.push_str(&format!(" of it and {} of the {rounds}", percent(queries)));
    }
    let worst = summary
        .mix(Mix::FiftyFifty)
        .filter(|cell| cell.scheduler != Scheduler::Ufs)
        .filter_map(|cell| Some((cell.scheduler.label(), summary.tps_to_solo(cell)?)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((name, worst)) = worst {
        let less = if worst < kept { "only " } else { "" };
        text.push_str(&format!(", {name} {less}{}", percent(worst)));
    }
    Some(text)
}

/// The sentence of a report without UFS: what background work costs.
fn without_ufs(summary: &Summary<'_>) -> String {
    let kept: Vec<String> = summary
        .mix(Mix::MinMax)
        .filter_map(|cell| {
            let kept = summary.tps_to_solo(cell)?;
            Some(format!(
                "{} keeps {}",
                cell.scheduler.label(),
                percent(kept)
            ))
        })
        .collect();
    if kept.is_empty() {
        return "These rows do not hold SOLO and MIN:MAX of one scheduler, so they do not say \
                what background work costs."
            .to_owned();
    }
    format!(
        "With {} on every CPU, of the throughput that TPC-C has alone, {}.",
        background(summary.job()),
        kept.join(", ")
    )
}

/// The 95th percentile as a multiple of SOLO's.
fn p95_to_solo(summary: &Summary<'_>, cell: &Cell<'_>) -> Option<f64> {
    summary.to_own(cell, Mix::Solo, |row| row.ts_p95_ms)
}

fn percent(ratio: f64) -> String {
    if ratio > 0.0 && ratio < 0.095 {
        return format!("{:.1} %", ratio * 100.0);
    }
    format!("{:.0} %", ratio * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::mixed::report::samples;

    #[test]
    fn the_papers_result_reads_like_the_papers_result() {
        assert_eq!(
            sentence(&samples::report()),
            "With background queries on every CPU, UFS keeps 99 % of the throughput that TPC-C \
             has alone at 1.01 times its 95th percentile latency, where EEVDF keeps 50 % and RR \
             keeps 99 %; at equal priority UFS keeps 75 % of it and 50 % of the queries, FIFO \
             only 0 %."
        );
    }

    #[test]
    fn a_loss_is_said() {
        let mut report = samples::report();
        for row in &mut report.rows {
            if row.scheduler == Scheduler::Ufs && row.mix == Mix::MinMax {
                row.ts_tps = row.ts_tps.map(|tps| tps * 0.5);
            }
        }
        let text = sentence(&report);
        assert!(
            text.contains("keeps only 50 %") && text.contains("more than UFS"),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_claimed_that_was_not_measured() {
        let mut report = samples::report();
        report.rows.retain(|row| row.mix != Mix::Solo);
        assert!(sentence(&report).contains("SOLO was not measured"));
        report.rows.retain(|row| row.scheduler != Scheduler::Ufs);
        assert!(sentence(&report).contains("do not say"));
        report = samples::report();
        report.rows.retain(|row| row.scheduler == Scheduler::Eevdf);
        assert!(
            sentence(&report).contains("EEVDF keeps 50 %"),
            "{}",
            sentence(&report)
        );
    }
}
