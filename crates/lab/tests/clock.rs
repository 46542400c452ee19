//! The lockstep clock is valid: `docs/design/clock.md` states the claims, these show them.
//!
//! The bounds are those a measurement needs. A busy neighbour that slows a CPU
//! by one per cent would be taken for a scheduler's fault, and a wake-up that
//! is late by more than a few quanta for its merit.

mod said;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use giveway_lab::{Clock, Job, Lab, LabSpec, Machine, Silent};

const CPUS: u32 = 6;
const QUANTUM_NS: u32 = 10_000;

fn lab() -> Lab {
    Lab::open(&LabSpec::default(), &Silent).unwrap()
}

fn machine(seed: u64) -> Machine {
    Machine {
        cpus: CPUS,
        clock: Clock::LOCKSTEP,
        seed,
        timeout: Duration::from_secs(1800),
        ..Machine::default()
    }
}

/// A pinned loop's own CPU time, with 0 to N-1 busy neighbours.
#[test]
fn a_loop_takes_the_same_cpu_time_whatever_its_neighbours_do() {
    let script = r#"
        loop='i=0; while [ $i -lt 8000 ]; do i=$((i+1)); done; read ns rest </proc/$$/schedstat; echo $ns'
        sleep 0.5
        for neighbours in 0 1 2 3 4 5; do
            pids=
            cpu=0
            while [ $cpu -lt $neighbours ]; do
                taskset -c $cpu sh -c 'while :; do :; done' &
                pids="$pids $!"
                cpu=$((cpu+1))
            done
            sleep 0.05
            taskset -c 5 sh -c "$loop"
            [ -z "$pids" ] || kill $pids
            wait
        done"#;
    let times: Vec<f64> = said::lines(&lab(), &machine(1), &Job::script(script))
        .iter()
        .map(|line| line.parse().unwrap())
        .collect();
    println!("CPU time of the loop with 0 to 5 busy neighbours, ns: {times:?}");
    assert_eq!(times.len(), 6);
    let (low, high) = times
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), &time| {
            (low.min(time), high.max(time))
        });
    assert!(
        high / low <= 1.01,
        "the loop's CPU time differs by {:.2} %",
        (high / low - 1.0) * 100.0
    );
}

/// cyclictest's wake-ups, idle and with every CPU but its own busy. Now and then one
/// shares its interrupt with the guest's own tick and the soft interrupts after it,
/// which is the guest's work and not the clock's lateness, and differs by the image: so
/// a few may be later.
#[test]
fn wakeups_are_within_three_quanta_idle_and_loaded() {
    const WAKEUPS: u32 = 3000;
    const LATE_MAX: u32 = WAKEUPS / 200;
    let script = r#"
        measure() {
            cyclictest -q -m -t1 -a5 -p99 -i1000 -l WAKEUPS -h 200 | awk '
                /^[0-9]/ { all += $2; if ($1 > BOUND) late += $2 }
                /Overflows/ { all += $4; late += $4 }
                END { print all, late + 0 }'
        }
        sleep 1
        measure
        pids=
        for cpu in 0 1 2 3 4; do taskset -c $cpu sh -c 'while :; do :; done' & pids="$pids $!"; done
        sleep 0.2
        measure
        kill $pids"#;
    let bound_us = 3 * QUANTUM_NS / 1000;
    let script = script
        .replace("WAKEUPS", &WAKEUPS.to_string())
        .replace("BOUND", &bound_us.to_string());
    let counts = said::lines(&lab(), &machine(1), &Job::script(script));
    println!("wake-ups, and those later than {bound_us} us, idle and loaded: {counts:?}");
    assert_eq!(counts.len(), 2);
    for count in &counts {
        let (all, late) = count.split_once(' ').unwrap();
        assert_eq!(all.parse(), Ok(WAKEUPS));
        let late: u32 = late.parse().unwrap();
        assert!(
            late <= LATE_MAX,
            "{late} wake-ups are later than {bound_us} us"
        );
    }
}

