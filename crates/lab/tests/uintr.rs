//! The kernel module of `kernel/uintr` keeps its rules, on the oldest and the newest
//! kernel that it is for.
//!
//! Each test runs cases of `kernel/uintr/tests`, in a guest whose CPUs have user
//! interrupts. `make test-uintr`: the first run makes two kernels' headers and the module
//! with each, which takes five minutes on two idle cores. Not among the tests that cargo
//! runs unasked (`test = false` in Cargo.toml).
//!
//! On the lockstep clock unless said otherwise: a case that fails does so each time.

mod programs;

use std::time::Duration;

use giveway_lab::{Clock, Job, Lab, LabSpec, Lines, Machine};

use programs::{FAULTS, RULES, repository, rules};

/// Debian's build of the oldest series, and the newest kernel there is.
const KERNELS: [Option<&str>; 2] = [Some("debian-6.12"), None];

fn machine(clock: Clock) -> Machine {
    Machine {
        cpus: 4,
        clock,
        user_interrupts: true,
        timeout: Duration::from_secs(1800),
        ..Machine::default()
    }
}

/// Runs a script on each kernel, with the module and the cases beside it; it has to
/// succeed. Answers with its lines.
fn run(machine: &Machine, script: &str) -> [Vec<String>; 2] {
    KERNELS.map(|series| {
        let spec = LabSpec {
            series: series.map(str::to_owned),
            ..LabSpec::default()
        };
        let lab = Lab::open(&spec, &Lines).unwrap();
        let modules = lab.module(&repository("kernel/uintr"), &Lines).unwrap();
        let job = Job::script(script)
            .file(modules.join("uintr.ko"), "uintr.ko")
            .file(rules(), "rules");
        let mut lines = Vec::new();
        let outcome = lab
            .run(machine, &job, &mut |line| lines.push(line.to_owned()))
            .unwrap();
        let release = lab.kernel().release();
        assert_eq!(outcome.status, 0, "{release}: {lines:#?}");
        lines
    })
}

/// Runs cases one after the other; each has to pass, and the kernel to find no fault.
fn pass(clock: Clock, cases: &[&str]) {
    let script = cases
        .iter()
        .fold("busybox insmod ./uintr.ko\n".to_owned(), |all, case| {
            all + &format!("./rules {case} || {{ dmesg | tail -n 40; exit 1; }}\n")
        });
    let script = script + &format!("! dmesg | grep -E '{FAULTS}'");
    for lines in run(&machine(clock), &script) {
        let passed = lines
            .iter()
            .filter(|line| line.starts_with("passed "))
            .count();
        assert_eq!(passed, cases.len(), "{lines:#?}");
    }
}

#[test]
fn each_rule_holds() {
    pass(Clock::LOCKSTEP, &RULES);
}

#[test]
fn each_rule_holds_on_cpus_that_run_at_once() {
    pass(Clock::Real, &RULES);
}

#[test]
fn nothing_is_lost_in_storms_with_migration() {
    pass(
        Clock::LOCKSTEP,
        &[
            "nothing_is_lost_while_the_receiver_migrates 20000",
            "the_last_of_many_sends_is_seen 200000",
            "receivers_come_and_go 500",
            "random_calls_break_nothing 20",
        ],
    );
}

#[test]
fn nothing_is_lost_while_cpus_come_and_go() {
    pass(
        Clock::Real,
        &["nothing_is_lost_while_cpus_come_and_go 20000"],
    );
}

#[test]
fn it_is_not_unloaded_while_anybody_uses_it_and_loads_again() {
    let script = format!(
        "set -e
         for turn in 1 2 3; do
             busybox insmod ./uintr.ko
             ./rules a_thread_interrupts_itself
             ./rules unloading_is_refused_while_anybody_uses_it
             busybox insmod ./uintr.ko
             ./rules unloading_leaves_nothing_of_processes_that_live_on
         done
         ! dmesg | grep -E '{FAULTS}'"
    );
    run(&machine(Clock::LOCKSTEP), &script);
}

/// What a program gains by not entering the kernel: the clock counts instructions, and
/// notices an interrupt a quantum late at most, here 250 instructions.
#[test]
fn sends_arrive_within_a_thousand_instructions_and_before_signals() {
    let fine = machine(Clock::LOCKSTEP.with_quantum(1_000));
    for lines in run(&fine, "busybox insmod ./uintr.ko && ./rules latency 5000") {
        println!("{}", lines.join("\n"));
        // "uintr p50 N p99 N max N instructions"
        let p99 = |name: &str| -> u64 {
            let line = lines.iter().find(|line| line.starts_with(name));
            line.unwrap().split(' ').nth(4).unwrap().parse().unwrap()
        };
        let (interrupts, signals) = (p99("uintr"), p99("signal"));
        assert!(interrupts <= 1000, "{interrupts} instructions");
        assert!(
            interrupts < signals,
            "{interrupts} and {signals} instructions"
        );
    }
}

#[test]
fn a_cpu_without_user_interrupts_is_named() {
    let without = Machine {
        user_interrupts: false,
        ..machine(Clock::LOCKSTEP)
    };
    let script = "! busybox insmod ./uintr.ko; dmesg | grep uintr:; ! test -e /dev/uintr";
    for lines in run(&without, script) {
        let said = lines.join("\n");
        assert!(said.contains("the CPU has no user interrupts"), "{said}");
    }
}

#[test]
fn page_table_isolation_is_named() {
    let isolated = Machine {
        // The lab turns all of its kin off.
        kernel_args: ["mitigations=auto", "pti=on"].map(String::from).to_vec(),
        ..machine(Clock::LOCKSTEP)
    };
    let script = "! busybox insmod ./uintr.ko; dmesg | grep uintr:; ! test -e /dev/uintr";
    for lines in run(&isolated, script) {
        let said = lines.join("\n");
        assert!(said.contains("boot with nopti"), "{said}");
    }
}
