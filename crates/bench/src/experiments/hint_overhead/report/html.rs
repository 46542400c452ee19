//! The results as a page.

use std::fmt::Write as _;

use plotters::style::RGBColor;

use super::summary::{Cell, Summary, per_call, sentence};
use super::table::{awaited, boosts, kept, name, preempted, waits};
use crate::cell::report::heading;
use crate::cell::row::Row;
use crate::experiments::hint_overhead::{Arm, HintRow};
use crate::harness::number::short;
use crate::render::canvas::{self, Group};
use crate::render::page::{self, escape};
use crate::report::Report;

/// Renders the page.
pub(super) fn render(report: &Report<HintRow>) -> String {
    let summary = Summary::of(report);
    let mut page = page::begin(
        &report.experiment,
        "What hints about locks cost, and what they are good for",
        &heading(report),
        &sentence(report),
    );
    page::section(
        &mut page,
        &format!("TPC-C beside {}", summary.job().label()),
        "off: UFS knows tiers and weights. counted: the server tells it of locks, too, and it \
         counts whom it would boost. on: it boosts them. Bars are medians over the repeats, \
         whiskers the extremes.",
    );
    page::legend(
        &mut page,
        Arm::ALL.map(|arm| (colour(arm), arm.name().to_owned())),
    );
    let plots = [
        bars("TPC-C transactions per second", &summary, |row| row.ts_tps),
        bars("99th percentile of their latency, ms", &summary, |row| {
            row.ts_p99_ms
        }),
    ];
    page::plots(&mut page, &plots);
    numbers(&mut page, &summary);
    callbacks(&mut page, &summary);
    page::environment(
        &mut page,
        &report.environment,
        &[("Cells measured", report.rows.len().to_string())],
        "Priorities are set by SQL roles alone. In the lockstep clock all CPUs run at the same \
         constant speed, and memory and caches cost nothing.",
    );
    page::end(page)
}

fn colour(arm: Arm) -> RGBColor {
    match arm {
        Arm::Off => RGBColor(120, 130, 142),
        Arm::Counted => RGBColor(98, 178, 240),
        Arm::On => RGBColor(22, 108, 196),
    }
}

fn bars(title: &str, summary: &Summary<'_>, value: impl Fn(&Row) -> Option<f64> + Copy) -> String {
    let groups: Vec<Group> = summary
        .servers()
        .into_iter()
        .map(|server| Group {
            label: server.to_string(),
            bars: Arm::ALL
                .into_iter()
                .filter_map(|arm| {
                    let spread = summary.cell(server, arm)?.spread(value)?;
                    Some((colour(arm), spread))
                })
                .collect(),
        })
        .collect();
    canvas::bars(title, &groups, None)
}

fn numbers(page: &mut String, summary: &Summary<'_>) {
    let _ = write!(
        page,
        "<h2>Numbers</h2>\n<div class=\"card\"><table><thead><tr><th>server, hints</th>\
         <th>TPC-C tps</th><th>of off</th><th>p99 ms</th><th>p99.9 ms</th><th>{}</th>\
         <th>holders preempted/s</th><th>awaited/s</th><th>boosts/s</th><th>lock waits/s</th>\
         <th>p99 µs</th><th>p99.9 µs</th></tr></thead><tbody>\n",
        summary.job().per_second()
    );
    for cell in &summary.cells {
        let class = if cell.arm == Arm::On {
            " class=\"own\""
        } else {
            ""
        };
        let _ = writeln!(
            page,
            "<tr{class}><td>{}</td></tr>",
            fields(summary, cell).join("</td><td>")
        );
    }
    page.push_str("</tbody></table></div>\n");
}

fn fields(summary: &Summary<'_>, cell: &Cell<'_>) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or("–".to_owned(), short);
    let median = |value: fn(&Row) -> Option<f64>| number(cell.spread(value).map(|s| s.median));
    let mut fields = vec![
        escape(&name(cell)),
        median(|row| row.ts_tps),
        kept(summary, cell),
        median(|row| row.ts_p99_ms),
        number(cell.latency_p999_ms()),
        median(|row| row.bg_per_s),
    ];
    if cell.arm == Arm::Off {
        fields.extend(std::iter::repeat_n("–".to_owned(), 6));
        return fields;
    }
    let counts: [fn(&Row) -> Option<u64>; 4] = [preempted, awaited, boosts, waits];
    fields.extend(counts.map(|count| number(cell.per_second(count))));
    fields.extend([0.99, 0.999].map(|share| number(cell.lock_wait_us(share))));
    fields
}

fn callbacks(page: &mut String, summary: &Summary<'_>) {
    for server in summary.servers() {
        let callbacks = summary.callbacks(server);
        if callbacks.is_empty() {
            continue;
        }
        page::section(
            page,
            &format!("UFS's callbacks, {server} server"),
            "Nanoseconds of a call, timed by the kernel in a pair of runs of their own. What is \
             more in stopping is the read of a backend's locks as it leaves its CPU.",
        );
        page.push_str(
            "<div class=\"card\"><table><thead><tr><th>callback</th><th>off</th><th>on</th>\
             <th>calls</th></tr></thead><tbody>\n",
        );
        for (name, off, on) in callbacks {
            let _ = writeln!(
                page,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(name),
                short(per_call(off)),
                short(per_call(on)),
                on.calls
            );
        }
        page.push_str("</tbody></table></div>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::hint_overhead::report::samples;

    #[test]
    fn the_page_is_whole_and_has_a_row_for_each_cell() {
        let page = render(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg ").count(), 2);
        // Six cells; a callback and a head for each server; the head.
        assert_eq!(page.matches("<tr").count(), 6 + 2 * 2 + 1);
        let mut report = samples::report();
        report.rows.clear();
        assert!(render(&report).ends_with("</html>\n"));
    }
}
