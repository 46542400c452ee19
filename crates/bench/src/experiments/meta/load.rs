//! The two applications. In each phase one of them matters, and the other has
//! work that can wait:
//!
//! ```text
//!   phase     matters                       can wait
//!   burst     OLTP: clients with pauses,    batch's upkeep: hungry threads
//!             a server thread each
//!   window    batch: workers, job by job    OLTP's upkeep: hungry threads
//! ```
//!
//! A transaction is a request over a socket: some work, a nap as for a log write,
//! some more work, an answer. The answer is a function of the request, so a
//! client knows a wrong one. Its latency counts from when the client wanted it.
//! A job is a stretch of work.
//!
//! There are two loads: policies learn from one and are compared under the other
//! ([`Shape`]). The applications can also be programs ([`super::programs`]), which have
//! the same phases, clients and numbers.
//!
//! Work is counted in loops, not in time: on the lab's lockstep clock it takes
//! the same in every run.

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use super::groups::ThreadGroup;
use super::process::Process;
use crate::harness::error::{Error, Result};

/// Half of a transaction's work, in loops; about 0.25 ms of the lab's.
const HALF: u64 = 12_000;
/// The nap in the middle.
const NAP: Duration = Duration::from_micros(200);
/// An answer that takes longer is none.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// A job's work, in loops; about 8 ms of the lab's.
const JOB: u64 = 400_000;

/// How much there is of each kind of thread, and how long clients pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    /// Clients of OLTP.
    pub(super) clients: u64,
    /// A client's pause between transactions, on average.
    pub(super) pause: Duration,
    /// Workers of batch.
    pub(super) workers: u64,
    /// CPU-bound threads of each application's upkeep.
    pub(super) upkeep: u64,
}

impl Shape {
    /// The load under which schedulers and policies are compared.
    pub(super) const EVALUATION: Shape = Shape {
        clients: 6,
        pause: Duration::from_millis(4),
        workers: 3,
        upkeep: 2,
    };

    /// The load that policies learn from. No number is that of the evaluation, so a
    /// policy that fits one load only is found out. OLTP takes half as much CPU time,
    /// batch still fills two CPUs, and upkeep still has more threads than CPUs.
    pub(super) const TRAINING: Shape = Shape {
        clients: 4,
        pause: Duration::from_millis(6),
        workers: 2,
        upkeep: 3,
    };
}

/// What matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// OLTP.
    Burst,
    /// Batch.
    Window,
    /// Nothing runs.
    Rest,
    /// Threads end.
    Over,
}

/// What one application did.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// Nanoseconds, one per transaction or job.
    pub(super) latencies_ns: Vec<u64>,
    /// Nanoseconds of each job that the end interrupted.
    pub(super) interrupted_ns: Vec<u64>,
    /// Wrong answers and missing ones.
    pub(super) errors: u64,
}

impl Outcome {
    /// How many were done. An interrupted job counts by the time that it had, as a share
    /// of what a finished one took: of long jobs a run has few.
    pub(super) fn count(&self) -> f64 {
        let finished = self.latencies_ns.len() as f64;
        let sum = |times: &[u64]| times.iter().sum::<u64>() as f64;
        let mean = sum(&self.latencies_ns) / finished;
        let share = |&ns: &u64| (ns as f64 / mean).min(1.0);
        match self.latencies_ns[..] {
            [] => 0.0,
            _ => finished + self.interrupted_ns.iter().map(share).sum::<f64>(),
        }
    }

    /// The 99th percentile in seconds; none of nothing.
    pub(super) fn p99_s(&self) -> Option<f64> {
        let mut sorted = self.latencies_ns.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * 99).div_ceil(100).checked_sub(1)?;
        Some(sorted[rank] as f64 * 1e-9)
    }

    fn add(&mut self, other: Outcome) {
        self.latencies_ns.extend(other.latencies_ns);
        self.interrupted_ns.extend(other.interrupted_ns);
        self.errors += other.errors;
    }
}

