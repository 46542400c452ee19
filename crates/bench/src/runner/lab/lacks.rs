//! What the lab has and lacks on this machine: what `giveway doctor` asks.
//!
//! Nothing is changed, built or booted. Anything in the cache was checked when it was
//! made.

use std::env::consts::ARCH;
use std::fs;
use std::path::Path;

use giveway_lab::{ARCHITECTURE, CACHE_REMEDY};
use nix::unistd::{AccessFlags, access};
use serde::Serialize;

/// What the lab occupies once built, in MiB, and what building it takes.
const BUILD_MIB: u64 = 6 * 1024;
/// What one guest takes, in MiB.
const GUEST_MIB: u64 = 4 * 1024;

/// What a finding means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Health {
    /// There.
    Ok,
    /// Missing, and the lab cannot be used.
    Missing,
    /// Missing or not to be told; the lab can be used.
    Note,
}

/// One part. `giveway` reads these fields (crates/cli, `doctor::lab`).
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    name: &'static str,
    health: Health,
    pub(super) detail: String,
    remedy: Option<&'static str>,
}

impl Finding {
    fn new(name: &'static str, health: Health, detail: impl Into<String>) -> Self {
        Finding {
            name,
            health,
            detail: detail.into(),
            remedy: None,
        }
    }

    fn with_remedy(self, remedy: &'static str) -> Self {
        Finding {
            remedy: Some(remedy),
            ..self
        }
    }
}

/// Every finding about the machine whose root directory is `root`.
pub(crate) fn findings(root: &Path) -> Vec<Finding> {
    let cache = giveway_lab::cache_root();
    let built = giveway_lab::cache_entries().unwrap_or_default();
    let has = |part: &str| built.iter().any(|entry| entry.name.starts_with(part));
    let parts = ["qemu", "kernel", "image"];
    let absent: Vec<&str> = parts.into_iter().filter(|part| !has(part)).collect();
    let mut found = Vec::from_iter(architecture(ARCH));
    found.extend([
        parts_of(&cache, &absent),
        kvm(root, giveway_lab::cached_parts(None).kvm_usable),
        disk(&cache, absent.is_empty()),
        memory(root),
    ]);
    found
}

/// No line where guests can run this machine's programs.
fn architecture(arch: &str) -> Option<Finding> {
    let detail = format!("the lab is for {ARCHITECTURE}, and this machine is {arch}");
    (arch != ARCHITECTURE).then(|| {
        Finding::new("machine", Health::Missing, detail).with_remedy("use an x86_64 machine")
    })
}

fn parts_of(cache: &Path, absent: &[&str]) -> Finding {
    match absent {
        [] => Finding::new("lab", Health::Ok, format!("built, in {}", cache.display())),
        absent => Finding::new(
            "lab",
            Health::Note,
            format!("not built yet: {} to be made", absent.join(", ")),
        )
        .with_remedy("giveway lab build (the first measurement does it, too)"),
    }
}

/// `is_usable` is what the lab has found out since this machine was booted.
pub(super) fn kvm(root: &Path, is_usable: Option<bool>) -> Finding {
    let (health, detail) = match is_usable {
        _ if !root.join("dev/kvm").exists() => (
            Health::Note,
            "not there: guests are emulated, which is slower",
        ),
        Some(true) => (Health::Ok, "used by the real clock"),
        Some(false) => (
            Health::Note,
            "there, but the kernel does not boot with it: guests are emulated",
        ),
        None => (
            Health::Note,
            "there; the first guest tries whether a kernel boots with it",
        ),
    };
    Finding::new("KVM", health, detail)
}

fn disk(cache: &Path, is_built: bool) -> Finding {
    let lab = cache.join("lab");
    let existing = lab.ancestors().find(|dir| dir.is_dir());
    // Guests, too, have files there.
    if let Some(dir) = existing
        && access(dir, AccessFlags::W_OK).is_err()
    {
        let detail = format!("{} cannot be written to", dir.display());
        return Finding::new("disk", Health::Missing, detail).with_remedy(CACHE_REMEDY);
    }
    let free = existing
        .and_then(|dir| nix::sys::statvfs::statvfs(dir).ok())
        .map(|fs| (fs.blocks_available() * fs.fragment_size()) >> 20);
    let cache = cache.display();
    match free {
        Some(free) if is_built || free >= BUILD_MIB => {
            Finding::new("disk", Health::Ok, format!("{free} MiB free for {cache}"))
        }
        Some(free) => Finding::new(
            "disk",
            Health::Missing,
            format!("{free} MiB free for {cache}, building takes {BUILD_MIB}"),
        )
        .with_remedy("free some, or set XDG_CACHE_HOME to another disk"),
        None => Finding::new("disk", Health::Note, "free space cannot be read"),
    }
}

fn memory(root: &Path) -> Finding {
    let info = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    match kib.map(|kib| kib >> 10) {
        Some(free) if free >= GUEST_MIB => {
            Finding::new("memory", Health::Ok, format!("{free} MiB available"))
        }
        Some(free) => Finding::new(
            "memory",
            Health::Missing,
            format!("{free} MiB available, a guest takes {GUEST_MIB}"),
        )
        .with_remedy("end other programs, or give the machine more memory"),
        None => Finding::new("memory", Health::Note, "available memory cannot be read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_memory_closes_the_lab() {
        let with = |mib: u64| {
            let root = tempfile::tempdir().unwrap();
            let info = format!("MemTotal: 9 kB\nMemAvailable:   {} kB\n", mib << 10);
            fs::create_dir(root.path().join("proc")).unwrap();
            fs::write(root.path().join("proc/meminfo"), info).unwrap();
            memory(root.path()).health
        };
        assert_eq!(with(8192), Health::Ok);
        assert_eq!(with(1000), Health::Missing);
    }

    #[test]
    fn kvm_is_what_the_lab_has_found_out() {
        let root = tempfile::tempdir().unwrap();
        assert!(kvm(root.path(), Some(true)).detail.contains("not there"));
        fs::create_dir(root.path().join("dev")).unwrap();
        fs::write(root.path().join("dev/kvm"), "").unwrap();
        for (is_usable, health, words) in [
            (Some(true), Health::Ok, "used"),
            (Some(false), Health::Note, "does not boot with it"),
            (None, Health::Note, "the first guest tries"),
        ] {
            let found = kvm(root.path(), is_usable);
            assert_eq!(found.health, health);
            assert!(found.detail.contains(words), "{}", found.detail);
        }
    }

    #[test]
    fn other_architectures_close_the_lab() {
        assert!(architecture("x86_64").is_none());
        let found = architecture("aarch64").unwrap();
        assert_eq!(found.health, Health::Missing);
        assert!(found.detail.contains("aarch64"));
    }

    #[test]
    fn what_is_not_built_is_named_with_the_remedy() {
        let cache = Path::new("/c");
        let found = parts_of(cache, &["kernel", "image"]);
        assert_eq!(found.health, Health::Note);
        assert!(found.detail.contains("kernel, image"));
        assert!(found.remedy.unwrap().contains("giveway lab build"));
        assert_eq!(parts_of(cache, &[]).health, Health::Ok);
    }
}
