//! Inversion as a page.

use std::fmt::Write as _;

use plotters::style::RGBColor;

use super::summary::{Cell, Pair, Said, pairs};
use super::table::heading;
use super::targets::{sentence, targets};
use crate::cell::setup::Hints;
use crate::experiments::inversion::{ContendedLock, InversionRow, Outcome, Treatment};
use crate::harness::number::{Spread, short};
use crate::harness::scheduler::Scheduler;
use crate::render::canvas::{self, Group};
use crate::render::page::{self, escape};
use crate::render::target;
use crate::report::Report;

/// Renders the page.
pub(super) fn render(report: &Report<InversionRow>) -> String {
    let pairs = pairs(report);
    let mut page = page::begin(
        &report.experiment,
        "Who waits for a background session's lock?",
        &heading(report),
        &sentence(report),
    );
    target::section(
        &mut page,
        "The waiter's time beside the burner, as a multiple of that without it.",
        "lock and scheduler",
        &targets(&pairs),
    );
    page::section(
        &mut page,
        "The waiter",
        "A background session holds the lock, an urgent one wants it, and a third, urgent, wants \
         the CPU without end. Bars are the time until the waiter is through; those that reach the \
         limit were not, or the server panicked before. The grey bar is the time without the \
         third. After the UFS paper's Table 4, with three more locks.",
    );
    let mut treatments: Vec<&Treatment> = Vec::new();
    for pair in &pairs {
        if !treatments.contains(&&pair.treatment) {
            treatments.push(&pair.treatment);
        }
    }
    let names = treatments.iter().map(|t| (colour(t), t.to_string()));
    page::legend(
        &mut page,
        [(BASELINE, "without burner".to_owned())]
            .into_iter()
            .chain(names),
    );
    page::plots(&mut page, &figures(&pairs));
    numbers(&mut page, report);
    let rows = ("Rows", report.rows.len().to_string());
    let server = ("PostgreSQL", report.environment.postgresql.clone());
    page::environment(
        &mut page,
        &report.environment,
        &[server, rows],
        "All of the server's processes are on one CPU, clients on another. Without hints sessions \
         have their priorities by cgroup and class, with hints by giveway.tier and giveway.weight. \
         A session that wants a spinlock naps between attempts, for up to a second.",
    );
    page::end(page)
}

const BASELINE: RGBColor = RGBColor(200, 205, 210);

fn colour(treatment: &Treatment) -> RGBColor {
    match (&treatment.scheduler, treatment.hints) {
        (Scheduler::Ufs, Hints::Patched) => RGBColor(22, 108, 196),
        (Scheduler::Ufs, Hints::Stock) => RGBColor(90, 160, 225),
        (Scheduler::Ufs, Hints::Off) => RGBColor(214, 120, 60),
        (Scheduler::Fifo, _) => RGBColor(150, 120, 170),
        (Scheduler::Rr | Scheduler::RrBare, _) => RGBColor(190, 160, 90),
        _ => RGBColor(120, 130, 142),
    }
}

/// One plot for each lock: for each treatment a pair of bars.
fn figures(pairs: &[Pair<'_>]) -> Vec<String> {
    let figure = |lock: &ContendedLock| {
        let groups: Vec<Group> = pairs
            .iter()
            .filter(|pair| pair.lock == *lock)
            .map(|pair| {
                let bars = [
                    (BASELINE, &pair.baseline),
                    (colour(&pair.treatment), &pair.burner),
                ];
                Group {
                    label: label(&pair.treatment),
                    bars: bars
                        .into_iter()
                        .filter_map(|(colour, cell)| Some((colour, height(cell)?)))
                        .collect(),
                }
            })
            .collect();
        (!groups.is_empty()).then(|| {
            let title = format!("{lock}: seconds until the waiter is through");
            canvas::bars(&title, &groups, None)
        })
    };
    ContendedLock::ALL.iter().filter_map(figure).collect()
}

/// What fits under two bars; the legend has the rest.
fn label(treatment: &Treatment) -> String {
    match treatment.hints {
        Hints::Off => treatment.scheduler.label(),
        hints => format!("+ {hints}"),
    }
}

/// The bar of a cell. What did not get through is as high as the limit.
fn height(cell: &Cell<'_>) -> Option<Spread> {
    match cell.waiter() {
        Said::Nothing => None,
        Said::Seconds(spread) => Some(spread),
        Said::Late(_) | Said::Panic => Spread::of(cell.rows.iter().map(|row| row.limit_s)),
    }
}

fn numbers(page: &mut String, report: &Report<InversionRow>) {
    page.push_str(
        "<h2>Numbers</h2>\n<div class=\"card\"><table><thead><tr><th>lock</th><th>scheduler</th>\
         <th>hints</th><th>scenario</th><th>repeat</th><th>holder acq. s</th><th>holder tot.</th>\
         <th>waiter acq.</th><th>waiter tot.</th><th>limit</th><th></th><th>boosts</th>\
         <th>boosted s</th></tr></thead><tbody>",
    );
    for row in &report.rows {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
            row.lock,
            escape(&row.scheduler.label()),
            row.hints,
            row.scenario.name(),
            row.repeat + 1
        );
        let times = [
            row.holder_acquire_s,
            row.holder_total_s,
            row.waiter_acquire_s,
            row.waiter_total_s,
        ];
        for time in times {
            let time = time.map_or("-".to_owned(), |time| format!("{time:.2}"));
            let _ = write!(page, "<td>{time}</td>");
        }
        let outcome = match row.outcome {
            Outcome::Finished => "",
            Outcome::Late => "late",
            Outcome::Panic => "panic",
        };
        let boosts = row.boosts.map_or("-".to_owned(), |count| count.to_string());
        let boosted = row
            .boosted_ns
            .map_or("-".to_owned(), |ns| short(ns as f64 * 1e-9));
        let _ = write!(
            page,
            "<td>{:.0}</td><td>{outcome}</td><td>{boosts}</td><td>{boosted}</td></tr>",
            row.limit_s
        );
    }
    page.push_str("</tbody></table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::inversion::report::samples;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = render(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg ").count(), ContendedLock::ALL.len());
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn what_did_not_get_through_is_as_high_as_the_limit() {
        let report = samples::report();
        let pairs = pairs(&report);
        let height = |hints| {
            let of = |pair: &&Pair<'_>| pair.treatment.hints == hints;
            height(&pairs.iter().find(of).unwrap().burner)
                .unwrap()
                .median
        };
        assert_eq!(height(Hints::Off), 60.0);
        assert_eq!(height(Hints::Patched), 4.0 * 1.15);
    }
}