/// The phase, and whoever waits for another.
#[derive(Debug)]
pub(super) struct Board {
    now: Mutex<Now>,
    changed: Condvar,
}

#[derive(Debug)]
struct Now {
    phase: Phase,
    since: Instant,
    /// The length of all windows before this phase.
    windows: Duration,
}

impl Board {
    pub(super) fn new(phase: Phase) -> Board {
        Board {
            now: Mutex::new(Now {
                phase,
                since: Instant::now(),
                windows: Duration::ZERO,
            }),
            changed: Condvar::new(),
        }
    }

    pub(super) fn now(&self) -> Phase {
        self.now.lock().expect("nobody panics with it").phase
    }

    /// The length of all windows so far: a clock that stands still outside them.
    pub(super) fn windows(&self) -> Duration {
        self.now.lock().expect("as above").windows()
    }

    /// Waits until it is `phase`; false when all is over.
    pub(super) fn wait_for(&self, phase: Phase) -> bool {
        let guard = self.now.lock().expect("nobody panics with it");
        let wanted = |now: &mut Now| now.phase != phase && now.phase != Phase::Over;
        let guard = self.changed.wait_while(guard, wanted).expect("as above");
        guard.phase != Phase::Over
    }

    pub(super) fn set(&self, phase: Phase) {
        let mut now = self.now.lock().expect("nobody panics with it");
        *now = Now {
            phase,
            since: Instant::now(),
            windows: now.windows(),
        };
        self.changed.notify_all();
    }
}

impl Now {
    fn windows(&self) -> Duration {
        match self.phase {
            Phase::Window => self.windows + self.since.elapsed(),
            Phase::Burst | Phase::Rest | Phase::Over => self.windows,
        }
    }
}

/// The applications, running.
#[derive(Debug)]
pub(super) struct Load {
    board: Arc<Board>,
    oltp: Vec<JoinHandle<Result<Outcome>>>,
    batch: Vec<JoinHandle<Result<Outcome>>>,
    others: Vec<JoinHandle<Result<()>>>,
    /// What processes run in, and the phase outside of which they are frozen. Threads
    /// look at the board themselves.
    seasons: Vec<(ThreadGroup, Phase)>,
    /// Killed once the threads have ended, and then their directory goes.
    pub(super) processes: Vec<Process>,
    pub(super) dir: Option<TempDir>,
}

impl Load {
    /// Starts their threads, at rest, in the cgroups that are there.
    ///
    /// # Errors
    /// [`Error::Meta`] if sockets cannot be made.
    pub(super) fn start(seed: u64, shape: Shape) -> Result<Load> {
        let mut load = Load::at_rest();
        load.add_clients(seed, shape, || {
            let pair = UnixStream::pair();
            let (near, far) = pair.map_err(|error| Error::Meta(format!("no socket: {error}")))?;
            let server = thread::spawn(move || {
                ThreadGroup::Serve.enter()?;
                serve(far);
                Ok(())
            });
            Ok((transaction(near), Some(server)))
        })?;
        for _ in 0..shape.workers {
            load.add_worker(|board| {
                ThreadGroup::Jobs.enter()?;
                Ok(worker(board))
            });
        }
        let hungry = [
            (ThreadGroup::OltpUpkeep, Phase::Window),
            (ThreadGroup::BatchUpkeep, Phase::Burst),
        ];
        for (place, phase) in hungry {
            for _ in 0..shape.upkeep {
                let board = Arc::clone(&load.board);
                load.others.push(thread::spawn(move || {
                    place.enter()?;
                    while board.wait_for(phase) {
                        work(HALF);
                    }
                    Ok(())
                }));
            }
        }
        Ok(load)
    }

