//! The results as a page.

use std::fmt::Write as _;

use super::plots;
use super::stats::{Cell, Summary, label};
use super::table::{explain, heading};
use super::targets::targets;
use crate::cell::config::Mix;
use crate::cell::report::percentile;
use crate::cell::row::Row;
use crate::harness::environment::Environment;
use crate::harness::number::{MARKED, short};
use crate::harness::scheduler::Scheduler;
use crate::render::page::{self, escape};
use crate::render::target;
use crate::report::Report;

/// Renders the page: what it is about, and what the reader should see.
pub(crate) fn render(report: &Report<Row>, about: &str, see: &str) -> String {
    let summary = Summary::of(report);
    let mut page = page::begin(&report.experiment, about, &heading(report), see);
    let note = "UFS's numbers over those of another cell; throughput, unless it is said.";
    target::section(&mut page, note, "ratio", &targets(&summary));
    throughput(&mut page, &summary);
    latency(&mut page, &summary);
    table(&mut page, &summary);
    environment(&mut page, report);
    page::end(page)
}

fn throughput(page: &mut String, summary: &Summary<'_>) {
    page::section(
        page,
        "Throughput",
        &format!(
            "SOLO: each kind of work alone. MIN:MAX: TPC-C has the highest priority and {} the \
             lowest, so TPC-C should lose nothing. 50:50: both have the same, high priority, so \
             neither should starve. Bars are medians over the repeats, whiskers the extremes.",
            summary.job().label()
        ),
    );
    legend(page, summary);
    let bars = [
        plots::background_bars(summary),
        plots::time_sensitive_bars(summary),
    ];
    page::plots(page, &bars);
}

fn latency(page: &mut String, summary: &Summary<'_>) {
    let plots: Vec<String> = [Mix::Solo, Mix::MinMax, Mix::FiftyFifty]
        .into_iter()
        .filter_map(|mix| plots::latency(summary, mix))
        .collect();
    if plots.is_empty() {
        return;
    }
    page::section(
        page,
        "Latency of TPC-C transactions",
        "A line further left is better; where it stays low for long, a tail of transactions \
         waits.",
    );
    legend(page, summary);
    page::plots(page, &plots);
}

fn legend(page: &mut String, summary: &Summary<'_>) {
    let schedulers = summary.schedulers().into_iter();
    page::legend(
        page,
        schedulers.map(|(s, by)| (plots::colour(&s, by), label(&s, by))),
    );
}

fn table(page: &mut String, summary: &Summary<'_>) {
    let job = summary.job();
    let _ = write!(
        page,
        "<h2>Numbers</h2>\n<div class=\"card\"><table><thead><tr><th>scheduler</th>\
         <th>TPC-C tps</th><th>of own SOLO</th><th>of EEVDF</th><th>mean ms</th><th>p50 ms</th>\
         <th>p95 ms</th><th>p99 ms</th><th>{}</th><th>of own SOLO</th><th>server busy</th>\
         <th>with {}</th><th>clients busy</th><th>retries</th></tr></thead><tbody>\n",
        job.per_second(),
        job.label()
    );
    for mix in summary.mixes() {
        let _ = writeln!(
            page,
            "<tr class=\"part\"><td colspan=\"14\">{mix}: {}</td></tr>",
            escape(&explain(mix, summary.job()))
        );
        for cell in summary.mix(mix) {
            table_row(page, summary, cell);
        }
    }
    let _ = writeln!(page, "</tbody></table></div>\n<p>{}</p>", MARKED.trim_end());
}

