//! PostgreSQL under UFS, in a kernel that can load it: the cases of
//! `postgres/test/under_ufs.sh`, on the stock server that `make servers` has left
//! in the cache. `postgres/test-in-lab.sh` also runs the cases of
//! `postgres/test.sh` there, and on a patched server, which takes too long here.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use giveway_lab::{Clock, Job, Lab, LabSpec, Machine, Silent};

#[path = "guest/programs.rs"]
mod programs;

/// The top of the source tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The server for the lab; `None` if none has been made.
fn server() -> Option<PathBuf> {
    let link = giveway_lab::cache_root().join("postgres/lab-17-stock");
    link.canonicalize().ok()
}

/// The program that reads the table, and shares no code with the extension.
fn table(dir: &Path) -> PathBuf {
    let program = dir.join("table");
    let include = root().join("crates/hints/include");
    let built = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(include)
        .arg(root().join("postgres/test/table.c"))
        .arg("-o")
        .arg(&program)
        .status()
        .unwrap();
    assert!(built.success(), "table.c does not build");
    program
}

/// Runs cases in one guest; each must say that it has passed.
fn pass(cases: &[&str]) {
    let Some(server) = server() else {
        eprintln!("SKIPPED: no server for the lab is here; make servers");
        return;
    };
    let lab = Lab::open(&LabSpec::default(), &Silent).unwrap();
    let machine = Machine {
        cpus: 2,
        clock: Clock::LOOSE,
        timeout: Duration::from_secs(2400),
        ..Machine::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let job = Job::new(
        ["bash", "test/guest.sh"]
            .into_iter()
            .chain(cases.iter().copied()),
    )
    .file(server, "server")
    .file(programs::with(&["scx_ufs"]).join("scx_ufs"), "scx_ufs")
    .file(table(dir.path()), "table")
    .file(root().join("postgres/test"), "test")
    .file(root().join("postgres/giveway"), "extension");
    let mut said = String::new();
    let outcome = lab.run(&machine, &job, &mut |line| {
        said.push_str(line);
        said.push('\n');
    });
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}; the guest said:\n{said}"));
    for case in cases {
        let passed = said
            .lines()
            .any(|line| line.split_whitespace().eq(["passed", case]));
        assert!(passed, "{case} did not pass; the guest said:\n{said}");
    }
    assert_eq!(outcome.status, 0, "the guest said:\n{said}");
}

#[test]
fn sessions_stay_prioritised_across_kills_and_restarts() {
    pass(&[
        "case_obeyed",
        "case_boosted",
        "case_killed_in_a_boost",
        "case_ufs_restarted_under_load",
        "case_ufs_maps_once",
        "case_session_cgroups",
    ]);
}
