//! Whether tiers count at the kernel's locks: on a kernel with CFL, at the classes of locks
//! that are on.
//!
//! ```text
//! MOUNT/cgroup.controllers                       cpu io lock ...
//! /sys/kernel/debug/cfl/classes/rename_lock      0 or 1; for root
//! ```

use std::fs;
use std::path::Path;

use giveway_machine::cgroup::{self, Cgroup};

use super::running::text;
use super::{Finding, Way, note, ok};

const NAME: &str = "locks";
const CLASSES: &str = "sys/kernel/debug/cfl/classes";

/// Without it all else works: hence a note at most.
pub(super) fn finding(root: &Path) -> Finding {
    if !has_controller(root) {
        let detail = "this kernel has no CFL: tiers do not count at its locks";
        return note(Way::Native, NAME, detail);
    }
    let classes = fs::read_dir(root.join(CLASSES));
    let mut on: Vec<String> = classes
        .into_iter()
        .flatten()
        .flatten()
        .map(|class| class.file_name().to_string_lossy().into_owned())
        .filter(|class| text(&root.join(CLASSES), class).as_deref() == Some("1"))
        .collect();
    on.sort();
    if on.is_empty() {
        return Finding {
            remedy: Some(format!("echo 1 >/{CLASSES}/s_vfs_rename_mutex")),
            ..note(Way::Native, NAME, "CFL: no class of locks is seen to be on")
        };
    }
    ok(
        Way::Native,
        NAME,
        format!("CFL: tiers count at {}", on.join(", ")),
    )
}

fn has_controller(root: &Path) -> bool {
    let mount = text(root, "proc/self/mountinfo").and_then(|mounts| cgroup::mount_in(&mounts));
    mount.is_some_and(|mount| {
        let mount = root.join(mount.strip_prefix("/").unwrap_or(&mount));
        Cgroup::at(mount).offers("lock")
    })
}

#[cfg(test)]
mod tests {
    use super::super::Health;
    use super::*;

    /// A machine with these controllers, and classes of locks that are on or off.
    fn machine(controllers: &str, classes: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let mount = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        write("proc/self/mountinfo", mount);
        write("sys/fs/cgroup/cgroup.controllers", controllers);
        for (class, on) in classes {
            write(&format!("{CLASSES}/{class}"), on);
        }
        root
    }

    #[test]
    fn locks_count_if_the_kernel_has_the_controller_and_a_class_is_on() {
        let classes = [("rename_lock", "0\n"), ("s_vfs_rename_mutex", "1\n")];
        let found = finding(machine("cpu lock\n", &classes).path());
        assert_eq!(found.health, Health::Ok);
        assert_eq!(found.detail, "CFL: tiers count at s_vfs_rename_mutex");
        let off = finding(machine("cpu lock\n", &classes[..1]).path());
        assert_eq!(off.health, Health::Note);
        assert!(off.remedy.unwrap().ends_with("/s_vfs_rename_mutex"));
        let stock = finding(machine("cpu blocked\n", &[]).path());
        assert_eq!((stock.health, stock.remedy), (Health::Note, None));
    }
}
