//! `giveway sql` as a user meets it: what it prints, how it ends.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use assert_cmd::cargo::cargo_bin;

fn giveway(args: &[&str], input: &str) -> Output {
    let mut child = command(args)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(cargo_bin!("giveway-sql"));
    command
        .args(args)
        .env_remove("GIVEWAY_SQL_PASSWORD")
        .env_remove("GIVEWAY_SQL_CLUSTER_PASSWORD")
        .stdout(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Ends well, and prints this.
fn prints(args: &[&str], input: &str, expected: &str) {
    let output = giveway(args, input);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), expected);
}

/// Ends with this status, and says this.
fn fails(args: &[&str], input: &str, status: i32, expected: &str) {
    let output = giveway(args, input);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
    assert!(said.starts_with("giveway: error: "), "{args:?}: {said}");
    assert!(said.contains(expected), "{args:?}: {said}");
}

fn csv(dir: &Path) -> String {
    let path = dir.join("people.csv");
    fs::write(&path, "name,age\nann,40\nbob,31\n").unwrap();
    format!("people={}", path.display())
}

#[test]
fn statements_come_from_arguments_files_and_pipes() {
    let dir = tempfile::tempdir().unwrap();
    let table = csv(dir.path());
    let script = dir.path().join("script.sql");
    fs::write(
        &script,
        "-- of a file\nselect sum(age) as sum\nfrom people;",
    )
    .unwrap();
    let script = script.to_str().unwrap();
    prints(
        &[
            "--table",
            &table,
            "--format",
            "csv",
            "-c",
            "select 1 as a; select 2 as b",
            "-f",
            script,
        ],
        "",
        "a\n1\nb\n2\nsum\n71\n",
    );
    prints(
        &["--table", &table],
        "select name, age from people\norder by age;\n\\format ndjson\nselect 3 as c",
        " name | age\n------+-----\n bob  |  31\n ann  |  40\n(2 rows)\n{\"c\":3}\n",
    );
}

#[test]
fn a_script_ends_at_the_first_error() {
    fails(&["-c", "select 1; selekt; select 2"], "", 1, "selekt");
    fails(&[], "select * from nowhere;", 1, "nowhere");
}

#[test]
fn wrong_input_is_refused_with_what_to_write_instead() {
    fails(&["--table", "people"], "", 2, "NAME=PATH");
    fails(&["--table", "a=/no/such/file.csv"], "", 1, "no such file");
    fails(&["--memory", "12"], "", 2, "512M");
    fails(&["--policy", "best"], "", 2, "tuned");
    fails(&["--format", "xml"], "", 2, "ndjson");
    fails(
        &["--connect", "grpc://127.0.0.1:1"],
        "",
        1,
        "giveway sql serve",
    );
    fails(&["tpch", "--sf", "0"], "", 2, "such as 0.1");
    fails(&["tpch", "--query", "23"], "", 2, "1 to 22");
    fails(
        &["serve", "--listen", "0.0.0.0:0"],
        "",
        2,
        "ask for a password",
    );
}

#[test]
fn a_corrupt_file_costs_its_own_table_only() {
    let dir = tempfile::tempdir().unwrap();
    csv(dir.path());
    fs::write(dir.path().join("broken.parquet"), "PAR1 no footer").unwrap();
    let data = dir.path().to_str().unwrap();
    let sql = "select max(age) as oldest from people";
    let asked = giveway(&["--data", data, "--format", "csv", "-c", sql], "");
    let said = text(&asked.stderr);
    assert_eq!(text(&asked.stdout), "oldest\n40\n", "{said}");
    assert!(said.contains("broken.parquet"), "{said}");
    let args = ["--data", data, "-c", "select * from broken"];
    let missing = giveway(&args, "");
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("'datafusion.public.broken' not found"));

    fs::remove_file(dir.path().join("people.csv")).unwrap();
    fails(&["--data", data, "-c", "select 1"], "", 1, "broken.parquet");
}

#[test]
fn the_benchmark_is_written_and_queried() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let args = ["tpch", "--sf", "0.001", "--out", data];
    let first = giveway(&args, "");
    assert!(text(&first.stdout).contains("8 files written, 0 there already"));
    let second = giveway(&args, "");
    assert!(text(&second.stdout).contains("0 files written, 8 there already"));
    let query = giveway(&["tpch", "--sf", "0.001", "--query", "6"], "");
    let query = text(&query.stdout);
    assert!(query.contains("l_discount between 0.06 - 0.01"), "{query}");
    let answer = giveway(&["--data", data, "--format", "csv"], &query);
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    assert_eq!(text(&answer.stdout).lines().count(), 2);
    prints(
        &[
            "--data",
            data,
            "--format",
            "csv",
            "-c",
            "select count(*) as n from orders",
        ],
        "",
        "n\n1500\n",
    );
}

/// A server that is ended however its test ends.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_is_asked_and_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let table = csv(dir.path());
    let args = ["serve", "--listen", "127.0.0.1:0", "--table", &table];
    let child = command(&args)
        .stderr(Stdio::piped())
        .env("GIVEWAY_SQL_PASSWORD", "secret")
        .spawn()
        .unwrap();
    let mut served = Served(child);
    let mut line = String::new();
    let mut out = BufReader::new(served.0.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening on ").unwrap();

    let login = [
        "--connect",
        url,
        "--password",
        "secret",
        "--tier",
        "background",
    ];
    let asked = giveway(
        &[&login[..], &["--format", "csv"]].concat(),
        "select max(age) as oldest from people; \n\\tier",
    );
    assert_eq!(
        text(&asked.stdout),
        "oldest\n40\nname,value\ngiveway.tier,background\n",
        "{}",
        text(&asked.stderr)
    );
    fails(
        &["--connect", url, "--password", "guess", "-c", "select 1"],
        "",
        1,
        "wrong user",
    );

    let pid = nix::unistd::Pid::from_raw(served.0.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(served.0.wait().unwrap().success());
}

#[test]
fn help_fits_80_columns_and_every_command_has_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let output = giveway(&["man", dir.path().to_str().unwrap()], "");
    assert!(output.status.success(), "{}", text(&output.stderr));
    for command in ["", "serve", "tpch", "completions", "man"] {
        let args: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let help = text(&giveway(&args, "").stdout);
        assert!(help.contains("Usage: giveway sql"), "{help}");
        assert!(
            help.lines().all(|line| line.chars().count() <= 80),
            "{help}"
        );
        let dash = if command.is_empty() { "" } else { "-" };
        let page = dir.path().join(format!("giveway-sql{dash}{command}.1"));
        assert!(page.exists(), "{page:?}");
    }
}
