//! The module of user interrupts: its sources are part of this program, so that the lab
//! makes it wherever the program is, and a guest loads it before it measures.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use giveway_command::{Context, Failure};
use giveway_lab::Lab;

use crate::runner::steps::Steps;
use crate::workload::postgres::output;

/// The module, in a directory of the lab's and in a guest.
pub(super) const MODULE: &str = "uintr.ko";

/// Its sources: the files of `kernel/uintr`, without those in directories.
const SOURCES: [(&str, &str); 7] = [
    (
        "Makefile",
        include_str!("../../../../../kernel/uintr/Makefile"),
    ),
    (
        "dkms.conf",
        include_str!("../../../../../kernel/uintr/dkms.conf"),
    ),
    (
        "internal.h",
        include_str!("../../../../../kernel/uintr/internal.h"),
    ),
    ("main.c", include_str!("../../../../../kernel/uintr/main.c")),
    (
        "receivers.c",
        include_str!("../../../../../kernel/uintr/receivers.c"),
    ),
    (
        "threads.c",
        include_str!("../../../../../kernel/uintr/threads.c"),
    ),
    (
        "uintr.h",
        include_str!("../../../../../kernel/uintr/uintr.h"),
    ),
];

/// Makes the module for the kernel that the lab's guests boot, once.
///
/// # Errors
/// What [`Lab::module`] says.
pub(super) fn build(lab: &Lab) -> Result<PathBuf, Failure> {
    let dir = tempfile::tempdir().cannot("make a temporary directory")?;
    write(dir.path()).cannot("write the sources of the module uintr")?;
    Ok(lab.module(dir.path(), &Steps::new())?.join(MODULE))
}

fn write(dir: &Path) -> io::Result<()> {
    SOURCES
        .iter()
        .try_for_each(|(name, text)| fs::write(dir.join(name), text))
}

/// Loads the module into the kernel that runs.
///
/// # Errors
/// What insmod says: the CPU has no user interrupts, the module is for another kernel.
pub(super) fn load(file: &Path) -> Result<(), Failure> {
    let mut command = Command::new("busybox");
    output("insmod", command.arg("insmod").arg(file))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_has_every_source_of_the_module() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/uintr");
        let entries = fs::read_dir(source).unwrap().map(|entry| entry.unwrap());
        let files = entries.filter(|entry| entry.path().is_file());
        let mut names: Vec<_> = files
            .map(|file| file.file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, SOURCES.map(|(name, _)| name));
    }
}
