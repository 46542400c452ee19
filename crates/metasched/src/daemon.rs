//! Follows a schedule for months: turns, reloading, pausing, telling.
//!
//! ```text
//!   meta.toml, measurements ──► Selector ──► Supervisor ──► Host
//!   DIR/paused (a file)     ──►  nothing but Linux's own scheduler
//!   DIR/status.json, DIR/metrics.prom    what `status` and a monitor read
//!   DIR/lock                             held while the daemon runs, by root alone
//! ```
//!
//! A turn's time begins when its scheduler is in force: a timeslice is what the
//! scheduler gets, and what a swap takes comes on top. The turn of a scheduler
//! that is barred or absent is spent under Linux's own scheduler; the others keep theirs.
//!
//! Orders are files. A pause survives a restart of the daemon, needs no
//! connection, and can be given while no daemon runs. A configuration that has
//! changed is read again within a second. An invalid one is rejected and reported in
//! the status, and the previous one stays active; so is one with another `through`,
//! which is fixed when the daemon starts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use giveway_machine::files;
use giveway_machine::lock::{self, Lock, LockError};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::scheduler::Scheduler;
use crate::selector::Selector;
use crate::supervisor::{Standing, Supervisor};

/// How often files are looked at and written.
const FILES: Duration = Duration::from_secs(1);
/// A daemon that has not written for so long is none.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long a process that asks whether a daemon runs holds the lock at most.
const GLANCE: Duration = Duration::from_millis(200);

/// The only daemon of a directory.
#[derive(Debug)]
pub struct DaemonLock(#[allow(dead_code, reason = "held until it is dropped")] Lock);

impl DaemonLock {
    /// # Errors
    /// [`Error::Occupied`] if there is one already, [`Error::File`] and [`Error::Lock`]
    /// if the directory or the lock cannot be made.
    pub fn take(dir: &Path) -> Result<DaemonLock> {
        files::directory(dir).map_err(Error::file("make", dir))?;
        match Lock::take(&dir.join("lock"), GLANCE) {
            Ok(lock) => Ok(DaemonLock(lock)),
            Err(LockError::Held { holder, .. }) => {
                let process = holder.map_or(String::new(), |holder| format!(": {holder}"));
                Err(Error::Occupied(format!(
                    "a metascheduler runs already{process}; 'giveway meta status' shows it"
                )))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a daemon runs on this directory. Other users than the daemon's cannot look at
/// its lock, and go by what it has written last.
pub fn is_running(dir: &Path) -> bool {
    lock::is_held(&dir.join("lock")).unwrap_or_else(|_| has_spoken(dir))
}

/// Whether a daemon has written its status lately, and its process is there.
fn has_spoken(dir: &Path) -> bool {
    let written = fs::metadata(dir.join("status.json")).and_then(|about| about.modified());
    let is_recent = written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < SILENCE_MAX));
    let status = Status::read(dir).ok().flatten();
    is_recent && status.is_some_and(|status| Path::new(&format!("/proc/{}", status.pid)).exists())
}

/// Whether the daemon of this directory is told to pause.
pub fn is_paused(dir: &Path) -> bool {
    paused_path(dir).exists()
}

fn paused_path(dir: &Path) -> PathBuf {
    dir.join("paused")
}

/// Has the daemon of this directory leave the machine to Linux's own scheduler,
/// or go on.
///
/// # Errors
/// [`Error::File`] if the order cannot be written.
pub fn pause(dir: &Path, on: bool) -> Result<()> {
    let path = paused_path(dir);
    if on {
        files::directory(dir).map_err(Error::file("make", dir))?;
        let made = files::create(&path).map(|_| ());
        made.map_err(Error::file("write", &path))
    } else {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::file("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }
}

/// What a daemon tells of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's process.
    pub pid: u32,
    /// What is in force, by the kernel's word.
    pub standing: Standing,
    /// What should be.
    pub wanted: String,
    /// Whether it was told to pause.
    pub paused: bool,
    /// Seconds left of the turn, where there are turns.
    pub turn_left_s: Option<f64>,
    /// The round: schedulers and seconds; none where phases are followed.
    pub turns: Vec<(String, f64)>,
    /// Seconds each scheduler was in force.
    pub in_force_s: BTreeMap<String, f64>,
    /// Complete swaps from one scheduler to another.
    pub switches: u64,
    /// What one took on average, seconds.
    pub switch_mean_s: Option<f64>,
    /// What went wrong.
    pub faults: Vec<FaultStatus>,
    /// Why the configuration on disk is not the one in force.
    pub config_error: Option<String>,
}

/// What one scheduler did wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FaultStatus {
    /// Its name.
    pub scheduler: String,
    /// How often.
    pub faults: u64,
    /// The last time.
    pub last: String,
    /// Seconds until it is tried again.
    pub barred_s: f64,
}

impl Status {
    /// What the daemon of this directory wrote last, if any ever did.
    ///
    /// # Errors
    /// [`Error::Content`] if the file is another program's.
    pub fn read(dir: &Path) -> Result<Option<Status>> {
        let path = dir.join("status.json");
        match files::read(&path) {
            Err(_) => Ok(None),
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .map_err(|error| Error::content(&path, error)),
        }
    }

    /// Whether this scheduler is in force.
    pub fn in_force(&self, name: &str) -> bool {
        matches!(&self.standing, Standing::Running(running) if running == name)
    }

    /// The same in the text form that Prometheus reads.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, rows: Vec<(String, f64)>| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# TYPE giveway_meta_{name} {kind}");
            for (labels, value) in rows {
                let _ = writeln!(text, "giveway_meta_{name}{labels} {value}");
            }
        };
        let label = |name: &str| format!("{{scheduler=\"{name}\"}}");
        let plain = |value: f64| vec![(String::new(), value)];
        let in_force = self.in_force_s.iter();
        family(
            "in_force_seconds_total",
            "counter",
            in_force.map(|(name, s)| (label(name), *s)).collect(),
        );
        let faults = self.faults.iter();
        family(
            "faults_total",
            "counter",
            faults
                .map(|f| (label(&f.scheduler), f.faults as f64))
                .collect(),
        );
        family("switches_total", "counter", plain(self.switches as f64));
        family("paused", "gauge", plain(f64::from(u8::from(self.paused))));
        let is_bad = self.config_error.is_some();
        family("config_error", "gauge", plain(f64::from(u8::from(is_bad))));
        text
    }
}

/// A metascheduler at work.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    dir: PathBuf,
    selector: Selector,
    supervisor: Supervisor,
    paused: bool,
    config_error: Option<String>,
    /// Why the status could not be written last.
    tell_error: Option<String>,
    seen: [Option<SystemTime>; 2],
    files_at: Option<Duration>,
    in_force: BTreeMap<String, Duration>,
    last_step: Option<Duration>,
}

