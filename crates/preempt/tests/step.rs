//! Preemption at every instruction.
//!
//! A child process does something in which a request must not come at the wrong
//! time: opens and closes a region, passes a poll point, switches, allocates, or
//! is in the middle of a handler. Its worker is the thread that is traced. For
//! each instruction in turn, the parent single-steps the worker there, has
//! another thread of the child send a request, and lets go. At the end of each
//! pass, the child looks whether everything is as it has to be: the request was
//! taken exactly once, the result of the work is right, no region is open.
//!
//! ```text
//! parent                              child: worker              child: helper
//! waits for the mark                  int3
//! steps k instructions                works, step by step
//! writes a level                      stopped                    preempt(level)
//! passes SIGURG on, waits             goes on, is preempted
//! waits for the mark                  int3
//! k + 1                               checks
//! ```
//!
//! Steps cost 10 µs each, and passes have hundreds, in unoptimised programs
//! thousands. Passes at all instructions are made with `GIVEWAY_STEP_ALL=1`, best
//! with `--release`; without it, at as many as fit in a time, chosen at random.
#![cfg(target_arch = "x86_64")]

#[path = "common/mod.rs"]
mod common;

use std::alloc::System;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::Random;
use giveway_preempt::{self as preempt, Delivery, Level, RegionAlloc, RegionMutex, Remote, Worker};

#[global_allocator]
static ALLOCATOR: RegionAlloc<System> = RegionAlloc(System);

const HIGH: Level = Level::new(1);
const TOP: Level = Level::new(2);

/// What the child does between its marks.
#[derive(Clone, Copy)]
struct Scene {
    name: &'static str,
    act: fn(),
    /// Requested at the first mark already, so that stepping goes through the
    /// handler.
    first: Option<Level>,
    /// Requested at the instruction that was stepped to.
    then: Level,
}

static SCENES: [Scene; 8] = [
    Scene {
        name: "region",
        act: || drop(preempt::region()),
        first: None,
        then: HIGH,
    },
    Scene {
        name: "nested-regions",
        act: || {
            let outer = preempt::region();
            let inner = preempt::region();
            drop(outer);
            preempt::poll_point();
            drop(inner);
        },
        first: None,
        then: HIGH,
    },
    Scene {
        name: "poll-point",
        act: preempt::poll_point,
        first: None,
        then: HIGH,
    },
    Scene {
        name: "voluntary-switch",
        act: || assert!(preempt::yield_to(HIGH)),
        first: None,
        then: TOP,
    },
    Scene {
        name: "same-level",
        act: || assert!(preempt::yield_to(HIGH)),
        first: None,
        then: HIGH,
    },
    Scene {
        name: "mutex",
        act: || *SHARED.lock() += 1,
        first: None,
        then: HIGH,
    },
    Scene {
        name: "handler",
        act: work,
        first: Some(HIGH),
        then: TOP,
    },
    Scene {
        name: "top-handler",
        act: work,
        first: Some(TOP),
        then: HIGH,
    },
];

/// Every level takes it.
static SHARED: RegionMutex<u64> = RegionMutex::new(0);
/// How often the two levels' bodies ran.
static RUNS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Something with a result, in registers.
fn work() {
    let mut sum = black_box(1.0f64);
    for i in 1..=black_box(3u32) {
        sum = sum * f64::from(i) + 0.5;
    }
    assert_eq!(sum, 11.0);
}

fn body(level: Level) {
    *SHARED.lock() += 1;
    work();
    RUNS[usize::from(level.get()) - 1].fetch_add(1, Relaxed);
}

/// The child: acts until it is killed.
fn act(name: &str) {
    let scene = SCENES.iter().find(|scene| scene.name == name);
    let scene = scene.expect("the parent names a scene");
    let worker = Worker::builder()
        .delivery(Delivery::Signal)
        .level("high", body)
        .level("top", body)
        .enter()
        .unwrap();
    let remote = worker.remote();
    std::thread::spawn({
        let remote = remote.clone();
        move || serve(&remote)
    });
    loop {
        let before = remote.counters();
        let runs = RUNS.each_ref().map(|runs| runs.load(Relaxed));
        mark();
        (scene.act)();
        mark();
        check(&remote, before.taken, runs);
    }
}

/// Everything that was requested in this pass was taken, and nothing is left.
fn check(remote: &Remote, taken: u64, runs: [u64; 2]) {
    // All acts keep to the program's own text, so that nothing has to wait for
    // another poll point.
    assert!(remote.outstanding().is_empty(), "{remote:?}");
    assert!(!preempt::in_region());
    assert_eq!(preempt::current_level(), Some(Level::BASE));
    let counters = remote.counters();
    assert_eq!(counters.requested, counters.taken, "{counters:?}");
    let ran: u64 = (0..2).map(|i| RUNS[i].load(Relaxed) - runs[i]).sum();
    let requested = counters.taken - taken;
    // A voluntary switch runs the body without a request.
    assert!(
        ran == requested || ran == requested + 1,
        "{ran} runs for {requested} requests"
    );
    let total: u64 = RUNS.iter().map(|runs| runs.load(Relaxed)).sum();
    assert!(*SHARED.lock() >= total);
}

/// The child's other thread: requests what the parent says.
fn serve(remote: &Remote) {
    let mut level = [0];
    while io::stdin().read_exact(&mut level).is_ok() {
        remote.preempt(Level::new(level[0]));
        let _ = io::stdout().write_all(&level);
        let _ = io::stdout().flush();
    }
}

/// Stops for the parent.
#[inline(always)]
fn mark() {
    // SAFETY: a trap that the parent steps over; nothing else changes.
    unsafe { std::arch::asm!("int3") };
}

