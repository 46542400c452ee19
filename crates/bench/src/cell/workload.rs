//! The clients of a cell: one thread for each terminal, one for the background.
//!
//! Threads connect and prepare, report their backends, and wait; nobody runs
//! before all are placed. A thread that fails ends, and its error is returned
//! when the cell collects the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use super::roles::Roles;
use crate::background::{Background, Workers};
use crate::config::CellConfig;
use crate::postgres::{Address, Installation, Server, Session};
use crate::tpcc::terminal::{Tally, Terminal, Window};
use crate::{Error, Result};

/// What the clients counted inside the window.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// TPC-C, when it ran.
    pub(crate) terminals: Option<Tally>,
    /// Rounds of the background's job, when it ran.
    pub(crate) background: Option<f64>,
}

/// Connected clients.
pub(super) struct Workload {
    terminals: Vec<TerminalThread>,
    terminal_pids: Vec<i32>,
    background: Option<Background>,
    stop: Arc<AtomicBool>,
}

struct TerminalThread {
    go: mpsc::Sender<Window>,
    thread: JoinHandle<Result<Tally>>,
}

impl Workload {
    /// Connects all clients of a cell.
    pub(super) fn connect(
        config: &CellConfig,
        (postgres, server, control): (&Installation, &Server, &Session),
        roles: Roles,
        warehouses: u32,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut terminals, mut terminal_pids) = (Vec::new(), Vec::new());
        for number in 0..config.terminal_count() {
            let (go, wait) = mpsc::channel();
            let (connected, pid) = mpsc::channel();
            let seed = config.seed;
            let address = Address {
                socket_dir: server.socket_dir().to_owned(),
                role: roles.terminals,
                round_trip: Duration::from_micros(config.network_us.into()),
            };
            let stop = Arc::clone(&stop);
            let thread = std::thread::spawn(move || {
                let terminal = Terminal::connect(&address, number, seed, warehouses)?;
                // Either channel is closed when the cell gave up.
                let _ = connected.send(terminal.backend_pid());
                match wait.recv() {
                    Ok(window) => terminal.run(window, &stop),
                    Err(mpsc::RecvError) => Ok(Tally::default()),
                }
            });
            match pid.recv() {
                Ok(pid) => terminal_pids.push(pid),
                Err(mpsc::RecvError) => {
                    let error = thread.join().expect("a terminal does not panic").err();
                    return Err(error.unwrap_or_else(|| {
                        Error::Config("a terminal ended before it connected".to_owned())
                    }));
                }
            }
            terminals.push(TerminalThread { go, thread });
        }
        let background = match config.background_count() {
            0 => None,
            count => {
                let workers = Workers::new(config.job, count, roles.background);
                workers.prepare(control)?;
                Some(Background::connect(postgres, server, &workers)?)
            }
        };
        Ok(Workload {
            terminals,
            terminal_pids,
            background,
            stop,
        })
    }

    /// The backends of the terminals.
    pub(super) fn terminal_pids(&self) -> &[i32] {
        &self.terminal_pids
    }

    /// The backends of the background.
    pub(super) fn background_pids(&self) -> &[i32] {
        self.background
            .as_ref()
            .map_or(&[], Background::backend_pids)
    }

    /// Lets everybody begin: the background first, as in the paper.
    pub(super) fn go(&mut self, window: Window) {
        if let Some(background) = &mut self.background {
            background.start();
        }
        for terminal in &self.terminals {
            // A terminal that is gone has an error, which `finish` returns.
            let _ = terminal.go.send(window);
        }
    }

    /// Gives the background a moment to end the queries of the window, while
    /// the terminals go on.
    pub(super) fn settle(&self, window: Window, limit: Duration) {
        if let Some(background) = &self.background {
            background.settle(window.end, limit);
        }
    }

    /// Tells everybody to end. The background also needs its backends ended.
    pub(super) fn request_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(background) = &self.background {
            background.expect_end();
        }
    }

    /// Collects what was counted.
    pub(super) fn finish(self, window: Window) -> Result<Done> {
        let background = match self.background {
            None => None,
            Some(background) => {
                let count = background.completed(window);
                background.join()?;
                Some(count)
            }
        };
        let mut terminals = None;
        for terminal in self.terminals {
            let tally = terminal.thread.join().expect("a terminal does not panic")?;
            terminals.get_or_insert_with(Tally::default).add(&tally);
        }
        Ok(Done {
            terminals,
            background,
        })
    }
}