impl Daemon {
    /// Of this configuration, with its files in `dir`.
    ///
    /// # Errors
    /// Those of [`Config::selector`].
    pub fn new(config: Config, dir: &Path) -> Result<Daemon> {
        Ok(Daemon {
            selector: config.selector()?,
            supervisor: Supervisor::new(config.limits),
            seen: stamps(&config),
            config,
            dir: dir.to_owned(),
            paused: false,
            config_error: None,
            tell_error: None,
            files_at: None,
            in_force: BTreeMap::new(),
            last_step: None,
        })
    }

    /// Does what is due, and says what happened. To be called again after the
    /// time it answers with, at the latest.
    pub fn step(&mut self, host: &mut impl Host, log: &mut dyn FnMut(&str)) -> Duration {
        let now = host.now();
        // Before anything changes: the time that has passed is that of what was
        // in force.
        self.count_time(now);
        let files_due = self.files_at.is_none_or(|at| now - at >= FILES);
        if files_due {
            self.files_at = Some(now);
            self.take_orders(log);
        }
        let own = Scheduler::eevdf();
        let mut pause = FILES;
        // A turn that ends is followed by the next one's beginning.
        for _ in 0..2 {
            let wanted = self.wanted().cloned().unwrap_or_else(|| own.clone());
            pause = pause.min(self.supervisor.step(&wanted, host));
            let is_settled = self.supervisor.is_settled(&wanted, host.now());
            if self.paused || !self.selector.advance(host, is_settled) {
                break;
            }
        }
        let mut happened = false;
        for event in self.supervisor.events() {
            log(&event.to_string());
            happened = true;
        }
        if files_due || happened {
            self.tell(host.now(), log);
        }
        self.keep_ready(host);
        let left = self.selector.left(host.now());
        match left.filter(|left| !left.is_zero() && !self.paused) {
            Some(left) => pause.min(left),
            None => pause,
        }
    }

    /// Leaves the machine to Linux's own scheduler; whether that has come about.
    pub fn leave(&mut self, host: &mut impl Host, log: &mut dyn FnMut(&str)) -> bool {
        self.count_time(host.now());
        let is_gone = self.supervisor.leave(host);
        for event in self.supervisor.events() {
            log(&event.to_string());
        }
        self.tell(host.now(), log);
        is_gone
    }

    /// Loads the schedulers of later turns ahead; not during a swap, which would wait
    /// for a CPU meanwhile.
    fn keep_ready(&self, host: &mut impl Host) {
        if !matches!(
            self.supervisor.standing(),
            Standing::Own | Standing::Running(_)
        ) {
            return;
        }
        // None while paused: no scheduler is wanted, and standby takes memory.
        let rows = self.schedulers().filter(|_| !self.paused);
        let in_force = self.supervisor.in_force();
        let rest: Vec<&Scheduler> = rows.filter(|row| row.name != in_force).collect();
        host.keep_ready(&rest);
    }

