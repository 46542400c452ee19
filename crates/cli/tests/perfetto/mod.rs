//! The queries of `dist/perfetto`, answered by Perfetto's trace processor on a trace that
//! was recorded in a guest under UFS, against what `giveway top` counted of the same work.
//!
//! The trace processor is the user's: `trace_processor_shell` in PATH, or the program that
//! `GIVEWAY_TRACE_PROCESSOR` names. Debian has none. The guest runs in any case, so that a
//! trace is there to be tried by hand: `target/tmp/perfetto/trace.json`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use assert_cmd::cargo::cargo_bin;
use giveway_lab::{Job, Lab, LabSpec, Lines};
use serde_json::Value;

use crate::build::{text, tmp};
use crate::transcript::{machine, tests};

/// How far an answer may be from what was counted.
const TOLERANCE: f64 = 0.02;

/// A trace has a wait begin before UFS is asked for a CPU, and end after UFS has counted it:
/// this much of the kernel's code, in microseconds of the guest.
const AROUND_US: f64 = 5.0;

/// What the guest left, recorded once.
fn recorded() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = tmp("perfetto");
        fs::create_dir_all(&dir).unwrap();
        let giveway = cargo_bin!("giveway");
        // The package has the programs beside this one, and builds them if need be.
        crate::build::built();
        let job = Job::new(["sh", "trace.sh"])
            .file(giveway, "giveway")
            .file(giveway.with_file_name("scx_ufs"), "scx_ufs")
            .file(convoy(&dir), "convoy")
            .file(tests().join("trace.sh"), "trace.sh");
        let lab = Lab::open(&LabSpec::default(), &Lines).unwrap();
        let mut said = String::new();
        let outcome = lab.run(&machine(), &job, &mut |line| {
            said.push_str(line);
            said.push('\n');
        });
        let outcome = outcome.unwrap_or_else(|error| panic!("{error}\n{said}"));
        assert_eq!(outcome.status, 0, "the guest said:\n{said}");
        print!("{said}");
        for name in ["trace.json", "top.json", "boosts.before", "boosts.after"] {
            fs::write(dir.join(name), outcome.read(name).unwrap()).unwrap();
        }
        dir
    })
}

/// The example of a lock with hints.
pub(crate) fn convoy(dir: &Path) -> PathBuf {
    let hints = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hints");
    let program = dir.join("convoy");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-pthread", "-I"])
        .arg(hints.join("include"));
    cc.arg("-o")
        .arg(&program)
        .arg(hints.join("examples/convoy.c"));
    assert!(cc.status().unwrap().success(), "{cc:?}");
    program
}

/// The user's trace processor.
fn processor() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("GIVEWAY_TRACE_PROCESSOR") {
        return Some(path.into());
    }
    let program = PathBuf::from("trace_processor_shell");
    let is_here = Command::new(&program).arg("--version").output().is_ok();
    if !is_here {
        eprintln!(
            "SKIPPED: no trace_processor_shell in PATH, and GIVEWAY_TRACE_PROCESSOR names none"
        );
    }
    is_here.then_some(program)
}

/// A query's answer: the names of columns, then rows.
struct Table {
    head: Vec<String>,
    rows: Vec<Vec<Value>>,
}

impl Table {
    /// Of comma-separated text, whose fields are written as JSON has them.
    fn read(csv: &str) -> Table {
        let mut lines = csv.lines().filter(|line| !line.is_empty());
        let row = |line: &str| -> Vec<Value> {
            serde_json::from_str(&format!("[{line}]")).unwrap_or_else(|e| panic!("{e}: {line}"))
        };
        let head = row(lines.next().expect("a head"));
        let name = |value: Value| value.as_str().unwrap().to_owned();
        Table {
            head: head.into_iter().map(name).collect(),
            rows: lines.map(row).collect(),
        }
    }

    fn column(&self, name: &str) -> usize {
        let found = self.head.iter().position(|column| column == name);
        found.unwrap_or_else(|| panic!("no column {name} in {:?}", self.head))
    }

