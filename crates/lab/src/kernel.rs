//! The guest's kernel: the newest in Debian's archive that can load a
//! sched_ext scheduler.
//!
//! Nothing is pinned, because the archive keeps only the newest build of each
//! suite. A candidate has to pass two tests: its configuration has
//! `CONFIG_SCHED_CLASS_EXT`, and a small scheduler loads in it. The second is
//! needed because a kernel whose type information was made by an old `pahole`
//! has everything in its configuration and still refuses every scheduler
//! ("func_proto incompatible with vmlinux").

use std::fs;
use std::path::{Path, PathBuf};

use crate::apt::{Apt, KERNEL_SUITES};
use crate::cache::{Cache, digest};
use crate::error::{LabError, Result};
use crate::initrd;
use crate::progress::Progress;

/// The package that depends on the newest kernel of a suite. The cloud flavour
/// has all that a guest needs, and half the size.
const META_PACKAGE: &str = "linux-image-cloud-amd64";

/// A kernel that guests boot.
#[derive(Clone, Debug)]
pub struct Kernel {
    dir: PathBuf,
}

impl Kernel {
    /// The kernel of the cache, or the newest of the archive that passes `probe`
    /// (`Ok(Some(reason))` when it fails).
    pub(crate) fn ensure(
        cache: &Cache,
        refresh: bool,
        progress: &dyn Progress,
        probe: impl Fn(&Kernel) -> Result<Option<String>>,
    ) -> Result<Kernel> {
        if !refresh && let Some(dir) = cache.newest(&entry_prefix()) {
            return Ok(Kernel { dir });
        }
        let apt = Apt::open(cache, progress)?;
        let mut tried = String::new();
        for (release, version) in candidates(&apt)? {
            let name = format!("{}{release}", entry_prefix());
            let built = cache.entry(&name, |dir| {
                progress.begin(&format!("fetching kernel {release}"));
                fetch(&apt, cache, &release, &version, dir, progress)?;
                progress.end("fetched");
                progress.begin(&format!("loading a small scheduler in {release}"));
                let kernel = Kernel {
                    dir: dir.to_owned(),
                };
                match kernel
                    .reason_unusable()?
                    .map_or_else(|| probe(&kernel), |why| Ok(Some(why)))?
                {
                    None => {
                        progress.end("it loads");
                        Ok(())
                    }
                    Some(reason) => {
                        progress.end("it does not load");
                        Err(LabError::NoKernel { tried: reason })
                    }
                }
            });
            match built {
                Ok(dir) => return Ok(Kernel { dir }),
                Err(LabError::NoKernel { tried: reason }) => {
                    tried.push_str(&format!("  {release}: {reason}\n"));
                }
                Err(other) => return Err(other),
            }
        }
        Err(LabError::NoKernel { tried })
    }

    /// Its release, as `uname -r` prints it.
    pub fn release(&self) -> String {
        fs::read_to_string(self.dir.join("release"))
            .unwrap_or_default()
            .trim()
            .to_owned()
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    pub(crate) fn initrd(&self) -> PathBuf {
        self.dir.join("initrd")
    }

    /// What the configuration lacks.
    fn reason_unusable(&self) -> Result<Option<String>> {
        let path = self.dir.join("config");
        let config = fs::read_to_string(&path).map_err(LabError::io("reading", &path))?;
        Ok([
            "CONFIG_SCHED_CLASS_EXT",
            "CONFIG_DEBUG_INFO_BTF",
            "CONFIG_FUNCTION_TRACER",
        ]
        .into_iter()
        .find(|option| !config.lines().any(|line| line == format!("{option}=y")))
        .map(|option| format!("built without {option}")))
    }
}

/// Cache entries of kernels carry a digest of the initial RAM disk's content,
/// so that a changed one is made anew.
fn entry_prefix() -> String {
    format!(
        "kernel-{}-",
        digest([
            initrd::INIT.as_bytes(),
            initrd::MODULES.join(" ").as_bytes()
        ])
    )
}

/// Kernel releases and package versions, the preferred suite first.
fn candidates(apt: &Apt) -> Result<Vec<(String, String)>> {
    let versions = apt.versions(META_PACKAGE)?;
    let mut candidates = Vec::new();
    for suite in KERNEL_SUITES {
        for (version, _) in versions.iter().filter(|(_, found)| found == suite) {
            for (name, _) in apt.dependencies(META_PACKAGE, version)? {
                if let Some(release) = name.strip_prefix("linux-image-") {
                    candidates.push((release.to_owned(), version.clone()));
                }
            }
        }
    }
    candidates.dedup();
    Ok(candidates)
}

/// Downloads a kernel's packages and leaves in `dir` what booting takes.
fn fetch(
    apt: &Apt,
    cache: &Cache,
    release: &str,
    version: &str,
    dir: &Path,
    progress: &dyn Progress,
) -> Result<()> {
    let image = format!("linux-image-{release}");
    // Newer packages are split: the image, its configuration and its modules
    // are dependencies with names that end in the same release.
    let mut packages = vec![format!("{image}={version}")];
    for (name, exact) in apt.dependencies(&image, version)? {
        if name.starts_with("linux-") && name.ends_with(release) {
            packages.push(exact.map_or(name.clone(), |version| format!("{name}={version}")));
        }
    }
    packages.push(format!("busybox-static/{}", crate::apt::GUEST_SUITE));
    let tree = cache.scratch("kernel-tree")?;
    apt.unpack(&packages, tree.path(), progress)?;

    let modules = ["usr/lib/modules", "lib/modules"]
        .iter()
        .map(|place| tree.path().join(place).join(release))
        .find(|place| place.is_dir())
        .ok_or_else(|| LabError::NoKernel {
            tried: format!("its packages hold no modules of {release}"),
        })?;
    let one_of = |places: [PathBuf; 2]| {
        places
            .into_iter()
            .find(|place| place.is_file())
            .ok_or_else(|| LabError::NoKernel {
                tried: "its packages have an unknown layout".into(),
            })
    };
    let boot = tree.path().join("boot");
    let vmlinuz = one_of([
        modules.join("vmlinuz"),
        boot.join(format!("vmlinuz-{release}")),
    ])?;
    let config = one_of([
        modules.join("config"),
        boot.join(format!("config-{release}")),
    ])?;
    for (from, to) in [(&vmlinuz, "vmlinuz"), (&config, "config")] {
        fs::copy(from, dir.join(to)).map_err(LabError::io("copying", from))?;
    }
    fs::write(dir.join("release"), release).map_err(LabError::io("writing", dir))?;
    let busybox = ["bin/busybox", "usr/bin/busybox"]
        .iter()
        .map(|place| tree.path().join(place))
        .find(|place| place.is_file())
        .unwrap_or_default();
    initrd::build(&busybox, &modules, &config, &dir.join("initrd"))
}
