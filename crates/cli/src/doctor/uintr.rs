//! What user interrupts take: a CPU, a kernel that the module can be built for and loaded
//! into, the module, and its device.
//!
//! Only programs of `giveway-preempt` use them, and those do without: nothing here closes
//! a way. A machine whose CPU lacks them has one line, since the rest would not help it.

use std::fs::OpenOptions;
use std::path::Path;

use super::running::{config, release, text, version};
use super::{Finding, Way, note, ok};

const WAY: Way = Way::UserInterrupts;
/// The oldest kernel that the module is for, and the newest that it was tried on.
const OLDEST: (u64, u64) = (6, 12);
const NEWEST: (u64, u64) = (7, 2);

/// Whether this CPU has user interrupts. `/proc/cpuinfo` does not tell: the kernel has no
/// name for them.
pub(super) fn cpu_has_them() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid_count;
        // Leaf 7, EDX bit 5: UINTR.
        __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).edx & 1 << 5 != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Every finding about the machine whose root directory is `root`.
pub(super) fn findings(root: &Path, cpu_has_them: bool) -> Vec<Finding> {
    if !cpu_has_them {
        return vec![lacking(
            "CPU",
            "this CPU has no user interrupts; giveway-preempt uses signals instead",
            "take an Intel CPU from Sapphire Rapids on; a virtual machine's host must pass \
             them on",
        )];
    }
    let module = module(root);
    let mut found = vec![ok(WAY, "CPU", "has user interrupts"), kernel(root)];
    // The device comes with the module.
    let device = module.is_ok().then(|| device(root));
    found.push(module.unwrap_or_else(|finding| finding));
    found.extend(device);
    found
}

fn lacking(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding {
        remedy: Some(remedy.into()),
        ..note(WAY, name, detail)
    }
}

/// The kernel, as the module judges it when it is built and loaded.
fn kernel(root: &Path) -> Finding {
    const NAME: &str = "kernel";
    let release = release(root);
    if version(&release).is_some_and(|version| version < OLDEST) {
        return lacking(
            NAME,
            format!("Linux {release} is older than the module is for"),
            "boot a kernel of 6.12 to 7.2",
        );
    }
    let cpuinfo = text(root, "proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    if flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "pti")) {
        return lacking(
            NAME,
            "page-table isolation hides the module's tables from the CPU",
            "boot with nopti, if the CPU does not need it",
        );
    }
    let Some(config) = config(root) else {
        return note(
            WAY,
            NAME,
            "its configuration cannot be read; it must have CONFIG_KVM, CONFIG_TRACEPOINTS and \
             no CONFIG_PREEMPT_RT",
        );
    };
    let is = |setting: &str| config.lines().any(|line| line == setting);
    if !is("CONFIG_KVM=m") && !is("CONFIG_KVM=y") {
        return lacking(
            NAME,
            "it lacks CONFIG_KVM, whose hooks the module uses",
            "boot a kernel with CONFIG_KVM=m",
        );
    }
    if !is("CONFIG_TRACEPOINTS=y") {
        return lacking(
            NAME,
            "it lacks CONFIG_TRACEPOINTS, by which the module sees a thread end",
            "boot a kernel with CONFIG_TRACEPOINTS=y",
        );
    }
    if is("CONFIG_PREEMPT_RT=y") {
        return lacking(
            NAME,
            "the module is not for kernels with CONFIG_PREEMPT_RT",
            "boot a kernel without it",
        );
    }
    if version(&release).is_some_and(|version| version > NEWEST) {
        return lacking(
            NAME,
            format!("nobody has tried the module on Linux {release}, and DKMS skips it"),
            "boot a kernel of 6.12 to 7.2, or try: make -C kernel/uintr",
        );
    }
    ok(
        WAY,
        NAME,
        format!("the module can be built for Linux {release}"),
    )
}

/// Whether the module is loaded, and how it comes to be.
fn module(root: &Path) -> Result<Finding, Finding> {
    const NAME: &str = "module";
    if root
        .join("sys/module/uintr/parameters/cr4_repairs")
        .exists()
    {
        return Ok(ok(WAY, NAME, "uintr is loaded"));
    }
    if root.join("dev/uintr").exists() {
        return Err(lacking(
            NAME,
            "/dev/uintr is another driver's",
            "unload that driver (rmmod), then modprobe uintr",
        ));
    }
    let dir = root.join("lib/modules").join(release(root));
    let built = ["updates/dkms", "updates"]
        .iter()
        .flat_map(|place| ["ko", "ko.xz", "ko.zst"].map(|end| format!("{place}/uintr.{end}")))
        .any(|file| dir.join(file).is_file());
    Err(match built {
        true => lacking(
            NAME,
            "uintr is built and not loaded",
            "modprobe uintr; if the kernel refuses its signature (Secure Boot), mokutil \
             --import /var/lib/dkms/mok.pub, and confirm at the next boot",
        ),
        false => lacking(
            NAME,
            "uintr is not built for this kernel",
            "install the package giveway-uintr-dkms (docs/design/user-interrupts.md; it needs \
             the kernel's headers to build), then modprobe uintr",
        ),
    })
}

