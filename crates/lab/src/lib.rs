//! A kernel with sched_ext, anywhere.
//!
//! The lab boots Debian's newest kernel with `CONFIG_SCHED_CLASS_EXT` in QEMU,
//! on a machine that may have neither such a kernel nor KVM, runs one command
//! in it as root, streams what it prints, and returns its exit status and the
//! files it left in `/results`.
//!
//! ```text
//!   apt mirror ──► kernel   vmlinuz, config, initrd;    ┐
//!                           older series, built         │
//!              ──► qemu     built with the lab's        │  cache, made once,
//!                           patches, its firmware       │  entries appear whole
//!              ──► image    Debian trixie, PostgreSQL,  │  or not at all
//!                           the caller's layer          ┘
//!                    │
//!   Machine + Job ──► vm ──► Outcome { status, results }
//! ```
//!
//! Everything that enters or leaves a running guest is memory: the root file
//! system, the job and the results are NVDIMMs mapped from files. There is no
//! disk, no network and no host-timed interrupt, so a guest under the
//! [lockstep clock](Clock::Lockstep) repeats itself exactly for a given seed.
//!
//! This crate knows nothing of schedulers, databases or benchmarks: a caller
//! describes what the image needs beyond Debian as a [`Layer`].

mod answer;
mod apt;
mod archive;
mod cache;
mod command;
mod console;
mod costs;
mod error;
mod image;
mod initrd;
mod kernel;
mod machine;
mod module;
mod place;
mod progress;
mod qemu;
mod tree;
mod vm;

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};

pub use answer::{Answer, Repeat};
pub use cache::CacheEntry;
pub use costs::Costs;
pub use error::{LabError, Result};
pub use image::{IMAGE_PACKAGES, Layer};
pub use kernel::Kernel;
pub use machine::{Clock, Machine};
pub use place::{CACHE_REMEDY, cache_root};
pub use progress::{Lines, Progress, Silent};
pub use tree::Tree;
pub use vm::{Job, Outcome};

use apt::Apt;
use cache::Cache;
use image::Image;
use qemu::Qemu;

/// The architecture of guests, and so of a machine that has a lab: guests are given its
/// programs.
pub const ARCHITECTURE: &str = "x86_64";

/// What a lab is made of, beyond the defaults.
#[derive(Clone, Debug, Default)]
pub struct LabSpec {
    /// What the caller adds to the guest image.
    pub layer: Option<Layer>,
    /// Look for a newer kernel even if one is in the cache.
    pub refresh_kernel: bool,
    /// Boot the newest kernel of this series, such as `6.12`, and not the newest of all;
    /// `debian-6.12`: Debian's own build, which has modules, even if no scheduler loads
    /// in it; `cfl`: one whose locks are scheduled (`docs/design/cfl-kernel.md`); `debug`:
    /// that one with what finds faults in the kernel, which is slow.
    pub series: Option<String>,
}

/// A lab whose kernel, emulator and image are ready to boot.
#[derive(Debug)]
pub struct Lab {
    cache: Cache,
    kernel: Kernel,
    qemu: Qemu,
    image: Image,
}

impl Lab {
    /// Finds every part of the lab in the cache, or makes it.
    ///
    /// The first call on a machine takes about five minutes on two cores,
    /// later ones milliseconds.
    ///
    /// A kernel of a series that Debian does not build with sched_ext is built
    /// from source, once: ten to twenty minutes more. A build that is interrupted
    /// goes on where it stopped.
    ///
    /// # Errors
    /// A machine of another architecture, a missing host tool (with the package that has
    /// it), no usable kernel in the archive, a build that failed (with its last lines), too
    /// little disk.
    pub fn open(spec: &LabSpec, progress: &dyn Progress) -> Result<Lab> {
        if ARCH != ARCHITECTURE {
            return Err(LabError::Architecture(ARCH));
        }
        command::check_tools()?;
        let cache = Cache::open()?;
        cache.check_space()?;
        let (qemu, image) = emulator_and_image(&cache, spec.layer.as_ref(), progress)?;
        let probe = |candidate: &Kernel| vm::probe(&qemu, &image, candidate, &cache);
        let kernel = match &spec.series {
            Some(series) => Kernel::of_series(&cache, series, progress, probe)?,
            None => Kernel::ensure(&cache, spec.refresh_kernel, progress, probe)?,
        };
        Ok(Lab {
            cache,
            kernel,
            qemu,
            image,
        })
    }

