//! The command as a user meets it: what it says to wrong input, how its help
//! looks, and how it ends. Nothing here needs a particular kernel.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};

use assert_cmd::cargo::cargo_bin;

fn giveway(args: &[&str]) -> Output {
    Command::new(cargo_bin!("giveway"))
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
    refused(
        &["run", "--tier", "urgent", "true"],
        "time_sensitive or background",
    );
    refused(&["run", "--weight", "0", "true"], "from 1 to 10000");
    refused(&["run"], "<COMMAND>");
    refused(&["nonsense"], "unrecognized subcommand");
    refused(&["top", "--interval", "0"], "seconds above 0");
    refused(&["top", "--sort", "speed"], "wake-p99");
    refused(&["trace", "--seconds", "0"], "seconds above 0");
    refused(&["trace", "--buffer-kib", "1"], "from 64 to 1048576");
    refused(&["start", "--timeout", "x"], "write a whole number");
    refused(&["metrics", "--listen", "9752"], "127.0.0.1:9752");
    refused(&["mark", "/a", "urgent"], "background, or none");
    refused(&["pods", "--interval", "0"], "from 1 to 3600");
}

/// A UFS that answers each request for statistics with `answer`.
fn answering(dir: &std::path::Path, answer: &'static str) -> std::path::PathBuf {
    let path = dir.join("stats");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            writeln!(stream, "{answer}").unwrap();
        }
    });
    path
}

const ANSWER: &str = r#"{"errno":0,"args":{"resp":{"nr_cpus":2,
    "tiers":{"time_sensitive":{"run_ns":2000000000}},
    "cpus":{"0":{"time_sensitive_ns":2000000000}}}}}"#;

/// One line, as it is sent.
fn one_line(text: &'static str) -> &'static str {
    text.replace('\n', " ").leak()
}

#[test]
fn top_and_metrics_show_what_ufs_answers() {
    let dir = tempfile::tempdir().unwrap();
    let socket = answering(dir.path(), one_line(ANSWER));
    let socket = socket.to_str().unwrap();

    let metrics = giveway(&["metrics", "--socket", socket]);
    let said = text(&metrics.stdout);
    assert!(
        said.contains("\ngiveway_tier_run_seconds_total{tier=\"time_sensitive\"} 2.0\n"),
        "{said}"
    );
    assert!(said.ends_with("# EOF\n"), "{said}");

    let top = [
        "top",
        "--once",
        "--all",
        "--interval",
        "0.01",
        "--socket",
        socket,
    ];
    let said = text(&giveway(&top).stdout);
    assert!(
        said.starts_with("TIERS ") && said.contains("\ncpu 0 "),
        "{said}"
    );
    assert!(said.contains("\n    PID PROCESSES "), "{said}");
    let json = text(&giveway(&[&top[..], &["--json"]].concat()).stdout);
    assert!(
        json.starts_with("{\"interval_s\":0.") && json.lines().count() == 1,
        "{json}"
    );
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let processes = json["processes"].as_array().unwrap();
    let own = processes.iter().find(|row| row["id"] == std::process::id());
    assert!(
        own.is_some_and(|row| row["threads"].as_u64() > Some(1)),
        "{own:?}"
    );
}

#[test]
fn top_and_metrics_without_ufs_name_the_remedy() {
    for command in ["top", "metrics"] {
        let output = giveway(&[command, "--socket", "/no/such/socket"]);
        // `top` looks for a terminal first.
        let said = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{said}");
        assert!(said.contains("remedy: "), "{said}");
    }
    let output = giveway(&["top", "--once", "--socket", "/no/such/socket"]);
    assert!(text(&output.stderr).contains("giveway start"));

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.json");
    let file = file.to_str().unwrap();
    let output = giveway(&["trace", "--tracefs", "/no/such/mount", "--output", file]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("remedy: mount -t tracefs"), "{said}");
    assert!(!std::path::Path::new(file).exists());
}

/// Every subcommand's name, as the parts of a command line.
fn subcommands() -> Vec<Vec<&'static str>> {
    let lines =
        "|run|mark|pods|start|stop|status|top|trace|metrics|doctor|meta|meta run|completions|man";
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
            assert!(
                output.status.success() && help.contains("Usage: giveway"),
                "{args:?}"
            );
            for line in help.lines() {
                assert!(line.chars().count() <= 80, "{args:?}: {line}");
            }
        }
    }
}

