//! Programs that the tests of kernels run in guests, compiled once, and what a kernel says
//! when it finds a fault in itself.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What the kernel says when it finds a fault in itself.
pub(crate) const FAULTS: &str = "BUG|WARNING|Oops|general protection|DEADLOCK|stall|use-after-free";

/// Cases of `kernel/uintr/tests` that need nothing of the machine.
pub(crate) const RULES: [&str; 24] = [
    "a_thread_interrupts_itself",
    "a_thread_that_asked_for_nothing_sends",
    "the_highest_vector_comes_first",
    "each_thread_of_a_process_receives",
    "a_running_receiver_is_notified_wherever_it_is",
    "flags_are_kept",
    "a_descheduled_receiver_gets_it_when_it_runs_again",
    "a_sleeping_receiver_is_not_woken_and_gets_it_then",
    "uif_is_each_thread_s_own",
    "who_is_not_known_has_no_instructions",
    "every_thread_of_a_process_that_receives_has_the_instructions",
    "who_asks_in_vain_stays_unknown",
    "a_child_of_fork_inherits_descriptors_only",
    "another_process_sends_by_descriptor",
    "exec_ends_a_receiver",
    "a_killed_receiver_fails_its_senders",
    "a_thread_that_ends_fails_its_senders",
    "unregistering_drops_what_is_pending",
    "closing_ends_nothing",
    "wrong_arguments_have_names",
    "a_receiver_has_so_many_senders_at_most",
    "crowds_end_at_once 4",
    "a_handler_has_the_stack_it_asked_for",
    "cr4_is_set_again_when_the_kernel_clears_it",
];

pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// A compiled program, and the directory that it is in.
type Compiled = OnceLock<(tempfile::TempDir, PathBuf)>;

fn compiled(kept: &'static Compiled, flags: &[&str], sources: &[&str]) -> &'static Path {
    let (_, program) = kept.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        let status = Command::new("cc")
            .args(["-O1", "-Wall", "-Werror", "-static", "-pthread"])
            .args(flags)
            .arg("-o")
            .arg(&program)
            .args(sources.iter().map(|source| repository(source)))
            .status()
            .unwrap();
        assert!(status.success(), "{sources:?} do not compile");
        (dir, program)
    });
    program
}

/// The cases of user interrupts.
pub(crate) fn rules() -> &'static Path {
    static PROGRAM: Compiled = OnceLock::new();
    compiled(
        &PROGRAM,
        &["-muintr", "-mgeneral-regs-only", "-mno-red-zone"],
        &[
            "kernel/uintr/tests/ends.c",
            "kernel/uintr/tests/harness.c",
            "kernel/uintr/tests/latency.c",
            "kernel/uintr/tests/random.c",
            "kernel/uintr/tests/rules.c",
        ],
    )
}

/// Threads that hold the locks of the CFL kernel.
pub(crate) fn holders() -> &'static Path {
    static PROGRAM: Compiled = OnceLock::new();
    compiled(&PROGRAM, &[], &["kernel/cfl/tests/guest.c"])
}
