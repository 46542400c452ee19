//! Lock results as a page.

use std::fmt::Write as _;

use super::plots::{bars, colour, over_threads};
use super::summary::{Cell, Group, Summary};
use super::table::heading;
use super::targets::{sentence, targets};
use crate::experiments::locks::{Contended, LockExperiment, LockRow};
use crate::harness::number::{Spread, large, mark, short};
use crate::render::page::{self, escape};
use crate::render::target;
use crate::report::Report;

/// Renders the page.
pub(super) fn render(report: &Report<LockRow>) -> String {
    let summary = Summary::of(report);
    let mut page = page::begin(
        &report.experiment,
        "Who gets the lock, and at what price",
        &heading(report),
        &sentence(report),
    );
    let wanted = "What was wanted, beside what was measured.";
    target::section(&mut page, wanted, "what", &targets(&summary));
    for experiment in summary.experiments() {
        page::section(&mut page, &title(experiment), note(experiment));
        let locks = summary.locks().into_iter();
        page::legend(&mut page, locks.map(|lock| (colour(lock), lock.to_owned())));
        page::plots(&mut page, &figures(&summary, experiment));
        numbers(&mut page, &summary, experiment);
    }
    environment(&mut page, report);
    page::end(page)
}

fn title(experiment: LockExperiment) -> String {
    let mut name = experiment.name().to_owned();
    name[..1].make_ascii_uppercase();
    format!("{name}: {}", experiment.about())
}

fn note(experiment: LockExperiment) -> &'static str {
    match experiment {
        LockExperiment::Fairness | LockExperiment::Short | LockExperiment::Strict => {
            "Two sets with as many threads each. The ratio is the hold time of the set with short \
             critical sections to that of the other: 1 is fair, and a lock that shares turns \
             reaches a third. As the paper's Figure 8."
        }
        LockExperiment::Equal => {
            "Every thread does the same, so turns are hold time: what sharing costs when nobody \
             needs it."
        }
        LockExperiment::Weights => {
            "The ratio is hold time over weight, of the heavy to the light set: 1 is exact."
        }
        LockExperiment::Groups => {
            "The ratio is hold time over group weight, of the group with few threads to the one \
             with many: 1 is exact; locks that know no groups give the many more."
        }
        LockExperiment::Convoy => {
            "Short turns wait behind long ones in a FIFO queue. Hold time shared equally lets many \
             short turns pass for each long one."
        }
        LockExperiment::Newcomers => {
            "Threads arrive every 20 ms on average and stay 5 ms: new ones, and one that comes \
             back. The first wait is counted from asking; a share above 1 is more than the \
             veterans had meanwhile."
        }
        LockExperiment::Uncontended => {
            "Pairs of lock and unlock by one thread, locks in turn, in rounds; bars are medians, \
             whiskers the extremes of all rounds. 'none' is the loop itself."
        }
    }
}

fn figures(summary: &Summary<'_>, experiment: LockExperiment) -> Vec<String> {
    let turns = |cell: &Cell<'_>| cell.turns_per_s();
    let turns_spread = |cell: &Cell<'_>| cell.spread(|row| Some(row.turns_per_s));
    let ratio_spread = |cell: &Cell<'_>| cell.spread(|row| row.ratio);
    let wait_spread = |cell: &Cell<'_>| cell.spread(|row| Some(row.wait.mean_us));
    let figures = match experiment {
        LockExperiment::Fairness => [
            over_threads(summary, experiment, "Turns per second", None, turns),
            over_threads(summary, experiment, "Hold-time ratio", Some(1.0), |cell| {
                cell.median(|row| row.ratio)
            }),
        ],
        LockExperiment::Convoy => [
            bars(summary, experiment, "Turns per second", None, turns_spread),
            bars(summary, experiment, "Mean wait in µs", None, wait_spread),
        ],
        LockExperiment::Newcomers => [
            bars(
                summary,
                experiment,
                "Longest first wait in µs",
                None,
                |cell| cell.spread(|row| row.arrivals.as_ref().map(|a| a.first.max_us)),
            ),
            bars(
                summary,
                experiment,
                "Hold time of arrivals, of an equal share",
                Some(1.0),
                |cell| cell.spread(|row| row.arrivals.as_ref().map(|a| a.share_of_equal)),
            ),
        ],
        LockExperiment::Uncontended => [
            bars(summary, experiment, "ns for a pair", None, |cell| {
                cell.alone_ns()
            }),
            None,
        ],
        _ => [
            bars(
                summary,
                experiment,
                "Hold-time ratio",
                Some(1.0),
                ratio_spread,
            ),
            bars(summary, experiment, "Turns per second", None, turns_spread),
        ],
    };
    figures.into_iter().flatten().collect()
}

const HEAD: [&str; 14] = [
    "lock",
    "ratio",
    "jain",
    "turns/s",
    "held",
    "mean wait µs",
    "p50",
    "p99",
    "p99.9",
    "max",
    "bypass",
    "CPUs used",
    "switches/s",
    "first turns: count, p99 µs, bypass",
];

fn numbers(page: &mut String, summary: &Summary<'_>, experiment: LockExperiment) {
    if experiment == LockExperiment::Uncontended {
        return alone(page, summary);
    }
    let _ = writeln!(
        page,
        "<div class=\"card\"><table><thead><tr><th>{}</th></tr></thead><tbody>",
        HEAD.join("</th><th>")
    );
    for group in summary.experiment(experiment) {
        let _ = writeln!(
            page,
            "<tr class=\"part\"><td colspan=\"{}\">{}, {} threads: {}</td></tr>",
            HEAD.len(),
            escape(group.case),
            group.threads,
            escape(&sets(group))
        );
        for cell in &group.cells {
            row(page, cell);
        }
    }
    page.push_str("</tbody></table></div>\n");
}