    /// The number in a column, of the rows in which others have these texts, added up.
    fn number(&self, name: &str, of: &[(&str, &str)]) -> f64 {
        let of: Vec<(usize, &str)> = of.iter().map(|(n, text)| (self.column(n), *text)).collect();
        let at = self.column(name);
        let is_of = |row: &&Vec<Value>| of.iter().all(|(at, text)| row[*at] == *text);
        let rows = self.rows.iter().filter(is_of);
        rows.map(|row| row[at].as_f64().unwrap()).sum()
    }
}

/// What the trace processor answers to a shipped query.
fn asked(processor: &Path, query: &str) -> Table {
    let queries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/perfetto");
    let mut command = Command::new(processor);
    command.arg("-q").arg(queries.join(query));
    command.arg(recorded().join("trace.json"));
    let output = command.output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    println!("{query}\n{out}");
    Table::read(&out)
}

/// What `giveway top` counted of a cgroup.
fn counted(cgroup: &str) -> Value {
    let top = fs::read(recorded().join("top.json")).unwrap();
    let top: Value = serde_json::from_slice(&top).unwrap();
    let rows = top["cgroups"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == cgroup);
    row.unwrap_or_else(|| panic!("no {cgroup} in {rows:?}"))
        .clone()
}

fn boosts() -> f64 {
    let [before, after] = ["before", "after"].map(|when| {
        let text = fs::read_to_string(recorded().join(format!("boosts.{when}"))).unwrap();
        text.trim().parse::<f64>().unwrap()
    });
    after - before
}

/// Says both, and sees that they agree.
fn agree(what: &str, answered: f64, counted: f64) {
    let apart = (answered - counted) / counted;
    println!(
        "{what}: {answered} answered, {counted} counted, {:+.2} %",
        100.0 * apart
    );
    assert!(counted > 0.0 && apart.abs() <= TOLERANCE, "{what}");
}

/// The lengths of a cgroup's waits after a wake-up in the trace, in microseconds, sorted.
fn waits_us(cgroup: &str) -> Vec<f64> {
    let trace = fs::read(recorded().join("trace.json")).unwrap();
    let trace: Value = serde_json::from_slice(&trace).unwrap();
    let of = |entry: &&Value| entry["name"] == "waits (woken)" && entry["args"]["cgroup"] == cgroup;
    let entries = trace["traceEvents"].as_array().unwrap().iter().filter(of);
    let mut waits: Vec<f64> = entries
        .map(|entry| entry["dur"].as_f64().unwrap())
        .collect();
    waits.sort_by(f64::total_cmp);
    waits
}

/// The least that so many percent do not exceed.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// A percentile of the trace's waits is what the query answers, and is in the octave that
/// `giveway top` gives the end of; or a wait is whose rank is a few in a thousand beside,
/// where latencies leap.
fn is_in_octave(percent: f64, waits_us: &[f64], answered_us: f64, end_ns: &Value) {
    assert_eq!(answered_us, percentile(waits_us, percent), "p{percent}");
    let end_us = end_ns.as_f64().unwrap() / 1e3;
    let [least, most] = [-0.2, 0.2].map(|beside| percentile(waits_us, percent + beside));
    println!(
        "p{percent}: {answered_us} us answered, {least} to {most} us beside, up to {end_us} us \
         counted"
    );
    assert!(
        least - AROUND_US < end_us && end_us / 2.0 <= most,
        "p{percent}"
    );
}

const URGENT: &str = "/urgent";
const REPORTS: &str = "/background-reports";
const LOCKS: &str = "/locks";

#[test]
fn trace_of_a_guest_has_what_it_is_asked_for() {
    let trace = fs::read(recorded().join("trace.json")).unwrap();
    let trace: Value = serde_json::from_slice(&trace).unwrap();
    let entries = trace["traceEvents"].as_array().unwrap();
    for cgroup in [URGENT, REPORTS, LOCKS] {
        let is_there = |entry: &&Value| entry["args"]["cgroup"] == cgroup;
        assert!(entries.iter().any(|entry| is_there(&entry)), "{cgroup}");
    }
}