#[test]
fn the_overview_lists_what_there_is() {
    let help = text(&giveway(&["--help"]).stdout);
    let listed: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(
        listed,
        [
            "run",
            "mark",
            "pods",
            "start",
            "stop",
            "status",
            "top",
            "trace",
            "metrics",
            "doctor",
            "meta",
            "completions",
            "man",
            "bench",
            "report",
            "lab",
            "sql",
            "help"
        ]
    );
}

#[test]
fn without_arguments_the_overview_is_shown_and_the_status_is_wrong_usage() {
    let output = giveway(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Usage: giveway"));
}

#[test]
fn doctor_speaks_plainly_to_a_pipe_and_json_to_programs() {
    let plain = giveway(&["doctor"]);
    let said = text(&plain.stdout);
    assert!(said.is_ascii() && said.contains("\n\nUFS can"), "{said}");
    for line in said.lines() {
        // A path may have no blank to break the line at.
        assert!(line.len() <= 80 || line.contains('/'), "{line}");
    }
    let json = giveway(&["doctor", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let open = found["native"] == true || found["lab"] == true;
    assert_eq!(json.status.code(), Some(i32::from(!open)));
    assert_eq!(plain.status.code(), json.status.code());
    for finding in found["findings"].as_array().unwrap() {
        assert!(
            finding["health"] != "missing" || finding["remedy"].is_string(),
            "{finding}"
        );
    }
}

#[test]
fn stop_has_nothing_to_do_on_a_kernel_without_sched_ext() {
    if !std::path::Path::new("/sys/kernel/sched_ext/state").exists() {
        let output = giveway(&["stop"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "UFS is not loaded\n");
    }
}

#[test]
fn metrics_say_what_helps_where_they_cannot_listen() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (address, remedy) in [(&*taken, "ss -ltnp"), ("192.0.2.1:9752", "ip addr")] {
        let output = giveway(&["metrics", "--listen", address]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("remedy: ") && said.contains(remedy), "{said}");
    }
}

#[test]
fn status_is_json_for_programs() {
    let output = giveway(&["status", "--json"]);
    assert!(output.status.success());
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(status["state"].is_string() && status["cgroups"].is_array());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(cargo_bin!("giveway"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn there_is_a_manual_page_for_every_subcommand() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("man1");
    let output = giveway(&["man", target.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for command in subcommands() {
        let name: Vec<&str> = std::iter::once("giveway").chain(command).collect();
        let page = target.join(format!("{}.1", name.join("-")));
        let page = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{page:?}: {e}"));
        assert!(page.contains(".SH SYNOPSIS"));
    }
    // Programs of their own write their pages themselves.
    for other in ["bench", "report", "lab", "sql"] {
        assert!(!target.join(format!("giveway-{other}.1")).exists());
    }
}

/// `giveway` in a directory of its own, beside these programs, which are scripts.
fn beside(programs: &[&str]) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::hard_link(cargo_bin!("giveway"), dir.path().join("giveway")).unwrap();
    for program in programs {
        let file = dir.path().join(program);
        let script = "#!/bin/sh\necho ${0##*/}; printf '[%s]' \"$@\"; exit 7\n";
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir
}

#[test]
fn a_program_of_its_own_gets_its_arguments_untouched_and_its_status_is_passed_on() {
    let dir = beside(&["giveway-bench", "giveway-sql"]);
    let says = |args: &[&str]| {
        let mut command = Command::new(dir.path().join("giveway"));
        let output = command.args(args).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{args:?}");
        text(&output.stdout)
    };
    assert_eq!(
        says(&["bench", "mixed", "--help"]),
        "giveway-bench\n[mixed][--help]"
    );
    assert_eq!(
        says(&["lab", "run", "--", "x"]),
        "giveway-bench\n[lab][run][--][x]"
    );
    assert_eq!(
        says(&["report", "-a", "b c"]),
        "giveway-bench\n[report][-a][b c]"
    );
    assert_eq!(says(&["sql", "-h"]), "giveway-sql\n[-h]");
    assert_eq!(says(&["sql"]), "giveway-sql\n[]");
}

#[test]
fn a_program_that_is_missing_is_named_with_how_to_get_it() {
    let dir = beside(&[]);
    for (command, program) in [
        ("bench", "giveway-bench"),
        ("report", "giveway-bench"),
        ("lab", "giveway-bench"),
        ("sql", "giveway-sql"),
    ] {
        let mut giveway = Command::new(dir.path().join("giveway"));
        let output = giveway.args([command, "--help"]).env("PATH", "").output();
        let output = output.unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(127), "{said}");
        assert!(said.contains(&format!("'giveway {command}' is the program {program}")));
        assert!(said.contains("remedy: install the package "), "{said}");
    }
}
