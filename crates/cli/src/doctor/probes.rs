//! One function per question. Files are read below a root directory, so that
//! tests can describe a machine as a tree of files.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use giveway_hints::slot::{self, OpenError, Table};
use giveway_metasched::scx_loader::{RIVAL_MAX, rival};

use super::running::{config, patch, release, text, version};
use super::{Finding, Way, disks, kernel, lab, locks, missing, note, ok, uintr};
use crate::cgroup::{Hierarchy, Withheld, has_v1};
use crate::service::{self, UFS};
use giveway_machine::sched_ext::{SchedExt, State, is_ops};

const KERNEL_REMEDY: &str = "boot a kernel of 6.12 or newer with CONFIG_SCHED_CLASS_EXT=y \
     (Debian's own 6.12 lacks it: linux-image-amd64, or -arm64, from sid)";

/// Every finding about the machine whose root directory is `root`; `bench` is the file of
/// giveway-bench.
pub(super) fn all(root: &Path, bench: Option<&Path>) -> Vec<Finding> {
    let mut found = vec![sched_ext(root)];
    found.extend(architecture(ARCH));
    found.extend(features(root));
    found.extend([
        btf(root),
        settings(root),
        cgroups(root),
        disks::finding(root),
        locks::finding(root),
        permissions(root),
        scheduler(),
        postgres(root),
        hints(root),
    ]);
    found.extend(psi_deadlock(root));
    found.extend(rival(RIVAL_MAX).map(|rival| loader(&rival)));
    found.extend(lab::findings(bench));
    found.extend(uintr::findings(root, uintr::cpu_has_them()));
    found.push(clang());
    found
}

fn sched_ext(root: &Path) -> Finding {
    let release = release(root);
    match SchedExt::under(root).state() {
        State::Unsupported => missing(
            Way::Native,
            "kernel",
            format!("Linux {release} has no sched_ext"),
            KERNEL_REMEDY,
        ),
        State::Enabled(ops) if !is_ops(&ops, UFS) => missing(
            Way::Native,
            "kernel",
            format!("another sched_ext scheduler is loaded: {ops}"),
            "stop it as it was started (systemctl stop scx, or kill its process)",
        ),
        State::Enabled(ops) => ok(
            Way::Native,
            "kernel",
            format!("Linux {release} with sched_ext, {ops} is loaded"),
        ),
        _ => ok(
            Way::Native,
            "kernel",
            format!("Linux {release} with sched_ext"),
        ),
    }
}

/// No line on the architecture on which UFS was tried.
fn architecture(arch: &str) -> Option<Finding> {
    let detail = format!("this is {arch}, and nobody has tried UFS but on x86_64");
    (arch != "x86_64").then(|| note(Way::Native, "machine", detail))
}

/// What the kernel lacks, if it can load a scheduler and there is one.
fn features(root: &Path) -> Vec<Finding> {
    match (SchedExt::under(root).state(), service::program()) {
        (State::Unsupported, _) | (_, None) => Vec::new(),
        (_, Some(scheduler)) => kernel::features(&scheduler),
    }
}

/// Another program that decides on schedulers; no line without one.
fn loader(rival: &str) -> Finding {
    missing(
        Way::Native,
        "scx_loader",
        format!("{rival} decides which scheduler is loaded"),
        service::LOADER_REMEDY,
    )
}

/// Kernels between two changes of pressure stall information: a write to a cgroup's
/// pressure file makes a kernel thread under a lock that a scheduler being enabled waits
/// for, while the thread waits for that scheduler (scx issue 3716). The first change came
/// with 7.1-rc2 and, in May 2026, to 6.18; the remedy with 7.2, 7.1.9 and 6.18.45. A
/// distribution may have it earlier: hence a note. No line for other kernels, nor for one
/// into which no scheduler can be loaded.
fn psi_deadlock(root: &Path) -> Option<Finding> {
    if SchedExt::under(root).state() == State::Unsupported {
        return None;
    }
    let release = release(root);
    let is_one = match (version(&release)?, patch(&release)) {
        ((7, 1), patch) => patch < 9,
        ((6, 18), patch) => patch < 45,
        ((7, 2), _) => release.contains("-rc"),
        _ => false,
    };
    (is_one && root.join("proc/pressure").is_dir()).then(|| Finding {
        remedy: Some(
            "boot Linux 7.2, 7.1.9 or 6.18.45 or newer, or one with \"sched/psi: Create the \
             psimon kthread outside of cgroup_mutex\"; until then do not load schedulers at \
             boot: systemctl disable giveway giveway-meta"
                .into(),
        ),
        ..note(
            Way::Native,
            "PSI",
            format!(
                "Linux {release} may deadlock if a scheduler is loaded while systemd starts \
                 services and watches their pressure, as at boot"
            ),
        )
    })
}