#[test]
fn run_time_and_preemptions_by_cgroup_are_those_of_top() {
    let Some(processor) = processor() else { return };
    let table = asked(&processor, "run-time.sql");
    for (cgroup, tier) in [(URGENT, "time_sensitive"), (REPORTS, "background")] {
        let (counted, of) = (counted(cgroup), [("cgroup", cgroup), ("tier", tier)]);
        let number = |name: &str| counted[name].as_f64().unwrap();
        let run_ms = table.number("run_ms", &of);
        agree(
            &format!("run time of {cgroup}, ms"),
            run_ms,
            number("run_ns") / 1e6,
        );
        let preempted = table.number("preempted", &of);
        agree(
            &format!("preemptions of {cgroup}"),
            preempted,
            number("preempted"),
        );
    }
}

#[test]
fn wake_ups_and_their_latencies_are_those_of_top() {
    let Some(processor) = processor() else { return };
    let table = asked(&processor, "wake-ups.sql");
    let (counted, of) = (
        counted(URGENT),
        [("cgroup", URGENT), ("tier", "time_sensitive")],
    );
    let wakes = counted["wakes"].as_f64().unwrap();
    agree("wake-ups of /urgent", table.number("wake_ups", &of), wakes);
    let waits = waits_us(URGENT);
    for (percent, column, counter) in [
        (50.0, "p50_us", "wake_p50_ns"),
        (99.0, "p99_us", "wake_p99_ns"),
    ] {
        let answered = table.number(column, &of);
        is_in_octave(percent, &waits, answered, &counted[counter]);
    }
}

/// The reports, one on each CPU, give way to nothing but time-sensitive work.
#[test]
fn preemptions_of_background_work_are_those_of_top() {
    let Some(processor) = processor() else { return };
    let table = asked(&processor, "preemptions.sql");
    let all = [("urgent", "all")];
    let number = |name: &str| table.number(name, &all);
    // By the thread's name: the reports are called after what each has executed last.
    let of_lock = table.number("preemptions", &[("background", "convoy")]);
    let preempted = number("preemptions") - of_lock;
    let counted = counted(REPORTS)["preempted"].as_f64().unwrap();
    agree(
        "preemptions of reports by time-sensitive work",
        preempted,
        counted,
    );
    assert!(number("p50_us") <= number("p99_us") && number("p99_us") <= number("max_us"));
}

/// The record has a boost if the slot is looked at before the thread gives it back, so it
/// may miss the last ones.
#[test]
fn boosts_are_among_those_of_the_statistics() {
    let Some(processor) = processor() else { return };
    let answered = asked(&processor, "boosts.sql").number("boosts", &[]);
    let counted = boosts();
    println!("boosts: {answered} answered, {counted} counted");
    assert!(answered > 0.0 && answered <= counted);
}

#[test]
fn longest_wait_is_the_longest_of_all_waits_and_nothing_is_lost() {
    let Some(processor) = processor() else { return };
    let longest = asked(&processor, "longest-waits.sql");
    let wake_ups = asked(&processor, "wake-ups.sql");
    for tier in ["time_sensitive", "background"] {
        let us = longest.column("us");
        let of_tier = |row: &&Vec<Value>| row[longest.column("tier")] == tier;
        let waits: Vec<f64> = longest
            .rows
            .iter()
            .filter(of_tier)
            .map(|row| row[us].as_f64().unwrap())
            .collect();
        assert!(waits.is_sorted_by(|a, b| a >= b), "{waits:?}");
        let max = wake_ups.number("max_us", &[("tier", tier), ("cgroup", "all")]);
        assert!(waits[0] >= max, "{tier}: {waits:?}, {max}");
    }
    let inversions = asked(&processor, "inversions.sql");
    let number = |name: &str| inversions.number(name, &[]);
    assert!(number("inverted_ms") <= number("waiting_ms"));
    assert!(number("longest_us") <= 1e3 * number("inverted_ms"));
    assert_eq!(asked(&processor, "lost.sql").number("events", &[]), 0.0);
}
