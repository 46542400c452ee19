//! Preemption results as a page.

use std::fmt::Write as _;

use super::plots::{colour, figures};
use super::summary::{Cell, LONG, Summary, Transaction, URGENT};
use super::table::heading;
use super::targets::{against_threads, sentence, targets};
use crate::experiments::preempt::{Latency, Mixed, PreemptExperiment, PreemptRow, Stalls};
use crate::harness::number::{Spread, large, short};
use crate::render::page::{self, escape};
use crate::render::target;
use crate::report::Report;

/// Renders the page.
pub(super) fn render(report: &Report<PreemptRow>) -> String {
    let summary = Summary::of(report);
    let mut page = page::begin(
        &report.experiment,
        "Who waits when a long transaction runs?",
        &heading(report),
        &sentence(report),
    );
    let wanted = "What was wanted, beside what was measured.";
    target::section(&mut page, wanted, "what", &targets(&summary));
    for experiment in summary.experiments() {
        page::section(&mut page, &title(experiment), note(experiment));
        if experiment == PreemptExperiment::Latency {
            rivals(&mut page, &summary);
        }
        let methods = summary.methods(experiment).into_iter();
        page::legend(
            &mut page,
            methods.map(|name| (colour(name), name.to_owned())),
        );
        page::plots(&mut page, &figures(&summary, experiment));
        numbers(&mut page, summary.cells(experiment));
    }
    let more = [("Rows", report.rows.len().to_string())];
    page::environment(
        &mut page,
        &report.environment,
        &more,
        "The experiments are those of PreemptDB (Section 6). Threads are pinned; the scheduling \
         thread has a CPU of its own and spins. Latencies run from when a request was due, so \
         what the scheduling thread is late by is part of them. Calm requests met no stall of \
         that thread between due time and end: what is left of a tail without them is not the \
         machine's, or was a stall of a worker, which nobody sees. Every database was checked \
         against the twelve consistency conditions of TPC-C after its run.",
    );
    page::end(page)
}

fn title(experiment: PreemptExperiment) -> String {
    let mut name = experiment.name().to_owned();
    name[..1].make_ascii_uppercase();
    format!("{name}: {}", experiment.about())
}

fn note(experiment: PreemptExperiment) -> &'static str {
    match experiment {
        PreemptExperiment::Latency => {
            "Each worker has a place for one Q2 and for four urgent transactions; every \
             millisecond comes a batch that fills all of the latter. As the paper's Figure 10, \
             with OS threads beside it: the same requests on two threads for each worker's CPU."
        }
        PreemptExperiment::Overhead => {
            "TPC-C as background work, interrupted a thousand times a second for nothing, and \
             not, in slices that take turns. As the paper's Figure 8."
        }
        PreemptExperiment::Scaling => "A warehouse for each worker. As the paper's Figure 9.",
        PreemptExperiment::YieldInterval => {
            "Cooperative policies yield after so many records, or nested blocks of Q2; the \
             others do not depend on it. As the paper's Figure 11."
        }
        PreemptExperiment::Starvation => {
            "More urgent transactions than a worker can run. The threshold is the part of the \
             time that they may have; 'tuned' finds it from the part that Q2 is to have. As the \
             paper's Figure 12."
        }
        PreemptExperiment::Arrivals => "Batches come more or less often. As the paper's Figure 13.",
        PreemptExperiment::Micro => {
            "A switch is half of a voluntary yield to an empty urgent context and back. Delivery \
             is from the request to the first instruction of the urgent context, the worker \
             passing poll points all the time."
        }
        PreemptExperiment::Engines => {
            "The same rows, transactions and inputs, called from one thread on one core; engines \
             take turns. No engine writes anything that survives the process."
        }
    }
}

fn rivals(page: &mut String, summary: &Summary<'_>) {
    for line in against_threads(summary) {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(&line));
    }
}

/// All numbers of the runs of the mix; the other experiments' are in the plots
/// and in the table.
fn numbers(page: &mut String, cells: &[Cell<'_>]) {
    if cells.iter().all(|cell| cell.mixed().next().is_none()) {
        return;
    }
    const HEAD: [&str; 14] = [
        "method",
        "at",
        "transaction",
        "n",
        "a second",
        "mean µs",
        "geomean",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "calm p99.9; of n",
        "dropped; late p99, p99.9 µs; stalls",
    ];
    let _ = writeln!(
        page,
        "<div class=\"card\"><table><thead><tr><th>{}</th></tr></thead><tbody>",
        HEAD.join("</th><th>")
    );
    for cell in cells {
        for (transaction, calm) in URGENT.into_iter().chain([LONG]).zip(CALM) {
            row(page, cell, transaction, calm);
        }
    }
    page.push_str("</tbody></table></div>\n");
}

/// Latencies of calm requests, in the order of the transactions.
const CALM: [fn(&Stalls) -> Latency; 3] = [
    |stalls| stalls.new_order,
    |stalls| stalls.payment,
    |stalls| stalls.q2,
];

fn row(
    page: &mut String,
    cell: &Cell<'_>,
    (kind, of): Transaction,
    calm_of: fn(&Stalls) -> Latency,
) {
    let spread = |number: fn(&Latency) -> f64| match cell.spread(|mixed| number(&of(mixed))) {
        None => "–".to_owned(),
        Some(Spread { median, min, max }) if min == max => large(median),
        Some(Spread { median, min, max }) => {
            format!(
                "{} <small>{}–{}</small>",
                large(median),
                large(min),
                large(max)
            )
        }
    };
    let number = |of: fn(&Mixed) -> f64| cell.median(of).map_or("–".to_owned(), short);
    let stall = |of: &dyn Fn(&Stalls) -> f64| {
        let watched = cell.mixed().filter_map(|mixed| mixed.stalls.as_ref());
        let spread = Spread::of(watched.map(of));
        spread.map_or("–".to_owned(), |spread| large(spread.median))
    };
    let fields = [
        escape(cell.method),
        cell.value.map_or("–".to_owned(), |value| value.to_string()),
        kind.to_owned(),
        spread(|latency| latency.count as f64),
        spread(|latency| latency.per_s),
        spread(|latency| latency.mean_us),
        spread(|latency| latency.geomean_us),
        spread(|latency| latency.p50_us),
        spread(|latency| latency.p90_us),
        spread(|latency| latency.p99_us),
        spread(|latency| latency.p999_us),
        spread(|latency| latency.max_us),
        format!(
            "{}; {}",
            stall(&|stalls| calm_of(stalls).p999_us),
            stall(&|stalls| calm_of(stalls).count as f64)
        ),
        format!(
            "{}; {}, {}; {}",
            number(|mixed| mixed.dropped as f64),
            number(|mixed| mixed.late.p99_us),
            number(|mixed| mixed.late.p999_us),
            stall(&|stalls| stalls.count as f64)
        ),
    ];
    let own = match cell.method {
        "preempt" | "hybrid" | "uintr" | "tuned" => " class=\"own\"",
        _ => "",
    };
    let _ = writeln!(page, "<tr{own}><td>{}</td></tr>", fields.join("</td><td>"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::preempt::report::samples;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = render(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(
            page.matches("<svg ").count(),
            page.matches("</svg>").count()
        );
        for experiment in PreemptExperiment::ALL {
            assert!(page.contains(&escape(&title(experiment))), "{experiment}");
        }
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("Preemption meets every target measured"));
        assert!(page.contains("threads win"), "losses are shown");
    }

    #[test]
    fn names_cannot_break_the_page() {
        let mut report = samples::report();
        report.rows[0].method = "<b>&\"".to_owned();
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