    /// Those whose turn may come.
    pub fn schedulers(&self) -> impl Iterator<Item = &Scheduler> {
        let names = self.selector.schedulers().into_iter();
        names.filter_map(|name| self.config.table.get(name))
    }

    /// The scheduler that should be in force; none while paused.
    fn wanted(&self) -> Option<&Scheduler> {
        let row = self.config.table.get(self.selector.wanted());
        row.filter(|_| !self.paused)
    }

    fn take_orders(&mut self, log: &mut dyn FnMut(&str)) {
        let paused = is_paused(&self.dir);
        if paused != self.paused {
            self.paused = paused;
            log(if paused {
                "paused: Linux's own scheduler until 'giveway meta resume'"
            } else {
                "resuming"
            });
        }
        let seen = stamps(&self.config);
        if seen == self.seen {
            return;
        }
        self.seen = seen;
        match self.reread() {
            Ok((selector, config)) => {
                log("the configuration has changed and is in force");
                self.selector.replace(selector);
                self.supervisor.set_limits(config.limits);
                self.config = config;
                self.config_error = None;
            }
            Err(error) => {
                log(&format!("the old configuration stays in force: {error}"));
                self.config_error = Some(error.to_string());
            }
        }
    }

    fn reread(&self) -> Result<(Selector, Config)> {
        let config = Config::read(&self.config.path)?;
        if config.through != self.config.through {
            let what = "another 'through' takes a new start: systemctl restart giveway-meta";
            return Err(Error::content(&config.path, what));
        }
        Ok((config.selector()?, config))
    }

    fn count_time(&mut self, now: Duration) {
        let passed = now - self.last_step.unwrap_or(now);
        self.last_step = Some(now);
        let name = match self.supervisor.standing() {
            Standing::Aside(ops) => ops,
            _ => self.supervisor.in_force().to_owned(),
        };
        *self.in_force.entry(name).or_default() += passed;
    }

    /// The status at this moment.
    pub fn status(&self, now: Duration) -> Status {
        let seconds = |duration: &Duration| duration.as_secs_f64();
        let costs = self.supervisor.costs();
        let records = self.supervisor.records().iter();
        let rotation = self.selector.rotation();
        Status {
            pid: std::process::id(),
            standing: self.supervisor.standing(),
            wanted: self
                .wanted()
                .map_or(crate::scheduler::EEVDF, |row| &row.name)
                .to_owned(),
            paused: self.paused,
            turn_left_s: rotation
                .and_then(|rotation| rotation.left(now))
                .filter(|_| !self.paused)
                .as_ref()
                .map(seconds),
            turns: rotation.map_or_else(Vec::new, |rotation| {
                let turns = rotation.schedule().turns.iter();
                turns
                    .map(|turn| (turn.scheduler.clone(), seconds(&turn.timeslice)))
                    .collect()
            }),
            in_force_s: self
                .in_force
                .iter()
                .map(|(name, time)| (name.clone(), seconds(time)))
                .collect(),
            switches: costs.switch.count,
            switch_mean_s: costs.switch.mean().as_ref().map(seconds),
            faults: records
                .map(|(name, record)| FaultStatus {
                    scheduler: name.clone(),
                    faults: record.faults,
                    last: record
                        .last
                        .as_ref()
                        .map(ToString::to_string)
                        .unwrap_or_default(),
                    barred_s: seconds(&record.barred_until.saturating_sub(now)),
                })
                .collect(),
            config_error: self.config_error.clone(),
        }
    }

    /// Writes status and metrics. A full disk is no reason to stop scheduling:
    /// it is told of once.
    fn tell(&mut self, now: Duration, log: &mut dyn FnMut(&str)) {
        let error = self.write_files(now).err().map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|_| error != self.tell_error) {
            log(error);
        }
        self.tell_error = error;
    }

    fn write_files(&self, now: Duration) -> Result<()> {
        let status = self.status(now);
        let mut text = serde_json::to_string_pretty(&status).expect("numbers and names are JSON");
        text.push('\n');
        let replace = |name: &str, text: &str| {
            let path = self.dir.join(name);
            files::replace(&path, text.as_bytes()).map_err(Error::file("write", &path))
        };
        replace("status.json", &text)?;
        replace("metrics.prom", &status.metrics())
    }
}

/// When configuration and measurements were last written.
fn stamps(config: &Config) -> [Option<SystemTime>; 2] {
    [&config.path, &config.measurements].map(|path| {
        let data = fs::metadata(path).ok()?;
        data.modified().ok()
    })
}

#[cfg(test)]
mod tests;
