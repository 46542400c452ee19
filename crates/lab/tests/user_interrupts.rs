//! The emulator has Intel's user interrupts, as the manual says.
//!
//! Each test runs one case of a program in `bare` on the emulator alone: without a
//! kernel, the case sets up CPUs, brings about one situation, looks at what follows, and
//! says "passed". `qemu/user-interrupts.patch` explains what is emulated.
//!
//! On the lockstep clock unless said otherwise: a case that fails does so each time.

mod bare;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use bare::Bench;
use tempfile::NamedTempFile;

/// How often an emulator is asked.
const POLL: Duration = Duration::from_millis(20);

const LOCKSTEP: &[&str] = &[
    "-accel",
    "tcg,thread=single",
    "-icount",
    "shift=2,sleep=off,lockstep=on,quantum=10000,causal=on",
];
const THREADS: &[&str] = &["-accel", "tcg,thread=multi"];

/// In `bare`, each with the cases of one subject.
const PROGRAMS: [&str; 6] = [
    "instructions",
    "sending",
    "notifications",
    "delivery",
    "time",
    "extended_state",
];

/// CPUs of a machine with `user_interrupts`.
const WITH_THEM: &str = ",uintr=on,xsavec=on";

/// An emulator whose monitor takes commands.
struct Monitor(Child);

