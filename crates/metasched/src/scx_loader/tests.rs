//! The supervisor through a made-up scx_loader, which speaks the real one's interface
//! over a socket and writes what the kernel would say into files.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};

use giveway_machine::files;
use giveway_machine::sched_ext::SchedExt;
use zbus::{Guid, fdo};

use super::*;
use crate::fake::{ms, row};
use crate::supervisor::{Event, Fault, Limits, Standing, Supervisor};

/// What scx_loader and the kernel have come to.
#[derive(Default)]
struct Story {
    root: PathBuf,
    orders: Vec<String>,
    current: Option<String>,
    /// How often it was asked what is current.
    asked: usize,
    /// Schedulers that do not load.
    broken: HashSet<String>,
    /// What is in force stays there, whatever it is told.
    is_deaf: bool,
    /// We may not give it orders.
    is_forbidden: bool,
    /// It has no answer, and obeys all the same.
    is_late: bool,
}

impl Story {
    /// Has the kernel name this scheduler, or nobody's.
    fn in_force(&self, ops: Option<&str>) {
        let sched_ext = self.root.join("sys/kernel/sched_ext");
        let name = ops.map(|ops| format!("{ops}_1.0\n")).unwrap_or_default();
        files::replace(&sched_ext.join("root/ops"), name.as_bytes()).unwrap();
        let state = ops.map_or("disabled\n", |_| "enabled\n");
        files::replace(&sched_ext.join("state"), state.as_bytes()).unwrap();
    }

    fn switch(&mut self, program: &str) {
        self.current = Some(program.to_owned());
        match self.broken.contains(program) {
            true => self.in_force(None),
            false => self.in_force(program.strip_prefix("scx_")),
        }
    }
}

#[derive(Clone)]
struct Fake(Arc<Mutex<Story>>);

impl Fake {
    fn story(&self) -> MutexGuard<'_, Story> {
        self.0.lock().unwrap()
    }

    fn ordered(&self, order: String) -> fdo::Result<MutexGuard<'_, Story>> {
        let mut story = self.story();
        if story.is_forbidden {
            return Err(fdo::Error::Failed("Not allowed!".into()));
        }
        story.orders.push(order);
        Ok(story)
    }
}

#[zbus::interface(name = "org.scx.Loader")]
impl Fake {
    #[zbus(property)]
    fn current_scheduler(&self) -> String {
        let mut story = self.story();
        story.asked += 1;
        story.current.clone().unwrap_or_else(|| NONE.to_owned())
    }

    #[zbus(property)]
    fn supported_schedulers(&self) -> Vec<&str> {
        vec!["scx_lavd", "scx_rusty"]
    }

    fn switch_scheduler_with_args(&self, program: &str, args: Vec<String>) -> fdo::Result<()> {
        let words = [&["switch".to_owned(), program.to_owned()], &args[..]].concat();
        let mut story = self.ordered(words.join(" "))?;
        story.switch(program);
        match story.is_late {
            true => Err(fdo::Error::TimedOut("late".into())),
            false => Ok(()),
        }
    }

    fn stop_scheduler(&self) -> fdo::Result<()> {
        let mut story = self.ordered("stop".to_owned())?;
        story.current = None;
        if !story.is_deaf {
            story.in_force(None);
        }
        Ok(())
    }

    fn restore_default(&self) -> fdo::Result<()> {
        self.ordered("restore".to_owned())?.switch("scx_lavd");
        Ok(())
    }
}

