//! The results as a page: self-contained, so that it can be mailed or kept. It
//! loads nothing and runs nothing.

use std::fmt::Write as _;

use super::plots;
use super::sentence;
use super::stats::{Cell, Summary};
use super::table::{explain, heading, short};
use crate::config::{Mix, Scheduler};
use crate::result::{Environment, Report};

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; color: #202428;
  background: #f5f6f7; margin: 0; }
main { max-width: 1240px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
.where { color: #5f666d; font-size: .9rem; margin: 0; }
.see { background: #fff; border-left: 4px solid #166cc4; border-radius: 4px; margin: 1.4rem 0;
  padding: 1rem 1.2rem; font-size: 1.12rem; }
.warn { background: #fff4e0; border-left: 4px solid #d98a1b; padding: .6rem 1rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr));
  gap: 1rem; }
.plots > div, .card { background: #fff; border: 1px solid #e2e5e8; border-radius: 8px;
  padding: .4rem; }
svg { display: block; width: 100%; height: auto; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin: .2rem 0 .8rem;
  font-size: .9rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px;
  margin-right: .4rem; vertical-align: -1px; }
.card { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums;
  font-size: .88rem; }
th, td { text-align: right; padding: .32rem .45rem; white-space: nowrap; }
th { font-weight: 600; color: #5f666d; border-bottom: 1px solid #d5d9dd; }
th:first-child, td:first-child { text-align: left; }
tbody tr.mix td { text-align: left; font-weight: 600; background: #f0f2f4; }
tr.ufs td { background: #eaf2fb; font-weight: 600; }
td small { color: #7a8087; font-weight: 400; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem;
  font-size: .92rem; margin: 0; padding: .6rem .8rem; }
dt { color: #5f666d; } dd { margin: 0; }
p.note { color: #5f666d; font-size: .9rem; max-width: 75ch; }
";

/// Renders the page.
pub fn render(report: &Report) -> String {
    let summary = Summary::of(report);
    let mut page = String::new();
    let heading = heading(report);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Giveway: {title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>Two kinds of work on the same CPUs</h1>\n<p class=\"where\">{place}</p>\n\
         <p class=\"see\">{see}</p>\n",
        title = escape(&report.experiment),
        place = escape(&heading.join(" · ")),
        see = escape(&sentence(report)),
    );
    for warning in heading.iter().filter(|line| line.starts_with("Beware")) {
        let _ = writeln!(page, "<p class=\"warn\">{}</p>", escape(warning));
    }
    throughput(&mut page, &summary);
    latency(&mut page, &summary);
    table(&mut page, &summary);
    environment(&mut page, report);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn throughput(page: &mut String, summary: &Summary<'_>) {
    page.push_str(
        "<h2>Throughput</h2>\n<p class=\"note\">SOLO: each kind of work alone. MIN:MAX: TPC-C \
         has the highest priority and Q17 the lowest, so TPC-C should lose nothing. 50:50: both \
         have the same, high priority, so neither should starve. Bars are medians over the \
         repeats, whiskers the extremes.</p>\n",
    );
    legend(page, summary);
    let _ = writeln!(
        page,
        "<div class=\"plots\"><div>{}</div><div>{}</div></div>",
        plots::background_bars(summary),
        plots::time_sensitive_bars(summary)
    );
}

fn latency(page: &mut String, summary: &Summary<'_>) {
    let plots: Vec<String> = [Mix::Solo, Mix::MinMax, Mix::FiftyFifty]
        .into_iter()
        .filter_map(|mix| plots::latency(summary, mix))
        .collect();
    if plots.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Latency of TPC-C transactions</h2>\n<p class=\"note\">A line further left is \
         better; where it stays low for long, a tail of transactions waits.</p>\n",
    );
    legend(page, summary);
    page.push_str("<div class=\"plots\">");
    for plot in plots {
        let _ = write!(page, "<div>{plot}</div>");
    }
    page.push_str("</div>\n");
}

fn legend(page: &mut String, summary: &Summary<'_>) {
    page.push_str("<div class=\"legend\">");
    for scheduler in summary.schedulers() {
        let colour = plots::colour(&scheduler);
        let _ = write!(
            page,
            "<span><i style=\"background:#{:02x}{:02x}{:02x}\"></i>{}</span>",
            colour.0,
            colour.1,
            colour.2,
            escape(&scheduler.label())
        );
    }
    page.push_str("</div>\n");
}

fn table(page: &mut String, summary: &Summary<'_>) {
    page.push_str(
        "<h2>Numbers</h2>\n<div class=\"card\"><table><thead><tr><th>scheduler</th>\
         <th>TPC-C tps</th><th>of own SOLO</th><th>of EEVDF</th><th>mean ms</th><th>p50 ms</th>\
         <th>p95 ms</th><th>p99 ms</th><th>Q17/s</th><th>of own SOLO</th><th>server busy</th>\
         <th>with Q17</th><th>clients busy</th><th>retries</th></tr></thead><tbody>\n",
    );
    for mix in summary.mixes() {
        let _ = writeln!(
            page,
            "<tr class=\"mix\"><td colspan=\"14\">{mix}: {}</td></tr>",
            explain(mix)
        );
        for cell in summary.mix(mix) {
            table_row(page, summary, cell);
        }
    }
    page.push_str("</tbody></table></div>\n");
}

fn table_row(page: &mut String, summary: &Summary<'_>, cell: &Cell<'_>) {
    let class = if cell.scheduler == Scheduler::Ufs {
        " class=\"ufs\""
    } else {
        ""
    };
    let number = |value: Option<f64>| value.map_or("–".to_owned(), short);
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
        escape(&cell.scheduler.label()),
        spread,
        ratio(summary.tps_to_solo(cell)),
        ratio(summary.tps_to_eevdf(cell)),
        number(cell.median(|row| row.ts_mean_ms)),
        number(cell.median(|row| row.ts_p50_ms)),
        number(cell.median(|row| row.ts_p95_ms)),
        number(cell.median(|row| row.ts_p99_ms)),
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

fn environment(page: &mut String, report: &Report) {
    let Environment {
        kernel,
        cpus,
        clock,
        commit,
        date,
        machine,
        cpu_model,
        memory_mib,
        postgresql,
        dataset_version,
    } = &report.environment;
    let mut schedulers: Vec<&str> = report
        .rows
        .iter()
        .filter_map(|row| row.scheduler_version.as_deref())
        .collect();
    schedulers.sort_unstable();
    schedulers.dedup();
    let seeds = report.rows.iter().map(|row| row.seed);
    let seeds = (seeds.clone().min().unwrap_or(0), seeds.max().unwrap_or(0));
    let pairs = [
        (
            "Machine",
            format!("{machine}: {cpus} CPUs ({cpu_model}), {memory_mib} MiB"),
        ),
        ("Kernel", kernel.clone()),
        ("sched_ext schedulers", schedulers.join(", ")),
        ("Clock", clock.clone()),
        ("PostgreSQL", postgresql.clone()),
        (
            "Data",
            format!(
                "version {dataset_version}; seeds {} to {}",
                seeds.0, seeds.1
            ),
        ),
        ("Commit", commit.clone()),
        ("Date", date.clone()),
        ("Cells measured", report.rows.len().to_string()),
    ];
    page.push_str("<h2>Environment</h2>\n<div class=\"card\"><dl>");
    for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(page, "<dt>{name}</dt><dd>{}</dd>", escape(value));
    }
    page.push_str(
        "</dl></div>\n<p class=\"note\">The workload and the priorities are those of UFS \
         (Sections 3, 6.1, 6.2; Tables 1 and 2). In the lockstep clock all CPUs run at the same \
         constant speed, and memory and caches cost nothing: compare schedulers with each other, \
         not these numbers with those of hardware.</p>\n",
    );
}

/// Text as HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = render(&samples::report());
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
        // One row for each cell, one for each mix, and the head.
        assert_eq!(page.matches("<tr").count(), 4 * 4 + 1 + 4 + 1);
    }

    #[test]
    fn names_cannot_break_the_page() {
        let mut report = samples::report();
        report.environment.machine = "<b>&\"".to_owned();
        assert!(render(&report).contains("&lt;b&gt;&amp;&quot;"));
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
