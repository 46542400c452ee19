//! `scx_ufs`: the loader of the UFS scheduler.
//!
//! ```text
//! options.rs    command line, checked against itself and the watchdog
//! scheduler.rs  load, attach, wait, report
//! features.rs   what older kernels lack, and what UFS does without it
//! kconfig.rs    settings of the kernel where there is no file of them
//! topology.rs   which CPUs share a core, a cache, a NUMA node
//! verified.rs   how much work verifying the program was
//! standby.rs    commands to attach and detach on stdin; stop by signal
//! reattach.rs   resets the program's memory between two attachments
//! snapshot.rs   what the BPF program has counted, copied
//! stats.rs      counters as described statistics
//! table.rs      where hint tables are pinned; slots of dead threads
//! users.rs      one hint table for each user
//! journal.rs    messages, with their levels where the journal takes them
//! fd_server.rs  passes table fds to programs that cannot open the pin
//! marks.rs      tiers that root has marked cgroups with
//! lock_weights.rs  tiers and weights at the kernel's locks, where it has CFL
//! sessions.rs   owners of slots moved to cgroups, where that is wanted
//! bpf/          the scheduler
//! ```
//!
//! Exit status: 0 after SIGINT or SIGTERM; 1, with the reason on stderr, when
//! UFS could not be loaded or the kernel ejected it; 2 when an option is wrong, which
//! a service manager need not try again. After a change of the set of
//! CPUs the kernel ejects UFS with a request to restart, which is done here.

use std::mem::MaybeUninit;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{CommandFactory as _, Parser as _};
use log::{LevelFilter, error, info, warn};
use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;

mod bpf_intf;
mod bpf_skel;
mod counters;
mod fd_server;
mod features;
mod journal;
mod kconfig;
mod lock_weights;
mod marks;
mod options;
mod reattach;
mod scheduler;
mod sessions;
mod snapshot;
mod standby;
mod stats;
mod table;
mod topology;
mod users;
mod verified;

use options::{Opts, WrongOption};
use scheduler::{Exit, Loaded};
use standby::{Commands, Stop};

fn main() -> ExitCode {
    let opts = Opts::parse();
    journal::open(match opts.verbose {
        true => LevelFilter::Debug,
        false => LevelFilter::Info,
    });
    match run(&opts) {
        Ok(()) => ExitCode::SUCCESS,
        // The status and the last line are those of clap, for what it refuses itself: the
        // unit goes by the one, 'giveway start' by the other.
        Err(failure) if failure.is::<WrongOption>() => {
            error!("{failure:#}\n\nFor more information, try '--help'.");
            ExitCode::from(2)
        }
        Err(failure) => {
            error!("{failure:#}");
            ExitCode::FAILURE
        }
    }
}

/// Refuses kernels and callers that cannot load a scheduler: the libraries below would
/// blame something else.
fn entitled() -> Result<()> {
    features::needed()?;
    if !geteuid().is_root() {
        bail!("only root may load a scheduler: use sudo");
    }
    Ok(())
}

fn run(opts: &Opts) -> Result<()> {
    if opts.version {
        println!(
            "scx_ufs {}",
            scx_utils::build_id::full_version(env!("CARGO_PKG_VERSION"))
        );
        return Ok(());
    }
    if opts.man {
        clap_mangen::Man::new(Opts::command())
            // An empty date: without one the source would be in its place.
            .date("\"\"")
            .source(concat!("giveway ", env!("CARGO_PKG_VERSION")))
            .manual("Giveway")
            .render(&mut std::io::stdout())?;
        return Ok(());
    }
    if opts.help_stats {
        stats::server_data().describe_meta(&mut std::io::stdout(), None)?;
        return Ok(());
    }
    if opts.kernel_lacks {
        let lacking = serde_json::to_string(&features::lacking()?)?;
        println!("{lacking}");
        return Ok(());
    }
    // Others shall not reach the sockets and files made from here on, whatever is inherited.
    umask(Mode::from_bits_truncate(0o022));
    let stop = Stop::on_signals().context("cannot handle SIGINT and SIGTERM")?;

    if let Some(seconds) = opts.monitor.or(opts.stats) {
        let interval = Duration::try_from_secs_f64(seconds)
            .with_context(|| format!("'{seconds}' is no interval: write seconds, as in 0.5"))
            .map_err(WrongOption::of)?;
        let until = stop.flag();
        if opts.monitor.is_some() {
            return stats::monitor(interval, until);
        }
        std::thread::spawn(move || {
            if let Err(error) = stats::monitor(interval, until) {
                warn!("statistics have stopped: {error:#}");
            }
        });
    }

    let watchdog_ms = std::env::var("SCX_TIMEOUT_MS")
        .ok()
        .and_then(|text| text.parse().ok());
    let config = opts.config(watchdog_ms).map_err(WrongOption::of)?;
    if opts.verify_for.is_none() {
        entitled()?;
    }
    let mut open_object = MaybeUninit::uninit();
    if opts.verify_for.is_some() {
        let _loaded = Loaded::load(opts, &config, &mut open_object)?;
        println!("{}", serde_json::to_string(&verified::instructions())?);
        return Ok(());
    }
    let commands = opts.standby.then(Commands::on_stdin);
    // With --standby the first command attaches.
    let mut waits = commands.as_ref();
    loop {
        let mut loaded = Loaded::load(opts, &config, &mut open_object)?;
        loop {
            if let Some(commands) = waits.take() {
                // The parent may go by this line, and need not wait for the rest.
                println!("ready");
                loaded.reset()?;
                if !commands.wait(&stop) {
                    return Ok(());
                }
            }
            match loaded.attach()?.run(&stop, commands.as_ref())? {
                Exit::Stop => return Ok(()),
                Exit::Reload => {
                    info!("the set of CPUs has changed: loading again");
                    break;
                }
                Exit::Standby(detached) => {
                    loaded = *detached;
                    waits = commands.as_ref();
                }
            }
        }
    }
}