/// What programs open.
fn device(root: &Path) -> Finding {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .open(root.join("dev/uintr"));
    match opened {
        Ok(_) => ok(WAY, "device", "/dev/uintr can be opened"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => lacking(
            "device",
            "there is no /dev/uintr, though its module is loaded",
            "mount devtmpfs at /dev; in a container, pass it in (--device /dev/uintr)",
        ),
        Err(error) => lacking(
            "device",
            format!("/dev/uintr cannot be opened: {error}"),
            "chmod 666 /dev/uintr, which is how the module makes it; in a container, pass it \
             in (--device /dev/uintr)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::Health;
    use super::*;

    const CONFIG: &str = "CONFIG_KVM=m\nCONFIG_TRACEPOINTS=y\n";
    const PARAMETER: &str = "sys/module/uintr/parameters/cr4_repairs";

    /// A machine that lacks nothing, but for what `differs` says of its files.
    fn machine(differs: &[(&str, Option<&str>)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let all = [
            ("proc/sys/kernel/osrelease", Some("7.2.1\n")),
            ("proc/cpuinfo", Some("flags\t\t: fpu vme\n")),
            ("boot/config-7.2.1", Some(CONFIG)),
            (PARAMETER, Some("0\n")),
            ("dev/uintr", Some("")),
        ];
        for (path, text) in all.iter().chain(differs) {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match text {
                Some(text) => fs::write(path, text).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
        }
        dir
    }

    /// Name, detail and remedy of what is not ok.
    fn lacks(differs: &[(&str, Option<&str>)]) -> Vec<(String, String, String)> {
        let machine = machine(differs);
        let found = findings(machine.path(), true);
        assert!(found.iter().all(|f| f.health != Health::Missing));
        let lacking = found.into_iter().filter(|f| f.health != Health::Ok);
        lacking
            .map(|f| (f.name.into_owned(), f.detail, f.remedy.unwrap_or_default()))
            .collect()
    }

    #[test]
    fn a_machine_that_has_all_lacks_nothing() {
        assert_eq!(lacks(&[]), []);
        assert_eq!(findings(machine(&[]).path(), true).len(), 4);
    }

    #[test]
    fn a_cpu_without_them_has_one_line() {
        let found = findings(machine(&[]).path(), false);
        assert_eq!(found.len(), 1);
        assert_eq!((&*found[0].name, found[0].health), ("CPU", Health::Note));
        assert!(
            found[0]
                .remedy
                .as_ref()
                .unwrap()
                .contains("Sapphire Rapids")
        );
    }

    #[test]
    fn each_thing_that_is_lacking_is_named_with_its_remedy() {
        let config = "boot/config-7.2.1";
        let old = "proc/sys/kernel/osrelease";
        let rt = format!("{CONFIG}CONFIG_PREEMPT_RT=y\n");
        let built = "lib/modules/7.2.1/updates/dkms/uintr.ko.xz";
        let unloaded = [(PARAMETER, None), ("dev/uintr", None)];
        let built = [unloaded[0], unloaded[1], (built, Some(""))];
        let untried = [(old, Some("7.3.0")), ("boot/config-7.3.0", Some(CONFIG))];
        type Differs<'a> = &'a [(&'a str, Option<&'a str>)];
        let cases: [(Differs<'_>, &str, &str, &str); 11] = [
            (&[(old, Some("6.11.9"))], "kernel", "older", "6.12 to 7.2"),
            (&untried, "kernel", "nobody has tried", "6.12 to 7.2"),
            (
                &[("proc/cpuinfo", Some("flags : fpu pti\n"))],
                "kernel",
                "isolation",
                "nopti",
            ),
            (
                &[(config, Some("CONFIG_TRACEPOINTS=y\n"))],
                "kernel",
                "CONFIG_KVM",
                "CONFIG_KVM=m",
            ),
            (
                &[(config, Some("CONFIG_KVM=y\n"))],
                "kernel",
                "TRACEPOINTS",
                "TRACEPOINTS=y",
            ),
            (&[(config, Some(&rt))], "kernel", "PREEMPT_RT", "without it"),
            (&[(config, None)], "kernel", "cannot be read", ""),
            (&unloaded, "module", "not built", "giveway-uintr-dkms"),
            (&built, "module", "not loaded", "modprobe uintr"),
            (&[(PARAMETER, None)], "module", "another driver's", "rmmod"),
            (
                &[("dev/uintr", None)],
                "device",
                "no /dev/uintr",
                "devtmpfs",
            ),
        ];
        for (differs, name, detail, remedy) in cases {
            let lacks = lacks(differs);
            let [(found, said, mended)] = lacks.as_slice() else {
                panic!("{differs:?}: {lacks:?}");
            };
            assert_eq!(found, name, "{differs:?}");
            assert!(said.contains(detail), "{said}");
            assert!(mended.contains(remedy), "{mended}");
        }
    }
}
