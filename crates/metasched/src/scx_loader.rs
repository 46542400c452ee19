//! The host beside scx_loader: it starts and ends schedulers, and we say which.
//!
//! scx_loader is the sched_ext project's service for that (`org.scx.Loader` on the
//! system bus). Only one program can decide on a machine's schedulers: where it runs
//! ([`rival`]) we refuse to start, or, with `through = "scx_loader"` in the configuration,
//! we give it orders:
//!
//! ```text
//!   connect   StopScheduler             what it has in force makes room
//!   spawn     SwitchSchedulerWithArgs   program and options of the row
//!   child     CurrentScheduler          only while the kernel does not name ours
//!   end       StopScheduler             to kill: by the kernel, SysRq-S, and then this
//!   drop      RestoreDefault            its own default comes back, if it has one
//! ```
//!
//! A reply says that an order was received, not that it was carried out, and
//! CurrentScheduler is the last order; newer versions go back to `unknown` when it has
//! failed for good. So the kernel decides what is attached: a scheduler that was told to
//! stop counts as running while the kernel names it.
//!
//! 1. The order is to switch, never to start: while scx_loader remembers a scheduler,
//!    even one that has ended, it ignores an order to start (not asserted: `spawn`
//!    has the only order).
//! 2. While our scheduler is attached, scx_loader is not asked about it. A scheduler
//!    that starves tasks starves scx_loader and the bus as well, and we would wait for
//!    them instead of ending it. The kernel alone can end it (not asserted: the
//!    scheduler may attach between look and question).
//! 3. A scheduler that another program had scx_loader start is not stopped (not
//!    asserted: that program's order may come between question and stop).
//!
//! If we die, scx_loader keeps what it has: the machine is scheduled, by the
//! scheduler whose turn it was. The next [`ScxLoader::connect`] takes over.
//!
//! Known weaknesses: a scheduler that is told to stop before it is loaded may attach for
//! a moment, and counts as another program's until it detaches. The default scheduler of
//! a restarted scx_loader counts as another program's and stays. If SysRq-S unloads a
//! scheduler while its process hangs, scx_loader waits for that process, and later
//! orders are late.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use giveway_machine::process;
use giveway_machine::sched_ext::State;
use zbus::blocking::connection::Builder;
use zbus::blocking::fdo::DBusProxy;
use zbus::blocking::{Connection, Proxy, proxy};
use zbus::proxy::CacheProperties;

use crate::error::{Error, Result};
use crate::host::{Child, End, Host};
use crate::kernel::Kernel;
use crate::scheduler::Scheduler;

const SERVICE: &str = "org.scx.Loader";
const OBJECT: &str = "/org/scx/Loader";
/// What it calls the scheduler that is current when none is.
const NONE: &str = "unknown";

/// How long it may take to answer: for an order it asks polkit, which may have to
/// be started first. As long as a scheduler has to stop.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long the bus may take to say whether scx_loader is on it.
pub const RIVAL_MAX: Duration = Duration::from_secs(3);
/// Its program.
const PROGRAM: &str = "scx_loader";
/// How often it is asked at most how a start goes.
const ASK: Duration = Duration::from_millis(100);

/// The scx_loader that runs, if any: `scx_loader (process 17)`. Known within `patience`,
/// or soon after.
///
/// It is the owner of that name on the system bus, which only root can own; the name of
/// a process proves nothing, since any user can choose it. Without a bus there is no
/// scx_loader. A bus that does not answer, as one that its clients keep busy, is not
/// waited for: then it is root's process of that program, outside of containers.
pub fn rival(patience: Duration) -> Option<String> {
    let (tell, told) = mpsc::channel();
    // Not joined: it may wait for the bus for longer than we do.
    thread::spawn(move || {
        let bus = Builder::system().and_then(|bus| bus.method_timeout(patience).build());
        // The receiver may have given up.
        let _ = tell.send(bus.map_or(Ok(None), |bus| owner(&bus)));
    });
    match told.recv_timeout(patience) {
        Ok(Ok(owner)) => owner,
        Ok(Err(_)) | Err(_) => {
            let pid = *process::of_root(PROGRAM).first()?;
            Some(called(pid))
        }
    }
}

fn called(pid: u32) -> String {
    format!("{PROGRAM} (process {pid})")
}

