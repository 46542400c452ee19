//! Inversion as text of at most 80 columns.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::summary::{Pair, pairs};
use super::targets::targets;
use crate::experiments::inversion::InversionRow;
use crate::harness::number::short;
use crate::render::target;
use crate::report::Report;

/// What was measured, where.
pub(super) fn heading(report: &Report<InversionRow>) -> Vec<String> {
    let environment = &report.environment;
    let commit = report.short_commit();
    let mut lines = vec![
        report.headline(),
        format!(
            "PostgreSQL {}, clock {}, commit {commit}",
            environment.postgresql, environment.clock
        ),
    ];
    if let Some(row) = report.rows.first() {
        lines.push(format!(
            "The lock is held for {} s of CPU time; one CPU; repeats: {}",
            row.hold_s,
            repeats(report)
        ));
    }
    lines
}

/// How often cells were measured: a number, or two if some were more often.
fn repeats(report: &Report<InversionRow>) -> String {
    let cells = pairs(report)
        .into_iter()
        .flat_map(|pair| [pair.baseline.rows.len(), pair.burner.rows.len()]);
    let counts: BTreeSet<usize> = cells.filter(|count| *count > 0).collect();
    match (counts.first(), counts.last()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (Some(only), _) => only.to_string(),
        _ => "0".to_owned(),
    }
}

/// Renders the table.
pub(super) fn render(report: &Report<InversionRow>) -> String {
    let pairs = pairs(report);
    let mut text = String::new();
    for line in heading(report) {
        let _ = writeln!(text, "{line}");
    }
    let mut lock = None;
    for pair in &pairs {
        if lock != Some(pair.lock) {
            lock = Some(pair.lock);
            let _ = writeln!(
                text,
                "\n  {:<20} {:>15}   {:>15}\n  {:<20} {:>7} {:>7}   {:>7} {:>7} {:>8} {:>8}",
                pair.lock,
                "without burner",
                "with burner",
                "",
                "holder",
                "waiter",
                "holder",
                "waiter",
                "ratio",
                "boosted",
            );
        }
        line(&mut text, pair);
    }
    text.push_str(
        "\nSeconds until holder and waiter were through; medians. >N: not within N s.\n\
         Ratio: the waiter's time, with the burner over without. Boosted: seconds for\n\
         which UFS let the holder run ahead of its tier.\n",
    );
    text.push_str(&target::lines("the waiter's ratio", &targets(&pairs)));
    text
}

fn line(text: &mut String, pair: &Pair<'_>) {
    let dash = || "-".to_owned();
    let hints = if pair.has_hints() {
        format!(", {}", pair.treatment.hints)
    } else {
        String::new()
    };
    let _ = writeln!(
        text,
        "    {:<18} {:>7} {:>7}   {:>7} {:>7} {:>8} {:>8}",
        format!("{}{hints}", pair.treatment.scheduler.label()),
        pair.baseline.holder().text(),
        pair.baseline.waiter().text(),
        pair.burner.holder().text(),
        pair.burner.waiter().text(),
        pair.ratio().map_or_else(dash, short),
        pair.burner.boosted_s().map_or_else(dash, short),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::inversion::ContendedLock;
    use crate::experiments::inversion::report::samples;

    #[test]
    fn the_table_is_this_one() {
        let mut report = samples::report();
        report.rows.retain(|row| row.lock == ContendedLock::Spin);
        let expected = include_str!("table.expected");
        assert_eq!(render(&report), expected, "\n{}", render(&report));
    }

    #[test]
    fn repeats_are_counted_in_each_cell() {
        let mut report = samples::report();
        assert_eq!(repeats(&report), "2");
        report.rows.pop();
        assert_eq!(repeats(&report), "1 to 2");
    }

    #[test]
    fn no_line_is_longer_than_80_columns() {
        for line in render(&samples::report()).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
