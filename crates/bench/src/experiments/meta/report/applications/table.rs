//! The tables of Figures 1 and 2, in 80 columns.

use std::fmt::Write as _;

use super::{Best, Number, P99, PARTS, Summary, THROUGHPUT, percent};
use crate::experiments::meta::applications::ASK;
use crate::harness::number::short;

/// The longest line of text.
const COLUMNS: usize = 80;

impl Summary<'_> {
    /// The tables of both figures.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("\n  {:<16}", "applications");
        for part in PARTS {
            let company = if part == ASK { "together" } else { "alone" };
            let _ = write!(text, "{:>20}", format!("{part}, {company}"));
        }
        let _ = write!(text, "\n  {:<16}", "");
        for _ in PARTS {
            let _ = write!(text, "{:>10}{:>10}", "thr.", "p99");
        }
        text.push('\n');
        let mut line = |name: &str, cell: &dyn Fn(&str, Number) -> String| {
            let _ = write!(text, "  {name:<16}");
            for part in PARTS {
                let (throughput, p99) = (cell(part, THROUGHPUT), cell(part, P99));
                let _ = write!(text, "{throughput:>10}{p99:>10}");
            }
            text.push('\n');
        };
        line("eevdf: /s, ms", &|part, number| {
            let spread = self.eevdf(part, number);
            spread.map_or("-".to_owned(), |spread| short(spread.median))
        });
        for under in self.singles() {
            line(&under.to_string(), &|part, number| {
                percent(self.change(part, under, number))
            });
        }
        for (scheduler, parts) in self.preferred() {
            let _ = writeln!(text, "  best for {parts} alone: {scheduler}");
        }
        self.turns(&mut text);
        let _ = writeln!(
            text,
            "  thr., p99: % of EEVDF's median, less 100; ± half of smallest to largest run"
        );
        for (under, fault) in self.faults() {
            let fault: String = format!("  {under}: {fault}")
                .chars()
                .take(COLUMNS)
                .collect();
            let _ = writeln!(text, "{fault}");
        }
        text
    }

    /// What follows of them for the whole, and who is best; nothing if nobody took turns.
    fn turns(&self, text: &mut String) {
        let policies = self.policies();
        if policies.is_empty() {
            return;
        }
        text.push('\n');
        let mut line = |name: &str, [throughput, p99]: [String; 2]| {
            let _ = writeln!(text, "  {name:<46}{throughput:>10}{p99:>10}");
        };
        line("", [String::new(), format!("{ASK}, together")]);
        line("turns", ["thr.", "p99"].map(str::to_owned));
        for under in policies {
            let change = |number| percent(self.change(ASK, under, number));
            line(&under.to_string(), [THROUGHPUT, P99].map(change));
        }
        for (who, best) in [
            ("best single scheduler", self.best_single()),
            ("best turns", self.best_policy()),
        ] {
            if let Some(Best {
                under,
                throughput,
                p99,
            }) = best
            {
                let changes = [throughput, p99].map(|change| percent(Some(change)));
                line(&format!("{who}: {under}"), changes);
            }
        }
        if self.preferred().len() == 1 {
            let _ = writeln!(
                text,
                "  one scheduler is best for both parts: nobody takes turns"
            );
        }
    }
}
