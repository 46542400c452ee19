//! The real host: the kernel, and processes of ours.
//!
//! A scheduler's process is a child of ours. If we die, in whatever way, the kernel ends
//! it (`PR_SET_PDEATHSIG`) and so its scheduler: an unsupervised machine runs Linux's own
//! scheduler. What the process prints goes to a file; faults quote the end of it.
//! The kernel applies `PR_SET_PDEATHSIG` to the parent thread, not to the process: the
//! thread that made a [`System`] uses it and lives as long as the program.
//!
//! A scheduler with standby is kept *ready*: its process has loaded it, which is most of
//! a start, and attaches it when it reads a line. At another line it detaches it and is
//! ready again, so the scheduler is loaded once for all its turns:
//!
//! ```text
//!           started          "attach"               "leave"
//!   nothing ───────► loading ───────► the process ───────► ready, with the
//!                       │ "ready"     of spawn()            others that wait
//!                       └───────► ready ──────┘ ◄─────────────┘ "attach"
//! ```
//!
//! A process that ended on standby is not replaced: its turn begins with a start, whose
//! failure is recorded as any other. A scheduler that misbehaves is killed, not asked.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use giveway_machine::sched_ext::State;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::host::{Child, End, Host};
use crate::kernel::Kernel;
use crate::scheduler::{Machine, Scheduler};

/// How much of a log's end is read for last words.
const TAIL_BYTES: u64 = 4096;
/// A log that is longer is emptied: it lies in memory, where `/run` does.
const LOG_MAX: u64 = 4 << 20;
/// How long a process that was killed is waited for. One that waits inside the kernel ends
/// when that lets it; init reaps it then.
const DEATH_MAX: Duration = Duration::from_secs(1);
/// Between two looks whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// This machine.
#[derive(Debug)]
pub struct System {
    kernel: Kernel,
    machine: Machine,
    log: PathBuf,
    turn: Option<Turn>,
    ready: Vec<Ready>,
    /// So many logs of those that wait had a name.
    logs: u64,
}

impl System {
    /// This machine, with schedulers' output going to `log`.
    ///
    /// # Errors
    /// [`Error::File`] if the log cannot be written.
    pub fn new(log: &Path) -> Result<System> {
        File::create(log).map_err(Error::file("write", log))?;
        let root = Path::new("/");
        Ok(System {
            kernel: Kernel::new(root),
            machine: Machine::look(root),
            log: log.to_owned(),
            turn: None,
            ready: Vec::new(),
            logs: 0,
        })
    }

    /// How many wait loaded: those that have said so, by a line `ready`.
    pub fn ready(&self) -> usize {
        let has_said = |ready: &&Ready| says_ready(&ready.log);
        self.ready.iter().filter(has_said).count()
    }

    /// How many are to wait, and have not said that they are loaded.
    pub fn loading(&self) -> usize {
        self.ready.len() - self.ready()
    }

    /// The process of the scheduler that is in force, or on its way.
    pub fn process(&self) -> Option<i32> {
        self.turn.as_ref().map(|turn| turn.process.id() as i32)
    }

    /// Starts a process of this scheduler: to wait, if it can.
    fn start(&self, scheduler: &Scheduler, log: &Path) -> std::result::Result<Process, String> {
        let (program, options) = scheduler.command.split_first().ok_or("it has no command")?;
        let program = self
            .machine
            .find(program)
            .ok_or_else(|| format!("{program} is not installed ({})", scheduler.install))?;
        // Each writes at the end of it, which is at the beginning again when we empty it.
        let out = File::create(log).and_then(|_| OpenOptions::new().append(true).open(log));
        let out = out.map_err(|error| format!("{}: {error}", log.display()))?;
        let err = out.try_clone().map_err(|error| error.to_string())?;
        let input = match scheduler.standby.is_empty() {
            true => Stdio::null(),
            false => Stdio::piped(),
        };
        let mut command = Command::new(&program);
        command
            .args(options)
            .args(&scheduler.standby)
            .current_dir("/")
            .stdin(input)
            .stdout(out)
            .stderr(err)
            // A Ctrl-C at the terminal is for us: we end it in our order.
            .process_group(0);
        let parent = nix::unistd::getpid();
        // SAFETY: these are system calls and allocate nothing.
        unsafe {
            command.pre_exec(move || {
                set_pdeathsig(Signal::SIGKILL)?;
                // Ignored in what a shell runs in the background, and a program
                // may leave it so: it would never hear us.
                signal(Signal::SIGINT, SigHandler::SigDfl)?;
                // We may have died before the line above.
                if nix::unistd::getppid() != parent {
                    return Err(std::io::Error::from(std::io::ErrorKind::NotFound));
                }
                Ok(())
            });
        }
        command
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))
    }

    /// The process of this scheduler that waits, or is about to.
    fn take_ready(&mut self, scheduler: &Scheduler) -> Option<Process> {
        let at = self.ready.iter().position(|r| r.scheduler == *scheduler)?;
        let mut ready = self.ready.swap_remove(at);
        let runs = matches!(ready.process.try_wait(), Ok(None));
        // Its last words are looked for in the log of the one in force.
        if !runs || fs::rename(&ready.log, &self.log).is_err() {
            ready.give_up();
            return None;
        }
        Some(ready.process)
    }

    /// A name for the log of one that waits.
    fn new_log(&mut self) -> PathBuf {
        self.logs += 1;
        self.log.with_extension(format!("ready-{}", self.logs))
    }
}