    /// The kernel the guests boot.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Where the emulator lies.
    pub fn qemu(&self) -> PathBuf {
        self.qemu.binary()
    }

    /// Where the guest's root file system lies.
    pub fn image(&self) -> &Path {
        self.image.path()
    }

    /// Compiles the kernel module in the directory `source` for the kernel the guests
    /// boot, and answers with the directory of its `.ko` files. Takes two to four
    /// minutes, and nothing until a file of the directory or the kernel changes.
    ///
    /// # Errors
    /// A module that does not compile, with the compiler's last lines; a kernel of which
    /// Debian's archive has no headers: one that was built here, or has been replaced.
    pub fn module(&self, source: &Path, progress: &dyn Progress) -> Result<PathBuf> {
        module::build(&self.cache, &self.kernel.release(), source, progress)
    }

    /// A module of the kernel that a guest may be given, to have a disk with a queue:
    /// `null_blk` is the disk and needs `configfs`; `mq-deadline` and `bfq` are schedulers.
    /// None where the kernel has it built in, or was built here.
    pub fn driver(&self, name: &str) -> Option<PathBuf> {
        self.kernel.driver(name)
    }

    /// Whether [`Clock::Real`] runs on KVM here; found by booting with it once.
    pub fn kvm_usable(&self) -> bool {
        vm::kvm_usable(self)
    }

    /// Boots `machine`, runs `job` in it and waits for its end. `line` gets
    /// every line the job prints, as it is printed.
    ///
    /// # Errors
    /// An impossible configuration; a guest that panicked, hung or ran past
    /// the machine's timeout, with the last lines of its console. A job that
    /// merely failed is not an error: see [`Outcome::status`].
    pub fn run(&self, machine: &Machine, job: &Job, line: &mut dyn FnMut(&str)) -> Result<Outcome> {
        vm::run(self, machine, job, line)
    }

    /// What `job` says on `machine`: as [`Lab::run`], for who wants its lines and status and
    /// no results. A guest under the lockstep clock that was given exactly this before and
    /// ended with status 0 is not booted: it would say the same.
    /// `GIVEWAY_AGAIN=1` boots it.
    ///
    /// # Errors
    /// As [`Lab::run`]; a file of the job that cannot be read.
    pub fn answer(
        &self,
        machine: &Machine,
        job: &Job,
        line: &mut dyn FnMut(&str),
    ) -> Result<Answer> {
        answer::answer(self, machine, job, line)
    }

    /// Boots `machine` whatever is kept, runs `job`, and compares what it says with an
    /// earlier run: the answer that is kept (see [`Lab::answer`]), else one more boot.
    /// For who wants to show that a guest repeats itself; under [`Clock::Real`] none does.
    /// `GIVEWAY_AGAIN=1` boots both.
    ///
    /// # Errors
    /// As [`Lab::answer`]; [`LabError::Differs`], with the first line that differs and
    /// where the earlier run is kept.
    pub fn repeat(&self, machine: &Machine, job: &Job) -> Result<Repeat> {
        answer::repeat(self, machine, job)
    }

    /// Boots `machine` and connects its console to this terminal.
    ///
    /// # Errors
    /// As [`Lab::run`].
    pub fn shell(&self, machine: &Machine, job: &Job) -> Result<()> {
        vm::shell(self, machine, job)
    }
}

