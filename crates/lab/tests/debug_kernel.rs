//! A kernel that finds faults in itself (KASAN, PROVE_LOCKING, torture) over the locks of
//! `kernel/cfl` and the module of `kernel/uintr`: `make test-debug-kernel`.
//!
//! Its first run builds the kernel, which takes half an hour on two cores. Not among the
//! tests that cargo runs unasked (`test = false` in Cargo.toml).
//!
//! The torture is built in, since this kernel has no modules, and begins at boot: guests
//! that do not want it name a type that it does not know. A guest that the kernel finds a
//! fault in has failed. `GIVEWAY_TORTURE_SECONDS=3600` tortures for an hour of the guest's
//! clock, which takes a day.

mod programs;

use std::time::Duration;

use giveway_lab::{Clock, Job, Lab, LabSpec, Lines, Machine};

use programs::{FAULTS, RULES, holders, rules};

/// Seconds of a torture, of the guest's clock.
fn seconds() -> u32 {
    let given = std::env::var("GIVEWAY_TORTURE_SECONDS").ok();
    given.map_or(15, |text| text.parse().unwrap())
}

fn machine(clock: Clock, torture: &str) -> Machine {
    Machine {
        cpus: 4,
        clock,
        user_interrupts: true,
        timeout: Duration::from_secs(2400),
        kernel_args: vec![
            format!("locktorture.torture_type={torture}"),
            "locktorture.stat_interval=5".to_owned(),
        ],
        ..Machine::default()
    }
}

/// Runs a script; it has to succeed, and the kernel to find no fault. Answers with its
/// lines and then the kernel's log.
fn run(machine: &Machine, script: &str) -> Vec<String> {
    let spec = LabSpec {
        series: Some("debug".to_owned()),
        ..LabSpec::default()
    };
    let lab = Lab::open(&spec, &Lines).unwrap();
    let script = format!("{script}\nstatus=$?; dmesg --color=never; exit $status");
    let job = Job::script(script)
        .file(rules(), "rules")
        .file(holders(), "guest");
    let mut lines = Vec::new();
    let outcome = lab
        .run(machine, &job, &mut |line| lines.push(line.to_owned()))
        .unwrap();
    let fault = |line: &&String| FAULTS.split('|').any(|fault| line.contains(fault));
    let faults: Vec<&String> = lines.iter().filter(fault).collect();
    assert!(
        outcome.status == 0 && faults.is_empty(),
        "{faults:#?}\n{}",
        lines.join("\n")
    );
    lines
}

/// Runs cases of user interrupts one after the other.
fn pass(clock: Clock, cases: &[&str]) {
    let commands: Vec<String> = cases.iter().map(|case| format!("./rules {case}")).collect();
    let lines = run(&machine(clock, "none"), &commands.join(" && "));
    let passed = lines.iter().filter(|line| line.starts_with("passed "));
    assert_eq!(passed.count(), cases.len(), "{lines:#?}");
}

#[test]
fn user_interrupts_keep_their_rules() {
    pass(Clock::LOCKSTEP, &RULES);
}

#[test]
fn storms_of_user_interrupts_leave_no_trace() {
    let cases = [
        "nothing_is_lost_while_the_receiver_migrates 20000",
        "the_last_of_many_sends_is_seen 200000",
        "receivers_come_and_go 500",
    ];
    // A round of random calls has a fifth of a second, which is too short for this kernel
    // on the host's clock.
    pass(
        Clock::LOCKSTEP,
        &[&cases[..], &["random_calls_break_nothing 20"]].concat(),
    );
    pass(
        Clock::Real,
        &[
            &cases[..],
            &["nothing_is_lost_while_cpus_come_and_go 20000"],
        ]
        .concat(),
    );
}

/// The kernel's own tests of locks, which run while it boots.
#[test]
fn the_kernel_s_own_tests_of_locks_pass() {
    let lines = run(&machine(Clock::LOCKSTEP, "none"), "true");
    for said in ["testcases passed", "All ww mutex selftests passed"] {
        assert!(
            lines.iter().any(|line| line.contains(said)),
            "{said}: {}",
            lines.join("\n")
        );
    }
}

/// What a torture of one kind of lock counted, with the classes that are named scheduled.
fn torture(kind: &str, classes: &str) {
    let mut machine = machine(Clock::LOCKSTEP, kind);
    if !classes.is_empty() {
        machine.kernel_args.push(format!("cfl={classes}"));
    }
    let lines = run(&machine, &format!("sleep {}", seconds()));
    // "…-torture: Writes:  Total: N  Max/Min: N/N   Fail: 0"
    let counts = |line: &&String| line.contains("Writes:") && line.contains("Total:");
    let last = lines.iter().rfind(counts);
    let last = last.unwrap_or_else(|| panic!("{kind} counts: {}", lines.join("\n")));
    println!("{kind} {classes}: {last}");
    let total = last.split("Total: ").nth(1).unwrap();
    let total: u64 = total.split_whitespace().next().unwrap().parse().unwrap();
    assert!(total > 1000 && last.contains("Fail: 0"), "{last}");
}

#[test]
fn torture_of_plain_locks() {
    for kind in [
        "spin_lock_irq",
        "ww_mutex_lock",
        "rtmutex_lock",
        "rwsem_lock",
    ] {
        torture(kind, "");
    }
}

#[test]
fn torture_of_a_scheduled_spinlock() {
    torture("spin_lock", "locktorture_spin");
}

#[test]
fn torture_of_a_scheduled_mutex() {
    torture("mutex_lock", "locktorture_mutex");
}

/// Runs a mode of the guest's program with each lock, whose class is on.
fn with_each_lock(mode: &str, arguments: &str) {
    let class = "/sys/kernel/debug/cfl/classes/cfl_test";
    for (lock, class) in [
        ("mutex", class.to_owned()),
        ("spin", format!("{class}_spin")),
    ] {
        let script = format!("echo 1 >{class} && ./guest {mode} {lock} {arguments}");
        run(&machine(Clock::LOCKSTEP, "none"), &script);
    }
}

/// The program of the guest's, which also interrupts, moves and switches.
#[test]
fn threads_that_do_everything_at_once() {
    with_each_lock("torture", "3 1");
}

/// What a census remembers of a cgroup must not outlast it.
#[test]
fn cgroups_that_are_removed_while_others_wait() {
    with_each_lock("removed", "2");
}
