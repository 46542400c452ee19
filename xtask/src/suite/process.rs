//! One process and its children, from start to end, whatever they do.
//!
//! ```text
//! starts ── ends ───────────────────► its status; what still holds its output
//!    │                                 two seconds later is killed, and told of
//!    ├───── is over its limit ──────► killed with its process group: hung
//!    └───── the runner is stopped ──► killed with its process group
//! ```
//!
//! Each process leads a process group, so its children end with it. The terminal's
//! interrupt does not reach such a group: `on_interrupt` passes it on.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// How long a process's output may stay open after its end.
const LEFT: Duration = Duration::from_secs(2);
/// How often a process is asked whether it has ended, at first and later.
const ASK: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// The kernel tells CPU time in such ticks, on every architecture that Rust knows.
const TICKS_PER_S: u64 = 100;

/// The groups that run.
static RUNNING: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
/// Set by an interrupt: nothing more is to start.
pub(super) static STOPPED: AtomicBool = AtomicBool::new(false);

/// How a process ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// `None` if it was killed here.
    pub(super) status: Option<ExitStatus>,
    /// A process of its group held the output after it had ended.
    pub(super) left_behind: bool,
    /// Both streams, in the order in which they were written.
    pub(super) printed: String,
    /// When each line was complete, from the start.
    pub(super) at: Vec<Duration>,
    pub(super) elapsed: Duration,
    /// The CPU time of the process and of those of its children that it waited for.
    pub(super) cpu: Duration,
}

/// Has every process that `run` has started killed when this one is told to end.
pub(super) fn on_interrupt() -> Result<()> {
    let set = ctrlc::set_handler(|| {
        STOPPED.store(true, Ordering::SeqCst);
        for group in running().iter() {
            kill(*group);
        }
    });
    match set {
        // One command runs several lots of tests.
        Err(ctrlc::Error::MultipleHandlers) => Ok(()),
        set => set.context("a handler of signals"),
    }
}

/// Runs a command to its end, or to the end of its time.
pub(super) fn run(command: &mut Command, limit: Duration) -> Result<Ended> {
    let (reader, writer) = io::pipe()?;
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .spawn()
        .with_context(|| format!("{:?}", command.get_program()))?;
    // The command holds the writing ends that the child was given.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let group = i32::try_from(child.id()).context("a process's number")?;
    running().insert(group);
    if STOPPED.load(Ordering::SeqCst) {
        // The interrupt came before the group was known.
        kill(group);
    }
    let (sender, chunks) = mpsc::channel();
    thread::spawn(move || read(reader, start, &sender));

    let mut output = Output::default();
    let mut ask = ASK[0];
    let mut hung = false;
    loop {
        match chunks.recv_timeout(ask) {
            Ok((at, bytes)) => output.add(at, &bytes),
            // Its output is closed; it ends at once, or does not.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(ask),
            Err(RecvTimeoutError::Timeout) => {}
        }
        ask = (ask * 2).min(ASK[1]);
        if start.elapsed() > limit && !hung {
            hung = true;
            kill(group);
        }
        // What it has used can be read for as long as nobody has asked for its status.
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if waitid(Id::Pid(Pid::from_raw(group)), flags)? != WaitStatus::StillAlive {
            break;
        }
    }
    let elapsed = start.elapsed();
    let cpu = cpu_time(group);
    let status = Some(child.wait()?);
    let end = Instant::now() + LEFT;
    let mut left_behind = false;
    loop {
        match chunks.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok((at, bytes)) => output.add(at, &bytes),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                left_behind = true;
                kill(group);
                break;
            }
        }
    }
    running().remove(&group);
    Ok(Ended {
        status: status.filter(|_| !hung),
        left_behind,
        printed: String::from_utf8_lossy(&output.bytes).into_owned(),
        at: output.at,
        elapsed,
        cpu,
    })
}

/// What a process and its children have used, as far as the kernel tells.
fn cpu_time(process: i32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    cpu_time_in(&stat)
}

/// The same from `/proc/PID/stat`: the sum of its fields 14 to 17, in ticks.
fn cpu_time_in(stat: &str) -> Duration {
    // The second field may contain anything, also blanks and parentheses.
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields = after_name.split(' ').skip(11).take(4);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_S)
}

fn running() -> std::sync::MutexGuard<'static, BTreeSet<i32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kill(group: i32) {
    // Fails only if nothing of the group is left.
    let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
}

type Chunk = (Duration, Vec<u8>);

/// Sends what comes until there is no more.
fn read(mut pipe: impl Read, start: Instant, sender: &mpsc::Sender<Chunk>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                let chunk = (start.elapsed(), buffer[..count].to_vec());
                if sender.send(chunk).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    at: Vec<Duration>,
}

impl Output {
    fn add(&mut self, at: Duration, bytes: &[u8]) {
        let lines = bytes.iter().filter(|&&byte| byte == b'\n');
        self.at.extend(lines.map(|_| at));
        self.bytes.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Ended {
        run(Command::new("sh").args(["-c", script]), limit).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn status_and_both_streams_are_kept() {
        let ended = sh("echo out; echo err >&2; exit 7", LONG);
        assert_eq!(ended.status.unwrap().code(), Some(7));
        assert_eq!(ended.printed, "out\nerr\n");
        assert_eq!(ended.at.len(), 2);
        assert!(!ended.left_behind);
    }

    #[test]
    fn process_over_its_limit_is_killed_with_its_children() {
        let start = Instant::now();
        let ended = sh(
            "sleep 1000 & echo $!; sleep 1000",
            Duration::from_millis(200),
        );
        assert!(ended.status.is_none());
        assert!(start.elapsed() < Duration::from_secs(20));
        let child = ended.printed.trim().parse().unwrap();
        let gone = || nix::sys::signal::kill(Pid::from_raw(child), None).is_err();
        // Whoever inherits it may take a moment to collect it.
        let end = Instant::now() + Duration::from_secs(10);
        while !gone() && !is_zombie(child) {
            assert!(Instant::now() < end, "{child} is still there");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_zombie(process: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    }

    #[test]
    fn what_a_process_leaves_behind_is_found_and_ended() {
        let ended = sh("sleep 1000 & exit 0", LONG);
        assert!(ended.left_behind);
        assert!(ended.status.unwrap().success());
    }

    #[test]
    fn cpu_time_is_that_of_the_process_and_its_children() {
        let stat = "7 (a) b) c) Z 1 7 7 0 -1 4 0 0 0 0 10 20 30 40 20 0 1 0 99";
        assert_eq!(cpu_time_in(stat), Duration::from_secs(1));
        assert_eq!(cpu_time_in(""), Duration::ZERO);
        let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let ended = sh(&format!("sh -c '{busy}'; exit 0"), LONG);
        assert!(ended.cpu > Duration::ZERO, "{ended:?}");
        assert!(ended.cpu <= ended.elapsed * 2, "{ended:?}");
    }

    #[test]
    fn program_that_is_not_there_is_an_error() {
        let error = run(&mut Command::new("/no/such/program"), LONG).unwrap_err();
        assert!(error.to_string().contains("/no/such/program"), "{error}");
    }
}
