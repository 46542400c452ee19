//! Cells whose schedulers failed, below what the others did.

use std::fmt::Write as _;

use crate::render::page::{self, escape};
use crate::report::Outage;

/// Columns of a terminal.
const WIDTH: usize = 80;

/// Outages as lines of a table; nothing if there are none.
pub(crate) fn lines(outages: &[Outage]) -> String {
    let mut text = String::new();
    if !outages.is_empty() {
        text.push_str("\nNot measured, since the scheduler failed:\n");
    }
    for Outage { cell, reason, .. } in outages {
        let reason = reason.lines().next().unwrap_or_default();
        let line: String = format!("  {cell}: {reason}").chars().take(WIDTH).collect();
        let _ = writeln!(text, "{line}");
    }
    text
}

/// A page with the outages as its last section.
pub(crate) fn on_page(page: String, outages: &[Outage]) -> String {
    if outages.is_empty() {
        return page;
    }
    let mut page = page::reopen(page);
    let note = "These cells have no numbers: their scheduler did not load, ended, or was thrown \
                out by the kernel. Below, what it printed last.";
    page::section(&mut page, "Schedulers that failed", note);
    for Outage { cell, reason, .. } in outages {
        let _ = write!(
            page,
            "<p>{}</p>\n<div class=\"card\"><pre>{}</pre></div>\n",
            escape(cell),
            escape(reason)
        );
    }
    page::end(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::scheduler::Scheduler;

    #[test]
    fn a_long_reason_fits_the_terminal_and_is_whole_on_the_page() {
        let outage = Outage {
            scheduler: Scheduler::Scx("scx_lavd".to_owned()),
            cell: "50:50 under LAVD, repeat 3".to_owned(),
            reason: format!("ended <instead> of starting {}\nlast", "x".repeat(80)),
        };
        let all = [outage];
        let text = lines(&all);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.contains("LAVD, repeat 3: ended <instead>"), "{text}");
        let page = page::end("<p>body</p>".to_owned());
        assert_eq!(on_page(page.clone(), &[]), page);
        let page = on_page(page, &all);
        assert!(
            page.contains("ended &lt;instead&gt;") && page.contains("x\nlast"),
            "{page}"
        );
        assert_eq!(page.matches("</html>").count(), 1);
    }
}
