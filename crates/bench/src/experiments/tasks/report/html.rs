//! Scheduling results as a page.

use std::fmt::Write as _;

use super::plots::{colour, figures};
use super::summary::{Summary, all, long, short};
use super::table::{self, bounds, heading};
use super::targets::{rivals, sentence, targets};
use crate::experiments::tasks::metrics::{Slowdowns, mean};
use crate::experiments::tasks::{Arrived, Sample, TasksExperiment, TasksRow};
use crate::harness::number::large;
use crate::render::page::{self, escape};
use crate::render::target;
use crate::report::Report;

/// Renders the page.
pub(super) fn render(report: &Report<TasksRow>) -> String {
    let summary = Summary::of(report);
    let mut page = page::begin(
        &report.experiment,
        "Who waits when short and long queries come together?",
        &heading(report),
        &sentence(report),
    );
    let wanted = "What was wanted, beside what was measured.";
    target::section(&mut page, wanted, "what", &targets(&summary));
    for experiment in summary.experiments() {
        page::section(&mut page, &title(experiment), note(experiment));
        let arms = summary.arms(experiment);
        let names = arms.into_iter().map(|arm| (colour(arm), arm.to_owned()));
        page::legend(&mut page, names);
        page::plots(&mut page, &figures(&summary, experiment));
        numbers(&mut page, &summary, experiment);
        queries(&mut page, &summary, experiment);
    }
    for line in rivals(&summary) {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(&line));
    }
    let _ = writeln!(
        page,
        "<details><summary>All of it as text</summary><pre>{}</pre></details>",
        escape(&table::render(report))
    );
    let more = [("Rows", report.rows.len().to_string())];
    page::environment(
        &mut page,
        &report.environment,
        &more,
        "The experiments are those of \"Self-Tuning Query Scheduling for Analytical Workloads\" \
         (Section 5). Queries of TPC-H arrive with exponential gaps, three of the small data for \
         one of the large, in an open loop: a latency runs from when a query was due. All \
         policies and stock DataFusion have the same traces and the same plans; DuckDB has \
         traces of its own at the same load. Bars are medians over traces, with whiskers to the \
         extremes; numbers are means, with bounds by the bootstrap over traces; of few traces \
         these are no more than their range.",
    );
    page::end(page)
}

fn title(experiment: TasksExperiment) -> String {
    let mut name = experiment.name().to_owned();
    name[..1].make_ascii_uppercase();
    format!("{name}: {}", experiment.about())
}

fn note(experiment: TasksExperiment) -> &'static str {
    match experiment {
        TasksExperiment::Answers => {
            "Results at scale factor 1 beside the answers that belong to the specification: \
             numbers to the cent, rows in the query's order. Alone, and 16 at a time."
        }
        TasksExperiment::Mix => {
            "Slowdown is latency over what the query takes alone on all workers; 1 is as good as \
             an empty machine. As the paper's Figures 7 and 8. 'decay' and 'las' have fixed \
             parameters; the best of all is what 'adaptive' is to come near."
        }
        TasksExperiment::Shift => {
            "In the middle of the run all queries become ten times as long, at the same load: \
             short ones are then the shorter half of the large data. Just after: the first third \
             of what follows; later: the last third."
        }
        TasksExperiment::Load => {
            "Slowdown is latency over what the query takes alone on one thread of the same \
             engine, so it can be below 1. As the paper's Figures 9 and 11. An engine that is \
             slower alone is not the worse for it here; latencies are in the table."
        }
        TasksExperiment::Single => {
            "What a query pays, alone, for being cut into tasks: the same plan on our workers \
             and on stock DataFusion's threads, in turns."
        }
        TasksExperiment::Overrun => {
            "Tasks are meant to take t_max. What cannot be interrupted makes them longer; grey: \
             queries alone, blue: 16 at a time."
        }
        TasksExperiment::Cost => {
            "A decision with all that goes with a task, by simulation: nothing is shared with \
             another CPU there. As the paper's Figure 10."
        }
        TasksExperiment::Simulated => {
            "The mix once more, by the workers' own code with a virtual clock and queries that \
             only take time: what policies do, without what the machine does."
        }
    }
}

