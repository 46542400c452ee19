//! The kernel whose locks are scheduled (`docs/design/cfl-kernel.md`): `make
//! test-cfl-kernel`.
//!
//! Its first run builds the kernel, which takes twenty minutes on two cores. Not among the
//! tests that cargo runs unasked (`test = false` in Cargo.toml).
//!
//! Shares are measured on the lockstep clock: with it they are the same in every run.

mod programs;

use std::time::Duration;

use giveway_lab::{Clock, Job, Lab, LabSpec, Lines, Machine};

use programs::{FAULTS, holders};

/// A lock of the kernel that programs hold for as long as they say.
#[derive(Clone, Copy)]
struct Lock {
    /// As the program of the guest names it.
    name: &'static str,
    /// Where its class is switched.
    class: &'static str,
}

const MUTEX: Lock = Lock {
    name: "mutex",
    class: "/sys/kernel/debug/cfl/classes/cfl_test",
};
const SPIN: Lock = Lock {
    name: "spin",
    class: "/sys/kernel/debug/cfl/classes/cfl_test_spin",
};

/// Hold times by weight differ by at most this from what the weights say.
const WITHIN: f64 = 0.03;

fn lab() -> Lab {
    let spec = LabSpec {
        series: Some("cfl".to_owned()),
        ..LabSpec::default()
    };
    Lab::open(&spec, &Lines).unwrap()
}

fn machine(clock: Clock) -> Machine {
    Machine {
        cpus: 8,
        clock,
        timeout: Duration::from_secs(1800),
        ..Machine::default()
    }
}

/// Runs a script beside the program; answers with its lines. It has to succeed.
fn run(machine: &Machine, script: &str) -> Vec<String> {
    let job = Job::script(script).file(holders(), "guest");
    let mut lines = Vec::new();
    let outcome = lab()
        .run(machine, &job, &mut |line| lines.push(line.to_owned()))
        .unwrap();
    assert_eq!(outcome.status, 0, "{lines:#?}");
    lines
}

/// What the threads of each cgroup held in the window, in ns, with the class switched so.
fn held(lock: Lock, enabled: bool, seconds: f64, groups: &str) -> Vec<f64> {
    held_after("true", lock, enabled, seconds, groups)
}

/// The same after a command.
fn held_after(first: &str, lock: Lock, enabled: bool, seconds: f64, groups: &str) -> Vec<f64> {
    let (on, Lock { name, class }) = (u8::from(enabled), lock);
    let script =
        format!("{first} && echo {on} >{class} && ./guest shares {name} {seconds} {groups}");
    let lines = run(&machine(Clock::LOCKSTEP), &script);
    println!("{name}, {groups}\n{}", lines.join("\n"));
    assert!(lines.contains(&"violations 0".to_owned()), "{lines:#?}");
    let names = groups
        .split_whitespace()
        .map(|group| group.split(':').next().unwrap());
    let of = |name: &str| {
        let line = lines.iter().find_map(|line| line.strip_prefix(name));
        line.unwrap().split_whitespace().nth(2).unwrap().parse()
    };
    names.map(|name| of(name).unwrap()).collect()
}

fn assert_ratio(held: &[f64], expected: f64) {
    let ratio = held[0] / held[1];
    assert!(
        (ratio / expected - 1.0).abs() < WITHIN,
        "{held:?} is {ratio:.3}, not {expected}"
    );
}

#[test]
fn the_controller_is_there_and_a_class_is_off_until_it_is_named() {
    let class = MUTEX.class;
    let script = format!(
        "set -e
         cd /sys/fs/cgroup; grep -qw lock cgroup.controllers
         echo +lock >cgroup.subtree_control; mkdir a
         cat a/lock.weight; echo 10000 >a/lock.weight; cat a/lock.weight
         for refused in 0 10001 x; do ! echo $refused >a/lock.weight || exit 1; done
         cat a/lock.stat
         cat {class} /sys/kernel/debug/cfl/classes/s_vfs_rename_mutex
         echo 1000 >/sys/kernel/debug/cfl_test/hold
         grep acquisitions a/lock.stat
         echo $$ >a/cgroup.procs; echo 1 >{class}
         echo 1000 >/sys/kernel/debug/cfl_test/hold
         grep acquisitions a/lock.stat"
    );
    let named = Machine {
        kernel_args: vec!["cfl=other,s_vfs_rename_mutex".to_owned()],
        ..machine(Clock::Real)
    };
    let lines = run(&named, &script);
    let expected = [
        "100",
        "10000",
        "acquisitions 0",
        "contended 0",
        "wait_ns 0",
        "hold_ns 0",
        "vlht_ns 0",
        "0",
        "1",
        "acquisitions 0",
        "acquisitions 1",
    ];
    let said: Vec<&String> = lines.iter().filter(|line| !line.contains("rror")).collect();
    assert_eq!(said, expected);
}

#[test]
fn a_plain_mutex_does_not_heed_weights() {
    // Nothing is counted: only a mutex whose class is on has accounts.
    assert_eq!(
        held(MUTEX, false, 0.1, "a:200:4:20000 b:100:4:20000"),
        [0.0, 0.0]
    );
}

