//! One guest, from its devices to its end.
//!
//! ```text
//!   host file          device    in the guest
//!   root.img, private  NVDIMM    /, read-only
//!   job.img, private   NVDIMM    tar archive, unpacked into /lab
//!   results.img        NVDIMM    /results, written back as a tar archive
//!   console            ttyS0     the kernel's messages
//!   output             ttyS1     what the job prints
//! ```
//!
//! A guest ends in one of four ways: its init reports a status and powers off;
//! its kernel panics, which reboots, which ends QEMU; it runs past its limit
//! and is killed; or QEMU fails. Only the first leaves an archive in
//! `results.img`, so nothing a dying guest prints can be taken for success.
//!
//! A guest is prepared before it is started. [`Prepared`] holds all that enters it: the
//! emulator's command line and the files of its devices. So one can tell what a guest is
//! given without booting it, and what was looked at is what is booted.
//!
//! Invariant: nothing of the host's enters a guest that the caller did not ask for
//! ([`archive`]).
//!
//! Nothing is left running: QEMU dies with the thread that started it, even if
//! that is killed.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::{CommandExt, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::Lab;
use crate::archive;
use crate::cache::Cache;
use crate::console::{self, Follower};
use crate::costs::Costs;
use crate::error::{LabError, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::machine::{Clock, Machine};
use crate::qemu::Qemu;

/// How a guest's status and lines are read: the text of what does.
const READ_BY: [&str; 2] = [include_str!("vm.rs"), include_str!("console.rs")];
/// When a guest's clock begins: at [`archive::TIME`].
const CLOCK_DATE: &str = "2026-01-01";
/// First bytes of a results device that no guest has written to.
const MAGIC: &[u8] = b"giveway-results\n";
/// Room for a job's results, in bytes; the file is sparse.
const RESULTS_SIZE: u64 = 512 << 20;
/// The emulated CPU: everything the emulator can do, but for a fifth page-table
/// level, which only costs, and for the fast string instructions. The clock
/// charges every iteration of `rep movsb`, so a kernel that copied pages with
/// it would need 16 µs for each; without these flags it copies by the word.
const CPU: &str = "max,la57=off,erms=off,fsrm=off,fzrm=off,fsrs=off,fsrc=off";
/// The same where string instructions are paid by bytes: with what the CPUs have to which
/// models are fitted.
const CPU_WITH_COSTS: &str = "max,la57=off,fzrm=off,fsrs=off,fsrc=off";
/// What a CPU with user interrupts has beside that: them, and the instruction with which
/// their handlers save vectors.
const USER_INTERRUPTS: &str = ",uintr=on,xsavec=on";
/// The guest's serial ports, and the files that they write to.
const CONSOLE: &str = "console";
const OUTPUT: &str = "output";
/// The files of its memory devices, beside the image.
const JOB: &str = "job.img";
const RESULTS: &str = "results.img";
/// How often the guest's output is looked at.
const POLL: Duration = Duration::from_millis(20);

/// What to run in a guest, as root, in `/lab`.
#[derive(Clone, Debug, Default)]
pub struct Job {
    argv: Vec<String>,
    env: Vec<(String, String)>,
    files: Vec<(PathBuf, String)>,
}

impl Job {
    /// Runs `argv`; a name without a slash is looked up in `/lab` and in PATH.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Job {
        Job {
            argv: argv.into_iter().map(Into::into).collect(),
            ..Job::default()
        }
    }

    /// Runs a shell script.
    pub fn script(text: impl Into<String>) -> Job {
        Job::new(["sh".into(), "-c".into(), text.into()])
    }

    /// Sets a variable of the job's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Job {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Puts a host file or directory into the guest as `/lab/NAME`.
    #[must_use]
    pub fn file(mut self, host: impl Into<PathBuf>, name: impl Into<String>) -> Job {
        self.files.push((host.into(), name.into()));
        self
    }

    /// The shell text that runs it.
    fn shell_text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.env {
            text.push_str(&format!("export {name}={}\n", shell_words::quote(value)));
        }
        text.push_str(&shell_words::join(&self.argv));
        text.push('\n');
        text
    }
}

/// How a guest's job ended.
#[derive(Debug)]
pub struct Outcome {
    /// The job's exit status as a shell gives it: 128 + N for signal N.
    pub status: i32,
    /// The guest's clock when the job ended, from the start of its kernel.
    pub guest_uptime: Duration,
    /// How long the whole run took on the host.
    pub host_elapsed: Duration,
    results: tempfile::TempDir,
}

