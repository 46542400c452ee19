//! gdb beside a pool: it lists the contexts, shows the frames of those that are paused,
//! in the process and in a core dump, and does no harm by stopping the process anywhere.

mod crew;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use giveway_preempt::{Level, Policy};

use crew::{Flag, HIGH, HIGHER, one};

/// Says to the test's own program that it is the process to look at.
const CHILD: &str = "GIVEWAY_DEBUGGER_CHILD";

/// The task that is paused.
#[inline(never)]
fn report(began: &Flag, go: &Flag) -> u64 {
    began.raise();
    // For as long as gdb takes: the test ends the process if it fails.
    while !go.is_up() {
        std::hint::spin_loop();
    }
    4711
}

/// What preempted it.
#[inline(never)]
fn order(began: &Flag, go: &Flag) {
    began.raise();
    while !go.is_up() {
        std::hint::spin_loop();
    }
}

/// The process that is looked at: `still` has level 0 paused and level 1 running until
/// a line comes; `storm` is preempted all the time until then.
#[test]
fn child() {
    let Some(what) = std::env::var_os(CHILD) else {
        return;
    };
    let pool = one(Policy::PREEMPT).levels(3).build().unwrap();
    let (began, go) = (Flag::default(), Flag::default());
    let low = {
        let (began, go) = (began.clone(), go.clone());
        pool.submit(Level::BASE, move || report(&began, &go))
            .unwrap()
    };
    assert!(began.wait());
    let mut line = String::new();
    if what == "still" {
        let began = Flag::default();
        let high = {
            let (began, go) = (began.clone(), go.clone());
            pool.submit(HIGH, move || order(&began, &go)).unwrap()
        };
        assert!(began.wait());
        println!("ready");
        std::io::stdin().read_line(&mut line).unwrap();
        go.raise();
        high.wait().unwrap();
    } else {
        static SERVED: AtomicU64 = AtomicU64::new(0);
        let over = Flag::default();
        let reader = {
            let over = over.clone();
            std::thread::spawn(move || {
                std::io::stdin().read_line(&mut line).unwrap();
                over.raise();
            })
        };
        println!("ready");
        let mut sent = 0;
        while !over.is_up() {
            for level in [HIGH, HIGHER] {
                let task = || SERVED.fetch_add(1, Relaxed);
                pool.submit(level, task).unwrap().wait().unwrap();
                sent += 1;
            }
        }
        reader.join().unwrap();
        go.raise();
        assert_eq!(SERVED.load(Relaxed), sent);
    }
    assert_eq!(low.wait().unwrap(), 4711);
}

/// The process that is looked at, ended at the latest with the test.
struct Looked {
    child: Child,
}

impl Looked {
    fn start(what: &str) -> Looked {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env(CHILD, what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let ready = lines.map_while(Result::ok).any(|line| line == "ready");
        assert!(ready, "the process ended before it was ready");
        Looked { child }
    }

    /// What gdb prints for these commands, attached.
    fn gdb(&self, commands: &[&str]) -> String {
        gdb(&["-p", &self.child.id().to_string()], commands)
    }

    /// Lets it go on, and finds that it went well.
    fn finish(mut self) {
        let mut stdin = self.child.stdin.take().unwrap();
        stdin.write_all(b"go on\n").unwrap();
        drop(stdin);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Looked {
    fn drop(&mut self) {
        // Fails if it has ended, as it should.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("gdb/giveway_preempt.py")
}

/// Runs gdb with the script, and then with these commands.
fn gdb(target: &[&str], commands: &[&str]) -> String {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-iex", "set debuginfod enabled off"]);
    gdb.args(target).arg("-x").arg(script());
    for command in commands {
        gdb.args(["-ex", command]);
    }
    let output = gdb
        .output()
        .expect("gdb runs: apt-get install gdb, or scripts/setup.sh test");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// The number of the worker's thread, of which there is one.
fn worker(target: &[&str]) -> String {
    let seen = gdb(target, &["giveway-contexts"]);
    let row = seen.lines().find(|line| line.contains(" running"));
    let row = row.unwrap_or_else(|| panic!("a context runs:\n{seen}"));
    format!("thread {}", row.split_whitespace().next().unwrap())
}

/// What a process `still` has to show: the contexts, and the frames of the report.
fn shows_the_paused_report(target: &[&str], then: &[&str]) -> String {
    let worker = worker(target);
    let look = [
        "giveway-contexts",
        &worker,
        "giveway-context 0",
        "backtrace",
    ];
    let seen = gdb(target, &[&look, then].concat());
    let has = |level: &str, state: &str| {
        seen.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next() == Some(level) && words.next() == Some(state)
        })
    };
    assert!(has("0", "paused"), "level 0 is paused:\n{seen}");
    assert!(has("1", "running"), "level 1 runs:\n{seen}");
    assert!(has("2", "idle"), "level 2 is idle:\n{seen}");
    let frame = |function: &str| {
        let mut lines = seen.lines();
        lines.any(|line| line.starts_with('#') && line.contains(function))
    };
    assert!(frame("report ("), "the report's frames:\n{seen}");
    assert!(
        frame("<signal handler called>"),
        "and why it stopped:\n{seen}"
    );
    seen
}

#[test]
fn gdb_shows_what_is_paused_in_a_process_and_in_its_core_dump() {
    let looked = Looked::start("still");
    let folder = tempfile::tempdir().unwrap();
    let core = folder.path().join("core");
    let core = core.to_str().unwrap();
    let dump = format!("generate-core-file {core}");
    let process = looked.child.id().to_string();
    let then = ["giveway-context off", "backtrace", &dump];
    let seen = shows_the_paused_report(&["-p", &process], &then);
    let after = &seen[seen.rfind("#0").unwrap()..];
    assert!(
        after.contains("order (") && !after.contains("report ("),
        "off shows what runs:\n{seen}"
    );
    looked.finish();
    let program = std::env::current_exe().unwrap();
    shows_the_paused_report(&[program.to_str().unwrap(), core], &[]);
}

#[test]
fn mistakes_are_told() {
    let looked = Looked::start("still");
    let worker = worker(&["-p", &looked.child.id().to_string()]);
    let worker = worker.as_str();
    for (thread, command, told) in [
        (worker, "giveway-context", "write giveway-context LEVEL"),
        (
            worker,
            "giveway-context 9",
            "the worker has the levels 0 to 2",
        ),
        (worker, "giveway-context 1", "level 1 is the one that runs"),
        (
            "thread 1",
            "giveway-context 0",
            "the selected thread is no worker",
        ),
    ] {
        let seen = looked.gdb(&[thread, command]);
        assert!(seen.contains(told), "{command}:\n{seen}");
    }
    looked.finish();
    let seen = gdb(&["/bin/true"], &["giveway-contexts", "giveway-context 0"]);
    for told in ["no thread is a worker", "no thread is selected"] {
        assert!(seen.contains(told), "{seen}");
    }
}

#[test]
fn a_debugger_that_comes_and_goes_loses_nothing() {
    let looked = Looked::start("storm");
    for _ in 0..5 {
        let seen = looked.gdb(&["giveway-contexts", "detach"]);
        assert!(seen.contains(" running"), "{seen}");
    }
    looked.finish();
}