fn btf(root: &Path) -> Finding {
    if !root.join("sys/kernel/btf/vmlinux").is_file() {
        return missing(
            Way::Native,
            "BTF",
            "the kernel carries no type information",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF=y",
        );
    }
    // PAHOLE_VERSION is 125 for 1.25.
    let pahole = config(root).and_then(|config| number(&config, "CONFIG_PAHOLE_VERSION="));
    match (pahole, version(&release(root))) {
        (Some(pahole), Some(kernel)) if pahole < 126 && kernel >= (7, 1) => missing(
            Way::Native,
            "BTF",
            format!(
                "made by pahole 1.{}; this kernel will refuse every scheduler \
                 ('func_proto incompatible with vmlinux')",
                pahole - 100
            ),
            service::BTF_REMEDY,
        ),
        (Some(pahole), _) => ok(
            Way::Native,
            "BTF",
            format!("made by pahole 1.{}", pahole - 100),
        ),
        (None, _) => ok(Way::Native, "BTF", "/sys/kernel/btf/vmlinux"),
    }
}

/// What of the kernel's configuration loading UFS takes, beside what has a line of its
/// own: BPF programs compiled by the kernel, callbacks for cgroups, and a way to hook
/// functions.
const SETTINGS: [&str; 4] = [
    "CONFIG_BPF_SYSCALL",
    "CONFIG_BPF_JIT",
    "CONFIG_EXT_GROUP_SCHED",
    "CONFIG_FUNCTION_TRACER",
];

fn settings(root: &Path) -> Finding {
    let name = "settings";
    let wanted = SETTINGS.map(|name| format!("{name}=y"));
    let Some(config) = config(root) else {
        let detail = format!(
            "the kernel's configuration cannot be read; it must have {}",
            wanted.join(", ")
        );
        return note(Way::Native, name, detail);
    };
    let lacks: Vec<&str> = wanted
        .iter()
        .map(String::as_str)
        .filter(|wanted| config.lines().all(|line| line != *wanted))
        .collect();
    match lacks.as_slice() {
        [] => ok(Way::Native, name, "all that loading a scheduler needs"),
        lacks => {
            let lacks = lacks.join(" ");
            missing(
                Way::Native,
                name,
                format!("the kernel lacks {lacks}, which loading UFS needs"),
                format!("boot a kernel with {lacks}"),
            )
        }
    }
}

fn cgroups(root: &Path) -> Finding {
    let name = "cgroups";
    let mounts = text(root, "proc/self/mountinfo").unwrap_or_default();
    let Some(found) = Hierarchy::in_mounts(&mounts) else {
        let remedy = match has_v1(&mounts) {
            true => Withheld::ByV1.remedy(),
            false => "mount -t cgroup2 none /sys/fs/cgroup",
        };
        return missing(Way::Native, name, "cgroup v2 is not mounted", remedy);
    };
    // A test's tree has its mount points below its root.
    let mount = root.join(found.mount().strip_prefix("/").unwrap_or(found.mount()));
    let hierarchy = Hierarchy::at(&mount);
    let has = hierarchy.controllers();
    let lacks: Vec<&str> = ["cpu", "cpuset"]
        .into_iter()
        .filter(|wanted| !has.iter().any(|name| name == wanted))
        .collect();
    let path = found.mount().display();
    match lacks.as_slice() {
        [] => ok(
            Way::Native,
            name,
            format!("v2 at {path} with cpu and cpuset"),
        ),
        lacks => {
            let withheld = hierarchy.withheld(&mounts);
            missing(
                Way::Native,
                name,
                format!("v2 at {path} lacks {}: {withheld}", lacks.join(" and ")),
                withheld.remedy(),
            )
        }
    }
}

