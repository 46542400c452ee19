//! The daemon against a made-up kernel and real files.

use giveway_machine::sched_ext::State;

use super::*;
use crate::fake::{Fake, ms, row};
use crate::measurements::{Company, MachineNote, Measurements, Reading};
use crate::policy::{Schedule, Turn};
use crate::selector::Rotation;

struct World {
    dir: tempfile::TempDir,
    daemon: Daemon,
    host: Fake,
    log: Vec<String>,
}

const TWO: &str = "[[scheduler]]\nname = 'a'\ncommand = ['a']\nops = 'a'\n\
                   [[turn]]\nscheduler = 'eevdf'\ntimeslice_ms = 1000\n\
                   [[turn]]\nscheduler = 'a'\ntimeslice_ms = 3000\n";

impl World {
    fn new(text: &str) -> World {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta.toml");
        fs::write(&path, text).unwrap();
        let daemon = Daemon::new(Config::read(&path).unwrap(), dir.path()).unwrap();
        World {
            dir,
            daemon,
            host: Fake::default(),
            log: Vec::new(),
        }
    }

    fn run(&mut self, duration: Duration) {
        let end = self.host.now() + duration;
        while self.host.now() < end {
            let log = &mut self.log;
            let pause = self
                .daemon
                .step(&mut self.host, &mut |line| log.push(line.to_owned()));
            assert!(!pause.is_zero());
            self.host.rest(pause.min(end - self.host.now()));
        }
    }

    fn status(&self) -> Status {
        Status::read(self.dir.path()).unwrap().unwrap()
    }

    fn rewrite(&self, text: &str, later_s: u64) {
        let path = self.dir.path().join("meta.toml");
        fs::write(&path, text).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        let later = SystemTime::now() + Duration::from_secs(later_s);
        file.set_modified(later).unwrap();
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_turn_lasts_its_timeslice_from_when_its_scheduler_is_in_force() {
    let mut world = World::new(TWO);
    world.run(82 * SECOND);
    // A round is 4 s and what loading (100 ms) and unloading (25 ms) take.
    let a = world.host.in_force["a"].as_secs_f64();
    let rounds = 82.0 / 4.125;
    assert!((a / rounds - 3.0).abs() < 0.1, "{a} s in {rounds} rounds");
    let told = world.status().in_force_s["a"];
    assert!((told - a).abs() < 1.0, "{told} told, {a} in force");
    assert!(world.log.iter().any(|line| line.contains("a is attached")));
}

#[test]
fn what_can_wait_is_ready_before_its_turn_and_is_not_while_it_runs() {
    let can_wait = TWO.replace("ops = ", "standby = ['--wait']\nops = ");
    assert_ne!(can_wait, TWO);
    let mut world = World::new(&can_wait);
    let mut was_ready = 0;
    for _ in 0..800 {
        world.run(Duration::from_millis(10));
        let runs = matches!(world.host.state(), State::Enabled(_));
        let is_ready = !world.host.ready.is_empty();
        assert!(!(runs && is_ready));
        was_ready += usize::from(is_ready);
    }
    assert!(was_ready > 100, "EEVDF's turns are used to load ahead");
    pause(world.dir.path(), true).unwrap();
    world.run(2 * SECOND);
    assert!(world.host.ready.is_empty(), "a pause is no time to wait");
    pause(world.dir.path(), false).unwrap();
    world.run(SECOND / 2);
    world.daemon.leave(&mut world.host, &mut |_| {});
    assert!(world.host.ready.is_empty(), "nobody is left behind");
}

#[test]
fn phases_are_followed_by_what_their_cgroups_demand() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.json");
    let mut all = Measurements::new(MachineNote::default());
    for (application, scheduler, throughput_per_s) in [
        ("web", "eevdf", 10.0),
        ("batch", "eevdf", 10.0),
        ("web", "a", 20.0),
        ("batch", "a", 5.0),
    ] {
        let cell = all.cell_mut(application, scheduler, Company::Alone);
        cell.runs.push(Reading {
            throughput_per_s,
            p99_s: 1.0,
        });
    }
    all.write(&path).unwrap();
    let text = format!(
        "policy = 'phase_aware'\nswap_ms = 130\nmeasurements = '{}'\n\
         [[scheduler]]\nname = 'a'\ncommand = ['a']\nops = 'a'\n\
         [[application]]\nname = 'web'\ncommand = ['x']\ncgroup = '/web'\n\
         [[application]]\nname = 'batch'\ncommand = ['x']\ncgroup = '/batch'\n",
        path.display()
    );
    let mut world = World::new(&text);
    let demand = |world: &mut World, web: f64, batch: f64| {
        world.host.demand = [("/web".into(), web), ("/batch".into(), batch)].into();
    };
    world.run(SECOND);
    assert!(
        world.host.spawned.is_empty(),
        "nothing runs: nothing to follow"
    );
    demand(&mut world, 1.0, 0.0);
    world.run(SECOND);
    assert!(matches!(world.host.state(), State::Enabled(_)));
    assert_eq!(world.status().wanted, "a");
    assert!(world.status().turns.is_empty());
    demand(&mut world, 0.0, 1.0);
    world.run(2 * SECOND);
    assert_eq!(
        world.host.state(),
        State::Disabled,
        "EEVDF is better for it"
    );
    assert_eq!(world.host.spawned.len(), 1);
}

#[test]
fn pause_keeps_the_kernel_default() {
    let mut world = World::new(TWO);
    world.run(3 * SECOND);
    assert!(matches!(world.host.state(), State::Enabled(_)));
    pause(world.dir.path(), true).unwrap();
    world.run(2 * SECOND);
    assert_eq!(world.host.state(), State::Disabled);
    let spawned = world.host.spawned.len();
    world.run(20 * SECOND);
    assert_eq!(world.host.spawned.len(), spawned);
    let status = world.status();
    assert!(status.paused && status.wanted == "eevdf");
    pause(world.dir.path(), false).unwrap();
    pause(world.dir.path(), false).unwrap();
    world.run(5 * SECOND);
    assert!(world.host.spawned.len() > spawned);
}

#[test]
fn a_scheduler_that_fails_leaves_its_turn_to_linux_s_own() {
    let mut world = World::new(TWO);
    world.host.conduct("a").refused = true;
    world.run(100 * SECOND);
    assert!(!world.host.in_force.contains_key("a"));
    let status = world.status();
    assert_eq!(status.faults[0].scheduler, "a");
    assert!(status.faults[0].last.contains("failed to load"));
    // 2, 4, 8, 16, 32 s: tried six times in 100 s.
    assert!(world.host.spawned.len() <= 6, "{:?}", world.host.spawned);
    assert!(status.metrics().contains("faults_total{scheduler=\"a\"}"));
}

#[test]
fn a_changed_configuration_is_taken_and_a_bad_one_is_not() {
    let mut world = World::new(TWO);
    world.run(2 * SECOND);
    world.rewrite("base_timeslice_ms = 0", 5);
    world.run(4 * SECOND);
    let error = world.status().config_error.unwrap();
    assert!(error.contains("base_timeslice_ms"), "{error}");
    assert_eq!(world.status().turns.len(), 2, "the old one stays");
    let metrics = world.status().metrics();
    assert!(metrics.contains("giveway_meta_config_error 1\n"));
    // Who starts schedulers is not exchanged under one that runs.
    world.rewrite(&format!("through = 'scx_loader'\n{TWO}"), 8);
    world.run(2 * SECOND);
    let error = world.status().config_error.unwrap();
    assert!(error.contains("systemctl restart giveway-meta"), "{error}");
    world.rewrite(&TWO.replace("3000", "9000"), 10);
    world.run(2 * SECOND);
    let status = world.status();
    assert_eq!(status.config_error, None);
    assert_eq!(status.turns[1], ("a".into(), 9.0));
}

#[test]
fn the_way_out_leaves_linux_s_own_and_says_so() {
    let mut world = World::new(TWO);
    world.run(3 * SECOND);
    assert!(matches!(world.host.state(), State::Enabled(_)));
    assert!(world.daemon.leave(&mut world.host, &mut |_| {}));
    assert_eq!(world.host.state(), State::Disabled);
    assert!(matches!(world.status().standing, Standing::Own));
}

#[test]
fn unwritable_status_is_reported_once_and_turns_continue() {
    let mut world = World::new(TWO);
    // In the way of the file that is renamed into place.
    fs::create_dir(world.dir.path().join("status.json.new")).unwrap();
    world.run(30 * SECOND);
    let told = world.log.iter().filter(|line| line.contains("status.json"));
    assert_eq!(told.count(), 1, "{:?}", world.log);
    assert!(world.host.in_force["a"] > 10 * SECOND);
}

#[test]
fn there_is_one_daemon() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!is_running(dir.path()));
    let claim = DaemonLock::take(dir.path()).unwrap();
    assert!(is_running(dir.path()));
    let error = DaemonLock::take(dir.path()).unwrap_err();
    assert!(error.to_string().contains("runs already"), "{error}");
    drop(claim);
    assert!(!is_running(dir.path()));
    DaemonLock::take(dir.path()).unwrap();
}