fn table_row(page: &mut String, summary: &Summary<'_>, cell: &Cell<'_>) {
    let class = if cell.scheduler == Scheduler::Ufs {
        " class=\"own\""
    } else {
        ""
    };
    let number = |value: Option<f64>| value.map_or("–".to_owned(), short);
    let tail = |cell: &Cell<'_>, number: fn(&Row) -> Option<f64>, share| {
        percentile(&cell.rows, number, share).unwrap_or("–".to_owned())
    };
    let ratio = |value: Option<f64>| value.map_or("–".to_owned(), |r| format!("{r:.2}"));
    let share =
        |value: Option<f64>| value.map_or("–".to_owned(), |r| format!("{:.1} %", r * 100.0));
    let spread = cell
        .spread(|row| row.ts_tps)
        .map_or("–".to_owned(), |spread| {
            let range = format!("{}–{}", short(spread.min), short(spread.max));
            format!("{} <small>{range}</small>", short(spread.median))
        });
    let fields = [
        escape(&cell.label()),
        spread,
        ratio(summary.tps_to_solo(cell)),
        ratio(summary.tps_to_eevdf(cell)),
        number(cell.median(|row| row.ts_mean_ms)),
        tail(cell, |row| row.ts_p50_ms, 0.5),
        tail(cell, |row| row.ts_p95_ms, 0.95),
        tail(cell, |row| row.ts_p99_ms, 0.99),
        number(cell.median(|row| row.bg_per_s)),
        ratio(summary.bg_to_solo(cell)),
        share(cell.median(|row| Some(row.busy_fraction))),
        share(cell.median(|row| Some(row.bg_busy_fraction))),
        share(cell.median(|row| Some(row.client_busy_fraction))),
        cell.median(|row| row.transactions.map(|counts| counts.retries as f64))
            .map_or("–".to_owned(), |retries| format!("{retries:.0}")),
    ];
    let _ = writeln!(
        page,
        "<tr{class}><td>{}</td></tr>",
        fields.join("</td><td>")
    );
}

fn environment(page: &mut String, report: &Report<Row>) {
    let mut schedulers: Vec<&str> = report
        .rows
        .iter()
        .filter_map(|row| row.scheduler_version.as_deref())
        .collect();
    schedulers.sort_unstable();
    schedulers.dedup();
    let seeds = report.rows.iter().map(|row| row.seed);
    let seeds = (seeds.clone().min().unwrap_or(0), seeds.max().unwrap_or(0));
    let Environment {
        postgresql,
        dataset_version,
        ..
    } = &report.environment;
    let more = [
        ("sched_ext schedulers", schedulers.join(", ")),
        ("PostgreSQL", postgresql.clone()),
        (
            "Data",
            format!(
                "version {dataset_version}; seeds {} to {}",
                seeds.0, seeds.1
            ),
        ),
        ("Cells measured", report.rows.len().to_string()),
    ];
    page::environment(
        page,
        &report.environment,
        &more,
        "The workload and the priorities are those of UFS (Sections 3, 6.1, 6.2; Tables 1 and \
         2). In the lockstep clock all CPUs run at the same constant speed, and memory and \
         caches cost nothing: compare schedulers with each other, not these numbers with those \
         of hardware.",
    );
}

#[cfg(test)]
mod tests {
    use crate::cell::row::Row;
    use crate::experiments::mixed::report::samples;
    use crate::report::Record;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = Row::page(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        // Two plots of throughput, three of latency.
        assert_eq!(page.matches("<svg ").count(), 5);
        assert_eq!(
            page.matches("<svg ").count(),
            page.matches("</svg>").count()
        );
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("UFS keeps 99 %"));
        // One row for each cell, one for each mix, and the head; the same of eight targets.
        assert_eq!(page.matches("<tr").count(), 4 * 4 + 1 + 4 + 1 + 8 + 1);
    }

    #[test]
    fn names_cannot_break_the_page() {
        let mut report = samples::report();
        report.environment.machine = "<b>&\"".to_owned();
        assert!(Row::page(&report).contains("&lt;b&gt;&amp;&quot;"));
    }

    #[test]
    fn a_report_with_one_row_or_none_is_still_a_page() {
        let mut report = samples::report();
        report.rows.truncate(1);
        assert!(Row::page(&report).ends_with("</html>\n"));
        report.rows.clear();
        assert!(Row::page(&report).ends_with("</html>\n"));
    }
}
