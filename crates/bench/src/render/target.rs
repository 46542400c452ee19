//! What was wanted, beside what was measured.

use std::fmt::Write as _;

use super::page::{self, escape};

/// One target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) bound: &'static str,
    pub(crate) measured: String,
    pub(crate) met: bool,
}

/// Targets as lines of a table; nothing if there are none.
pub(crate) fn lines(heading: &str, targets: &[Target]) -> String {
    match targets.is_empty() {
        true => String::new(),
        false => format!("\nTargets: {heading}\n{}", rows(targets)),
    }
}

/// The same without a heading: columns as wide as what is in them.
pub(crate) fn rows(targets: &[Target]) -> String {
    let widest = |of: fn(&Target) -> &str| {
        let widths = targets.iter().map(|target| of(target).chars().count());
        widths.max().unwrap_or(0)
    };
    let what = widest(|target| &target.what);
    let bound = widest(|target| target.bound);
    let measured = widest(|target| &target.measured);
    let mut text = String::new();
    for target in targets {
        let _ = writeln!(
            text,
            "  {:<what$}  {:<bound$} {:>measured$} {}",
            target.what,
            target.bound,
            target.measured,
            verdict(target)
        );
    }
    text
}

/// Targets as a section of a page; nothing if there are none.
pub(crate) fn section(page: &mut String, note: &str, what: &str, targets: &[Target]) {
    if targets.is_empty() {
        return;
    }
    page::section(page, "Targets", note);
    let _ = write!(
        page,
        "<div class=\"card\"><table><thead><tr><th>{what}</th><th>target</th><th>measured</th>\
         <th></th></tr></thead><tbody>"
    );
    for target in targets {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&target.what),
            target.bound,
            escape(&target.measured),
            verdict(target)
        );
    }
    page.push_str("</tbody></table></div>\n");
}

fn verdict(target: &Target) -> &'static str {
    if target.met { "met" } else { "MISSED" }
}

/// How many are met, and which are not.
pub(crate) fn summary(targets: &[Target]) -> String {
    let missed: Vec<String> = targets
        .iter()
        .filter(|target| !target.met)
        .map(|target| format!("{}: {} ({})", target.what, target.measured, target.bound))
        .collect();
    match (missed.len(), targets.len()) {
        (0, 1) => "the target is met".to_owned(),
        (0, all) => format!("all {all} targets are met"),
        (1, 1) => format!("the target is missed: {}", missed[0]),
        (count, all) => format!("{count} of {all} targets are missed: {}", missed.join("; ")),
    }
}