/// Without an emulator in the cache, it is built while the image is made: that keeps one
/// CPU busy at most, and so do parts of the build.
fn emulator_and_image(
    cache: &Cache,
    layer: Option<&Layer>,
    progress: &dyn Progress,
) -> Result<(Qemu, Image)> {
    if Qemu::existing(cache).is_some() {
        let qemu = Qemu::ensure(cache, progress)?;
        return Ok((qemu, Image::ensure(cache, layer, progress)?));
    }
    std::thread::scope(|scope| {
        // Two steps at once would be drawn over each other.
        let image = scope.spawn(|| Image::ensure(cache, layer, &Silent));
        let qemu = Qemu::ensure(cache, progress)?;
        progress.begin("making the guest image, begun beside QEMU");
        let image = image.join().expect("making an image does not panic");
        progress.end(if image.is_ok() { "made" } else { "failed" });
        Ok((qemu, image?))
    })
}

/// The parts of a lab that are in the cache.
#[derive(Debug, Default)]
pub struct CachedParts {
    /// The kernel that guests boot unless told otherwise.
    pub kernel: Option<Kernel>,
    /// The emulator's program.
    pub qemu: Option<PathBuf>,
    /// The guest's root file system, with the layer asked for.
    pub image: Option<PathBuf>,
    /// Whether this kernel boots with KVM; none if it was not tried since the host
    /// was booted.
    pub kvm_usable: Option<bool>,
}

/// The parts that [`Lab::open`] with this layer would find. Nothing is made, and no
/// guest booted.
pub fn cached_parts(layer: Option<&Layer>) -> CachedParts {
    let Some(cache) = Cache::existing() else {
        return CachedParts::default();
    };
    let kernel = Kernel::existing(&cache);
    CachedParts {
        kvm_usable: kernel
            .as_ref()
            .and_then(|kernel| vm::kvm_known(&cache, kernel)),
        kernel,
        qemu: Qemu::existing(&cache).map(|qemu| qemu.binary()),
        image: Image::existing(&cache, layer).map(|image| image.path().to_owned()),
    }
}

/// Whether [`Lab::open`] would find the kernel of this series and neither fetch nor build
/// it; see [`LabSpec::series`].
pub fn has_series(series: &str) -> bool {
    Cache::existing().is_some_and(|cache| Kernel::existing_of_series(&cache, series).is_some())
}

/// The series of kernels that Debian's archive has builds of, such as `6.12`, oldest
/// first. Not each of them can load a scheduler; see [`LabSpec::series`].
///
/// # Errors
/// No Debian mirror, or one that does not answer.
pub fn series(progress: &dyn Progress) -> Result<Vec<String>> {
    kernel::series(&Apt::open(&Cache::open()?, progress)?)
}

/// A directory with these packages of a Debian suite, unpacked and not installed: for
/// programs that are to run on another release's libraries. `suite` is `trixie` or
/// `sid`. Kept on disk until the suite has newer ones; without the archive, what was
/// fetched last is used.
///
/// # Errors
/// The archive does not answer and nothing was fetched before; a package that
/// the suite does not have.
pub fn unpacked(suite: &str, packages: &[&str], progress: &dyn Progress) -> Result<PathBuf> {
    let cache = Cache::open()?;
    let prefix = format!("packages-{suite}-{}-", packages.join("-"));
    match Apt::open(&cache, progress) {
        Ok(apt) => apt.unpacked(&cache, &prefix, suite, packages, progress),
        Err(error) => cache.newest(&prefix).ok_or(error),
    }
}

/// Everything the lab keeps on disk: name and size.
///
/// # Errors
/// The cache directory cannot be read.
pub fn cache_entries() -> Result<Vec<CacheEntry>> {
    Cache::existing().map_or(Ok(Vec::new()), |cache| cache.entries())
}

/// Removes everything the lab keeps on disk; returns how many bytes that freed.
///
/// # Errors
/// The cache directory cannot be read or changed.
pub fn clean() -> Result<u64> {
    Cache::open()?.clean()
}