struct World {
    fake: Fake,
    /// scx_loader's end of the bus.
    service: Connection,
    bus: Connection,
    supervisor: Supervisor,
    events: Vec<Event>,
    /// The last: `fake` writes there.
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_owned();
        for dir in ["sys/kernel/sched_ext/root", "proc"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        let story = Story {
            root,
            ..Story::default()
        };
        story.in_force(None);
        let fake = Fake(Arc::new(Mutex::new(story)));
        let (ours, its) = UnixStream::pair().unwrap();
        let served = fake.clone();
        let service = thread::spawn(move || {
            let service = Builder::async_io_unix_stream(its).server(Guid::generate());
            let service = service.unwrap().p2p().serve_at(OBJECT, served).unwrap();
            service.build().unwrap()
        });
        let bus = Builder::async_io_unix_stream(ours).p2p();
        World {
            fake,
            bus: bus.method_timeout(ms(20_000)).build().unwrap(),
            service: service.join().unwrap(),
            supervisor: Supervisor::new(Limits {
                stop: ms(100),
                reload: ms(200),
                back_off: ms(1),
                ..Limits::default()
            }),
            events: Vec::new(),
            _dir: dir,
        }
    }

    fn connect(&self) -> Result<ScxLoader> {
        let root = self.fake.story().root.clone();
        ScxLoader::over(&self.bus, Kernel::new(&root))
    }

    /// Wants this until it `is_so`.
    fn want(&mut self, host: &mut ScxLoader, wanted: &Scheduler, is_so: impl Fn(&World) -> bool) {
        let end = host.now() + Duration::from_secs(20);
        loop {
            let pause = self.supervisor.step(wanted, host);
            self.events.extend(self.supervisor.events());
            let pressed = {
                let story = self.fake.story();
                fs::read_to_string(story.root.join("proc/sysrq-trigger")).ok()
            };
            if let Some(key) = pressed {
                assert_eq!(key, "S");
                self.fake.story().in_force(None);
            }
            if is_so(self) {
                return;
            }
            assert!(host.now() < end, "{:?}", self.events);
            host.rest(pause);
        }
    }

    fn want_running(&mut self, host: &mut ScxLoader, wanted: &Scheduler) {
        let running = Standing::Running(wanted.name.clone());
        self.want(host, wanted, |world| world.supervisor.standing() == running);
    }

    /// Wants this until there is a fault; the first.
    fn want_fault(&mut self, host: &mut ScxLoader, wanted: &Scheduler) -> Fault {
        let fault = |event: &Event| match event {
            Event::Failed(_, fault, _) => Some(fault.clone()),
            _ => None,
        };
        self.want(host, wanted, |world| {
            world.events.iter().any(|event| fault(event).is_some())
        });
        self.events.iter().find_map(fault).unwrap()
    }

    fn orders(&self) -> Vec<String> {
        std::mem::take(&mut self.fake.story().orders)
    }

    fn state(&self) -> State {
        SchedExt::under(&self.fake.story().root).state()
    }
}

/// The row of a program that scx_loader calls `scx_` and the kernel calls `ops`.
fn program(ops: &str) -> Scheduler {
    Scheduler {
        ops: ops.into(),
        ..row(&format!("scx_{ops}"))
    }
}

#[test]
fn schedulers_are_started_with_their_options_switched_and_stopped() {
    let mut world = World::new();
    let mut host = world.connect().unwrap();
    let mut rusty = program("rusty");
    rusty.command.push("--slice-us=5000".into());
    world.want_running(&mut host, &rusty);
    assert_eq!(world.orders(), ["switch scx_rusty --slice-us=5000"]);
    world.want_running(&mut host, &program("lavd"));
    assert_eq!(world.orders(), ["stop", "switch scx_lavd"]);
    assert!(world.supervisor.leave(&mut host));
    assert_eq!(world.orders(), ["stop"]);
    assert_eq!(world.state(), State::Disabled);
    let is_fault = |event: &Event| matches!(event, Event::Failed(..) | Event::Aside(_));
    assert!(!world.events.iter().any(is_fault), "{:?}", world.events);
}

#[test]
fn what_is_in_force_makes_room_and_the_default_comes_back() {
    let mut world = World::new();
    world.fake.story().switch("scx_lavd");
    let mut host = world.connect().unwrap();
    assert_eq!(world.orders(), ["stop"]);
    world.want_running(&mut host, &program("rusty"));
    assert_eq!(world.orders(), ["switch scx_rusty"]);
    // Not in order, as when we panic.
    drop(host);
    assert_eq!(world.orders(), ["stop", "restore"]);
    assert_eq!(world.state(), State::Enabled("lavd_1.0".into()));
}

