//! What all pages have in common: self-contained, so that they can be mailed or
//! kept. They load nothing and run nothing.

use std::fmt::Write as _;

use plotters::style::RGBColor;

use crate::harness::environment::Environment;

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
tbody tr.part td { text-align: left; font-weight: 600; background: #f0f2f4; }
tr.own td { background: #eaf2fb; font-weight: 600; }
td small { color: #7a8087; font-weight: 400; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem;
  font-size: .92rem; margin: 0; padding: .6rem .8rem; }
dt { color: #5f666d; } dd { margin: 0; }
p.note { color: #5f666d; font-size: .9rem; max-width: 75ch; }
";

/// A page up to its first section. Lines of the heading that begin with
/// "Beware" are set apart as well.
pub(crate) fn begin(title: &str, headline: &str, heading: &[String], see: &str) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Giveway: {title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{headline}</h1>\n<p class=\"where\">{place}</p>\n\
         <p class=\"see\">{see}</p>\n",
        title = escape(title),
        headline = escape(headline),
        place = escape(&heading.join(" · ")),
        see = escape(see),
    );
    for warning in heading.iter().filter(|line| line.starts_with("Beware")) {
        let _ = writeln!(page, "<p class=\"warn\">{}</p>", escape(warning));
    }
    page
}

/// A section's heading and what to know before looking at it.
pub(crate) fn section(page: &mut String, title: &str, note: &str) {
    let _ = write!(
        page,
        "<h2>{}</h2>\n<p class=\"note\">{}</p>\n",
        escape(title),
        escape(note)
    );
}

/// Names beside their colours.
pub(crate) fn legend(page: &mut String, names: impl IntoIterator<Item = (RGBColor, String)>) {
    page.push_str("<div class=\"legend\">");
    for (RGBColor(red, green, blue), name) in names {
        let _ = write!(
            page,
            "<span><i style=\"background:#{red:02x}{green:02x}{blue:02x}\"></i>{}</span>",
            escape(&name)
        );
    }
    page.push_str("</div>\n");
}

/// Plots side by side.
pub(crate) fn plots(page: &mut String, plots: &[String]) {
    page.push_str("<div class=\"plots\">");
    for plot in plots {
        let _ = write!(page, "<div>{plot}</div>");
    }
    page.push_str("</div>\n");
}

/// Where the numbers come from; what is empty is left out.
pub(crate) fn environment(
    page: &mut String,
    environment: &Environment,
    more: &[(&str, String)],
    note: &str,
) {
    let Environment {
        kernel,
        cpus,
        clock,
        commit,
        date,
        machine,
        cpu_model,
        memory_mib,
        provenance,
        ..
    } = environment;
    let machine = format!("{machine}: {cpus} CPUs ({cpu_model}), {memory_mib} MiB");
    let pairs = [
        ("Machine", &machine),
        ("Kernel", kernel),
        ("Clock", clock),
        ("Lab", &provenance.lab()),
        ("Host", &provenance.host()),
        ("Commit", commit),
        ("Command", &provenance.command),
        ("Date", date),
    ];
    page.push_str("<h2>Environment</h2>\n<div class=\"card\"><dl>");
    let more = more.iter().map(|(name, value)| (*name, value));
    for (name, value) in pairs.into_iter().chain(more) {
        if !value.is_empty() {
            let _ = write!(page, "<dt>{name}</dt><dd>{}</dd>", escape(value));
        }
    }
    let _ = write!(
        page,
        "</dl></div>\n<p class=\"note\">{}</p>\n",
        escape(note)
    );
}

/// How every page ends.
const END: &str = "</main>\n</body>\n</html>\n";

/// The page's end.
pub(crate) fn end(mut page: String) -> String {
    page.push_str(END);
    page
}

/// A page that has ended, open for another section.
pub(crate) fn reopen(mut page: String) -> String {
    if page.ends_with(END) {
        page.truncate(page.len() - END.len());
    }
    page
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
