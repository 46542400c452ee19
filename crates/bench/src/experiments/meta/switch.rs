//! What a switch takes (section 2.3: 102 ms to start, 24 ms to stop, 133 ms for
//! both), between pairs of schedulers, back and forth.
//!
//! UFS switches with itself, once each of its loads is part of the switch and
//! once it is not, which is the same work done at another time. Nothing else runs.

use std::time::Duration;

use giveway_machine::sched_ext::State;
use giveway_metasched::host::Host;
use giveway_metasched::scheduler::{Scheduler, Table};
use giveway_metasched::supervisor::{Event, Limits, Supervisor};
use giveway_metasched::system::System;

use super::row::{MetaRow, SwitchRow, Way};
use super::{MetaPlan, NAME, raised};
use crate::harness::Progress;
use crate::harness::error::{Error, Result};

/// Nothing takes longer, in the lab neither.
const LIMIT: Duration = Duration::from_secs(120);
/// After what was in force has settled.
const REST: Duration = Duration::from_millis(200);

/// Makes the switches.
pub(super) fn run(plan: &MetaPlan, line: Progress<'_>) -> Result<Vec<MetaRow>> {
    raised(line, |line| measure(plan, line))
}

fn measure(plan: &MetaPlan, line: Progress<'_>) -> Result<Vec<MetaRow>> {
    let known = Table::known();
    let row = |name: &str| {
        let row = known.get(name).cloned();
        row.ok_or_else(|| Error::Config(format!("no scheduler is called '{name}'")))
    };
    let ufs = row("scx_ufs")?;
    // Two rows that differ: a switch from one to the same is none.
    let twin = |number: u32, standby: &[String]| Scheduler {
        name: format!("scx_ufs {number}"),
        standby: standby.to_vec(),
        ..ufs.clone()
    };
    let mut pairs = vec![
        (Way::Ahead, twin(1, &ufs.standby), twin(2, &ufs.standby)),
        (Way::Started, twin(1, &[]), twin(2, &[])),
    ];
    for two in plan.schedulers.windows(2) {
        pairs.push((Way::Started, row(&two[0])?, row(&two[1])?));
    }
    let dir = tempfile::tempdir().map_err(|error| Error::Meta(error.to_string()))?;
    let failed = |error: giveway_metasched::Error| Error::Meta(error.to_string());
    let mut host = System::new(&dir.path().join("log")).map_err(failed)?;
    let mut rows = Vec::new();
    for (way, one, other) in &pairs {
        let mut bench = Bench {
            host: &mut host,
            supervisor: Supervisor::new(Limits {
                start: LIMIT,
                ..Limits::default()
            }),
        };
        bench.go_to(one)?;
        for number in 0..plan.count {
            let (from, to) = match number % 2 {
                0 => (one, other),
                _ => (other, one),
            };
            let times = bench.switch(to)?;
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let row = SwitchRow {
                from: from.name.clone(),
                to: to.name.clone(),
                way: *way,
                stop_ms: ms(times.stop),
                start_ms: ms(times.start),
                switch_ms: ms(times.switch),
                repeat: plan.repeat,
                seed: plan.seed,
            };
            line(&format!(
                "{NAME}: {} to {}: {:.1} ms",
                row.from, row.to, row.switch_ms
            ));
            rows.push(MetaRow::Switch(row));
        }
        if !bench.supervisor.leave(bench.host) {
            return Err(Error::Meta(format!("{} does not go", other.name)));
        }
    }
    Ok(rows)
}

struct Times {
    stop: Duration,
    start: Duration,
    switch: Duration,
}

struct Bench<'a> {
    host: &'a mut System,
    supervisor: Supervisor,
}

impl Bench<'_> {
    /// Brings one into force, from nothing.
    fn go_to(&mut self, scheduler: &Scheduler) -> Result<()> {
        if let State::Enabled(ops) = self.host.state() {
            return Err(Error::Meta(format!("{ops} is loaded: stop it first")));
        }
        self.settle(scheduler)?;
        self.supervisor.events().for_each(drop);
        Ok(())
    }

    /// From what is in force to this one, which is loaded before if it can be.
    fn switch(&mut self, to: &Scheduler) -> Result<Times> {
        self.host.keep_ready(&[to]);
        let deadline = self.host.now() + LIMIT;
        while self.host.ready() < usize::from(!to.standby.is_empty()) {
            if self.host.now() > deadline {
                return Err(Error::Meta(format!("{} is not ready", to.name)));
            }
            self.host.rest(REST);
        }
        self.host.rest(REST);
        let began = self.host.now();
        self.settle(to)?;
        let switch = self.host.now() - began;
        let mut times = Times {
            stop: Duration::ZERO,
            start: Duration::ZERO,
            switch,
        };
        for event in self.supervisor.events() {
            match event {
                Event::Stopped(_, took) => times.stop = took,
                Event::Started(_, took) => times.start = took,
                other => return Err(Error::Meta(other.to_string())),
            }
        }
        Ok(times)
    }

    fn settle(&mut self, wanted: &Scheduler) -> Result<()> {
        let deadline = self.host.now() + LIMIT;
        loop {
            let pause = self.supervisor.step(wanted, self.host);
            if self.supervisor.in_force() == wanted.name {
                return Ok(());
            }
            if self.supervisor.is_settled(wanted, self.host.now()) || self.host.now() > deadline {
                let events: Vec<String> = self
                    .supervisor
                    .events()
                    .map(|event| event.to_string())
                    .collect();
                return Err(Error::Meta(format!(
                    "{} does not come into force: {}",
                    wanted.name,
                    events.join("; ")
                )));
            }
            self.host.rest(pause);
        }
    }
}