#[test]
fn what_scx_loader_does_not_know_is_refused_with_the_remedy() {
    let mut world = World::new();
    let mut host = world.connect().unwrap();
    let ufs = program("ufs");
    let Fault::CannotRun(why) = world.want_fault(&mut host, &ufs) else {
        panic!("{:?}", world.events);
    };
    assert!(why.contains("does not know scx_ufs, only scx_lavd, scx_rusty"));
    assert!(
        why.contains("schedulers = [\"eevdf\", \"scx_lavd\"]"),
        "{why}"
    );
    assert!(world.orders().is_empty());
    // Before anything is started, too.
    let error = host.check(&ufs).unwrap_err().to_string();
    assert_eq!(error, format!("scx_ufs: {why}"));
    host.check(&program("rusty")).unwrap();
    host.check(&Scheduler::eevdf()).unwrap();
}

#[test]
fn an_order_that_is_refused_is_a_fault_in_scx_loader_s_words() {
    let mut world = World::new();
    let mut host = world.connect().unwrap();
    world.fake.story().is_forbidden = true;
    let fault = world.want_fault(&mut host, &program("rusty"));
    assert!(matches!(&fault, Fault::CannotRun(why) if why.contains("Not allowed!")));
    assert_eq!(host.child(), Child::None);
}

#[test]
fn an_order_without_an_answer_is_revoked() {
    let world = World::new();
    let mut host = world.connect().unwrap();
    world.fake.story().is_late = true;
    let rusty = program("rusty");
    host.spawn(&rusty).unwrap_err();
    let end = host.now() + Duration::from_secs(20);
    while world.state() != State::Disabled {
        assert!(host.now() < end, "it runs on");
        host.rest(ms(1));
    }
    assert_eq!(world.orders(), ["switch scx_rusty", "stop"]);
}

#[test]
fn one_that_scx_loader_gives_up_is_not_waited_for() {
    let mut world = World::new();
    let mut host = world.connect().unwrap();
    let rusty = program("rusty");
    world.fake.story().broken.insert("scx_rusty".into());
    let starting = Standing::Starting("scx_rusty".into());
    world.want(&mut host, &rusty, |world| {
        world.supervisor.standing() == starting
    });
    let (began, before) = (host.now(), world.fake.story().asked);
    for _ in 0..100 {
        assert_eq!(host.child(), Child::Running);
    }
    let asked = (world.fake.story().asked - before) as u32;
    assert!(ASK * asked <= host.now() - began + ASK, "{asked} times");
    world.fake.story().current = None;
    let fault = world.want_fault(&mut host, &rusty);
    let is_told =
        matches!(&fault, Fault::FailedToLoad(how) if how.contains("journalctl -u scx_loader"));
    assert!(is_told, "{fault}");
    // And one that it has not given up is stopped.
    assert!(world.supervisor.leave(&mut host));
    assert_eq!(world.fake.story().current, None);
}

#[test]
fn scx_loader_may_go_and_come_back() {
    let mut world = World::new();
    let mut host = world.connect().unwrap();
    let rusty = program("rusty");
    world.want_running(&mut host, &rusty);
    let service = world.service.clone();
    let objects = service.object_server();
    objects.remove::<Fake, _>(OBJECT).unwrap();
    // Its schedulers go with it.
    world.fake.story().in_force(None);
    let fault = world.want_fault(&mut host, &rusty);
    let is_told =
        matches!(&fault, Fault::Exited(how) if how.contains("scx_loader does not answer"));
    assert!(is_told, "{fault}");
    assert_eq!(world.supervisor.standing(), Standing::Own);
    world.fake.story().current = None;
    objects.at(OBJECT, world.fake.clone()).unwrap();
    world.want_running(&mut host, &rusty);
}