#[test]
fn hold_time_is_equal_whatever_the_threads_and_their_holds() {
    assert_ratio(&held(MUTEX, true, 0.5, "a:100:2:20000 b:100:10:60000"), 1.0);
}

#[test]
fn hold_time_is_as_2_to_1() {
    assert_ratio(&held(MUTEX, true, 0.5, "a:200:4:20000 b:100:8:60000"), 2.0);
}

#[test]
fn hold_time_is_as_8_to_1() {
    assert_ratio(&held(MUTEX, true, 1.0, "a:800:4:20000 b:100:8:20000"), 8.0);
}

#[test]
fn hold_time_is_as_100_to_1() {
    assert_ratio(
        &held(MUTEX, true, 2.0, "a:10000:4:20000 b:100:8:20000"),
        100.0,
    );
}

#[test]
fn weights_of_nested_cgroups_divide_what_their_parent_gets() {
    let held = held(
        MUTEX,
        true,
        0.5,
        "p/a:300:3:20000 p/b:100:5:20000 c:100:4:20000",
    );
    assert_ratio(&[held[0], held[1]], 3.0);
    assert_ratio(&[held[0] + held[1], held[2]], 1.0);
}

#[test]
fn threads_of_a_cgroup_are_equal_without_groups_too() {
    // Twelve equal threads, eight of them in one cgroup, that groups are not asked for.
    let class = MUTEX.class;
    let script = format!(
        "echo 0 >/sys/kernel/debug/cfl/groups; echo 1 >{class}
         ./guest shares mutex 0.5 a:100:4:20000 b:100:8:60000"
    );
    let lines = run(&machine(Clock::LOCKSTEP), &script);
    let of = |at: usize| -> f64 {
        lines[at]
            .split_whitespace()
            .nth(3)
            .unwrap()
            .parse()
            .unwrap()
    };
    assert_ratio(&[of(1), of(0)], 2.0);
}

#[test]
fn a_plain_spinlock_does_not_heed_weights() {
    let held = held(SPIN, false, 0.1, "a:200:4:20000 b:100:4:20000");
    assert_eq!(held, [0.0, 0.0]);
}

#[test]
fn hold_time_of_a_spinlock_is_equal_whatever_the_threads_and_their_holds() {
    // Six threads on eight CPUs: a waiter never has to wait for a CPU.
    let held = held(SPIN, true, 0.3, "a:100:2:20000 b:100:4:60000");
    assert_ratio(&held, 1.0);
}

#[test]
fn hold_time_of_a_spinlock_is_as_2_to_1() {
    assert_ratio(&held(SPIN, true, 0.3, "a:200:3:20000 b:100:4:20000"), 2.0);
}

#[test]
fn hold_time_of_a_spinlock_is_as_8_to_1() {
    assert_ratio(&held(SPIN, true, 0.5, "a:800:3:20000 b:100:4:20000"), 8.0);
}

#[test]
fn hold_time_of_a_spinlock_heeds_weights_with_holds_of_2_us() {
    assert_ratio(&held(SPIN, true, 0.2, "a:200:3:2000 b:100:4:2000"), 2.0);
}

/// What a mode of the program says at last, with the class on, by the words before.
fn said<const N: usize>(lock: Lock, mode: &str, names: [&str; N]) -> [u64; N] {
    said_of(lock, mode, "", names)
}

/// The same of a mode with arguments.
fn said_of<const N: usize>(lock: Lock, mode: &str, more: &str, names: [&str; N]) -> [u64; N] {
    let Lock { name, class } = lock;
    let script = format!("echo 1 >{class} && ./guest {mode} {name} {more}");
    let lines = run(&machine(Clock::LOCKSTEP), &script);
    names.map(|name| {
        let line = lines.iter().find_map(|line| line.strip_prefix(name));
        let number = line.unwrap_or_else(|| panic!("{name}: {lines:#?}"));
        number.trim().parse().unwrap()
    })
}

#[test]
fn a_hold_of_days_counts_for_a_second() {
    for lock in [MUTEX, SPIN] {
        let [acquisitions, hold_ns] = said(lock, "aged", ["acquisitions ", "hold_ns "]);
        assert_eq!((acquisitions, hold_ns), (1, 1_000_000_000));
    }
}

#[test]
fn a_hold_in_which_the_class_is_switched_is_not_charged() {
    // Nor is what was expected of it when it began, of 50 ms holds before.
    let fields = ["acquisitions ", "hold_ns ", "vlht_ns "];
    assert_eq!(said(MUTEX, "switched", fields), [0, 0, 0]);
}

#[test]
fn a_weight_written_in_a_hold_is_that_of_the_next_one() {
    // 420 ms, of which each counts for a hundredth.
    let [acquisitions, vlht_ns] = said(MUTEX, "reweighted", ["acquisitions ", "vlht_ns "]);
    assert_eq!(acquisitions, 9);
    assert!((4_100_000..4_700_000).contains(&vlht_ns), "{vlht_ns} ns");
}

