//! One cell, from idle sessions to idle sessions.
//!
//! ```text
//!   connect, prepare, place
//!     ─ holder(s) ─ waiter ─ burner ─ … all through, or the limit ─ end the burner ─ collect
//!      GAP         GAP      GAP
//! ```
//!
//! 1. Every session is connected and its statement is prepared before the first
//!    starts: afterwards the server only executes.
//! 2. A session starts a [`GAP`] after the one before, so that a holder has its
//!    first lock by then; that the waiter had to wait is checked at the end.
//! 3. What is not through at the limit has no times, even if it ends later.
//! 4. Without the burner all of them get through: nothing is left running. If
//!    not, that is an error.
//!
//! A session has a thread of its own, which waits for the answer. Sessions
//! outlive the cell's end, because UFS's report of a session goes with it.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use giveway_tier::{Tier, Weight};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_postgres::Statement;
use tokio_postgres::error::SqlState;

use super::row::{Outcome, Times};
use super::{ContendedLock, Scenario};
use crate::harness::error::{Error, Result};
use crate::workload::postgres::{Server, Session};

/// From one session's start to the next one's.
const GAP: Duration = Duration::from_millis(100);
/// The waiter's own work, in seconds of CPU time.
const WAITER_WORK_S: f64 = 0.01;
/// What holders and waiter may take beyond the hold once nobody burns: naps
/// between attempts at a spinlock are up to a second long.
const SETTLE: Duration = Duration::from_secs(30);

const HOLD: &str =
    "SELECT acquire_s, total_s FROM giveway_test_hold($1::text, $2::int4[], $3::float8)";
const BURN: &str = "SELECT giveway_test_burn($1::float8)";

/// What is measured together: a lock, and how long it is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) lock: ContendedLock,
    pub(super) scenario: Scenario,
    pub(super) hold_s: f64,
    pub(super) limit_s: f64,
}

/// How it went.
pub(super) struct CellResult {
    pub(super) outcome: Outcome,
    pub(super) holder: Option<Times>,
    pub(super) waiter: Option<Times>,
    /// The holders' backends, whose sessions are still open.
    pub(super) holders: Vec<i32>,
    _sessions: Vec<Arc<Session>>,
}

/// How a session's tier and weight are made known.
pub(super) trait Placement {
    /// Settings with which it connects.
    fn options(&self, tier: Tier, weight: Weight) -> Vec<(&'static str, String)>;

    /// Called once it is connected.
    fn place(&self, backend: i32, tier: Tier) -> Result<()>;
}

/// The answer of a session.
type Said = (Role, Result<Option<Times>, tokio_postgres::Error>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Holder,
    Waiter,
    Burner,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Role::Holder => "holder",
            Role::Waiter => "waiter",
            Role::Burner => "burner",
        }
    }

    /// The most background and the most urgent, as in the paper's Table 2.
    const fn priority(self) -> (Tier, Weight) {
        match self {
            Role::Holder => (Tier::Background, Weight::MIN),
            Role::Waiter | Role::Burner => (Tier::TimeSensitive, Weight::MAX),
        }
    }
}

/// A session that is ready to start.
struct Connected {
    role: Role,
    session: Arc<Session>,
    statement: Statement,
    work: Work,
}

/// What it will do.
#[derive(Clone, Debug)]
enum Work {
    Hold {
        kind: &'static str,
        locks: Vec<i32>,
        cpu_s: f64,
    },
    Burn {
        cpu_s: f64,
    },
}

impl Connected {
    fn connect(server: &Server, placement: &dyn Placement, role: Role, work: Work) -> Result<Self> {
        let (tier, weight) = role.priority();
        let options = placement.options(tier, weight);
        let options = options.iter().map(|(name, value)| (*name, value.as_str()));
        let session = Session::connect(server, role.name(), &Vec::from_iter(options))?;
        let sql = match work {
            Work::Hold { .. } => HOLD,
            Work::Burn { .. } => BURN,
        };
        let statement = session
            .wait(session.client.prepare(sql))
            .map_err(Error::sql(format!("preparing the {}", role.name())))?;
        placement.place(session.backend_pid(), tier)?;
        Ok(Connected {
            role,
            session: Arc::new(session),
            statement,
            work,
        })
    }

