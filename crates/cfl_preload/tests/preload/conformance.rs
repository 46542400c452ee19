//! What POSIX and C11 say about mutexes and conditions, done by small programs
//! that print every answer: the same answers as glibc's.

use std::ffi::OsStr;
use std::fs;

use tempfile::tempdir;

use crate::support::{command, compile, counting, preload, program, reports, run, total};

/// Runs the program on both; the answers have to be equal, and ours counted.
fn same_as_glibc(name: &str) {
    let directory = tempdir().unwrap();
    let program = program(name, directory.path());
    let glibcs = run(&mut command(&program)).good();
    let mut with_ours = command(&program);
    with_ours.env("GIVEWAY_CFL", counting(directory.path(), ""));
    let ours = run(preload(&mut with_ours)).good();
    assert_eq!(ours, glibcs);
    assert!(ours.lines().count() > 0);
    // The locks really were ours.
    let acquisitions = total(&reports(directory.path()), "acquisitions");
    assert!(acquisitions > 0, "no lock was counted");
}

#[test]
fn every_kind_answers_every_operation() {
    same_as_glibc("kinds");
}

#[test]
fn conditions_wake_time_out_and_are_destroyed() {
    same_as_glibc("cond");
}

#[test]
fn a_cancelled_thread_takes_no_signal_with_it() {
    same_as_glibc("cancel");
}

#[test]
fn objects_of_glibc_work_together_with_ours() {
    same_as_glibc("forwarded");
}

#[test]
fn c11_has_the_same_locks() {
    same_as_glibc("c11");
}

#[test]
fn errno_is_left_alone() {
    same_as_glibc("errno");
}

#[test]
fn threads_end_in_every_way() {
    same_as_glibc("exit");
}

#[test]
fn a_program_can_have_all_keys() {
    same_as_glibc("keys");
}

#[test]
fn references_to_any_version_or_alias_meet_at_one_lock() {
    same_as_glibc("versions");
}

#[test]
fn a_child_goes_on_with_the_locks_of_its_parent() {
    // No comparison: glibc's own condition variables may hang in such a child.
    let directory = tempdir().unwrap();
    let program = program("fork", directory.path());
    let said = run(preload(&mut command(program))).good();
    assert_eq!(said, "children that went on: 30\nthe parent went on\n");
}

#[test]
fn locks_are_used_before_main_and_inside_malloc() {
    let directory = tempdir().unwrap();
    let early = directory.path().join("libearly.so");
    compile(
        "early_library.c",
        &early,
        &[OsStr::new("-fPIC"), OsStr::new("-shared")],
    );
    let program = directory.path().join("early");
    let run_path = format!("-Wl,-rpath,{}", directory.path().display());
    compile(
        "early.c",
        &program,
        &[
            OsStr::new("-fno-builtin"),
            early.as_os_str(),
            run_path.as_ref(),
        ],
    );
    let glibcs = run(&mut command(&program)).good();
    assert_eq!(run(preload(&mut command(&program))).good(), glibcs);

    // The settings are read by the constructor's first lock, or malloc's.
    let file = directory.path().join("settings.toml");
    fs::write(&file, "[[group]]\nname = 'a'\nthreads = ['*']\n").unwrap();
    let mut configured = command(&program);
    configured
        .env("GIVEWAY_CFL_CONFIG", file)
        .env("GIVEWAY_CFL", counting(directory.path(), ""));
    assert_eq!(run(preload(&mut configured)).good(), glibcs);
    // malloc's mutex is among those counted: 4 threads, 5000 pairs of calls.
    assert!(total(&reports(directory.path()), "acquisitions") > 40_000);
}