#[test]
fn unreadable_lock_falls_back_to_the_status_file() {
    let mut world = World::new(TWO);
    assert!(!has_spoken(world.dir.path()));
    world.run(SECOND);
    assert!(has_spoken(world.dir.path()));
    let path = world.dir.path().join("status.json");
    let written = fs::File::options().write(true).open(path).unwrap();
    let past = SystemTime::now() - 2 * SILENCE_MAX;
    written.set_modified(past).unwrap();
    assert!(!has_spoken(world.dir.path()));
}

fn schedule(turns: &[(&str, u64)]) -> Schedule {
    let turn = |(name, length): &(&str, u64)| Turn {
        scheduler: row(name).name,
        applications: Vec::new(),
        timeslice: ms(*length),
    };
    Schedule {
        turns: turns.iter().map(turn).collect(),
    }
}

#[test]
fn a_turn_that_has_not_begun_does_not_end() {
    let mut rotation = Rotation::new(schedule(&[("a", 10), ("b", 10)]));
    rotation.advance(ms(100), false);
    assert_eq!(rotation.left(ms(100)), None);
    rotation.advance(ms(200), true);
    assert_eq!(rotation.turn().scheduler, "a");
    rotation.advance(ms(209), true);
    assert_eq!(rotation.left(ms(209)), Some(ms(1)));
    rotation.advance(ms(210), true);
    assert_eq!(rotation.turn().scheduler, "b");
    assert_eq!(rotation.left(ms(210)), None);
}

#[test]
fn a_new_schedule_goes_on_where_the_old_one_was() {
    let mut rotation = Rotation::new(schedule(&[("a", 10), ("b", 10)]));
    rotation.advance(ms(0), true);
    rotation.advance(ms(10), true);
    rotation.advance(ms(12), true);
    rotation.replace(schedule(&[("c", 5), ("b", 20)]));
    assert_eq!(rotation.turn().scheduler, "b");
    assert_eq!(rotation.left(ms(12)), Some(ms(20)));
    rotation.replace(schedule(&[("c", 5)]));
    assert_eq!(rotation.turn().scheduler, "c");
    assert_eq!(rotation.left(ms(12)), None);
}
