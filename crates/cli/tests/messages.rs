//! The pages for operators list each message that `giveway pods` and `giveway metrics` write,
//! and no other.
//!
//! Messages are read from the sources: the literal behind each of `CALLS`, in which something
//! to be filled in is `…`. One that is nothing but that is a text of another place, which is
//! in `PODS` or `METRICS`, too. Refused options are not listed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[path = "messages/literal.rs"]
mod literal;

use literal::literal;

/// What is behind them is written, with the words before and after it.
const CALLS: [(&str, &str, &str); 5] = [
    ("eprintln!(", "", ""),
    ("Failure::new(", "giveway: error: ", ""),
    (".cannot(", "giveway: error: cannot ", ": …"),
    ("#[error(", "giveway: warning: …: ", ""),
    // Why marks are not heeded.
    ("Some(", "giveway: warning: marks: ", ""),
];

/// A part of a source: of this file from these words on to the end of what begins there; all of
/// it without words. What a second part of words begins is left out.
struct Part {
    file: &'static str,
    from: &'static str,
    without: &'static str,
    calls: &'static [usize],
}

const fn part(file: &'static str, from: &'static str, calls: &'static [usize]) -> Part {
    Part {
        file,
        from,
        without: "",
        calls,
    }
}

/// What `giveway pods` writes.
const PODS: [Part; 10] = [
    Part {
        without: "\npub(crate) fn mark(",
        ..part("cli/src/pods.rs", "", &[0, 1, 2])
    },
    part("cli/src/pods.rs", "\nfn unheeded(", &[4]),
    part(
        "cli/src/cgroup.rs",
        "\n    pub(crate) fn with_cpu(",
        &[0, 1, 2],
    ),
    part("pods/src/request.rs", "", &[0, 3]),
    part("pods/src/runtime.rs", "", &[0]),
    part(
        "pods/src/runtime.rs",
        "\n    /// No answer from there",
        &[3],
    ),
    part("pods/src/grpc.rs", "", &[0]),
    part("pods/src/agent.rs", "", &[0, 3]),
    part("pods/src/pod_cgroup.rs", "", &[0, 3]),
    part("pods/src/lib.rs", "", &[0, 3]),
];

const REASONS: [Part; 1] = [part("pods/src/grpc.rs", "", &[3])];

const METRICS: [Part; 4] = [
    part("cli/src/metrics.rs", "", &[0, 1, 2]),
    part("watch/src/metrics.rs", "", &[0, 3]),
    part("watch/src/metrics/listed.rs", "", &[0, 3]),
    part("watch/src/metrics/server.rs", "", &[0, 3]),
];

/// The text from `from` to the line that ends what begins there, which is as far to the right.
fn item<'a>(text: &'a str, from: &str) -> &'a str {
    let (_, item) = text.split_once(from).unwrap_or_else(|| panic!("{from}"));
    let column = from.trim_start_matches('\n');
    let column = column.len() - column.trim_start().len();
    let end = format!("\n{}}}\n", " ".repeat(column));
    item.split(&end).next().unwrap()
}

fn messages(parts: &[Part]) -> BTreeSet<String> {
    let mut messages = BTreeSet::new();
    for part in parts {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(part.file);
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        let text = text.split("\n#[cfg(test)]\n").next().unwrap();
        let text = match part.from {
            "" => text.to_owned(),
            from => item(text, from).to_owned(),
        };
        let text = match part.without {
            "" => text,
            without => text.replace(item(&text, without), ""),
        };
        for (call, before, after) in part.calls.iter().map(|&call| CALLS[call]) {
            let written = text
                .split(call)
                .skip(1)
                .filter_map(literal)
                .map(|(text, _)| text);
            let is_of_another = |text: &str| {
                let text = text.trim_start_matches("giveway: warning:");
                !text.chars().any(char::is_alphabetic)
            };
            let written = written.filter(|text| !is_of_another(text));
            messages.extend(written.map(|text| format!("{before}{text}{after}")));
        }
    }
    messages
}

/// The rows of a section's table number `table`: what is in code in the first cell.
fn listed(page: &str, section: &str, table: usize) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/operate")
        .join(page);
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page
        .split_once(&format!("\n## {section}\n"))
        .unwrap_or_else(|| panic!("{section}"));
    let section = section.split("\n## ").next().unwrap();
    let tables = section.split("\n| --- ").skip(1);
    let table = tables
        .skip(table)
        .map(|rest| rest.split("\n\n").next().unwrap());
    let rows = table.take(1).flat_map(str::lines);
    rows.filter_map(|row| row.strip_prefix("| `"))
        .map(|row| {
            let cells: Vec<&str> = row.trim_end_matches('|').split(" | ").collect();
            let [message, meaning, remedy] = cells[..] else {
                panic!("{row}");
            };
            assert!(!meaning.trim().is_empty(), "no meaning: {row}");
            let is_bad = ["warning", "error"].map(|kind| format!("giveway: {kind}: "));
            let is_note = message.starts_with("giveway: ")
                && !is_bad.iter().any(|prefix| message.starts_with(prefix));
            assert!(is_note || !remedy.trim().is_empty(), "no remedy: {row}");
            message.trim_end().trim_end_matches('`').to_owned()
        })
        .collect()
}

fn agree(page: &str, section: &str, table: usize, parts: &[Part], prefix: &str) {
    let written = messages(parts);
    let written: BTreeSet<String> = written
        .iter()
        .map(|message| message.strip_prefix(prefix).unwrap_or(message).to_owned())
        .collect();
    let listed = listed(page, section, table);
    assert!(written.len() >= 4, "{written:#?}");
    let missing: Vec<_> = written.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&written).collect();
    assert!(missing.is_empty(), "not on {page}: {missing:#?}");
    assert!(
        unknown.is_empty(),
        "on {page}, written nowhere: {unknown:#?}"
    );
}

#[test]
fn page_lists_each_message_of_pods_and_no_other() {
    agree("kubernetes.md", "Messages", 0, &PODS, "");
    // What the runtime's error has for its last `…`.
    agree("kubernetes.md", "Messages", 1, &REASONS, CALLS[3].1);
}

#[test]
fn page_lists_each_message_of_metrics_and_no_other() {
    agree(
        "scheduler.md",
        "Messages of giveway metrics",
        0,
        &METRICS,
        "",
    );
}