impl Outcome {
    /// The directory with what the job left in `/results`; removed when the
    /// outcome is dropped.
    pub fn results(&self) -> &Path {
        self.results.path()
    }

    /// What the job left in `/results/NAME`.
    ///
    /// # Errors
    /// The job left no such file.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.results.path().join(name);
        fs::read(&path).map_err(LabError::io("reading the guest's result", path))
    }
}

/// How a guest executes instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Execution {
    Kvm,
    Threads,
    Lockstep {
        quantum_ns: u32,
        shift: u8,
        causal: bool,
        costs: Option<Costs>,
    },
}

/// The parts of a guest that do not differ from run to run.
struct Parts<'a> {
    qemu: &'a Qemu,
    image: &'a Image,
    kernel: &'a Kernel,
}

impl<'a> From<&'a Lab> for Parts<'a> {
    fn from(lab: &'a Lab) -> Parts<'a> {
        Parts {
            qemu: &lab.qemu,
            image: &lab.image,
            kernel: &lab.kernel,
        }
    }
}

pub(crate) fn run(
    lab: &Lab,
    machine: &Machine,
    job: &Job,
    line: &mut dyn FnMut(&str),
) -> Result<Outcome> {
    prepare(lab, machine, job)?.run(line)
}

pub(crate) fn prepare(lab: &Lab, machine: &Machine, job: &Job) -> Result<Prepared> {
    Prepared::new(&lab.into(), machine, execution(lab, machine), job)
}

pub(crate) fn shell(lab: &Lab, machine: &Machine, job: &Job) -> Result<()> {
    machine.check()?;
    let devices = Devices::create(job, true)?;
    let mut command = command(&lab.into(), machine, execution(lab, machine), &devices)?;
    command.args([
        "-chardev",
        "stdio,id=console,signal=off",
        "-serial",
        "chardev:console",
    ]);
    let status = command
        .status()
        .map_err(LabError::io("starting", lab.qemu.binary()))?;
    if status.success() {
        return Ok(());
    }
    Err(LabError::GuestDied {
        reason: failed(status, devices.dir.path()),
        tail: String::new(),
    })
}

/// Loads a small scheduler in `kernel`; returns the reason if that fails.
pub(crate) fn probe(
    qemu: &Qemu,
    image: &Image,
    kernel: &Kernel,
    cache: &Cache,
) -> Result<Option<String>> {
    let scratch = cache.scratch("probe")?;
    let object = scratch.path().join("probe.bpf.o");
    fs::write(
        &object,
        include_bytes!(concat!(env!("OUT_DIR"), "/probe.bpf.o")),
    )
    .map_err(LabError::io("writing", &object))?;
    let job = Job::script(
        "bpftool struct_ops register probe.bpf.o /sys/fs/bpf && cat /sys/kernel/sched_ext/state && \
         grep -q enabled /sys/kernel/sched_ext/state",
    )
    .file(object, "probe.bpf.o");
    let machine = Machine {
        // One: threads of the emulator race with code that the kernel patches.
        cpus: 1,
        // A busy machine needs more than it takes to boot: three minutes were not enough, and
        // the newest kernel was taken for one that loads no scheduler.
        timeout: Duration::from_secs(900),
        clock: Clock::Real,
        ..Machine::default()
    };
    let mut said = Vec::new();
    let parts = Parts {
        qemu,
        image,
        kernel,
    };
    let outcome = Prepared::new(&parts, &machine, Execution::Threads, &job)
        .and_then(|guest| guest.run(&mut |line| said.push(line.to_owned())));
    Ok(match outcome {
        Ok(outcome) if outcome.status == 0 => None,
        Ok(_) => Some(reason_in(&said)),
        Err(died @ (LabError::GuestDied { .. } | LabError::Timeout { .. })) => {
            Some(died.to_string())
        }
        Err(other) => return Err(other),
    })
}

/// Which of the loader's lines says why a scheduler did not load: the first
/// that names a cause, since those after it only repeat that loading failed.
fn reason_in(said: &[String]) -> String {
    let cause = said
        .iter()
        .find(|line| line.contains("incompatible") || line.contains("not found"));
    cause
        .or(said.iter().rfind(|line| !line.is_empty()))
        .cloned()
        .unwrap_or_default()
}

/// How the emulator failed, whose devices' files are in `dir`. Those that a guest writes are
/// mapped and have holes, so a full disk comes as a signal.
fn failed(status: ExitStatus, dir: &Path) -> String {
    let said = format!("the emulator ended with {status}");
    if status.signal() != Some(Signal::SIGBUS as i32) {
        return said;
    }
    format!(
        "{said}, as it does where the disk of {} is full (remedy: free some space there, or \
         set TMPDIR to a directory of another disk)",
        dir.display()
    )
}