#[test]
fn cgroups_are_removed_while_others_wait() {
    for lock in [MUTEX, SPIN] {
        let script = format!(
            "echo 1 >{} && ./guest removed {} 2; status=$?
             dmesg | grep -E '{FAULTS}' && exit 1; exit $status",
            lock.class, lock.name
        );
        println!("{:?}", run(&machine(Clock::LOCKSTEP), &script));
    }
}

#[test]
fn a_cgroup_that_holds_another_lock_leaves_shares_as_they_are() {
    for (lock, other) in [(MUTEX, SPIN), (SPIN, MUTEX)] {
        let script = format!("echo 1 >{}", other.class);
        let groups = format!("a:800:3:20000 b:100:3:20000 c:100:1:20000:{}", other.name);
        assert_ratio(&held_after(&script, lock, true, 0.5, &groups), 8.0);
    }
}

#[test]
fn a_cgroup_that_asks_for_little_leaves_shares_as_they_are() {
    // It is always behind both, and they are ahead of it by different amounts, which are
    // all that keeps their ratio. Ten milliseconds of virtual time are a second at its weight.
    // It comes once in eight holds or so: a ratio of 8 would not show the fault.
    let light = "x:10000:1:10000";
    for (lock, groups) in [
        (MUTEX, "a:1600:4:20000 b:100:8:20000"),
        (SPIN, "a:1600:3:20000 b:100:3:20000"),
    ] {
        let groups = format!("{groups} {light}:{}:200000", lock.name);
        assert_ratio(&held(lock, true, 0.5, &groups), 16.0);
    }
}

#[test]
fn two_cgroups_that_ask_for_little_leave_shares_as_they_are() {
    let groups =
        "a:1600:4:20000 b:100:8:20000 x:10000:1:10000:mutex:200000 y:10000:1:10000:mutex:300000";
    assert_ratio(&held(MUTEX, true, 0.5, groups), 16.0);
}

#[test]
fn a_new_cgroup_does_not_keep_others_waiting_for_what_they_held_before() {
    // Beside one that asks for little, which was taken for where the others are: then the
    // new one has the mutex alone for a quarter of a second. A wait of the absence that is
    // allowed, 24 ms on eight CPUs, is none of that.
    let names = ["n ", "longest_wait_ns "];
    let [acquisitions, longest_wait_ns] = said_of(MUTEX, "newcomer", "0.5", names);
    assert!(acquisitions > 1000, "{acquisitions}");
    assert!(longest_wait_ns < 50_000_000, "{longest_wait_ns} ns");
}

#[test]
fn a_low_weight_does_not_wait_for_a_spinlock_without_end() {
    // A millisecond at weight 1 is a hundred at weight 100 and ten seconds at 10000, for
    // which its waiter would spin. It is let in after ten milliseconds.
    let held = held(SPIN, true, 0.2, "a:1:1:1000000 b:10000:3:20000");
    assert!((8e6..24e6).contains(&held[0]), "{held:?}");
}

#[test]
fn hold_time_is_equal_among_hundreds_of_waiters() {
    assert_ratio(
        &held(MUTEX, true, 1.0, "a:100:40:20000 b:100:200:20000"),
        1.0,
    );
}

#[test]
fn cgroups_are_sixteen_deep_at_most() {
    let script = format!(
        "set -e
         cd /sys/fs/cgroup; echo +lock >cgroup.subtree_control
         for depth in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
             mkdir deeper; cd deeper; echo +lock >cgroup.subtree_control
         done
         ! mkdir deeper
         echo -lock >cgroup.subtree_control; mkdir deeper; rmdir deeper
         echo $$ >cgroup.procs; echo 1 >{}
         echo 1000 >/sys/kernel/debug/cfl_test/hold
         grep acquisitions lock.stat /sys/fs/cgroup/deeper/lock.stat",
        MUTEX.class
    );
    let lines = run(&machine(Clock::Real), &script);
    let counted = |line: &&String| line.contains("acquisitions 1");
    assert_eq!(lines.iter().filter(counted).count(), 2, "{lines:#?}");
}

#[test]
fn torture_leaves_no_thread_behind_and_never_two_inside() {
    for seed in 1..=3 {
        let script = format!("echo 1 >{}; ./guest torture mutex 20 {seed}", MUTEX.class);
        println!("{:?}", run(&machine(Clock::Real), &script));
    }
}

#[test]
fn torture_of_a_spinlock_leaves_no_thread_behind_and_never_two_inside() {
    // In turns: a queue of spinning CPUs does not go on while the host runs others. And
    // without the hypervisor's flag, so that plain callers queue too.
    for seed in 1..=3 {
        let alone = Machine {
            seed,
            kernel_args: vec!["clearcpuid=hypervisor".to_owned()],
            ..machine(Clock::LOCKSTEP)
        };
        let script = format!("echo 1 >{}; ./guest torture spin 2 {seed}", SPIN.class);
        println!("{:?}", run(&alone, &script));
    }
}
