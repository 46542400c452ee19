//! Runs programs of this directory on the emulator alone, without a kernel: a test runs
//! one case of a program, which sets up CPUs, brings about one situation, looks at what
//! follows, and says "passed".

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use giveway_lab::{Lab, LabSpec, Silent};
use tempfile::{NamedTempFile, TempDir};

/// A case that hangs is one that waits for what was lost. All take less than a second.
const TIMEOUT: &str = "60";

pub(crate) struct Bench {
    emulator: PathBuf,
    directory: TempDir,
}

impl Bench {
    /// The emulator, and programs of this directory compiled for it.
    pub(crate) fn of(programs: &[&str]) -> Bench {
        let emulator = Lab::open(&LabSpec::default(), &Silent).unwrap().qemu();
        let directory = tempfile::tempdir().unwrap();
        for program in programs {
            compile(program, &directory.path().join(program));
        }
        Bench {
            emulator,
            directory,
        }
    }

    /// The emulator, to run a case on CPUs with these properties; what that prints is
    /// for the file `console`.
    pub(crate) fn command(
        &self,
        program: &str,
        case: &str,
        execution: &[&str],
        properties: &str,
        console: &Path,
    ) -> Command {
        let share = self.emulator.with_file_name("share");
        let mut command = Command::new("timeout");
        command
            .arg(TIMEOUT)
            .arg(&self.emulator)
            .arg("-L")
            .arg(share.join("qemu"))
            .arg("-L")
            .arg(share.join("seabios"))
            .args(execution)
            .args(["-cpu", &format!("max,la57=off{properties}")])
            .args(["-machine", "q35,hpet=off", "-smp", "4", "-m", "64M"])
            .args(["-rtc", "base=2026-01-01,clock=vm", "-seed", "1"])
            .args(["-nodefaults", "-display", "none", "-no-reboot"])
            .arg("-kernel")
            .arg(self.directory.path().join(program))
            .args(["-append", case])
            .arg("-chardev")
            .arg(format!("file,id=console,path={}", console.display()))
            .args(["-serial", "chardev:console"]);
        command
    }

    pub(crate) fn file(&self) -> NamedTempFile {
        NamedTempFile::new_in(self.directory.path()).unwrap()
    }

    /// What a case prints, on CPUs with these properties.
    pub(crate) fn run(
        &self,
        program: &str,
        case: &str,
        execution: &[&str],
        properties: &str,
    ) -> String {
        let console = self.file();
        let status = self
            .command(program, case, execution, properties, console.path())
            .status()
            .unwrap();
        let said = fs::read_to_string(console.path()).unwrap();
        assert!(status.success(), "{case}: {status}, after '{said}'");
        said
    }
}

fn compile(program: &str, to: &Path) {
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-ffreestanding"])
        .args(["-nostdlib", "-static", "-fno-pic", "-no-pie"])
        // What an interrupt of the kernel would spoil: memory below the stack, vectors.
        .args(["-mno-red-zone", "-mgeneral-regs-only"])
        .args(["-fno-stack-protector", "-fcf-protection=none"])
        .args(["-fno-asynchronous-unwind-tables", "-Wl,-T,bare.ld"])
        .args(["-Wl,--build-id=none", "-Wl,--no-warn-rwx-segments", "-o"])
        .arg(to)
        .args(["boot.S", "bare.c", &format!("{program}.c")])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bare"))
        .status()
        .unwrap();
    assert!(compiled.success(), "{program}.c does not compile");
}