/// Whether KVM boots this kernel here. `/dev/kvm` alone proves nothing: nested
/// machines can have it and still fail, so it is tried once per host boot.
pub(crate) fn kvm_usable(lab: &Lab) -> bool {
    if File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err()
    {
        return false;
    }
    if let Some(known) = kvm_known(&lab.cache, &lab.kernel) {
        return known;
    }
    let machine = Machine {
        cpus: 2,
        timeout: Duration::from_secs(20),
        clock: Clock::Real,
        ..Machine::default()
    };
    let job = Job::new(["true"]);
    let usable = Prepared::new(&lab.into(), &machine, Execution::Kvm, &job)
        .and_then(|guest| guest.run(&mut |_| {}))
        .is_ok_and(|outcome| outcome.status == 0);
    // An unwritten verdict only means that it is tried again.
    let _ = fs::write(
        kvm_verdict(&lab.cache, &lab.kernel),
        if usable { "usable" } else { "unusable" },
    );
    usable
}

/// The verdict of the boot with KVM since the host was booted, if there was one.
pub(crate) fn kvm_known(cache: &Cache, kernel: &Kernel) -> Option<bool> {
    let verdict = fs::read_to_string(kvm_verdict(cache, kernel)).ok()?;
    Some(verdict == "usable")
}

fn kvm_verdict(cache: &Cache, kernel: &Kernel) -> PathBuf {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let name = format!("kvm-{}-{}", boot.trim(), kernel.release());
    cache.dir().join(name)
}

fn execution(lab: &Lab, machine: &Machine) -> Execution {
    match machine.clock {
        Clock::Lockstep {
            quantum_ns,
            shift,
            causal,
            costs,
        } => Execution::Lockstep {
            quantum_ns,
            shift,
            causal,
            costs,
        },
        Clock::Real if !machine.user_interrupts && kvm_usable(lab) => Execution::Kvm,
        Clock::Real => Execution::Threads,
    }
}

/// A guest and all that enters it, not yet started.
pub(crate) struct Prepared {
    command: Command,
    devices: Devices,
    /// The parts of the lab, which are not read to know them.
    parts: Vec<PathBuf>,
    timeout: Duration,
}

impl Prepared {
    fn new(
        parts: &Parts<'_>,
        machine: &Machine,
        execution: Execution,
        job: &Job,
    ) -> Result<Prepared> {
        machine.check()?;
        let devices = Devices::create(job, false)?;
        let mut command = command(parts, machine, execution, &devices)?;
        for id in [CONSOLE, OUTPUT] {
            let path = devices.dir.path().join(id);
            command
                .arg("-chardev")
                .arg(format!("file,id={id},path={}", path.display()));
            command.arg("-serial").arg(format!("chardev:{id}"));
        }
        Ok(Prepared {
            command,
            devices,
            parts: vec![
                parts.qemu.binary(),
                parts.kernel.image(),
                parts.kernel.initrd(),
                parts.image.path().to_owned(),
            ],
            timeout: machine.timeout,
        })
    }

    /// All on which depends what the guest says and is taken for: parts of the lab by
    /// path, size and time of their last change, since a part that is made anew may have
    /// newer packages; the emulator's arguments, without the place of the devices' files;
    /// what is in these; and how the answer is read.
    pub(crate) fn given(&self) -> Result<Vec<Vec<u8>>> {
        let mut given: Vec<Vec<u8>> = READ_BY.map(|text| text.as_bytes().to_vec()).to_vec();
        for path in &self.parts {
            let meta = fs::metadata(path).map_err(LabError::io("looking at", path))?;
            let changed = (meta.mtime(), meta.mtime_nsec());
            given.push(format!("{} {} {changed:?}", path.display(), meta.len()).into_bytes());
        }
        let dir = self.devices.dir.path();
        let place = dir.to_string_lossy();
        let args = self.command.get_args();
        given.extend(args.map(|arg| arg.to_string_lossy().replace(&*place, "").into_bytes()));
        let names = archive::names_in(dir)?;
        for name in names {
            let path = dir.join(&name);
            // The rest of a device has no content.
            let length = match name.to_str() {
                Some(JOB) => self.devices.archive_length,
                Some(RESULTS) => MAGIC.len() as u64,
                _ => u64::MAX,
            };
            let mut content = Vec::new();
            File::open(&path)
                .and_then(|file| file.take(length).read_to_end(&mut content))
                .map_err(LabError::io("reading", &path))?;
            given.extend([name.into_encoded_bytes(), content]);
        }
        Ok(given)
    }