    /// Starts; `said` hears of the end.
    fn start(self, said: &mpsc::Sender<Said>) {
        let said = said.clone();
        thread::spawn(move || {
            let answer = self.perform();
            // Nobody listens to a cell that was given up.
            let _ = said.send((self.role, answer));
        });
    }

    fn perform(&self) -> Result<Option<Times>, tokio_postgres::Error> {
        let client = &self.session.client;
        self.session.wait(async {
            Ok(match &self.work {
                Work::Hold { kind, locks, cpu_s } => {
                    let row = client
                        .query_one(&self.statement, &[kind, locks, cpu_s])
                        .await?;
                    Some(Times {
                        acquire_s: row.get(0),
                        total_s: row.get(1),
                    })
                }
                Work::Burn { cpu_s } => {
                    client.query_one(&self.statement, &[cpu_s]).await?;
                    None
                }
            })
        })
    }
}

/// The sessions of a cell, in the order of their starts.
fn connect_all(server: &Server, placement: &dyn Placement, cell: &Cell) -> Result<Vec<Connected>> {
    let kind = cell.lock.kind();
    let holders = cell.lock.holders();
    let hold = |locks: &[i32], cpu_s| Work::Hold {
        kind,
        locks: locks.to_vec(),
        cpu_s,
    };
    let mut sessions = Vec::new();
    for locks in holders {
        let work = hold(locks, cell.hold_s / holders.len() as f64);
        sessions.push(Connected::connect(server, placement, Role::Holder, work)?);
    }
    let wanted = &holders[holders.len() - 1][..1];
    let work = hold(wanted, WAITER_WORK_S);
    sessions.push(Connected::connect(server, placement, Role::Waiter, work)?);
    if cell.scenario == Scenario::Burner {
        // It is ended before it has burnt all that.
        let cpu_s = 10.0 * cell.limit_s;
        sessions.push(Connected::connect(
            server,
            placement,
            Role::Burner,
            Work::Burn { cpu_s },
        )?);
    }
    Ok(sessions)
}

/// What was heard of a cell's sessions.
#[derive(Debug, Default)]
struct Heard {
    holders: Vec<Times>,
    waiter: Option<Times>,
    panicked: bool,
}

impl Heard {
    fn note(&mut self, (role, answer): Said) -> Result<()> {
        match (role, answer) {
            (Role::Holder, Ok(times)) => self.holders.extend(times),
            (Role::Waiter, Ok(times)) => self.waiter = times,
            (Role::Burner, Err(error)) if error.code() == Some(&SqlState::QUERY_CANCELED) => {}
            (Role::Burner, Ok(_)) => {
                return Err(Error::Unplayed("the burner ended by itself".to_owned()));
            }
            (_, Err(error)) if is_crash(&error) => self.panicked = true,
            (role, Err(error)) => {
                return Err(Error::sql(format!("running the {}", role.name()))(error));
            }
        }
        Ok(())
    }

    fn through(&self, holders: usize) -> bool {
        self.holders.len() == holders && self.waiter.is_some()
    }

