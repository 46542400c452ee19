//! The guest's kernel: the newest in Debian's archive that can load a
//! sched_ext scheduler, or the newest of an older series.
//!
//! Nothing is pinned, because the archive keeps only the newest build of each
//! suite. A candidate has to pass two tests: its configuration has
//! `CONFIG_SCHED_CLASS_EXT`, and a small scheduler loads in it. The second is
//! needed because a kernel whose type information was made by an old `pahole`
//! has everything in its configuration and still refuses every scheduler
//! ("func_proto incompatible with vmlinux").
//!
//! A series is `6.12` or `7.1`. Its kernel is Debian's own newest build if that
//! passes the two tests, else one that is built here from Debian's source
//! ([`source`]). It is kept apart from the newest of all, which guests boot
//! unless they are told otherwise.
//!
//! `debian-6.12` is Debian's build of a series as it is: it has modules and headers to
//! build more, and may have no schedulers.
//!
//! The series `cfl` is the newest source that `kernel/cfl` has patches for, with them: a
//! kernel whose locks are scheduled. It loads no schedulers, which would double the time
//! to build it.
//!
//! The series `debug` is the same with what the kernel has to find faults in itself, and
//! with the module of `kernel/uintr` built in, so that it is looked at, too.

mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::apt::{Apt, KERNEL_SUITES};
use crate::cache::{Cache, digest};
use crate::error::{LabError, Result};
use crate::initrd;
use crate::progress::Progress;
use source::Recipe;

/// The series whose locks are scheduled.
const CFL: &str = "cfl";
/// The series of Debian's source that it is made from.
const CFL_SERIES: &str = "7.2";
const CFL_CONFIG: &str = include_str!("../kernel/cfl.config");
/// The series that finds faults in itself.
const DEBUG: &str = "debug";
const DEBUG_CONFIG: &str = include_str!("../kernel/debug.config");
const DEBUG_PATCHES: &[(&str, &str)] = &[
    (
        "debug-1.patch",
        include_str!("../../../kernel/debug/0001-locktorture-locks-are-cfl-s.patch"),
    ),
    (
        "debug-2.patch",
        include_str!("../../../kernel/debug/0002-drivers-uintr-built-in.patch"),
    ),
];
/// The module of user interrupts, in the kernel's tree.
const DEBUG_FILES: &[(&str, &str)] = &[
    (
        "drivers/uintr/Makefile",
        "obj-y := uintr.o\nuintr-y := main.o receivers.o threads.o\n",
    ),
    (
        "drivers/uintr/internal.h",
        include_str!("../../../kernel/uintr/internal.h"),
    ),
    (
        "drivers/uintr/main.c",
        include_str!("../../../kernel/uintr/main.c"),
    ),
    (
        "drivers/uintr/receivers.c",
        include_str!("../../../kernel/uintr/receivers.c"),
    ),
    (
        "drivers/uintr/threads.c",
        include_str!("../../../kernel/uintr/threads.c"),
    ),
    (
        "drivers/uintr/uintr.h",
        include_str!("../../../kernel/uintr/uintr.h"),
    ),
];
const CFL_PATCHES: &[(&str, &str)] = &[
    (
        "1.patch",
        include_str!("../../../kernel/cfl/0001-cgroup-controller-lock.patch"),
    ),
    (
        "2.patch",
        include_str!("../../../kernel/cfl/0002-locking-cfl-classes-and-accounts.patch"),
    ),
    (
        "3.patch",
        include_str!("../../../kernel/cfl/0003-locking-mutex-cfl-queue.patch"),
    ),
    (
        "4.patch",
        include_str!("../../../kernel/cfl/0004-fs-s_vfs_rename_mutex-is-a-cfl-class.patch"),
    ),
    (
        "5.patch",
        include_str!("../../../kernel/cfl/0005-locking-cfl-test-mutex.patch"),
    ),
    (
        "6.patch",
        include_str!("../../../kernel/cfl/0006-locking-cfl-criteria-apart.patch"),
    ),
    (
        "7.patch",
        include_str!("../../../kernel/cfl/0007-locking-cfl-spinlocks.patch"),
    ),
    (
        "8.patch",
        include_str!("../../../kernel/cfl/0008-fs-rename_lock-is-a-cfl-class.patch"),
    ),
    (
        "9.patch",
        include_str!("../../../kernel/cfl/0009-locking-cfl-test-spinlock.patch"),
    ),
];

