//! Applications that no policy has learnt from: programs as Debian has them, in the
//! places of the threads of [`load`](super::load).
//!
//! ```text
//!   cgroup         of threads        here
//!   oltp/serve     clients, servers  nginx with one worker, our clients over TCP
//!   oltp/upkeep    hungry threads    gzip of an access log, again and again
//!   batch/jobs     workers           gcc, file after file
//!   batch/upkeep   hungry threads    xz of a library of objects, again and again
//! ```
//!
//! The clients are those of OLTP with another request: they pause, and know a wrong
//! answer. A builder is a shell that reads the name of a source, compiles it and says
//! that it is done. Builders and upkeep share no lock with this process, so their
//! cgroups can be frozen outside of their phases: a phase has its own work only, as with
//! threads.
//!
//! Known weakness: a file takes about 0.4 s of the lab's. A run has few, and
//! their 99th percentile is the longest of all.

mod builder;
mod means;
mod nginx;

use std::path::Path;

use self::builder::Builder;
use self::means::{access_log, shell, write};
use self::nginx::Nginx;
use super::groups::ThreadGroup;
use super::load::{Load, Phase, Shape};
use super::process::Process;
use crate::harness::error::{Error, Result};

/// Debian's packages that have all of it.
pub(super) const PACKAGES: [&str; 6] = [
    "nginx",
    "gcc",
    "libc6-dev",
    "libstb-dev",
    "gzip",
    "xz-utils",
];

/// Objects as a build leaves them, of libc6-dev.
const OBJECTS: &str = "/usr/lib/x86_64-linux-gnu/libc.a";
/// Requests of the log that is compressed.
const LOG_LINES: u32 = 4000;

/// Starts them, at rest, in the cgroups that are there.
///
/// # Errors
/// [`Error::File`] and [`Error::Program`] if one cannot be started.
pub(super) fn start(seed: u64, shape: Shape) -> Result<Load> {
    let dir = tempfile::tempdir().map_err(|error| Error::Meta(error.to_string()))?;
    let mut load = Load::at_rest();
    let mut nginx = ThreadGroup::Serve.within(|| Nginx::start(dir.path()))?;
    load.add_clients(seed, shape, || Ok((nginx.client()?, None)))?;
    load.processes.push(nginx.process);
    let sources = builder::write_sources(dir.path())?;
    for number in 0..shape.workers as usize {
        let builder = ThreadGroup::Jobs.within(|| Builder::start(dir.path(), number))?;
        let sources = sources.clone();
        load.add_worker(move |board| Ok(builder.work(board, &sources)));
    }
    load.freeze_outside(Phase::Window, ThreadGroup::Jobs)?;
    let log = dir.path().join("access.log.1");
    write(&log, &access_log(LOG_LINES))?;
    for (place, phase, program, file) in [
        (
            ThreadGroup::OltpUpkeep,
            Phase::Window,
            "gzip",
            log.as_path(),
        ),
        (
            ThreadGroup::BatchUpkeep,
            Phase::Burst,
            "xz -1",
            Path::new(OBJECTS),
        ),
    ] {
        let line = format!(
            "while {program} -c '{}' > /dev/null; do :; done",
            file.display()
        );
        for _ in 0..shape.upkeep {
            let mut command = shell(&line);
            let process =
                place.within(|| Process::start("upkeep", dir.path(), &mut command, false))?;
            load.processes.push(process);
        }
        load.freeze_outside(phase, place)?;
    }
    load.dir = Some(dir);
    Ok(load)
}