/// What the sets are, from any row.
fn sets(group: &Group<'_>) -> String {
    let mut rows = group.cells.iter().flat_map(|cell| &cell.rows);
    let Some(row) = rows.find_map(|row| row.contended.as_ref()) else {
        return String::new();
    };
    let set = |set: &crate::experiments::locks::SetRow| {
        format!(
            "{} x {} of {} µs, entitled to {:.1} %",
            set.threads,
            set.name,
            set.inside_us,
            set.entitled * 100.0
        )
    };
    Vec::from_iter(row.sets.iter().map(set)).join("; ")
}

fn row(page: &mut String, cell: &Cell<'_>) {
    let number = |value: Option<f64>| value.map_or("–".to_owned(), large);
    let tail = |us: fn(&Contended) -> f64, share| {
        let waits = cell.sum(|row| row.wait.count as f64);
        let text = cell.median(|row| Some(us(row))).map(large);
        text.map_or("–".to_owned(), |text| mark(text, waits, share))
    };
    let three = |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{v:.3}"));
    let spread = |spread: Option<Spread>, text: fn(f64) -> String| match spread {
        None => "–".to_owned(),
        Some(Spread { median, min, max }) if min == max => text(median),
        Some(Spread { median, min, max }) => {
            format!(
                "{} <small>{}–{}</small>",
                text(median),
                text(min),
                text(max)
            )
        }
    };
    let first = |number: fn(&crate::experiments::locks::ArrivalRow) -> f64| {
        cell.median(|row| row.arrivals.as_ref().map(number))
    };
    let fields = [
        escape(cell.lock),
        spread(cell.spread(|row| row.ratio), |v| format!("{v:.3}")),
        three(cell.median(|row| Some(row.jain))),
        spread(cell.spread(|row| Some(row.turns_per_s)), large),
        cell.median(|row| Some(row.held))
            .map_or("–".to_owned(), short),
        number(cell.wait_us()),
        number(cell.median(|row| Some(row.wait.p50_us))),
        tail(|row| row.wait.p99_us, 0.99),
        tail(|row| row.wait.p999_us, 0.999),
        number(cell.median(|row| Some(row.wait.max_us))),
        number(cell.median(|row| {
            row.sets
                .iter()
                .map(|s| s.bypass_max)
                .max()
                .map(|b| b as f64)
        })),
        cell.median(|row| Some(row.cpus_used))
            .map_or("–".to_owned(), short),
        number(cell.median(|row| Some(row.voluntary_per_s + row.involuntary_per_s))),
        match (
            first(|a| a.count as f64),
            first(|a| a.first.p99_us),
            first(|a| a.first_bypass_max as f64),
        ) {
            (Some(count), Some(p99), Some(bypass)) => {
                format!("{count:.0}, {}, {}", large(p99), large(bypass))
            }
            _ => "–".to_owned(),
        },
    ];
    let own = if cell.lock.starts_with("cfl") {
        " class=\"own\""
    } else {
        ""
    };
    let _ = writeln!(page, "<tr{own}><td>{}</td></tr>", fields.join("</td><td>"));
}

fn alone(page: &mut String, summary: &Summary<'_>) {
    page.push_str(
        "<div class=\"card\"><table><thead><tr><th>lock</th><th>median ns</th><th>least</th>\
         <th>most</th><th>rounds</th></tr></thead><tbody>\n",
    );
    let groups = summary.experiment(LockExperiment::Uncontended);
    for cell in groups.flat_map(|group| &group.cells) {
        let Some(Spread { median, min, max }) = cell.alone_ns() else {
            continue;
        };
        let rounds: usize = cell.rows.iter().map(|row| row.uncontended_ns.len()).sum();
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{median:.1}</td><td>{min:.1}</td><td>{max:.1}</td>\
             <td>{rounds}</td></tr>",
            escape(cell.lock)
        );
    }
    page.push_str("</tbody></table></div>\n");
}

fn environment(page: &mut String, report: &Report<LockRow>) {
    let row = report.rows.first();
    let more = [
        (
            "Work",
            row.map_or(String::new(), |row| {
                format!(
                    "{} x as long as named; a step takes {:.2} ns",
                    row.scale, row.step_ns
                )
            }),
        ),
        ("Rows", report.rows.len().to_string()),
    ];
    page::environment(
        page,
        &report.environment,
        &more,
        "The experiments are those of CFL (Sections 3.4, 4.5 and 4.6). With more threads than \
         CPUs, a preempted holder goes on holding, and its time counts. In the lockstep clock \
         cache traffic costs nothing: compare shares and ratios there, not costs. If it was \
         loose, as all were up to 2026-11-24, a hand-over takes up to a quantum.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::locks::report::samples;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = render(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(
            page.matches("<svg ").count(),
            page.matches("</svg>").count()
        );
        for experiment in LockExperiment::ALL {
            assert!(page.contains(&escape(&title(experiment))), "{experiment}");
        }
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("CFL meets every target measured"));
    }

    #[test]
    fn names_cannot_break_the_page() {
        let mut report = samples::report();
        report.rows[0].lock = "<b>&\"".to_owned();
        let page = render(&report);
        assert!(page.contains("&lt;b&gt;&amp;&quot;") && !page.contains("<b>&"));
    }

    #[test]
    fn a_report_with_one_row_or_none_is_still_a_page() {
        let mut report = samples::report();
        report.rows.truncate(1);
        assert!(render(&report).ends_with("</html>\n"));
        report.rows.clear();
        assert!(render(&report).ends_with("</html>\n"));
    }
}