/// Before a series: Debian's build, whatever it lacks.
const DEBIAN: &str = "debian-";

/// The package that depends on the newest kernel of a suite. The cloud flavour
/// has all that a guest needs, and half the size.
const META_PACKAGE: &str = "linux-image-cloud-amd64";
/// Modules that are kept beside the kernel, for guests that want a disk with a queue.
const DRIVERS: [&str; 4] = ["bfq", "configfs", "mq-deadline", "null_blk"];
/// How the names of Debian's kernels begin and end; between them is the release.
const PACKAGE: (&str, &str) = ("linux-image-", "-cloud-amd64");

/// A kernel that guests boot.
#[derive(Clone, Debug)]
pub struct Kernel {
    dir: PathBuf,
}

impl Kernel {
    #[cfg(test)]
    pub(crate) fn at(dir: &Path) -> Kernel {
        let dir = dir.to_owned();
        Kernel { dir }
    }

    /// The kernel of the cache, or the newest of the archive that passes `probe`
    /// (`Ok(Some(reason))` when it fails).
    pub(crate) fn ensure(
        cache: &Cache,
        refresh: bool,
        progress: &dyn Progress,
        probe: impl Fn(&Kernel) -> Result<Option<String>>,
    ) -> Result<Kernel> {
        if !refresh && let Some(kernel) = Kernel::existing(cache) {
            return Ok(kernel);
        }
        let apt = Apt::open(cache, progress)?;
        let mut tried = String::new();
        for (release, version) in candidates(&apt)? {
            let name = format!("{}{release}", entry_prefix());
            let built = cache.entry(&name, |dir| {
                progress.begin(&format!("fetching kernel {release}"));
                fetch(&apt, cache, &release, &version, dir, progress)?;
                progress.end("fetched");
                let kernel = Kernel {
                    dir: dir.to_owned(),
                };
                match kernel.refusal(&probe, progress)? {
                    None => Ok(()),
                    Some(reason) => Err(LabError::NoKernel { tried: reason }),
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

    /// The kernel of the cache that guests boot unless told otherwise, if it is there.
    pub(crate) fn existing(cache: &Cache) -> Option<Kernel> {
        let dir = cache.newest(&entry_prefix())?;
        Some(Kernel { dir })
    }

    /// The kernel of a series, if it is in the cache.
    pub(crate) fn existing_of_series(cache: &Cache, series: &str) -> Option<Kernel> {
        let dir = cache.find(&series_entry(series))?;
        Some(Kernel { dir })
    }

    /// A kernel with patches of ours, from the cache or built.
    fn patched(cache: &Cache, name: &str, progress: &dyn Progress) -> Result<Kernel> {
        let dir = cache.entry(&series_entry(name), |dir| {
            let apt = Apt::open(cache, progress)?;
            let sources = apt.versions(&format!("linux-source-{CFL_SERIES}"))?;
            let Some((version, _)) = sources.first() else {
                return Err(LabError::NoSeries {
                    series: CFL_SERIES.to_owned(),
                    tried: String::new(),
                });
            };
            source::build(&apt, cache, &recipe(name), version, dir, progress)
        })?;
        Ok(Kernel { dir })
    }

    /// Debian's newest build of a series, whether or not a scheduler loads in it.
    fn of_debian(cache: &Cache, series: &str, progress: &dyn Progress) -> Result<Kernel> {
        let name = series_entry(&format!("{DEBIAN}{series}"));
        let dir = cache.entry(&name, |dir| {
            let apt = Apt::open(cache, progress)?;
            let Some((release, version)) = build_of(&apt, series)? else {
                return Err(LabError::NoSeries {
                    series: series.to_owned(),
                    tried: String::new(),
                });
            };
            progress.begin(&format!("fetching kernel {release}"));
            let fetched = fetch(&apt, cache, &release, &version, dir, progress);
            progress.end(if fetched.is_ok() { "fetched" } else { "failed" });
            fetched
        })?;
        Ok(Kernel { dir })
    }

    /// The kernel of a series such as `6.12`, from the cache, fetched or built.
    pub(crate) fn of_series(
        cache: &Cache,
        series: &str,
        progress: &dyn Progress,
        probe: impl Fn(&Kernel) -> Result<Option<String>>,
    ) -> Result<Kernel> {
        if [CFL, DEBUG].contains(&series) {
            return Kernel::patched(cache, series, progress);
        }
        if let Some(number) = series.strip_prefix(DEBIAN) {
            return Kernel::of_debian(cache, number, progress);
        }
        let dir = cache.entry(&series_entry(series), |dir| {
            let apt = Apt::open(cache, progress)?;
            let kernel = Kernel {
                dir: dir.to_owned(),
            };
            let mut tried = String::new();
            if let Some((release, version)) = build_of(&apt, series)? {
                progress.begin(&format!("fetching kernel {release}"));
                let fetched = fetch(&apt, cache, &release, &version, dir, progress);
                progress.end(if fetched.is_ok() { "fetched" } else { "failed" });
                match fetched.and_then(|()| kernel.refusal(&probe, progress)) {
                    Ok(None) => return Ok(()),
                    Ok(Some(reason)) | Err(LabError::NoKernel { tried: reason }) => {
                        tried.push_str(&format!("  {release}: {reason}\n"));
                    }
                    Err(other) => return Err(other),
                }
            }
            let sources = apt.versions(&format!("linux-source-{series}"))?;
            let Some((version, _)) = sources.first() else {
                return Err(LabError::NoSeries {
                    series: series.to_owned(),
                    tried,
                });
            };
            source::build(&apt, cache, &recipe(series), version, dir, progress)?;
            match kernel.refusal(&probe, progress)? {
                None => Ok(()),
                Some(reason) => Err(LabError::NoKernel {
                    tried: format!("{tried}  {} as built here: {reason}\n", kernel.release()),
                }),
            }
        })?;
        Ok(Kernel { dir })
    }

    /// Why it cannot be used, if so: what its configuration lacks, else what `probe` says.
    fn refusal(
        &self,
        probe: impl Fn(&Kernel) -> Result<Option<String>>,
        progress: &dyn Progress,
    ) -> Result<Option<String>> {
        progress.begin(&format!("loading a small scheduler in {}", self.release()));
        let reason = match self.reason_unusable()? {
            None => probe(self)?,
            lacking => lacking,
        };
        progress.end(match reason {
            None => "it loads",
            Some(_) => "it does not load",
        });
        Ok(reason)
    }

    /// Its release, as `uname -r` prints it.
    pub fn release(&self) -> String {
        fs::read_to_string(self.dir.join("release"))
            .unwrap_or_default()
            .trim()
            .to_owned()
    }

    /// One of [`DRIVERS`] as a file; none where the kernel has it built in, or was built
    /// here.
    pub(crate) fn driver(&self, name: &str) -> Option<PathBuf> {
        let path = self.dir.join("drivers").join(name).with_extension("ko");
        path.is_file().then_some(path)
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
/// and of what else they are made from, so that a changed one is made anew.
fn made_from(more: &[&[u8]]) -> String {
    let modules = initrd::MODULES.join(" ");
    let initrd = [initrd::INIT.as_bytes(), modules.as_bytes()];
    digest(initrd.into_iter().chain(more.iter().copied()))
}

fn entry_prefix() -> String {
    format!("kernel-{}-", made_from(&[DRIVERS.join(" ").as_bytes()]))
}

/// What a series is built from where Debian has no build of it that can be used.
fn recipe(series: &str) -> Recipe<'_> {
    match series {
        CFL => Recipe {
            name: CFL,
            series: CFL_SERIES,
            configs: &[CFL_CONFIG],
            patches: &[CFL_PATCHES],
            files: &[],
        },
        DEBUG => Recipe {
            name: DEBUG,
            series: CFL_SERIES,
            configs: &[CFL_CONFIG, DEBUG_CONFIG],
            patches: &[CFL_PATCHES, DEBUG_PATCHES],
            files: DEBUG_FILES,
        },
        _ => Recipe {
            name: "lab",
            series,
            configs: &[],
            patches: &[],
            files: &[],
        },
    }
}

/// The cache entry of a series. Debian's own build is made from no recipe.
fn series_entry(series: &str) -> String {
    let recipe = (!series.starts_with(DEBIAN)).then(|| recipe(series).digest());
    let more: Vec<_> = recipe.iter().map(String::as_bytes).collect();
    format!("series-{series}-{}", made_from(&more))
}

/// The series of which the archive has kernels that Debian built, oldest first.
pub(crate) fn series(apt: &Apt) -> Result<Vec<String>> {
    let releases = packaged(apt, "")?;
    let found: BTreeSet<Vec<u64>> = releases
        .iter()
        .filter_map(|release| Some(numbers(release).get(..2)?.to_vec()))
        .collect();
    let names = found.iter().map(|of| format!("{}.{}", of[0], of[1]));
    Ok(names.collect())
}

/// Release and package version of Debian's newest build of a series.
fn build_of(apt: &Apt, series: &str) -> Result<Option<(String, String)>> {
    let Some(release) = newest_release(&packaged(apt, &format!("{series}."))?) else {
        return Ok(None);
    };
    let versions = apt.versions(&format!("{}{release}", PACKAGE.0))?;
    let newest = versions.into_iter().next();
    Ok(newest.map(|(version, _)| (release, version)))
}

/// Releases that Debian has built and that begin with `start`.
fn packaged(apt: &Apt, start: &str) -> Result<Vec<String>> {
    let (before, after) = PACKAGE;
    let names = apt.names(&format!("{before}{start}"))?;
    let releases = names.iter().filter_map(|name| {
        let release = name.strip_prefix(before)?;
        // The package that only depends on the newest has no number.
        let known = release.ends_with(after) && release.starts_with(|c: char| c.is_ascii_digit());
        known.then(|| release.to_owned())
    });
    Ok(releases.collect())
}

fn newest_release(releases: &[String]) -> Option<String> {
    releases.iter().max_by_key(|name| numbers(name)).cloned()
}

/// The version that a release begins with: `7.2.13` of `7.2.13+deb14-cloud-amd64`.
fn numbers(release: &str) -> Vec<u64> {
    let end = release.find(|c: char| c != '.' && !c.is_ascii_digit());
    let version = &release[..end.unwrap_or(release.len())];
    version.split('.').map_while(|n| n.parse().ok()).collect()
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
        if !(name.starts_with("linux-") && name.ends_with(release)) {
            continue;
        }
        // Of old ones the archive keeps the image longer than what it depends on.
        let kept = apt.versions(&name)?;
        let fits = |(found, _): &(String, _)| exact.as_ref().is_none_or(|exact| exact == found);
        if !kept.iter().any(fits) {
            return Err(LabError::NoKernel {
                tried: format!("the archive no longer has {name}"),
            });
        }
        packages.push(exact.map_or(name.clone(), |version| format!("{name}={version}")));
    }
    packages.push(initrd::busybox_package());
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
    let drivers = dir.join("drivers");
    fs::create_dir(&drivers).map_err(LabError::io("making", &drivers))?;
    for name in DRIVERS {
        // One without a file is built into the kernel.
        if let Some(module) = initrd::find_module(&modules.join("kernel"), name) {
            let path = drivers.join(format!("{name}.ko"));
            let bytes = initrd::unpacked(&module)?;
            fs::write(&path, bytes).map_err(LabError::io("writing", &path))?;
        }
    }
    let busybox = initrd::busybox_in(tree.path());
    initrd::build(&busybox, Some(&modules), &config, &dir.join("initrd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_is_that_of_the_highest_number() {
        let releases = ["6.18.9+deb13-a", "6.18.15+deb13-a", "6.18.12+deb13-a"];
        let releases = releases.map(str::to_owned);
        assert_eq!(
            newest_release(&releases).as_deref(),
            Some(releases[1].as_str())
        );
        assert_eq!(newest_release(&[]), None);
        assert_eq!(numbers("7.2.13+deb14-cloud-amd64"), [7, 2, 13]);
    }

    #[test]
    fn a_series_is_found_in_the_cache_once_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let is_there = |series| Kernel::existing_of_series(&cache, series).is_some();
        assert!(!is_there(CFL));
        fs::create_dir(dir.path().join(series_entry(CFL))).unwrap();
        assert!(is_there(CFL) && !is_there("7.2") && !is_there("debian-7.2"));
    }
}
