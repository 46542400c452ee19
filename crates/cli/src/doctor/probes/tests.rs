//! Machines as trees of files.

use super::super::Health;
use super::*;

/// A machine with these files.
fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

const RELEASE: &str = "proc/sys/kernel/osrelease";
const BTF: &str = "sys/kernel/btf/vmlinux";
/// There, with any text, if the kernel has sched_ext.
const STATE: &str = "sys/kernel/sched_ext/state";

#[test]
fn a_kernel_without_sched_ext_is_named_with_the_remedy() {
    let finding = sched_ext(machine(&[(RELEASE, "6.1.0-44-amd64\n")]).path());
    assert_eq!(finding.health, Health::Missing);
    assert!(finding.detail.contains("6.1.0-44-amd64"));
    assert!(finding.remedy.unwrap().contains("6.12"));
}

#[test]
fn another_scheduler_is_in_the_way_and_ufs_itself_is_not() {
    let with = |ops| {
        let root = machine(&[(STATE, "enabled"), ("sys/kernel/sched_ext/root/ops", ops)]);
        sched_ext(root.path()).health
    };
    assert_eq!(with("lavd_1.1.4"), Health::Missing);
    assert_eq!(with("ufs_0.1.0"), Health::Ok);
}

#[test]
fn the_scx_project_s_loader_is_in_the_way() {
    let finding = loader("scx_loader (process 17)");
    assert_eq!(finding.health, Health::Missing);
    assert!(finding.detail.contains("17"));
    assert!(finding.remedy.unwrap().contains("scx_loader"));
}

#[test]
fn kernels_that_psi_can_deadlock_are_noted_and_others_are_not() {
    let with = |release: &str, pressure: &str| {
        let files = [(RELEASE, release), (pressure, ""), (STATE, "disabled")];
        psi_deadlock(machine(&files).path())
    };
    let psi = "proc/pressure/cpu";
    for release in [
        "7.1.8-amd64\n",
        "7.1-rc4\n",
        "7.2.0-rc1\n",
        "6.18.44-cloud\n",
    ] {
        let finding = with(release, psi).unwrap_or_else(|| panic!("{release}"));
        // It may have the remedy already.
        assert_eq!(finding.health, Health::Note, "{release}");
        assert!(finding.detail.contains("deadlock"), "{}", finding.detail);
        assert!(finding.remedy.unwrap().contains("7.1.9"));
    }
    for (release, file) in [
        ("7.2.13+deb14-cloud-amd64\n", psi),
        ("7.1.9-amd64\n", psi),
        ("6.18.45\n", psi),
        ("6.12.43\n", psi),
        ("7.1.3\n", "proc/other"),
    ] {
        assert!(with(release, file).is_none(), "{release} {file}");
    }
    // No scheduler can be loaded there.
    let without = machine(&[(RELEASE, "6.18.44\n"), (psi, "")]);
    assert!(psi_deadlock(without.path()).is_none());
}

#[test]
fn other_architectures_are_noted() {
    assert!(architecture("x86_64").is_none());
    let finding = architecture("aarch64").unwrap();
    assert_eq!(finding.health, Health::Note);
    assert!(finding.detail.contains("aarch64"));
}

#[test]
fn btf_of_an_old_pahole_is_a_fault_from_kernel_7_1_on() {
    let with = |release: &str, pahole: u32| {
        let config = format!("CONFIG_PAHOLE_VERSION={pahole}\n");
        let path = format!("boot/config-{release}");
        let root = machine(&[(RELEASE, release), (BTF, ""), (&path, &config)]);
        btf(root.path())
    };
    let fault = with("7.2.12-amd64", 124);
    assert_eq!(fault.health, Health::Missing);
    assert!(fault.detail.contains("func_proto") && fault.detail.contains("1.24"));
    assert_eq!(with("7.2.13-amd64", 131).health, Health::Ok);
    assert_eq!(with("6.12.1-amd64", 124).health, Health::Ok);
    assert_eq!(btf(machine(&[]).path()).health, Health::Missing);
}