/// The owner of scx_loader's name on this bus, if it has one.
///
/// # Errors
/// If the bus does not say.
fn owner(bus: &Connection) -> zbus::fdo::Result<Option<String>> {
    let names = DBusProxy::new(bus)?;
    let owner = match names.get_name_owner(SERVICE.try_into().map_err(zbus::Error::from)?) {
        Ok(owner) => owner,
        Err(zbus::fdo::Error::NameHasNoOwner(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let pid = names.get_connection_unix_process_id(owner.into());
    Ok(Some(pid.map_or(PROGRAM.to_owned(), called)))
}

/// This machine, with scx_loader to start and end schedulers.
#[derive(Debug)]
pub struct ScxLoader {
    kernel: Kernel,
    proxy: Proxy<'static>,
    turn: Option<Turn>,
}

/// The scheduler that scx_loader was told to start.
#[derive(Debug)]
struct Turn {
    scheduler: Scheduler,
    /// When scx_loader was last asked about it.
    asked: Option<Duration>,
    fate: Fate,
}

#[derive(Debug)]
enum Fate {
    /// In force, or on its way there.
    Wanted,
    /// scx_loader was told to stop it.
    Dismissed,
    /// Nothing more comes of it: why.
    Over(String),
}

impl ScxLoader {
    /// This machine's, once what it had in force has made room.
    ///
    /// # Errors
    /// [`Error::ScxLoader`] if it does not answer, or does not obey.
    pub fn connect() -> Result<ScxLoader> {
        let bus = Builder::system().and_then(|bus| bus.method_timeout(ANSWER_MAX).build());
        let bus = bus.map_err(|error| {
            Error::ScxLoader(format!(
                "the system bus, on which scx_loader listens, cannot be reached: {error}; \
                 start it (systemctl start dbus), or remove 'through' from the configuration"
            ))
        })?;
        ScxLoader::over(&bus, Kernel::new(Path::new("/")))
    }

    fn over(bus: &Connection, kernel: Kernel) -> Result<ScxLoader> {
        let proxy = proxy::Builder::new(bus)
            .destination(SERVICE)
            .and_then(|proxy| proxy.path(OBJECT))
            .and_then(|proxy| proxy.interface(SERVICE))
            // Not all versions tell of changes.
            .and_then(|proxy| proxy.cache_properties(CacheProperties::No).build());
        let loader = proxy.map(|proxy| ScxLoader {
            kernel,
            proxy,
            turn: None,
        });
        let loader = loader.and_then(|loader| loader.make_room().map(|()| loader));
        loader.map_err(|error| {
            Error::ScxLoader(format!(
                "scx_loader is to start the schedulers and does not obey: {error}; start it \
                 (systemctl enable --now scx_loader), or remove 'through' from the configuration"
            ))
        })
    }

    /// Has it stop what it has in force, and waits until that is gone.
    fn make_room(&self) -> zbus::Result<()> {
        if self.current()? == NONE {
            return Ok(());
        }
        self.stop()?;
        let deadline = self.kernel.now() + ANSWER_MAX;
        // What is attached after that counts as another program's.
        while matches!(self.kernel.state(), State::Enabled(_) | State::Changing(_))
            && self.kernel.now() < deadline
        {
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Whether it can start this scheduler.
    ///
    /// # Errors
    /// [`Error::ScxLoader`] if not.
    pub fn check(&self, scheduler: &Scheduler) -> Result<()> {
        match self.order(scheduler) {
            Err(why) if !scheduler.is_eevdf() => {
                Err(Error::ScxLoader(format!("{}: {why}", scheduler.name)))
            }
            _ => Ok(()),
        }
    }

    /// What it is told to start: a program that it knows, and its options.
    fn order<'a>(
        &self,
        scheduler: &'a Scheduler,
    ) -> std::result::Result<(&'a String, &'a [String]), String> {
        let order = scheduler.command.split_first().ok_or("it has no command")?;
        let known: Vec<String> = self
            .proxy
            .get_property("SupportedSchedulers")
            .map_err(silent)?;
        match known.contains(order.0) {
            true => Ok(order),
            false => Err(format!(
                "scx_loader does not know {}, only {}; write into the configuration which of \
                 these may be used (schedulers = [\"eevdf\", \"{}\"]), or do without it \
                 (systemctl disable --now scx_loader) and remove 'through'",
                order.0,
                known.join(", "),
                known.first().map_or("…", String::as_str)
            )),
        }
    }

    /// The program that it was told to start last, or [`NONE`].
    fn current(&self) -> zbus::Result<String> {
        self.proxy.get_property("CurrentScheduler")
    }

    fn stop(&self) -> zbus::Result<()> {
        self.proxy.call("StopScheduler", &())
    }

    /// Why nothing comes any more of a scheduler that scx_loader was to start and
    /// the kernel does not name, if so.
    fn given_up(&self, scheduler: &Scheduler) -> Option<String> {
        match self.current() {
            Ok(program) if program == scheduler.command[0] => None,
            Ok(program) if program == NONE => Some(
                "scx_loader has nothing in force: it failed, or was stopped \
                 ('journalctl -u scx_loader' says why)"
                    .to_owned(),
            ),
            Ok(program) => Some(format!(
                "another program told scx_loader to start {program}"
            )),
            Err(error) => Some(silent(error)),
        }
    }

    /// Whether the kernel names the scheduler whose turn it is.
    fn is_in_force(&self) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| {
            matches!(self.kernel.state(), State::Enabled(ops) if turn.scheduler.is_ops(&ops))
        })
    }
}

fn silent(error: zbus::Error) -> String {
    format!("scx_loader does not answer ('systemctl status scx_loader'): {error}")
}

impl Host for ScxLoader {
    fn now(&self) -> Duration {
        self.kernel.now()
    }

    fn rest(&mut self, duration: Duration) {
        thread::sleep(duration);
    }

    fn state(&mut self) -> State {
        self.kernel.state()
    }

    fn spawn(&mut self, scheduler: &Scheduler) -> std::result::Result<(), String> {
        assert!(self.turn.is_none(), "one scheduler at a time");
        let order = self.order(scheduler)?;
        let answer: zbus::Result<()> = self.proxy.call("SwitchSchedulerWithArgs", &order);
        if let Err(error) = answer {
            // It may carry the order out later, when the scheduler is no longer wanted.
            let _ = self.proxy.call_noreply("StopScheduler", &());
            return Err(format!("scx_loader refuses to: {error}"));
        }
        self.turn = Some(Turn {
            scheduler: scheduler.clone(),
            asked: None,
            fate: Fate::Wanted,
        });
        Ok(())
    }

    /// scx_loader has none wait: each is loaded for its turn.
    fn keep_ready(&mut self, _: &[&Scheduler]) {}

    fn child(&mut self) -> Child {
        let (now, is_in_force) = (self.now(), self.is_in_force());
        let Some(mut turn) = self.turn.take() else {
            return Child::None;
        };
        let is_due = turn.asked.is_none_or(|asked| now - asked >= ASK);
        if matches!(turn.fate, Fate::Wanted) && !is_in_force && is_due {
            turn.asked = Some(now);
            if let Some(why) = self.given_up(&turn.scheduler) {
                turn.fate = Fate::Over(why);
            }
        }
        let child = match &turn.fate {
            Fate::Over(why) => Child::Ended(why.clone()),
            Fate::Dismissed if !is_in_force => Child::Ended("was told to stop".to_owned()),
            _ => Child::Running,
        };
        self.turn = Some(turn);
        child
    }

    fn end(&mut self, how: End) {
        if self.child() != Child::Running {
            return;
        }
        let Some(mut turn) = self.turn.take() else {
            return;
        };
        let mut fate = Fate::Dismissed;
        if how == End::Kill {
            self.kernel.throw_out();
            // Whatever scx_loader answers: it is not asked about this one again.
            fate = Fate::Over("was unloaded by the kernel".to_owned());
        }
        let is_ours = |program: String| program == turn.scheduler.command[0];
        let is_heard = self.current().is_ok_and(is_ours) && self.stop().is_ok();
        if is_heard || how == End::Kill {
            turn.fate = fate;
        }
        self.turn = Some(turn);
    }

    /// Its words are in scx_loader's journal.
    fn reap(&mut self) -> String {
        self.turn = None;
        String::new()
    }

    fn demanded(&mut self, cgroups: &[PathBuf]) -> Vec<f64> {
        self.kernel.demanded(cgroups)
    }

    fn starved(&mut self) -> Duration {
        self.kernel.starved()
    }
}

impl Drop for ScxLoader {
    fn drop(&mut self) {
        self.end(End::Ask);
        if self.current().is_ok_and(|program| program == NONE) {
            // Fails where it has no default, or is of a version that cannot.
            let _: zbus::Result<()> = self.proxy.call("RestoreDefault", &());
        }
    }
}

#[cfg(test)]
mod tests;