    /// Starts it and waits for its end.
    pub(crate) fn run(self, line: &mut dyn FnMut(&str)) -> Result<Outcome> {
        let Prepared {
            mut command,
            devices,
            timeout,
            ..
        } = self;
        let start = Instant::now();
        let qemu = PathBuf::from(command.get_program());
        let [console, output, errors] =
            [CONSOLE, OUTPUT, "errors"].map(|name| devices.dir.path().join(name));
        let mut follower = Follower::open(&output)?;
        let error_file = File::create(&errors).map_err(LabError::io("creating", &errors))?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(error_file)
            // An interrupt at the terminal is for the caller to act on.
            .process_group(0);
        let child = command.spawn().map_err(LabError::io("starting", &qemu))?;
        let mut guest = Guest(child);
        let status = loop {
            follower.poll(line);
            if let Some(status) = guest
                .0
                .try_wait()
                .map_err(LabError::io("waiting for", &qemu))?
            {
                break status;
            }
            if start.elapsed() > timeout {
                return Err(LabError::Timeout {
                    limit: timeout,
                    tail: console::tail(&console),
                });
            }
            std::thread::sleep(POLL);
        };
        follower.finish(line);
        let died = |reason: String| LabError::GuestDied {
            reason,
            tail: format!("{}\n{}", console::tail(&console), console::tail(&errors))
                .trim()
                .to_owned(),
        };
        if !status.success() {
            return Err(died(failed(status, devices.dir.path())));
        }
        let Some(results) = devices.results()? else {
            return Err(died(console::panic_message(&console).unwrap_or_else(
                || "it ended before its job reported a status".into(),
            )));
        };
        let number = |name: &str| -> Option<f64> {
            fs::read_to_string(results.path().join(name))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        let (Some(status), Some(uptime)) = (number(".status"), number(".uptime")) else {
            return Err(died("its results are incomplete".into()));
        };
        Ok(Outcome {
            status: status as i32,
            guest_uptime: Duration::from_secs_f64(uptime),
            host_elapsed: start.elapsed(),
            results,
        })
    }
}

/// A running QEMU, killed when dropped.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // Both fail only if it has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The host files of a guest's memory devices.
struct Devices {
    dir: tempfile::TempDir,
    /// Of the job, in bytes.
    archive_length: u64,
}

impl Devices {
    fn create(job: &Job, shell: bool) -> Result<Devices> {
        let dir = tempfile::Builder::new()
            .prefix("giveway-lab-")
            .tempdir()
            .map_err(LabError::io(
                "creating a directory in",
                std::env::temp_dir(),
            ))?;
        let path = dir.path().join(JOB);
        let archive_length = archive::write(&job.shell_text(), shell, &job.files, &path)?;
        let path = dir.path().join(RESULTS);
        File::create(&path)
            .and_then(|mut file| {
                file.write_all(MAGIC)?;
                file.set_len(RESULTS_SIZE)
            })
            .map_err(LabError::io("writing", &path))?;
        Ok(Devices {
            dir,
            archive_length,
        })
    }

