//! The metascheduler on a thread of its own, as the daemon has it, and what it
//! says of itself meanwhile.
//!
//! Its thread is above the ordinary class, as in `giveway meta run`, and lives as
//! long as its scheduler: the kernel ends that with it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use giveway_metasched::config::Config;
use giveway_metasched::daemon::{Daemon, Status};
use giveway_metasched::host::Host;
use giveway_metasched::kernel::rise;
use giveway_metasched::scheduler::EEVDF;
use giveway_metasched::supervisor::Standing;
use giveway_metasched::system::System;
use tempfile::TempDir;

use crate::harness::error::{Error, Result};

/// What is known at this moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// What the daemon tells; none before its first step.
    pub(super) status: Option<Status>,
    /// The process of the scheduler in force.
    pub(super) process: Option<i32>,
    /// How many are being loaded, to wait for their turns.
    pub(super) loading: usize,
    /// What was said so far.
    pub(super) log: Vec<String>,
}

impl Seen {
    /// How often a scheduler came into force.
    pub(super) fn starts(&self) -> u64 {
        let starts = self
            .log
            .iter()
            .filter(|line| line.contains("is attached (took"));
        starts.count() as u64
    }

    /// Whether what is wanted is in force, and nothing is being loaded beside it.
    pub(super) fn is_at_rest(&self) -> bool {
        let is_so = |status: &Status| match &status.standing {
            Standing::Own => status.wanted == EEVDF,
            Standing::Running(name) => *name == status.wanted,
            Standing::Starting(_) | Standing::Stopping(_) | Standing::Aside(_) => false,
        };
        self.loading == 0 && self.status.as_ref().is_some_and(is_so)
    }

    /// Faults as they were told, without how long the scheduler is barred.
    pub(super) fn faults(&self) -> impl Iterator<Item = &str> {
        let lines = self.log.iter();
        lines.filter_map(|line| Some(line.split_once("; not tried again")?.0))
    }
}

/// A metascheduler at work.
#[derive(Debug)]
pub(super) struct Driver {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<bool, giveway_metasched::Error>>,
    _dir: TempDir,
}

impl Driver {
    /// Starts one by this configuration.
    ///
    /// # Errors
    /// [`Error::Meta`] if the configuration makes no sense.
    pub(super) fn start(config: &str) -> Result<Driver> {
        let failed = |error: &dyn std::fmt::Display| Error::Meta(error.to_string());
        let dir = tempfile::tempdir().map_err(|error| failed(&error))?;
        let path = dir.path().join("meta.toml");
        std::fs::write(&path, config).map_err(|error| failed(&error))?;
        let config = Config::read(&path).map_err(|error| failed(&error))?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let (told, asked) = (Arc::clone(&seen), Arc::clone(&stop));
        let own = dir.path().to_owned();
        let thread = thread::spawn(move || {
            rise();
            let mut host = System::new(&own.join("scheduler.log"))?;
            let mut daemon = Daemon::new(config, &own)?;
            let mut lines = Vec::new();
            while !asked.load(Relaxed) {
                let pause = daemon.step(&mut host, &mut |line| lines.push(line.to_owned()));
                let mut seen = told.lock().expect("nobody panics with it");
                seen.status = Some(daemon.status(host.now()));
                seen.process = host.process();
                seen.loading = host.loading();
                seen.log.append(&mut lines);
                drop(seen);
                host.rest(pause);
            }
            let is_gone = daemon.leave(&mut host, &mut |line| lines.push(line.to_owned()));
            told.lock()
                .expect("nobody panics with it")
                .log
                .append(&mut lines);
            Ok(is_gone)
        });
        Ok(Driver {
            seen,
            stop,
            thread,
            _dir: dir,
        })
    }

    /// What is known now.
    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().expect("nobody panics with it").clone()
    }

    /// Waits until what is known is as wanted.
    ///
    /// # Errors
    /// [`Error::Meta`] if that does not come about within `limit`; `what` says
    /// what was waited for.
    pub(super) fn wait(
        &self,
        what: &str,
        limit: Duration,
        is_so: impl Fn(&Seen) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !is_so(&self.seen()) {
            if self.thread.is_finished() || Instant::now() > deadline {
                let log = self.seen().log.join("; ");
                return Err(Error::Meta(format!("no {what} after {limit:?}: {log}")));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends it, with Linux's own scheduler in force; what was known last.
    ///
    /// # Errors
    /// [`Error::Meta`] if its scheduler does not go.
    pub(super) fn end(self) -> Result<Seen> {
        self.stop.store(true, Relaxed);
        let ended = self.thread.join().expect("it does not panic");
        match ended {
            Ok(true) => Ok(self.seen.lock().expect("nobody panics with it").clone()),
            Ok(false) => Err(Error::Meta("a scheduler does not go, though killed".into())),
            Err(error) => Err(Error::Meta(error.to_string())),
        }
    }
}
