//! Guests end in every way a guest can, and the host hears of it.
//!
//! These boot real guests, most of them on the `real` clock; the first run on a machine
//! makes the lab first.

mod said;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use giveway_lab::{Clock, Job, Lab, LabError, LabSpec, Machine, Silent};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

fn machine() -> Machine {
    Machine {
        cpus: 2,
        clock: Clock::Real,
        timeout: Duration::from_secs(180),
        ..Machine::default()
    }
}

fn lab() -> Lab {
    Lab::open(&LabSpec::default(), &Silent).unwrap()
}

/// One guest at a time, so that a test that counts emulators counts its own.
fn alone() -> MutexGuard<'static, ()> {
    static GUESTS: Mutex<()> = Mutex::new(());
    GUESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many QEMU processes of this test process are running.
fn emulators() -> usize {
    let me = std::process::id().to_string();
    let output = std::process::Command::new("pgrep")
        .args(["-P", &me, "qemu-system"])
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).lines().count()
}

#[test]
fn status_output_and_files_come_back() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("input");
    std::fs::write(&input, "from the host").unwrap();
    let job = Job::script(
        "echo \"kernel $(uname -r)\"; cat input >/results/copy; id -u >/results/user; \
         cat /sys/kernel/sched_ext/state >/results/state; echo $WORD >&2; exit 7",
    )
    .file(&input, "input")
    .env("WORD", "two words");
    let lab = lab();
    let mut lines = Vec::new();
    let outcome = lab
        .run(&machine(), &job, &mut |line| lines.push(line.to_owned()))
        .unwrap();
    assert_eq!(outcome.status, 7);
    assert_eq!(
        lines,
        [
            format!("kernel {}", lab.kernel().release()),
            "two words".into()
        ]
    );
    assert_eq!(outcome.read("copy").unwrap(), b"from the host");
    assert_eq!(outcome.read("user").unwrap(), b"0\n");
    assert_eq!(outcome.read("state").unwrap(), b"disabled\n");
    assert!(outcome.read("never-written").is_err());
}

#[test]
fn cpus_sockets_threads_and_numa_nodes_are_as_asked() {
    let _alone = alone();
    let machine = Machine {
        cpus: 8,
        sockets: 2,
        threads: 2,
        numa_nodes: 2,
        ..machine()
    };
    let job = Job::script(
        "lscpu -p=CPU,SOCKET,CORE,NODE | grep -v '#'; ls -1d /sys/devices/system/node/node*",
    );
    let mut lines = Vec::new();
    let outcome = lab()
        .run(&machine, &job, &mut |line| lines.push(line.to_owned()))
        .unwrap();
    assert_eq!(outcome.status, 0);
    let expected = [
        "0,0,0,0",
        "1,0,0,0",
        "2,0,1,0",
        "3,0,1,0",
        "4,1,2,1",
        "5,1,2,1",
        "6,1,3,1",
        "7,1,3,1",
        "/sys/devices/system/node/node0",
        "/sys/devices/system/node/node1",
    ];
    assert_eq!(lines, expected);
}

/// What a program in the guest sees of the CPU, and whether the kernel keeps its vectors
/// while others use theirs.
const LOOK: &str = r#"
#include <cpuid.h>
#include <immintrin.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((target("avx2"))) static int keeps_vectors(int seed)
{
    __m256i vector = _mm256_set1_epi32(seed);

    for (int i = 0; i < 2000; i++) {
        __asm__ volatile("" : "+x"(vector));
        sched_yield();
    }
    return _mm256_extract_epi32(vector, 7) == seed;
}

int main(void)
{
    unsigned a, b, c, d, xsave;
    int status = 0, lost = 0;

    __cpuid_count(13, 1, xsave, b, c, d);
    __cpuid_count(7, 0, a, b, c, d);
    printf("%d %d\n", d >> 5 & 1, xsave >> 1 & 1);
    fflush(stdout);
    for (int i = 0; i < 8; i++) {
        if (fork() == 0) {
            _exit(!keeps_vectors(getpid()));
        }
    }
    while (wait(&status) > 0) {
        lost |= status;
    }
    return lost != 0;
}
"#;

#[test]
fn user_interrupts_are_there_for_who_asks() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("look.c");
    let program = dir.path().join("look");
    std::fs::write(&source, LOOK).unwrap();
    let compiled = std::process::Command::new("cc")
        .args(["-O1", "-static", "-o"])
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(compiled.success());
    let lab = lab();
    for (user_interrupts, expected) in [(true, "1 1"), (false, "0 0")] {
        let machine = Machine {
            user_interrupts,
            clock: Clock::LOCKSTEP,
            timeout: Duration::from_secs(1800),
            ..machine()
        };
        let job = Job::new(["./look"]).file(&program, "look");
        assert_eq!(said::lines(&lab, &machine, &job), [expected]);
    }
}

#[test]
fn a_kernel_panic_is_reported_with_the_last_console_lines() {
    let _alone = alone();
    let error = lab()
        .run(
            &machine(),
            &Job::script("echo c >/proc/sysrq-trigger"),
            &mut |_| {},
        )
        .unwrap_err();
    let LabError::GuestDied { reason, tail } = &error else {
        panic!("{error}")
    };
    assert!(
        reason.contains("Kernel panic - not syncing: sysrq triggered crash"),
        "{reason}"
    );
    assert!(tail.contains("sysrq_handle_crash"), "{tail}");
    assert_eq!(emulators(), 0);
}

#[test]
fn a_guest_that_hangs_is_stopped_and_nothing_is_left_running() {
    let _alone = alone();
    let machine = Machine {
        timeout: Duration::from_secs(25),
        ..machine()
    };
    // Makes what is missing of the lab, which takes minutes on a new machine.
    let lab = lab();
    let start = Instant::now();
    let error = lab
        .run(&machine, &Job::new(["sleep", "1000"]), &mut |_| {})
        .unwrap_err();
    assert!(matches!(error, LabError::Timeout { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(40));
    assert_eq!(emulators(), 0);
}

#[test]
fn a_disk_too_full_for_the_results_is_named() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: takes root, to mount a small disk");
        return;
    }
    let _alone = alone();
    let lab = lab();
    // A disk of the guest's devices alone: a thread can have its own mounts, and they
    // end with it.
    let said = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let none = None::<&str>;
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(none, "/", none, private, none).unwrap();
            let (disk, size) = (std::env::temp_dir(), Some("size=32m"));
            mount(Some("none"), &disk, Some("tmpfs"), MsFlags::empty(), size).unwrap();
            let job = Job::script("head -c 64M /dev/zero >/results/large");
            let ended = lab.run(&machine(), &job, &mut |_| {});
            ended.unwrap_err().to_string()
        });
        thread.join().unwrap()
    });
    assert!(said.contains("is full (remedy: free some space"), "{said}");
    assert_eq!(emulators(), 0);
}

#[test]
fn a_guest_that_powers_itself_off_is_not_taken_for_success() {
    let _alone = alone();
    let error = lab()
        .run(
            &machine(),
            &Job::script("echo o >/proc/sysrq-trigger; sleep 10"),
            &mut |_| {},
        )
        .unwrap_err();
    let LabError::GuestDied { reason, .. } = &error else {
        panic!("{error}")
    };
    assert!(
        reason.contains("before its job reported a status"),
        "{reason}"
    );
}