    /// Listens until holders and waiter are through, the server has panicked, or
    /// `until`.
    fn listen(
        &mut self,
        said: &mpsc::Receiver<Said>,
        holders: usize,
        until: Instant,
    ) -> Result<()> {
        while !self.through(holders) && !self.panicked {
            let left = until.saturating_duration_since(Instant::now());
            match said.recv_timeout(left) {
                Ok(message) => self.note(message)?,
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// The holder that took longest.
    fn slowest(&self) -> Option<Times> {
        let slower = |a: &Times, b: &Times| a.total_s.total_cmp(&b.total_s);
        self.holders.iter().copied().max_by(slower)
    }
}

/// Whether the server went down, and with it the session.
fn is_crash(error: &tokio_postgres::Error) -> bool {
    let down = |error: &tokio_postgres::error::DbError| {
        error.severity() == "PANIC" || *error.code() == SqlState::CRASH_SHUTDOWN
    };
    error.is_closed() || error.as_db_error().is_some_and(down)
}

/// Runs the cell.
pub(super) fn run(server: &Server, placement: &dyn Placement, cell: &Cell) -> Result<CellResult> {
    let connected = connect_all(server, placement, cell)?;
    let sessions = Vec::from_iter(connected.iter().map(|each| Arc::clone(&each.session)));
    let backends = |role| {
        let of_role = connected.iter().filter(move |each| each.role == role);
        Vec::from_iter(of_role.map(|each| each.session.backend_pid()))
    };
    let (holders, burners) = (backends(Role::Holder), backends(Role::Burner));

    let (say, said) = mpsc::channel();
    let limit = Instant::now() + Duration::from_secs_f64(cell.limit_s);
    for each in connected {
        each.start(&say);
        thread::sleep(GAP);
    }
    let mut heard = Heard::default();
    heard.listen(&said, holders.len(), limit)?;
    let in_time = heard.through(holders.len());
    let (holder, waiter) = (
        heard
            .slowest()
            .filter(|_| heard.holders.len() == holders.len()),
        heard.waiter,
    );

    for backend in &burners {
        // A server that panicked has ended it already.
        let _ = kill(Pid::from_raw(*backend), Signal::SIGINT);
    }
    let settle = SETTLE + Duration::from_secs_f64(2.0 * cell.hold_s);
    heard.listen(&said, holders.len(), Instant::now() + settle)?;
    if !heard.panicked {
        if !heard.through(holders.len()) {
            return Err(Error::Unplayed(format!(
                "holder or waiter did not end within {} s of the burner's end",
                settle.as_secs()
            )));
        }
        had_to_wait(cell, heard.waiter)?;
    }
    Ok(CellResult {
        outcome: match (heard.panicked, in_time) {
            (true, _) => Outcome::Panic,
            (false, true) => Outcome::Finished,
            (false, false) => Outcome::Late,
        },
        holder,
        waiter,
        holders,
        _sessions: sessions,
    })
}

/// Refuses a cell in which the waiter found the lock free, or nearly so: then
/// the holder came too late.
fn had_to_wait(cell: &Cell, waiter: Option<Times>) -> Result<()> {
    let acquire_s = waiter.map_or(0.0, |waiter| waiter.acquire_s);
    if acquire_s >= cell.hold_s / 2.0 {
        return Ok(());
    }
    Err(Error::Unplayed(format!(
        "the waiter had the lock after {acquire_s:.3} s, of a hold of {} s",
        cell.hold_s
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(total_s: f64) -> Result<Option<Times>, tokio_postgres::Error> {
        Ok(Some(Times {
            acquire_s: total_s - 1.0,
            total_s,
        }))
    }

    #[test]
    fn a_chain_is_as_slow_as_its_slowest_holder_and_through_with_its_last() {
        let mut heard = Heard::default();
        for total_s in [2.0, 5.0, 3.0] {
            assert!(!heard.through(3));
            heard.note((Role::Holder, times(total_s))).unwrap();
        }
        assert!(!heard.through(3));
        heard.note((Role::Waiter, times(4.0))).unwrap();
        assert!(heard.through(3));
        assert_eq!(heard.slowest().unwrap().total_s, 5.0);
    }

    #[test]
    fn listening_ends_with_the_last_session_or_at_the_limit() {
        let (say, said) = mpsc::channel();
        say.send((Role::Holder, times(4.0))).unwrap();
        let mut heard = Heard::default();
        heard.listen(&said, 1, Instant::now()).unwrap();
        assert!(heard.waiter.is_none());
        say.send((Role::Waiter, times(4.0))).unwrap();
        let later = Instant::now() + Duration::from_secs(3600);
        heard.listen(&said, 1, later).unwrap();
        assert!(heard.through(1));
    }

    #[test]
    fn a_burner_that_ends_by_itself_is_an_error() {
        let error = Heard::default().note((Role::Burner, Ok(None))).unwrap_err();
        assert!(matches!(error, Error::Unplayed(_)), "{error}");
    }

    #[test]
    fn a_waiter_that_found_the_lock_free_is_an_error() {
        let cell = Cell {
            lock: ContendedLock::Spin,
            scenario: Scenario::Baseline,
            hold_s: 4.0,
            limit_s: 60.0,
        };
        let waited = |acquire_s| {
            let total_s = acquire_s + 0.01;
            had_to_wait(&cell, Some(Times { acquire_s, total_s }))
        };
        waited(3.8).unwrap();
        assert!(waited(0.001).is_err());
    }
}