/// The scheduler whose turn it is: in force, on its way there, or leaving.
#[derive(Debug)]
struct Turn {
    scheduler: Scheduler,
    process: Process,
    /// It was told to leave, and to wait for its next turn.
    is_dismissed: bool,
}

impl Turn {
    /// Tells one that can wait to come, or to leave; false if it cannot hear that.
    fn tell(&mut self, word: &str) -> bool {
        let input = self.process.stdin.as_mut();
        input.is_some_and(|input| writeln!(input, "{word}").is_ok())
    }
}

/// A scheduler that is loaded, or is about to be, and waits.
#[derive(Debug)]
struct Ready {
    scheduler: Scheduler,
    process: Process,
    log: PathBuf,
}

impl Ready {
    fn give_up(mut self) {
        // Nothing of it is in force: there is nothing to end in order.
        end(&mut self.process);
        let _ = fs::remove_file(&self.log);
    }
}

/// Kills a process, and reaps it if it ends soon.
fn end(process: &mut Process) {
    let _ = process.kill();
    let deadline = Instant::now() + DEATH_MAX;
    while matches!(process.try_wait(), Ok(None)) && Instant::now() < deadline {
        thread::sleep(LOOK_EVERY);
    }
}

/// Whether a process has said in this log that it is loaded and waits.
fn says_ready(log: &Path) -> bool {
    tail(log).lines().any(|line| line == "ready")
}

impl Host for System {
    fn now(&self) -> Duration {
        self.kernel.now()
    }

    fn rest(&mut self, duration: Duration) {
        thread::sleep(duration);
    }

    fn state(&mut self) -> State {
        self.kernel.state()
    }

    fn spawn(&mut self, scheduler: &Scheduler) -> std::result::Result<(), String> {
        assert!(self.turn.is_none(), "one process at a time");
        let process = match self.take_ready(scheduler) {
            Some(process) => process,
            None => self.start(scheduler, &self.log)?,
        };
        let turn = self.turn.insert(Turn {
            scheduler: scheduler.clone(),
            process,
            is_dismissed: false,
        });
        // One that has ended does not hear it: that is seen later.
        turn.tell("attach");
        Ok(())
    }

    fn keep_ready(&mut self, schedulers: &[&Scheduler]) {
        let is_wanted = |ready: &mut Ready| schedulers.contains(&&ready.scheduler);
        let unwanted: Vec<Ready> = self.ready.extract_if(.., |r| !is_wanted(r)).collect();
        unwanted.into_iter().for_each(Ready::give_up);
        for scheduler in schedulers.iter().filter(|s| !s.standby.is_empty()) {
            if self.ready.iter().any(|r| r.scheduler == **scheduler) {
                continue;
            }
            let log = self.new_log();
            // Without one its turn begins with another start, which says why.
            if let Ok(process) = self.start(scheduler, &log) {
                self.ready.push(Ready {
                    scheduler: (*scheduler).clone(),
                    process,
                    log,
                });
            }
        }
    }

    fn child(&mut self) -> Child {
        let Some(turn) = &mut self.turn else {
            return Child::None;
        };
        if fs::metadata(&self.log).is_ok_and(|about| about.len() > LOG_MAX) {
            let _ = File::create(&self.log);
        }
        match turn.process.try_wait() {
            Ok(None) if turn.is_dismissed && says_ready(&self.log) => {
                Child::Ended("waits for its next turn".to_owned())
            }
            Ok(None) => Child::Running,
            Ok(Some(status)) => Child::Ended(in_words(status)),
            Err(error) => Child::Ended(format!("lost: {error}")),
        }
    }