#[test]
fn each_setting_is_required_where_the_configuration_tells() {
    let with = |config: &str| {
        let root = machine(&[(RELEASE, "7.2"), ("usr/lib/modules/7.2/config", config)]);
        settings(root.path())
    };
    let all = SETTINGS.map(|name| format!("{name}=y\n")).concat();
    assert_eq!(with(&all).health, Health::Ok);
    for setting in SETTINGS {
        let off = format!("# {setting} is not set\n");
        let fault = with(&all.replace(&format!("{setting}=y\n"), &off));
        assert_eq!(fault.health, Health::Missing);
        assert!(fault.detail.contains(setting) && fault.remedy.unwrap().contains(setting));
    }
    let untold = settings(machine(&[(RELEASE, "7.2")]).path());
    assert_eq!(untold.health, Health::Note);
}

#[test]
fn a_hybrid_machine_is_told_how_to_leave_cgroup_v1() {
    let hybrid = "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  32 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let root = machine(&[
        ("proc/self/mountinfo", hybrid),
        ("sys/fs/cgroup/unified/cgroup.controllers", "\n"),
    ]);
    let finding = cgroups(root.path());
    assert_eq!(finding.health, Health::Missing);
    assert!(finding.detail.contains("lacks cpu and cpuset"));
    assert!(finding.remedy.unwrap().contains("unified_cgroup_hierarchy"));
    assert!(
        finding.detail.ends_with("held by cgroup v1"),
        "{}",
        finding.detail
    );

    let unified = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let root = machine(&[
        ("proc/self/mountinfo", unified),
        (
            "sys/fs/cgroup/cgroup.controllers",
            "cpuset cpu io memory pids\n",
        ),
    ]);
    assert_eq!(cgroups(root.path()).health, Health::Ok);
}

#[test]
fn a_container_is_told_that_its_cgroup_was_given_no_cpu() {
    let mounts = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let files = [
        ("proc/self/mountinfo", mounts),
        ("sys/fs/cgroup/cgroup.controllers", "memory pids\n"),
        ("sys/fs/cgroup/cgroup.type", "domain\n"),
    ];
    let inside = cgroups(machine(&files).path());
    assert_eq!(inside.health, Health::Missing);
    assert!(
        inside
            .detail
            .contains("lacks cpu and cpuset: not given to this part")
    );
    assert!(
        inside
            .remedy
            .unwrap()
            .contains("docs/operate/kubernetes.md")
    );
    // The machine's own hierarchy has no such file.
    let outside = cgroups(machine(&files[..2]).path());
    assert!(outside.remedy.unwrap().contains("CONFIG_CGROUP_SCHED=y"));
}

#[test]
fn a_compiler_that_is_not_installed_closes_no_way() {
    assert_ne!(clang().health, Health::Missing);
}

#[test]
fn capabilities_are_read_bit_by_bit() {
    let with = |caps: &str| {
        let status = format!("Name:\tx\nCapEff:\t{caps}\n");
        permissions(machine(&[("proc/self/status", &status)]).path())
    };
    assert_eq!(with("000001ffffffffff").health, Health::Ok);
    let finding = with("0000000000200000");
    assert_eq!(finding.health, Health::Missing);
    assert_eq!(finding.detail, "this user lacks CAP_BPF");
}

#[test]
fn the_newest_postgresql_counts_and_its_absence_closes_no_way() {
    let root = machine(&[
        ("usr/lib/postgresql/9/bin/postgres", ""),
        ("usr/lib/postgresql/17/bin/postgres", ""),
    ]);
    assert!(postgres(root.path()).detail.starts_with("17 at"));
    assert_eq!(postgres(machine(&[]).path()).health, Health::Note);
}

#[test]
fn numbers_and_versions_are_found_in_their_texts() {
    assert_eq!(
        number("Debian clang version 19.1.7 (3)", "clang version "),
        Some(19)
    );
    assert_eq!(number("nothing", "clang version "), None);
    assert_eq!(version("7.2.13+deb14-cloud-amd64"), Some((7, 2)));
    assert_eq!(version("weird"), None);
}