/// Why a child stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// It has executed an instruction.
    Step,
    /// It is at a mark.
    Mark,
    /// SIGURG is about to be delivered.
    Request,
}

/// The parent's end of a child.
struct Traced {
    child: Child,
    pid: i32,
}

impl Traced {
    fn start(scene: &Scene) -> Traced {
        let mut command = Command::new(std::env::current_exe().expect("a program has a path"));
        command.env("GIVEWAY_STEP_SCENE", scene.name);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: one system call, between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            })
        };
        let child = command.spawn().expect("a child that may be traced");
        let pid = child.id() as i32;
        let traced = Traced { child, pid };
        assert_eq!(traced.wait(), Stop::Step, "stops at its first instruction");
        traced
    }

    /// Goes on, with a signal or 0.
    fn resume(&self, how: libc::c_uint, signal: i32) {
        // SAFETY: the child is stopped.
        let code = unsafe { libc::ptrace(how, self.pid, 0usize, signal as usize) };
        assert_eq!(code, 0, "{}", io::Error::last_os_error());
    }

    /// Why the child stops.
    fn wait(&self) -> Stop {
        let mut status = 0;
        // SAFETY: waits for a child of ours.
        let pid = unsafe { libc::waitpid(self.pid, &mut status, 0) };
        assert_eq!(pid, self.pid, "{}", io::Error::last_os_error());
        assert!(
            libc::WIFSTOPPED(status),
            "the child has ended: {status:#x}; its message is above"
        );
        match libc::WSTOPSIG(status) {
            libc::SIGURG => Stop::Request,
            libc::SIGTRAP if self.is_breakpoint() => Stop::Mark,
            libc::SIGTRAP => Stop::Step,
            signal => panic!("the child stops with signal {signal}"),
        }
    }

    /// Whether a trap was an int3, and not the end of a step.
    fn is_breakpoint(&self) -> bool {
        const SI_KERNEL: i32 = 0x80;
        // SAFETY: plain data, which the kernel fills; the child is stopped.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let code = libc::ptrace(libc::PTRACE_GETSIGINFO, self.pid, 0usize, &raw mut info);
            assert_eq!(code, 0, "{}", io::Error::last_os_error());
            info.si_code == SI_KERNEL
        }
    }

    /// Goes on, and passes requests on; how that ends.
    fn go(&self, how: libc::c_uint) -> Stop {
        let mut signal = 0;
        loop {
            self.resume(how, signal);
            match self.wait() {
                Stop::Request => signal = libc::SIGURG,
                stop => return stop,
            }
        }
    }

    /// Goes on to the next mark.
    fn run_to_mark(&self) {
        assert_eq!(self.go(libc::PTRACE_CONT), Stop::Mark);
    }

    /// Executes one instruction, or delivers a signal; false at a mark.
    fn step(&self) -> bool {
        self.go(libc::PTRACE_SINGLESTEP) == Stop::Step
    }

    /// Has the helper send a request.
    fn request(&mut self, level: Level) {
        let mut byte = [level.get()];
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        stdin
            .write_all(&byte)
            .and_then(|()| stdin.flush())
            .expect("the helper listens");
        let stdout = self.child.stdout.as_mut().expect("a pipe");
        stdout.read_exact(&mut byte).expect("the helper answers");
    }

    /// Begins a pass; the child is at the end of one.
    fn begin(&mut self, scene: &Scene) {
        self.run_to_mark();
        if let Some(level) = scene.first {
            self.request(level);
        }
    }

    /// How many instructions the act has, counted in a pass without a request.
    fn length(&mut self, scene: &Scene) -> u64 {
        // The first pass of all is longer than others.
        self.begin(scene);
        self.run_to_mark();
        self.begin(scene);
        let mut length = 0;
        while self.step() {
            length += 1;
        }
        length
    }

    /// One pass: the request comes before instruction `at`.
    fn pass(&mut self, scene: &Scene, at: u64) {
        self.begin(scene);
        for step in 0..at {
            assert!(self.step(), "a pass has more than {step} instructions");
        }
        self.request(scene.then);
        self.run_to_mark();
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps this process and its children on one CPU: handing over to another one,
/// twice a step, would take ten times as long.
fn stay_on_one_cpu() {
    // SAFETY: plain data, and system calls on the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Steps through one scene, in random order: how many passes were made, and how
/// many instructions the scene has.
fn step_through(scene: &Scene, random: &mut Random, budget: Option<Duration>) -> (usize, usize) {
    let mut traced = Traced::start(scene);
    let mut order: Vec<u64> = (0..traced.length(scene)).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    let start = Instant::now();
    for (passes, at) in order.iter().enumerate() {
        if budget.is_some_and(|budget| start.elapsed() > budget) {
            return (passes, order.len());
        }
        traced.pass(scene, *at);
    }
    (order.len(), order.len())
}

fn main() {
    if let Ok(name) = std::env::var("GIVEWAY_STEP_SCENE") {
        act(&name);
        return;
    }
    // `cargo test -- --list` and filters are for tests with names.
    if std::env::args().any(|arg| arg == "--list") {
        return;
    }
    stay_on_one_cpu();
    let all = std::env::var_os("GIVEWAY_STEP_ALL").is_some();
    let budget = (!all).then_some(Duration::from_secs(3));
    let mut random = Random::from_env("step", 21);
    for scene in &SCENES {
        let (passes, instructions) = step_through(scene, &mut random, budget);
        println!(
            "step {}: {passes} of {instructions} instructions ... ok",
            scene.name
        );
        assert!(instructions > 10, "the act has instructions");
    }
}