    fn end(&mut self, how: End) {
        if self.child() != Child::Running {
            return;
        }
        let state = self.state();
        let Some(turn) = &mut self.turn else {
            return;
        };
        // What it says from now on tells when it has left. One that is not in force
        // has not heard the first word yet, and would say so of that.
        let is_in_force = matches!(&state, State::Enabled(ops) if turn.scheduler.is_ops(ops));
        if how == End::Ask && is_in_force && File::create(&self.log).is_ok() && turn.tell("leave") {
            turn.is_dismissed = true;
            return;
        }
        let signal = match how {
            End::Ask => Signal::SIGINT,
            End::Kill => Signal::SIGKILL,
        };
        // It is not reaped, so the id is still its own.
        let _ = kill(Pid::from_raw(turn.process.id() as i32), signal);
    }

    fn reap(&mut self) -> String {
        let words = last_words(&tail(&self.log));
        let Some(mut turn) = self.turn.take() else {
            return words;
        };
        if turn.is_dismissed && matches!(turn.process.try_wait(), Ok(None)) {
            let log = self.new_log();
            let ready = Ready {
                scheduler: turn.scheduler,
                process: turn.process,
                log,
            };
            match fs::rename(&self.log, &ready.log) {
                Ok(()) => self.ready.push(ready),
                // Its log could not show that it is ready.
                Err(_) => ready.give_up(),
            }
        } else {
            let _ = turn.process.wait();
        }
        words
    }

    fn demanded(&mut self, cgroups: &[PathBuf]) -> Vec<f64> {
        self.kernel.demanded(cgroups)
    }

    fn starved(&mut self) -> Duration {
        self.kernel.starved()
    }
}

impl Drop for System {
    /// The last resort; the supervisor's way out is [`leave`].
    ///
    /// [`leave`]: crate::supervisor::Supervisor::leave
    fn drop(&mut self) {
        self.keep_ready(&[]);
        if let Some(mut turn) = self.turn.take() {
            end(&mut turn.process);
        }
    }
}

fn in_words(status: ExitStatus) -> String {
    match status.signal() {
        Some(number) => {
            let name = Signal::try_from(number).map_or("a signal", Signal::as_str);
            format!("killed by {name}")
        }
        None => status.to_string(),
    }
}