    /// Without any thread yet.
    pub(super) fn at_rest() -> Load {
        Load {
            board: Arc::new(Board::new(Phase::Rest)),
            oltp: Vec::new(),
            batch: Vec::new(),
            others: Vec::new(),
            seasons: Vec::new(),
            processes: Vec::new(),
            dir: None,
        }
    }

    /// Adds the clients of the application that matters in bursts. `connect` gives each
    /// what asks once, and the thread of its server, if it has one.
    ///
    /// # Errors
    /// Those of `connect`.
    pub(super) fn add_clients<A: Ask + 'static>(
        &mut self,
        seed: u64,
        shape: Shape,
        mut connect: impl FnMut() -> Result<(A, Option<JoinHandle<Result<()>>>)>,
    ) -> Result<()> {
        for number in 0..shape.clients {
            let (ask, server) = connect()?;
            self.others.extend(server);
            let board = Arc::clone(&self.board);
            let random = ChaCha8Rng::seed_from_u64(seed ^ (number << 32));
            self.oltp.push(thread::spawn(move || {
                ThreadGroup::Serve.enter()?;
                Ok(client(&board, ask, random, shape.pause))
            }));
        }
        Ok(())
    }

    /// Adds a worker of the application that matters in windows.
    pub(super) fn add_worker(
        &mut self,
        work: impl FnOnce(&Board) -> Result<Outcome> + Send + 'static,
    ) {
        let board = Arc::clone(&self.board);
        self.batch.push(thread::spawn(move || work(&board)));
    }

    /// Freezes the processes of a cgroup outside of a phase, and now.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn freeze_outside(&mut self, phase: Phase, place: ThreadGroup) -> Result<()> {
        self.seasons.push((place, phase));
        place.freeze(true)
    }

    /// Goes over to a phase.
    ///
    /// # Errors
    /// [`Error::File`] if processes cannot be frozen or thawed.
    pub(super) fn enter(&self, phase: Phase) -> Result<()> {
        self.board.set(phase);
        for (place, own) in &self.seasons {
            place.freeze(phase != *own && phase != Phase::Over)?;
        }
        Ok(())
    }

    /// Ends the threads; what OLTP did, and batch.
    ///
    /// # Errors
    /// That of a thread which could not enter its cgroup.
    pub(super) fn end(self) -> Result<(Outcome, Outcome)> {
        self.enter(Phase::Over)?;
        let sum = |threads: Vec<JoinHandle<Result<Outcome>>>| {
            let mut all = Outcome::default();
            for thread in threads {
                all.add(thread.join().expect("it does not panic")?);
            }
            Ok::<Outcome, Error>(all)
        };
        let done = (sum(self.oltp)?, sum(self.batch)?);
        for thread in self.others {
            thread.join().expect("it does not panic")?;
        }
        Ok(done)
    }
}