    /// Unpacks what the guest left, if it left anything.
    fn results(&self) -> Result<Option<tempfile::TempDir>> {
        let path = self.dir.path().join(RESULTS);
        let unpack = || -> std::io::Result<Option<tempfile::TempDir>> {
            let mut file = File::open(&path)?;
            let mut magic = [0; MAGIC.len()];
            file.read_exact(&mut magic)?;
            if magic == *MAGIC {
                return Ok(None);
            }
            file.seek(SeekFrom::Start(0))?;
            let results = tempfile::Builder::new()
                .prefix("giveway-results-")
                .tempdir()?;
            let mut archive = tar::Archive::new(file);
            archive.set_preserve_ownerships(false);
            archive.unpack(results.path())?;
            Ok(Some(results))
        };
        unpack().map_err(LabError::io("unpacking the guest's results from", &path))
    }
}

/// QEMU's command line, but for the serial ports.
fn command(
    parts: &Parts<'_>,
    machine: &Machine,
    execution: Execution,
    devices: &Devices,
) -> Result<Command> {
    let mut command = parts.qemu.command();
    let emulated = match machine.clock.costs() {
        Some(_) => CPU_WITH_COSTS,
        None => CPU,
    };
    let emulated = match machine.user_interrupts {
        true => format!("{emulated}{USER_INTERRUPTS}"),
        false => emulated.to_owned(),
    };
    let (accelerator, cpu): (Vec<String>, &str) = match execution {
        Execution::Kvm => (vec!["-accel".into(), "kvm".into()], "host"),
        Execution::Threads => (vec!["-accel".into(), "tcg,thread=multi".into()], &emulated),
        Execution::Lockstep {
            quantum_ns,
            shift,
            causal,
            costs,
        } => {
            let mut icount = format!(
                "shift={shift},sleep=off,lockstep=on,quantum={quantum_ns},causal={}",
                if causal { "on" } else { "off" }
            );
            if let Some(costs) = costs {
                let path = devices.dir.path().join("costs");
                let text = costs.file(machine.cpus / machine.sockets);
                fs::write(&path, text).map_err(LabError::io("writing", &path))?;
                icount += &format!(",costs={}", path.display());
            }
            let options = ["-accel", "tcg,thread=single", "-icount", &icount];
            (options.map(str::to_owned).to_vec(), &emulated)
        }
    };
    command.args(accelerator).args(["-cpu", cpu]);
    command.args(["-machine", "q35,nvdimm=on,hpet=off"]);
    command.args(machine.topology_args());
    // Nothing the guest can read depends on the host: not its date, not its entropy.
    command.args([
        "-rtc",
        &format!("base={CLOCK_DATE},clock=vm"),
        "-seed",
        &machine.seed.to_string(),
    ]);
    command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
    command.arg("-kernel").arg(parts.kernel.image());
    command.arg("-initrd").arg(parts.kernel.initrd());
    let mut cmdline = vec![
        "console=ttyS0",
        "quiet",
        "panic=-1",
        // Oops and warnings are failures, not noise.
        "oops=panic",
        "tsc=reliable",
        // CPUs whose ticks coincide would meet at every lock of the tick.
        "skew_tick=1",
        // Work at boot that no measurement wants to meet.
        "cryptomgr.notests",
        // Work-arounds for faults of real CPUs, which this one does not have.
        "mitigations=off",
    ];
    if machine.clock == Clock::Real {
        // A busy host may hold the guest back for so long that the kernel counts too few
        // ticks at boot and panics: "IO-APIC + timer doesn't work".
        cmdline.push("no_timer_check");
    }
    cmdline.extend(machine.kernel_args.iter().map(String::as_str));
    command.arg("-append").arg(cmdline.join(" "));

    let root_size = parts
        .image
        .path()
        .metadata()
        .map_err(LabError::io("reading", parts.image.path()))?
        .len();
    let dir = devices.dir.path();
    for (index, (path, share, size)) in [
        (parts.image.path().to_owned(), "off", root_size),
        (
            dir.join(JOB),
            "off",
            devices.archive_length.next_multiple_of(archive::STEP),
        ),
        (dir.join(RESULTS), "on", RESULTS_SIZE),
    ]
    .into_iter()
    .enumerate()
    {
        command.arg("-object").arg(format!(
            "memory-backend-file,id=dimm{index},mem-path={},share={share},size={size}",
            path.display()
        ));
        command
            .arg("-device")
            .arg(format!("nvdimm,memdev=dimm{index},id=nvdimm{index}"));
    }
    // SAFETY: the closure makes one system call and touches no memory of the
    // parent, which is all a child may do between fork and exec.
    unsafe {
        command.pre_exec(|| {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            Ok(())
        });
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_words_survive_the_guests_shell() {
        let job = Job::new(["printf", "%s", "it's $HOME; rm -rf /"]).env("NAME", "a b");
        let output = Command::new("sh")
            .arg("-c")
            .arg(format!("{}\nprintf ' %s' \"$NAME\"", job.shell_text()))
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            "it's $HOME; rm -rf / a b"
        );
    }

    #[test]
    fn untouched_results_are_told_from_written_ones() {
        let devices = Devices::create(&Job::new(["true"]), false).unwrap();
        assert!(devices.results().unwrap().is_none());
        let path = devices.dir.path().join("results.img");
        let mut archive = tar::Builder::new(File::options().write(true).open(&path).unwrap());
        let mut header = tar::Header::new_ustar();
        header.set_size(2);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, ".status", b"0\n".as_slice())
            .unwrap();
        archive.into_inner().unwrap();
        let results = devices.results().unwrap().unwrap();
        assert_eq!(
            fs::read_to_string(results.path().join(".status")).unwrap(),
            "0\n"
        );
    }
}