/// The end of a file; nothing if it cannot be read.
fn tail(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        std::io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

/// Why a scheduler ended, in its own words: its last exit report (the scx
/// project's loaders print `EXIT: reason`), else its last line.
fn last_words(log: &str) -> String {
    let report = log
        .lines()
        .rev()
        .find_map(|line| Some(line.split_once("EXIT: ")?.1));
    let last = || log.lines().rev().find(|line| !line.trim().is_empty());
    let words = report.or_else(last).unwrap_or_default().trim();
    words
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::EEVDF;

    fn system(dir: &Path) -> System {
        let mut system = System::new(&dir.join("log")).unwrap();
        system.kernel = Kernel::new(dir);
        system
    }

    fn script(text: &str) -> Scheduler {
        Scheduler {
            name: "script".into(),
            command: ["sh", "-c", text].map(String::from).to_vec(),
            ops: "script".into(),
            ..Scheduler::eevdf()
        }
    }

    /// Waits until the process has ended; how.
    fn ended(system: &mut System) -> String {
        loop {
            match system.child() {
                Child::Ended(how) => return how,
                Child::Running => thread::sleep(Duration::from_millis(5)),
                Child::None => panic!("no process"),
            }
        }
    }

    #[test]
    fn a_log_that_is_too_long_is_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let mut system = system(dir.path());
        let long = LOG_MAX + 1;
        let says = script(&format!("head -c {long} /dev/zero; exec sleep 60"));
        system.spawn(&says).unwrap();
        let length = |system: &System| fs::metadata(&system.log).unwrap().len();
        wait_until(|| length(&system) == long);
        assert_eq!(system.child(), Child::Running);
        assert_eq!(length(&system), 0);
    }

    #[test]
    fn a_process_is_started_asked_to_end_and_its_words_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut system = system(dir.path());
        assert_eq!(system.child(), Child::None);
        let scheduler = script(
            "trap 'echo \"[t] EXIT: unregistered\"; echo bye; exit 3' INT; \
             echo up; while :; do sleep 0.02; done",
        );
        system.spawn(&scheduler).unwrap();
        while !tail(&dir.path().join("log")).contains("up") {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(system.child(), Child::Running);
        system.end(End::Ask);
        assert_eq!(ended(&mut system), "exit status: 3");
        assert_eq!(system.reap(), "unregistered");
        assert_eq!(system.child(), Child::None);
    }

    /// Has the kernel say what is in force: nothing, or this.
    fn in_force(dir: &Path, ops: Option<&str>) {
        let sched_ext = dir.join("sys/kernel/sched_ext");
        fs::create_dir_all(sched_ext.join("root")).unwrap();
        let state = ops.map_or("disabled\n", |_| "enabled\n");
        fs::write(sched_ext.join("state"), state).unwrap();
        fs::write(sched_ext.join("root/ops"), ops.unwrap_or_default()).unwrap();
    }

    /// Comes and goes at each line.
    fn patient() -> Scheduler {
        let turn = "echo ready && read word && echo $word && read word";
        let mut scheduler = script(&format!("while {turn}; do echo $word; done"));
        scheduler.standby = vec!["ahead".into()];
        scheduler
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        while !is_so() {
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn standby_process_attaches_and_detaches_on_command() {
        let dir = tempfile::tempdir().unwrap();
        let mut system = system(dir.path());
        let log = |name: &str| tail(&dir.path().join(name));
        let (scheduler, other) = (patient(), script("sleep 1000"));
        system.keep_ready(&[&scheduler, &other]);
        system.keep_ready(&[&scheduler, &other]);
        assert_eq!(system.ready.len(), 1, "one that cannot wait is not started");
        let waiting = system.ready[0].process.id() as i32;
        wait_until(|| log("log.ready-1") == "ready\n");
        assert_eq!((system.ready(), system.loading()), (1, 0));
        for turn in 0..3 {
            assert_eq!(system.child(), Child::None, "it is not in force");
            system.spawn(&scheduler).unwrap();
            assert_eq!((system.process(), system.ready()), (Some(waiting), 0));
            wait_until(|| log("log").ends_with("attach\n"));
            assert_eq!(system.child(), Child::Running, "turn {turn}");
            in_force(dir.path(), Some("script_1.0"));
            system.end(End::Ask);
            assert_eq!(ended(&mut system), "waits for its next turn");
            in_force(dir.path(), None);
            system.reap();
            assert_eq!((system.process(), system.ready()), (None, 1));
            // What was said in one turn is not kept for all that follow.
            assert_eq!(log(&format!("log.ready-{}", turn + 2)), "leave\nready\n");
        }
        system.keep_ready(&[]);
        assert!(system.ready.is_empty());
        assert!(kill(Pid::from_raw(waiting), None).is_err(), "it has ended");
    }

    #[test]
    fn unattached_process_is_not_put_on_standby() {
        let dir = tempfile::tempdir().unwrap();
        let mut system = system(dir.path());
        in_force(dir.path(), None);
        // It has heard no word: what it says of its load would be taken for an
        // answer.
        let mut scheduler =
            script("sleep 0.3; echo ready; read word; read word; echo ready; sleep 9");
        scheduler.standby = vec!["ahead".into()];
        system.spawn(&scheduler).unwrap();
        system.end(End::Ask);
        assert_eq!(ended(&mut system), "killed by SIGINT");
        system.reap();
        assert_eq!((system.process(), system.ready()), (None, 0));
    }

    #[test]
    fn ended_standby_process_is_restarted_at_its_turn() {
        let dir = tempfile::tempdir().unwrap();
        let mut system = system(dir.path());
        let mut scheduler = patient();
        scheduler.command[2] = "echo options $0".into();
        system.keep_ready(&[&scheduler]);
        let mut ready = system.ready.pop().unwrap();
        ready.process.wait().unwrap();
        system.ready.push(ready);
        system.keep_ready(&[&scheduler]);
        assert_eq!(system.ready.len(), 1, "it is not replaced");
        system.spawn(&scheduler).unwrap();
        assert_eq!(ended(&mut system), "exit status: 0");
        // So that it can wait from then on.
        assert_eq!(system.reap(), "options ahead");
    }

    #[test]
    fn process_ignoring_sigint_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let mut system = system(dir.path());
        let scheduler = script("trap '' INT; echo deaf; while :; do sleep 0.02; done");
        system.spawn(&scheduler).unwrap();
        while !tail(&dir.path().join("log")).contains("deaf") {
            thread::sleep(Duration::from_millis(5));
        }
        system.end(End::Ask);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(system.child(), Child::Running);
        system.end(End::Kill);
        assert_eq!(ended(&mut system), "killed by SIGKILL");
        assert_eq!(system.reap(), "deaf");
    }

    #[test]
    fn what_cannot_be_started_is_said_with_where_to_get_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut system = system(dir.path());
        let mut scheduler = script("");
        scheduler.command = vec!["/no/such/program".into()];
        scheduler.install = "make it".into();
        let why = system.spawn(&scheduler).unwrap_err();
        assert_eq!(why, "/no/such/program is not installed (make it)");
        assert!(system.spawn(&Scheduler::eevdf()).is_err(), "{EEVDF}");
    }

    #[test]
    fn last_words_are_the_exit_report_or_the_last_line() {
        assert_eq!(
            last_words("EXIT: old\n[x] EXIT: stall (t)\nbye\n\n"),
            "stall (t)"
        );
        assert_eq!(last_words("one\ntwo\n \n"), "two");
        assert_eq!(last_words(""), "");
    }
}