#[test]
fn one_that_does_not_stop_is_unloaded_by_the_kernel() {
    let mut world = World::new();
    let mut host = world.connect().unwrap();
    let lavd = program("lavd");
    world.want_running(&mut host, &lavd);
    world.fake.story().is_deaf = true;
    let fault = world.want_fault(&mut host, &Scheduler::eevdf());
    assert_eq!(fault, Fault::IgnoredStop);
    assert_eq!(world.state(), State::Disabled);
}

#[test]
fn starving_scheduler_is_ended_while_scx_loader_hangs() {
    let mut world = World::new();
    let mut host = world.connect().unwrap();
    let lavd = program("lavd");
    world.want_running(&mut host, &lavd);
    let (began, asked) = (host.now(), world.fake.story().asked);
    while host.now() - began < 3 * ASK {
        let pause = world.supervisor.step(&lavd, &mut host);
        host.rest(pause);
    }
    assert_eq!(world.fake.story().asked, asked, "it is in force");
    world
        .service
        .object_server()
        .remove::<Fake, _>(OBJECT)
        .unwrap();
    host.end(End::Kill);
    let root = world.fake.story().root.clone();
    assert_eq!(
        fs::read_to_string(root.join("proc/sysrq-trigger")).unwrap(),
        "S"
    );
    assert_eq!(
        host.child(),
        Child::Ended("was unloaded by the kernel".into())
    );
}

#[test]
fn orders_of_other_clients_are_left_alone() {
    let mut world = World::new();
    let mut host = world.connect().unwrap();
    let lavd = program("lavd");
    world.want_running(&mut host, &lavd);
    world.orders();
    // Under way, while ours is to end.
    world.fake.story().current = Some("scx_rusty".into());
    host.end(End::Ask);
    assert_eq!(host.child(), Child::Running);
    world.fake.story().switch("scx_rusty");
    let aside = Standing::Aside("rusty_1.0".into());
    world.want(&mut host, &lavd, |world| {
        world.supervisor.standing() == aside
    });
    drop(host);
    assert!(world.orders().is_empty());
    assert_eq!(world.state(), State::Enabled("rusty_1.0".into()));
}

#[test]
fn without_scx_loader_the_error_says_how_to_start_it() {
    let world = World::new();
    world
        .service
        .object_server()
        .remove::<Fake, _>(OBJECT)
        .unwrap();
    let error = world.connect().unwrap_err().to_string();
    assert!(
        error.contains("systemctl enable --now scx_loader"),
        "{error}"
    );
    assert!(error.contains("remove 'through'"), "{error}");
}

/// The bus itself, as far as it tells who owns a name.
struct Bus {
    names: HashMap<String, u32>,
}

#[zbus::interface(name = "org.freedesktop.DBus")]
impl Bus {
    fn get_name_owner(&self, name: &str) -> fdo::Result<String> {
        let pid = self.names.get(name);
        let pid = pid.ok_or_else(|| fdo::Error::NameHasNoOwner(name.into()))?;
        Ok(format!(":1.{pid}"))
    }

    #[zbus(name = "GetConnectionUnixProcessID")]
    fn get_connection_unix_process_id(&self, name: &str) -> u32 {
        name.trim_start_matches(":1.").parse().unwrap()
    }
}

#[test]
fn a_rival_is_who_owns_its_name_on_the_bus() {
    let world = World::new();
    assert!(owner(&world.bus).is_err(), "a bus that cannot say");
    for (name, found) in [
        ("org.scx.Other", None),
        (SERVICE, Some("scx_loader (process 17)".to_owned())),
    ] {
        let names = HashMap::from([(name.to_owned(), 17)]);
        let objects = world.service.object_server();
        objects.at("/org/freedesktop/DBus", Bus { names }).unwrap();
        assert_eq!(owner(&world.bus).unwrap(), found, "{name}");
        objects.remove::<Bus, _>("/org/freedesktop/DBus").unwrap();
    }
}
