//! The program as a user meets it: what it says to wrong input, how its help looks,
//! and how it ends. Nothing here needs a particular kernel.

use std::process::{Command, Output, Stdio};

use assert_cmd::cargo::cargo_bin;

fn giveway(args: &[&str]) -> Output {
    Command::new(cargo_bin!("giveway-bench"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Wrong usage: status 2, nothing on standard output, and the error says this.
fn refused(args: &[&str], expected: &str) {
    let output = giveway(args);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert!(said.starts_with("giveway: error: "), "{args:?}: {said}");
    assert!(said.contains(expected), "{args:?}: {said}");
}

#[test]
fn wrong_input_is_refused_with_what_to_write_instead() {
    refused(&["mixed", "--schedulers", "cfs"], "scx_NAME");
    refused(&["mixed", "--mixes", "HALF"], "MIN:MAX");
    refused(&["all", "--only", "mixd"], "--list");
    refused(&["mixed", "--seconds", "0"], "above 0");
    refused(&["mixed", "--seconds", "nan"], "above 0");
    refused(&["mixed", "--cpus", "0"], "from 1 to 1024");
    refused(&["mixed", "--lab", "--cpus", "44"], "--cpus 43 at most");
    refused(&["locks", "--threads", "foo"], "write a whole number");
    refused(&["mixed", "--lab", "--native"], "cannot be used with");
    refused(
        &["mixed", "--schedulers", "idle", "--mixes", "SOLO"],
        "remedy: ",
    );
    refused(
        &["lab", "run", "--quantum", "9000", "true"],
        "--clock lockstep",
    );
    refused(
        &["lab", "run", "--file", "/no/such/file", "true"],
        "no such file",
    );
    refused(&["lab", "run", "--env", "X", "true"], "NAME=VALUE");
    refused(&["nonsense"], "unrecognized subcommand");
    refused(&["report"], "<FILE>");
}

#[test]
fn a_missing_result_file_is_named() {
    let output = giveway(&["report", "/no/such/results.json"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with("giveway: error: ") && said.contains("/no/such/results.json"));
}

/// Every subcommand's name, as the parts of a command line.
fn subcommands() -> Vec<Vec<&'static str>> {
    let lines = "|mixed|tasks|all|report|lab|lab run|lab shell|lab build|lab info|lab clean\
                 |completions|man";
    lines
        .split('|')
        .map(|line| line.split_whitespace().collect())
        .collect()
}

#[test]
fn help_fits_80_columns_and_every_line_of_it_says_something() {
    for command in subcommands() {
        for flag in ["-h", "--help"] {
            let mut args = command.clone();
            args.push(flag);
            let output = giveway(&args);
            let help = text(&output.stdout);
            let usage = match command.first() {
                Some(&above @ ("report" | "lab")) => format!("Usage: giveway {above}"),
                _ => "Usage: giveway bench".to_owned(),
            };
            assert!(
                output.status.success() && help.contains(&usage),
                "{args:?}: {help}"
            );
            for line in help.lines() {
                assert!(line.chars().count() <= 80, "{args:?}: {line}");
            }
        }
    }
}

#[test]
fn a_file_that_is_no_result_has_a_remedy() {
    let output = giveway(&["report", "/etc/passwd"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("\nremedy: name a JSON file"), "{said}");
}

#[test]
fn there_is_a_manual_page_for_every_subcommand_but_the_hidden_ones() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("man1");
    let output = giveway(&["man", target.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for command in subcommands() {
        let name: Vec<&str> = std::iter::once("giveway-bench").chain(command).collect();
        let page = target.join(format!("{}.1", name.join("-")));
        let page = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{page:?}: {e}"));
        assert!(page.contains(".SH SYNOPSIS"));
    }
    assert!(!target.join("giveway-bench-cell.1").exists());
}

#[test]
fn all_reports_what_cannot_be_measured_here_and_ends_with_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    // Nothing is found in this PATH, so there is nothing to measure RocksDB with.
    let output = Command::new(cargo_bin!("giveway-bench"))
        .args(["all", "--quick", "--only", "rocksdb", "--dir", path])
        .env("PATH", "")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (said, overview) = (text(&output.stderr), text(&output.stdout));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("giveway: error: not done: rocksdb"), "{said}");
    assert!(overview.contains("rocksdb: CFL (paper 004)"), "{overview}");
    assert!(overview.contains("FAILED after"), "{overview}");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(read("overview.txt"), overview);
    assert!(read("rocksdb.log").contains("giveway: error: "));
    assert!(read("index.html").contains("FAILED after"));
    assert!(read("runs.json").contains("--seconds"), "how to repeat it");
    let again = giveway(&["all", "--report", "--only", "rocksdb", "--dir", path]);
    assert_eq!(text(&again.stdout), overview);
}

#[test]
fn list_names_the_experiments() {
    let output = giveway(&["--list"]);
    assert!(output.status.success());
    let list = text(&output.stdout);
    assert!(list.starts_with("mixed "));
    assert!(
        list.contains("\nweights          Measure whether"),
        "{list}"
    );
    assert!(list.lines().all(|line| line.len() <= 80), "{list}");
}

#[test]
fn the_lab_says_what_it_lacks_without_building_anything() {
    let cache = tempfile::tempdir().unwrap();
    let output = Command::new(cargo_bin!("giveway-bench"))
        .args(["lab", "lacks"])
        .env("XDG_CACHE_HOME", cache.path())
        .output()
        .unwrap();
    assert!(output.status.success());
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|f| &f["name"])
        .collect();
    assert_eq!(names, ["lab", "KVM", "disk", "memory"]);
    assert!(
        found[0]["detail"]
            .as_str()
            .unwrap()
            .contains("not built yet")
    );
    assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 0);
}

/// Virtual time is no machine's: the same seed gives the same table everywhere, and again.
#[test]
fn simulated_policies_are_the_same_every_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let measure = || {
        let arms = "fair,tuned,las:0:0.05,adaptive";
        let output = giveway(&[
            "tasks",
            "--experiment",
            "simulated",
            "--seconds",
            "5",
            "--workers",
            "2",
            "--arms",
            arms,
            "--results",
            path,
        ]);
        let said = text(&output.stdout);
        assert!(output.status.success(), "{said}{}", text(&output.stderr));
        assert!(said.contains("clock virtual"), "{said}");
        let table = said.split_once("simulated: ").expect("its table").1;
        table.to_owned()
    };
    let once = measure();
    assert_eq!(once, measure());
    for arm in ["fair", "tuned", "las:0,0.05", "adaptive"] {
        assert!(once.contains(&format!("  {arm} ")), "{once}");
    }
    assert!(
        once.contains("short, adaptive over the best, at 1.03"),
        "{once}"
    );
}