/// So many loops that cannot be left out.
fn work(loops: u64) {
    let mut x = 1u64;
    for _ in 0..loops {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// What a server answers.
fn answer(request: u64) -> u64 {
    request.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn serve(mut stream: UnixStream) {
    let mut bytes = [0; 8];
    while stream.read_exact(&mut bytes).is_ok() {
        work(HALF);
        thread::sleep(NAP);
        work(HALF);
        let answer = answer(u64::from_ne_bytes(bytes));
        if stream.write_all(&answer.to_ne_bytes()).is_err() {
            return;
        }
    }
}

/// Asks once and waits for the answer: whether it is right. The number is that of the
/// request. An error means that there is none.
pub(super) trait Ask: FnMut(u64) -> io::Result<bool> + Send {}

impl<F: FnMut(u64) -> io::Result<bool> + Send> Ask for F {}

fn transaction(mut stream: UnixStream) -> impl Ask {
    // If it cannot be set, a missing answer hangs the run, which has a limit too.
    let _ = stream.set_read_timeout(Some(PATIENCE));
    move |request: u64| {
        let mut bytes = request.to_ne_bytes();
        stream.write_all(&bytes)?;
        stream.read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes) == answer(request))
    }
}

fn client(board: &Board, mut ask: impl Ask, mut random: ChaCha8Rng, pause: Duration) -> Outcome {
    let mut done = Outcome::default();
    let mut request = 0u64;
    while board.wait_for(Phase::Burst) {
        thread::sleep(pause.mul_f64(-f64::ln(1.0 - random.random::<f64>())));
        if board.now() != Phase::Burst {
            continue;
        }
        let began = Instant::now();
        request += 1;
        match ask(request) {
            Ok(true) => done.latencies_ns.push(began.elapsed().as_nanos() as u64),
            Ok(false) => done.errors += 1,
            Err(_) => {
                // What comes later would be taken for the next request's.
                done.errors += 1;
                return done;
            }
        }
    }
    done
}

fn worker(board: &Board) -> Outcome {
    let mut done = Outcome::default();
    while board.wait_for(Phase::Window) {
        let began = Instant::now();
        work(JOB);
        done.latencies_ns.push(began.elapsed().as_nanos() as u64);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_is_by_rank() {
        let done = |latencies_ns: Vec<u64>| Outcome {
            latencies_ns,
            ..Outcome::default()
        };
        assert_eq!(done((1..=200).rev().collect()).p99_s(), Some(198e-9));
        assert_eq!(done(vec![5]).p99_s(), Some(5e-9));
        assert_eq!(done(Vec::new()).p99_s(), None);
    }

    #[test]
    fn an_interrupted_job_counts_by_its_time() {
        let done = |latencies_ns, interrupted_ns| Outcome {
            latencies_ns,
            interrupted_ns,
            errors: 0,
        };
        assert_eq!(done(vec![10, 30], vec![5]).count(), 2.25);
        // It is not more than a whole one, and nothing by itself.
        assert_eq!(done(vec![10, 30], vec![90]).count(), 3.0);
        assert_eq!(done(Vec::new(), vec![90]).count(), 0.0);
    }

    #[test]
    fn the_clock_of_windows_stands_still_outside_them() {
        let board = Board::new(Phase::Rest);
        let pause = Duration::from_millis(5);
        for (phase, windows) in [
            (Phase::Burst, 0),
            (Phase::Window, 1),
            (Phase::Burst, 1),
            (Phase::Window, 2),
        ] {
            board.set(phase);
            let before = board.windows();
            thread::sleep(pause);
            let stood = board.windows() == before;
            assert_eq!(stood, phase != Phase::Window, "{phase:?}");
            assert!(board.windows() >= pause * windows, "{phase:?}");
        }
    }

    #[test]
    fn policies_learn_from_a_load_that_differs_in_every_number() {
        let (learnt, compared) = (Shape::TRAINING, Shape::EVALUATION);
        assert_ne!(learnt.clients, compared.clients);
        assert_ne!(learnt.pause, compared.pause);
        assert_ne!(learnt.workers, compared.workers);
        assert_ne!(learnt.upkeep, compared.upkeep);
    }

    #[test]
    fn a_client_knows_a_wrong_answer() {
        let board = Board::new(Phase::Burst);
        let (near, mut far) = UnixStream::pair().unwrap();
        let random = ChaCha8Rng::seed_from_u64(1);
        let done = thread::scope(|scope| {
            let client =
                scope.spawn(|| client(&board, transaction(near), random, Duration::from_millis(1)));
            for wrong in [0, 1, 0] {
                let mut bytes = [0; 8];
                far.read_exact(&mut bytes).unwrap();
                let answer = answer(u64::from_ne_bytes(bytes)) + wrong;
                far.write_all(&answer.to_ne_bytes()).unwrap();
            }
            // The fourth request has none.
            far.read_exact(&mut [0; 8]).unwrap();
            drop(far);
            client.join().unwrap()
        });
        assert_eq!((done.count(), done.errors), (2.0, 2));
    }
}