impl Monitor {
    fn start(mut command: Command) -> Monitor {
        command.args(["-monitor", "stdio"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Monitor(command.spawn().unwrap())
    }

    fn say(&mut self, command: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    /// Waits until the monitor answers a command with a text.
    fn say_until(&mut self, command: &str, text: &str) {
        let mut said = String::new();
        while !said.contains(text) {
            self.say(command);
            let mut some = [0; 4096];
            let length = self.0.stdout.as_mut().unwrap().read(&mut some).unwrap();
            assert!(length > 0, "the emulator ended after '{said}'");
            said.push_str(&String::from_utf8_lossy(&some[..length]));
            std::thread::sleep(POLL);
        }
    }

    /// Waits until the case has printed this.
    fn wait_for(&mut self, console: &Path, text: &str) {
        loop {
            let said = fs::read_to_string(console).unwrap();
            if said == text {
                return;
            }
            assert!(self.0.try_wait().unwrap().is_none(), "{said}");
            std::thread::sleep(POLL);
        }
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

/// The programs, compiled once for all tests.
fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(|| Bench::of(&PROGRAMS))
}

fn passes(program: &str, case: &str, execution: &[&str], properties: &str) {
    let said = bench().run(program, case, execution, properties);
    assert!(said.ends_with("passed\n"), "{said}");
}

#[test]
fn a_cpu_without_them_has_nothing() {
    passes(
        "instructions",
        "a_cpu_without_them_has_nothing",
        LOCKSTEP,
        "",
    );
}

#[test]
fn a_cpu_without_xsavec_refuses_its_form() {
    let case = "a_cpu_without_xsavec_refuses_its_form";
    passes("extended_state", case, LOCKSTEP, "");
}

/// Tests of the names of cases, which run them.
macro_rules! cases {
    ($($program:literal: $($case:ident,)*;)*) => {$($(
        #[test]
        fn $case() {
            passes($program, stringify!($case), LOCKSTEP, WITH_THEM);
        }
    )*)*};
}

cases! {
    "instructions":
        cpuid_and_cr4_have_a_bit,
        instructions_need_the_bit_in_cr4,
        instructions_need_64_bit_mode,
        the_lock_prefix_is_illegal,
        msrs_keep_what_is_written,
        msrs_refuse_reserved_bits_and_addresses_that_are_not_canonical,
        stui_and_clui_set_what_testui_reads,
        uiret_loads_rip_rsp_and_the_flags_of_a_program,
        flags_that_uiret_has_set_can_be_cleared,
        uiret_to_no_canonical_address_is_refused,
    ;
    "sending":
        a_program_interrupts_itself,
        a_program_interrupts_another_cpu,
        in_x2apic_mode_the_whole_field_is_the_destination,
        another_vector_goes_to_the_kernel,
        suppressed_notifications_are_not_sent,
        an_outstanding_notification_is_not_sent_again,
        a_vector_that_no_apic_sends_is_not_sent,
        an_index_beyond_the_table_is_refused,
        senduipi_needs_the_bit_of_its_table,
        an_entry_that_is_not_valid_is_refused,
        a_descriptor_with_reserved_bits_is_refused,
        a_page_fault_of_senduipi_is_the_kernels,
        tables_are_the_kernels_and_smap_holds_for_them,
    ;
    "notifications":
        a_notification_is_taken_at_any_level_and_delivered_at_level_3,
        notifications_add_to_what_is_requested,
        a_notification_waits_while_interrupts_are_off,
        without_the_bit_in_cr4_a_notification_is_ordinary,
        a_page_fault_of_a_notification_is_the_kernels,
        a_notification_ends_a_halt,
    ;
    "delivery":
        a_clear_flag_holds_an_interrupt_back_until_stui,
        clui_holds_an_interrupt_back,
        a_request_that_is_taken_back_is_not_delivered,
        compatibility_mode_holds_an_interrupt_back,
        sysret_delivers_what_is_pending,
        the_highest_vector_comes_first,
        a_handler_that_sets_the_flag_is_interrupted,
        the_stack_is_adjusted_and_aligned,
        interrupts_off_hold_no_user_interrupt_back,
        an_ordinary_interrupt_comes_before_a_user_interrupt,
        the_handler_runs_without_single_steps,
        a_frame_that_cannot_be_pushed_is_delivered_after_the_fault,
    ;
    "time":
        an_interrupt_is_never_seen_before_it_is_sent,
        nor_is_one_for_the_kernel,
        a_notification_is_not_taken_ahead_of_a_sender,
    ;
    "extended_state":
        xsavec_saves_what_xrstor_loads,
        what_is_not_asked_for_takes_no_room,
        what_is_not_in_the_area_becomes_initial,
        a_header_that_is_not_valid_is_refused,
        cpuid_says_how_large_an_area_is,
    ;
}

/// The emulator's other way to run a guest: one host thread per CPU.
#[test]
fn with_a_host_thread_per_cpu_programs_interrupt_each_other_too() {
    for (program, case) in [
        ("sending", "a_program_interrupts_itself"),
        ("sending", "a_program_interrupts_another_cpu"),
        ("notifications", "a_notification_ends_a_halt"),
    ] {
        passes(program, case, THREADS, WITH_THEM);
    }
}

/// The lockstep clock cannot be moved, so this is on the other one.
#[test]
fn state_is_kept_when_the_machine_moves() {
    let bench = self::bench();
    let state = bench.file();
    let command = |console: &NamedTempFile| {
        let case = "state_is_kept_when_the_machine_moves";
        bench.command("instructions", case, THREADS, WITH_THEM, console.path())
    };
    let console = bench.file();
    let mut from = Monitor::start(command(&console));
    from.wait_for(console.path(), "ready\n");
    from.say(&format!("migrate \"exec:cat >{}\"", state.path().display()));
    from.say_until("info migrate", "Migration status: completed");
    from.say("quit");
    from.end();

    let console = bench.file();
    let mut there = command(&console);
    there
        .arg("-incoming")
        .arg(format!("exec:cat {}", state.path().display()));
    let mut to = Monitor::start(there);
    to.say_until("info status", "VM status: running");
    to.say("nmi");
    to.end();
    assert_eq!(fs::read_to_string(console.path()).unwrap(), "passed\n");
}

/// The case prints when each interrupt was sent and taken.
#[test]
fn two_runs_take_each_interrupt_at_the_same_time() {
    let case = "an_interrupt_is_never_seen_before_it_is_sent";
    let times = || bench().run("time", case, LOCKSTEP, WITH_THEM);
    let first = times();
    assert_eq!(first.lines().count(), 41, "{first}");
    assert_eq!(first, times());
}
