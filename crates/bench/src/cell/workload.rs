//! The clients of a cell: one thread for each terminal, one for each class of
//! background work.
//!
//! Threads connect and prepare, report their backends, and wait; nobody runs
//! before all are placed. A thread that fails ends, and its error is returned
//! when the cell collects the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::policy;
use super::roles::Roles;
use crate::cell::class::{Class, Work};
use crate::cell::config::CellConfig;
use crate::harness::error::{Error, Result};
use crate::workload::background::Job;
use crate::workload::background::{Background, Workers};
use crate::workload::postgres::{Address, Installation, Server, Session};
use crate::workload::tpcc::terminal::{Tally, Terminal, Window};

/// What a class did inside the window.
#[derive(Clone, Debug)]
pub(crate) enum Done {
    /// Transactions, of TPC-C.
    Transactions(Tally),
    /// Rounds of a background job.
    Rounds(f64),
}

/// Connected clients.
pub(super) struct Workload {
    crews: Vec<Crew>,
    stop: Arc<AtomicBool>,
}

/// The clients of one class.
enum Crew {
    /// Nobody.
    Absent,
    Terminals(Vec<TerminalThread>),
    Background(Background),
}

struct TerminalThread {
    backend: i32,
    go: mpsc::Sender<Window>,
    thread: JoinHandle<Result<Tally>>,
}

/// Where everybody connects.
pub(super) struct Site<'a> {
    pub(super) postgres: &'a Installation,
    pub(super) server: &'a Server,
    pub(super) control: &'a Session,
    pub(super) roles: Roles,
    pub(super) warehouses: u32,
}

impl Workload {
    /// Connects all clients of a cell.
    pub(super) fn connect(config: &CellConfig, classes: &[Class], site: &Site<'_>) -> Result<Self> {
        let mut this = Workload {
            crews: Vec::new(),
            stop: Arc::new(AtomicBool::new(false)),
        };
        // Terminals of different classes have warehouses of their own.
        let mut number = 0;
        for class in classes {
            let crew = match class.work {
                _ if class.clients == 0 => Crew::Absent,
                Work::Tpcc => {
                    let numbers = number..number + class.clients;
                    number = numbers.end;
                    let threads = numbers.map(|number| this.terminal(config, site, number));
                    Crew::Terminals(threads.collect::<Result<_>>()?)
                }
                Work::Job(job) => Crew::Background(background(job, class, site)?),
            };
            this.crews.push(crew);
        }
        Ok(this)
    }

    /// Connects terminal `number` in a thread of its own.
    fn terminal(
        &self,
        config: &CellConfig,
        site: &Site<'_>,
        number: u32,
    ) -> Result<TerminalThread> {
        let (go, wait) = mpsc::channel();
        let (connected, pid) = mpsc::channel();
        let (seed, warehouses) = (config.seed, site.warehouses);
        let address = Address {
            socket_dir: site.server.socket_dir().to_owned(),
            role: site.roles.of(Work::Tpcc),
            round_trip: Duration::from_micros(config.network_us.into()),
        };
        let stop = Arc::clone(&self.stop);
        let thread = std::thread::spawn(move || {
            policy::Class::Fifo.apply(policy::CALLER)?;
            let terminal = Terminal::connect(&address, number, seed, warehouses)?;
            // Either channel is closed when the cell gave up.
            let _ = connected.send(terminal.backend_pid());
            match wait.recv() {
                Ok(window) => terminal.run(window, &stop),
                Err(mpsc::RecvError) => Ok(Tally::default()),
            }
        });
        match pid.recv() {
            Ok(backend) => Ok(TerminalThread {
                backend,
                go,
                thread,
            }),
            Err(mpsc::RecvError) => {
                let error = thread.join().expect("a terminal does not panic").err();
                Err(error.unwrap_or_else(|| {
                    Error::Config("a terminal ended before it connected".to_owned())
                }))
            }
        }
    }

    /// The backends of each class.
    pub(super) fn pids(&self) -> Vec<Vec<i32>> {
        let of = |crew: &Crew| match crew {
            Crew::Absent => Vec::new(),
            Crew::Terminals(threads) => threads.iter().map(|thread| thread.backend).collect(),
            Crew::Background(background) => background.backend_pids().to_vec(),
        };
        self.crews.iter().map(of).collect()
    }

    /// The backends of the background.
    pub(super) fn background_pids(&self) -> impl Iterator<Item = i32> {
        self.backgrounds()
            .flat_map(|background| background.backend_pids().iter().copied())
    }

    fn backgrounds(&self) -> impl Iterator<Item = &Background> {
        self.crews.iter().filter_map(|crew| match crew {
            Crew::Background(background) => Some(background),
            _ => None,
        })
    }

    /// Lets everybody begin: the background first, as in the paper.
    pub(super) fn go(&mut self, window: Window) {
        for crew in &mut self.crews {
            if let Crew::Background(background) = crew {
                background.start();
            }
        }
        for crew in &self.crews {
            if let Crew::Terminals(threads) = crew {
                for terminal in threads {
                    // A terminal that is gone has an error, which `finish`
                    // returns.
                    let _ = terminal.go.send(window);
                }
            }
        }
    }

    /// Gives the background a moment to end the rounds of the window, while the
    /// terminals go on.
    pub(super) fn settle(&self, window: Window, limit: Duration) {
        let deadline = Instant::now() + limit;
        for background in self.backgrounds() {
            let left = deadline.saturating_duration_since(Instant::now());
            background.settle(window.end, left);
        }
    }

    /// Tells everybody to end. The background also needs its backends ended.
    pub(super) fn request_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.backgrounds().for_each(Background::expect_end);
    }

    /// Collects what each class did; none of a class without clients.
    pub(super) fn finish(self, window: Window) -> Result<Vec<Option<Done>>> {
        let of = |crew| {
            Ok(match crew {
                Crew::Absent => None,
                Crew::Terminals(threads) => {
                    let mut sum = Tally::default();
                    for terminal in threads {
                        let tally = terminal.thread.join().expect("a terminal does not panic")?;
                        sum.add(&tally);
                    }
                    Some(Done::Transactions(sum))
                }
                Crew::Background(background) => {
                    let rounds = background.completed(window);
                    background.join()?;
                    Some(Done::Rounds(rounds))
                }
            })
        };
        self.crews.into_iter().map(of).collect()
    }
}

/// Connects a class's workers.
fn background(job: Job, class: &Class, site: &Site<'_>) -> Result<Background> {
    let workers = Workers::new(job, class.clients, site.roles.of(class.work));
    workers.prepare(site.control)?;
    Background::connect(site.postgres, site.server, &workers)
}