/// All numbers of the runs in which queries arrived.
fn numbers(page: &mut String, summary: &Summary<'_>, experiment: TasksExperiment) {
    if summary.arms(experiment).is_empty() {
        return;
    }
    const HEAD: [&str; 11] = [
        "arm",
        "load",
        "drawn",
        "busy",
        "queries",
        "n",
        "mean",
        "geomean",
        "p95",
        "max",
        "Jain's index",
    ];
    let _ = writeln!(
        page,
        "<div class=\"card\"><table><thead><tr><th>{}</th></tr></thead><tbody>",
        HEAD.join("</th><th>")
    );
    type Of = fn(&Arrived) -> Option<Slowdowns>;
    let kinds: [(&str, Of); 3] = [("short", short), ("long", long), ("all", all)];
    for cell in summary.cells(experiment) {
        for (name, of) in kinds {
            let each = |number: fn(&Slowdowns) -> f64| {
                let numbers = cell.arrived().filter_map(of);
                let numbers: Vec<f64> = numbers.map(|slowdowns| number(&slowdowns)).collect();
                bounds(crate::experiments::tasks::metrics::Estimate::of(&numbers))
            };
            let whole = |number| bounds(cell.estimate(number));
            let fields = [
                escape(cell.arm),
                cell.load.map_or("–".to_owned(), |load| load.to_string()),
                whole(|run| Some(run.offered)),
                whole(|run| Some(run.busy)),
                name.to_owned(),
                each(|slowdowns| slowdowns.count as f64),
                each(|slowdowns| slowdowns.mean),
                each(|slowdowns| slowdowns.geomean),
                each(|slowdowns| slowdowns.p95),
                each(|slowdowns| slowdowns.max),
                each(|slowdowns| slowdowns.jain),
            ];
            let own = if ["tuned", "adaptive"].contains(&cell.arm) {
                " class=\"own\""
            } else {
                ""
            };
            let _ = writeln!(page, "<tr{own}><td>{}</td></tr>", fields.join("</td><td>"));
        }
    }
    page.push_str("</tbody></table></div>\n");
}

/// Queries of the paper's Figures 8 and 11, at the highest load: mean slowdown and the
/// most.
const SHOWN: [u8; 5] = [1, 3, 6, 11, 18];

fn queries(page: &mut String, summary: &Summary<'_>, experiment: TasksExperiment) {
    let is_shown = matches!(
        experiment,
        TasksExperiment::Mix | TasksExperiment::Load | TasksExperiment::Simulated
    );
    let loads = summary.loads(experiment);
    let (true, Some(load)) = (is_shown, loads.last()) else {
        return;
    };
    let _ = write!(
        page,
        "<details><summary>Queries at load {load}: mean slowdown and the most</summary>\
         <div class=\"card\"><table><thead><tr><th>arm</th>"
    );
    let columns = [false, true]
        .into_iter()
        .flat_map(|large| SHOWN.map(|query| (query, large)));
    let columns: Vec<(u8, bool)> = columns.collect();
    for (query, large) in &columns {
        let size = if *large { "large" } else { "small" };
        let _ = write!(page, "<th>Q{query} {size}</th>");
    }
    page.push_str("</tr></thead><tbody>\n");
    for cell in summary
        .cells(experiment)
        .filter(|cell| cell.load == Some(*load))
    {
        let _ = write!(page, "<tr><td>{}</td>", escape(cell.arm));
        for (query, is_large) in &columns {
            let is_one =
                |sample: &&Sample| (sample.kind.query, sample.kind.large) == (*query, *is_large);
            let samples = cell
                .arrived()
                .flat_map(|run| run.samples.iter().filter(is_one));
            let slowdowns: Vec<f64> = samples.map(Sample::slowdown).collect();
            let most = slowdowns.iter().copied().fold(0.0, f64::max);
            let _ = match mean(&slowdowns) {
                Some(mean) => write!(
                    page,
                    "<td>{} <small>{}</small></td>",
                    large(mean),
                    large(most)
                ),
                None => write!(page, "<td>–</td>"),
            };
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div></details>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::tasks::report::samples;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = render(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(
            page.matches("<svg ").count(),
            page.matches("</svg>").count()
        );
        for experiment in TasksExperiment::ALL {
            assert!(page.contains(&escape(&title(experiment))), "{experiment}");
        }
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("left out: duckdb"));
        assert!(
            page.contains("under las:0,0.05 are these multiples"),
            "losses are shown"
        );
    }

    #[test]
    fn names_cannot_break_the_page() {
        let mut report = samples::report();
        for row in &mut report.rows {
            row.arm = "<b>&\"".to_owned();
        }
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