/// Everything a guest can see of a run: messages with their times, interrupt
/// counts, scheduling statistics, a program whose threads race.
const TELLTALE: &str = r#"
    hackbench -g 2 -l 200
    cat /proc/uptime /proc/interrupts /proc/schedstat
    dmesg
    head -c 16 /dev/urandom | od -x"#;

#[test]
fn the_same_seed_repeats_a_run_exactly_and_another_seed_does_not() {
    let lab = lab();
    let job = Job::script(TELLTALE);
    let first = said::repeated(&lab, &machine(1), &job);
    let other = said::lines(&lab, &machine(2), &job);
    assert_ne!(first, other, "another seed made no difference");
}

/// The kinds of lock that `clock_probe` knows.
const KINDS: [&str; 4] = ["ticket", "mcs", "futex", "kernel"];

/// What `clock_probe lock` says of one kind of lock.
#[derive(Debug)]
struct Contention {
    kind: String,
    early: u64,
    held: f64,
    turns: f64,
}

impl Contention {
    fn read(line: &str) -> Contention {
        let word = |name: &str| {
            let mut words = line.split(' ').filter_map(|word| word.split_once('='));
            let found = words.find(|(key, _)| *key == name);
            found.map_or_else(|| panic!("{line}"), |(_, value)| value.to_owned())
        };
        Contention {
            kind: word("kind"),
            early: word("early").parse().unwrap(),
            held: word("held").parse().unwrap(),
            turns: word("turns").parse().unwrap(),
        }
    }
}

/// Each kind of lock, with a thread on each of `cpus` CPUs.
fn contention(lab: &Lab, probe: &Path, cpus: u32, quantum_ns: u32) -> Vec<Contention> {
    let machine = Machine {
        cpus,
        clock: Clock::LOCKSTEP.with_quantum(quantum_ns),
        ..machine(1)
    };
    let script = KINDS.map(|kind| format!("./clock_probe lock {kind} {cpus}"));
    let script = script.join("\n");
    let job = Job::script(script).file(probe, "clock_probe");
    let lines = said::lines(lab, &machine, &job);
    let kinds: Vec<Contention> = lines.iter().map(|line| Contention::read(line)).collect();
    println!("{cpus} CPUs, quantum {quantum_ns} ns: {kinds:?}");
    kinds
}

/// A lock excludes in virtual time too, and the quantum is not seen in it.
fn locks_exclude(cpus: u32) {
    let directory = tempfile::tempdir().unwrap();
    let probe = directory.path().join("clock_probe");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("qemu/clock_probe.c");
    let compiled = Command::new("cc")
        .args(["-O1", "-static", "-pthread", "-o"])
        .args([&probe, &source])
        .status()
        .unwrap();
    assert!(compiled.success());
    let lab = lab();
    let [coarse, fine] = [QUANTUM_NS, QUANTUM_NS / 10].map(|quantum_ns| {
        let locks = contention(&lab, &probe, cpus, quantum_ns);
        assert!(locks.iter().map(|lock| &lock.kind).eq(&KINDS));
        for lock in &locks {
            assert_eq!(lock.early, 0, "sections began early: {lock:?}");
            assert!(lock.held <= 1.0, "held longer than time passed: {lock:?}");
            assert!(lock.turns > 10_000.0, "hardly taken: {lock:?}");
        }
        locks
    });
    for (coarse, fine) in coarse.iter().zip(&fine) {
        let ratio = coarse.turns / fine.turns;
        assert!((ratio - 1.0).abs() <= 0.02, "{coarse:?} and {fine:?}");
    }
}

#[test]
fn locks_of_2_cpus_exclude_whatever_the_quantum() {
    locks_exclude(2);
}

#[test]
fn locks_of_4_cpus_exclude_whatever_the_quantum() {
    locks_exclude(4);
}

#[test]
fn locks_of_16_cpus_exclude_whatever_the_quantum() {
    locks_exclude(16);
}

#[test]
fn locks_of_64_cpus_exclude_whatever_the_quantum() {
    locks_exclude(64);
}
