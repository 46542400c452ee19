//! Compiling and running programs, with and without the library.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest run of any program. Far more than any takes: a program that is
/// still there then hangs.
const RUN_S_MAX: u64 = 60;

/// The library, which cargo builds beside the test.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        // In `deps`: cargo copies it out of there for `cargo build` only, so
        // that a copy further up may be an old one.
        let path = test.with_file_name("libgiveway_cfl.so");
        assert!(path.exists(), "{} is not built", path.display());
        path
    })
}

/// Where the programs' sources are.
fn sources() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs"))
}

/// Compiles `source` of `../programs` to `output`, with more arguments.
pub(crate) fn compile(source: &str, output: &Path, more: &[&OsStr]) {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let compiler = cc::Build::new()
        .opt_level(1)
        .target(&target)
        .host(&target)
        .cargo_metadata(false)
        .get_compiler();
    let built = Command::new(compiler.path())
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(output)
        .arg(sources().join(source))
        .args(more)
        .status()
        .unwrap();
    assert!(built.success(), "{source} does not compile");
}

/// One of our programs, compiled into `directory`.
pub(crate) fn program(name: &str, directory: &Path) -> PathBuf {
    let output = directory.join(name);
    compile(&format!("{name}.c"), &output, &[]);
    output
}

/// What a program left.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// The output of a program that has to succeed in silence.
    pub(crate) fn good(self) -> String {
        assert_eq!(
            (self.code, self.stderr.as_str()),
            (Some(0), ""),
            "{}",
            self.stdout
        );
        self.stdout
    }
}

/// Has the program run with the library in front of glibc.
pub(crate) fn preload(command: &mut Command) -> &mut Command {
    command.env("LD_PRELOAD", library())
}

/// The program, with nothing of the library in its environment.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env_remove("LD_PRELOAD")
        .env_remove("GIVEWAY_CFL")
        .env_remove("GIVEWAY_CFL_CONFIG")
        .env("LC_ALL", "C");
    command
}

/// Runs to the end, or fails if there is none.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // So that its children, which hold the pipes too, end with it.
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    fn reader(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let stdout = reader(child.stdout.take().unwrap());
    let stderr = reader(child.stderr.take().unwrap());
    let end = Instant::now() + Duration::from_secs(RUN_S_MAX);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > end {
            let group = libc::pid_t::try_from(child.id()).unwrap();
            // SAFETY: the group was made for the child, which is not reaped yet.
            unsafe { libc::kill(-group, libc::SIGKILL) };
            child.wait().unwrap();
            break None;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let outcome = Outcome {
        code: status.and_then(|status| status.code()),
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    };
    assert!(status.is_some(), "{command:?} hangs: {outcome:#?}");
    outcome
}

/// Settings that have the statistics written to a file in `directory`; `more`
/// settings before.
pub(crate) fn counting(directory: &Path, more: &str) -> String {
    format!(
        "{more}; stats to={}/stats.%p format=json",
        directory.display()
    )
}

/// The reports that `counting` had written, one per process that took locks.
pub(crate) fn reports(directory: &Path) -> Vec<Value> {
    let mut reports = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("stats.") {
            let text = std::fs::read_to_string(&path).unwrap();
            reports.extend(text.lines().map(|line| serde_json::from_str(line).unwrap()));
        }
    }
    reports
}

/// The sum of `field` over all locks of all reports.
pub(crate) fn total(reports: &[Value], field: &str) -> u64 {
    let locks = reports
        .iter()
        .flat_map(|report| report["locks"].as_array().unwrap());
    locks.map(|lock| lock[field].as_u64().unwrap()).sum()
}

/// Whether `program` is installed; if not, says so, loudly, once per caller.
pub(crate) fn installed(program: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).exists());
    if !found {
        eprintln!("SKIPPED: {program} is not installed (apt-get install {package})");
    }
    found
}
