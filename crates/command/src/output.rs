//! Output: marks on a terminal, plain words elsewhere; durations; text that fits 80
//! columns; lines of text from other programs.

use std::io::{self, IsTerminal};
use std::time::Duration;

/// Whether standard output is a terminal that shows more than ASCII.
pub fn fancy_stdout() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A length of time in the two largest units: `2 d 3 h`, `4 min 5 s`, `6.7 s`.
pub fn human(duration: Duration) -> String {
    let s = duration.as_secs();
    match s {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86400, s / 3600 % 24),
    }
}

/// How many columns texts for people keep to.
const COLUMNS: usize = 80;

/// `begin` and `text` behind it, on lines of at most 80 columns, where words are no longer
/// than that. All lines of the text begin in one column; those that it has itself stay.
pub fn wrapped(begin: &str, text: &str) -> String {
    let indent = begin.chars().count();
    let mut all = begin.to_owned();
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            all += &format!("\n{:indent$}", "");
        }
        let mut column = indent;
        for word in line.split_whitespace() {
            let length = word.chars().count();
            if column > indent && column + 1 + length > COLUMNS {
                all += &format!("\n{:indent$}", "");
                column = indent;
            }
            if column > indent {
                all.push(' ');
                column += 1;
            }
            all += word;
            column += length;
        }
    }
    all
}

/// The first `limit` characters of a line, without control characters.
pub fn shorten(line: &str, limit: usize) -> String {
    line.chars()
        .filter(|c| !c.is_control())
        .take(limit)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_in_two_units() {
        let text = |seconds| human(Duration::from_secs(seconds));
        assert_eq!(text(6), "6.0 s");
        assert_eq!(text(245), "4 min 5 s");
        assert_eq!(text(3 * 3600 + 120), "3 h 2 min");
        assert_eq!(text(2 * 86400 + 3 * 3600), "2 d 3 h");
    }

    #[test]
    fn text_is_wrapped_in_its_own_column() {
        assert_eq!(wrapped("  ✓ kernel ", "is new"), "  ✓ kernel is new");
        assert_eq!(wrapped("x ", "a  b\nc"), "x a b\n  c");
        let words = "four ".repeat(40);
        let text = wrapped("remedy: ", &words);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines.iter().all(|line| line.len() <= COLUMNS), "{text}");
        assert!(lines[1].starts_with("        four"), "{text}");
        // A word that is too long has a line of its own, unchanged.
        let long = "x".repeat(90);
        assert_eq!(
            wrapped("a ", &format!("b {long} c")),
            format!("a b\n  {long}\n  c")
        );
    }

    #[test]
    fn a_console_line_cannot_move_the_cursor() {
        assert_eq!(shorten("\u{1b}[2Jabc\r", 4), "[2Ja");
    }
}