/// Capability bits: CAP_SYS_ADMIN and CAP_BPF.
const CAPABILITIES: [(u32, &str); 2] = [(21, "CAP_SYS_ADMIN"), (39, "CAP_BPF")];

fn permissions(root: &Path) -> Finding {
    let name = "permissions";
    let status = text(root, "proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next_back()?.to_owned())
    };
    let effective = field("CapEff:").and_then(|hex| u64::from_str_radix(&hex, 16).ok());
    let lacks: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(bit, _)| effective.unwrap_or(0) >> bit & 1 == 0)
        .map(|(_, name)| *name)
        .collect();
    match lacks.as_slice() {
        [] => ok(Way::Native, name, "may load BPF programs and schedulers"),
        lacks => missing(
            Way::Native,
            name,
            format!("this user lacks {}", lacks.join(" and ")),
            "use sudo; in a container, add the capabilities that docs/operate/kubernetes.md lists",
        ),
    }
}

fn scheduler() -> Finding {
    match service::program() {
        Some(path) => ok(Way::Native, "scx_ufs", path.display().to_string()),
        None => missing(
            Way::Native,
            "scx_ufs",
            "neither beside this program nor in PATH",
            "install the package giveway, or make install in Giveway's source",
        ),
    }
}

/// Hints are an addition: UFS works without, so their absence closes no way.
fn hints(root: &Path) -> Finding {
    let name = "hints";
    let dir = root.join(slot::DIR.trim_start_matches('/'));
    match Table::open(Some(&dir)) {
        Ok(table) if table.is_active() => {
            let (used, all) = table.usage();
            ok(
                Way::Native,
                name,
                format!("{used} of {all} of this user's slots are in use"),
            )
        }
        Ok(_) => note(
            Way::Native,
            name,
            "the slots are there, and UFS is not loaded",
        ),
        Err(error @ (OpenError::Absent { .. } | OpenError::Silent { .. })) => {
            note(Way::Native, name, error.to_string())
        }
        Err(error) => Finding {
            remedy: Some(
                "join the group that may have tables: usermod -aG giveway USER, and log in again"
                    .into(),
            ),
            ..note(Way::Native, name, error.to_string())
        },
    }
}

/// Only `bench` needs a PostgreSQL here, so its absence closes no way.
fn postgres(root: &Path) -> Finding {
    let name = "PostgreSQL";
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(root.join("usr/lib/postgresql"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let bin = entry.path().join("bin/postgres");
            let version = entry.file_name().to_str()?.parse().ok()?;
            bin.is_file().then_some((version, bin))
        })
        .collect();
    versions.sort();
    match versions.pop() {
        Some((version, path)) if version >= 14 => ok(
            Way::Native,
            name,
            format!("{version} at {}", path.display()),
        ),
        found => Finding {
            remedy: Some("apt-get install postgresql".into()),
            ..note(
                Way::Native,
                name,
                match found {
                    Some((version, _)) => format!("{version} is too old for native benchmarks"),
                    None => "not installed; only native benchmarks need it".to_owned(),
                },
            )
        },
    }
}

/// Only building needs it, so its absence closes no way.
fn clang() -> Finding {
    let wanted = std::env::var("BPF_CLANG").ok();
    let names = wanted
        .into_iter()
        .chain(["clang", "clang-19", "clang-18", "clang-17", "clang-16"].map(str::to_owned));
    let best = names
        .filter_map(|name| Some((clang_version(&name)?, name)))
        .max_by_key(|(version, _)| *version);
    match best {
        Some((version, name)) if version >= 16 => {
            ok(Way::Build, "clang", format!("{name} is version {version}"))
        }
        other => Finding {
            remedy: Some("apt-get install clang-19 (16 or newer is needed)".into()),
            ..note(
                Way::Build,
                "clang",
                match other {
                    Some((version, name)) => format!("{name} is version {version}, too old"),
                    None => "not installed".into(),
                },
            )
        },
    }
}

fn clang_version(program: &str) -> Option<u64> {
    let output = Command::new(program).arg("--version").output().ok()?;
    number(&String::from_utf8_lossy(&output.stdout), "clang version ")
}

/// The number that follows `label` in a text.
fn number(text: &str, label: &str) -> Option<u64> {
    let rest = text.split_once(label)?.1.trim_start();
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests;
