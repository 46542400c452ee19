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
//! ([`Shape`]).
//!
//! Work is counted in loops, not in time: on the lab's lockstep clock it takes
//! the same in every run.

use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::groups::ThreadGroup;
use crate::harness::error::{Error, Result};

/// Half of a transaction's work, in loops; about 0.25 ms of the lab's.
const HALF: u64 = 12_000;
/// The nap in the middle.
const NAP: Duration = Duration::from_micros(200);
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(60);
/// A job's work, in loops; about 8 ms of the lab's.
const JOB: u64 = 400_000;

/// How much there is of each kind of thread, and how long clients pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    /// Clients of OLTP.
    clients: u64,
    /// A client's pause between transactions, on average.
    pause: Duration,
    /// Workers of batch.
    workers: u64,
    /// CPU-bound threads of each application's upkeep.
    upkeep: u64,
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
    latencies_ns: Vec<u64>,
    /// Wrong answers and missing ones.
    pub(super) errors: u64,
}

impl Outcome {
    /// How many were done.
    pub(super) fn count(&self) -> u64 {
        self.latencies_ns.len() as u64
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
        self.errors += other.errors;
    }
}

/// The phase, and whoever waits for another.
#[derive(Debug)]
struct Board {
    phase: Mutex<Phase>,
    changed: Condvar,
}

impl Board {
    fn now(&self) -> Phase {
        *self.phase.lock().expect("nobody panics with it")
    }

    /// Waits until it is `phase`; false when all is over.
    fn wait_for(&self, phase: Phase) -> bool {
        let guard = self.phase.lock().expect("nobody panics with it");
        let wanted = |now: &mut Phase| *now != phase && *now != Phase::Over;
        let guard = self.changed.wait_while(guard, wanted).expect("as above");
        *guard != Phase::Over
    }

    fn set(&self, phase: Phase) {
        *self.phase.lock().expect("nobody panics with it") = phase;
        self.changed.notify_all();
    }
}

/// The applications, running.
#[derive(Debug)]
pub(super) struct Load {
    board: Arc<Board>,
    oltp: Vec<JoinHandle<Result<Outcome>>>,
    batch: Vec<JoinHandle<Result<Outcome>>>,
    others: Vec<JoinHandle<Result<()>>>,
}

impl Load {
    /// Starts their threads, at rest, in the cgroups that are there.
    ///
    /// # Errors
    /// [`Error::Meta`] if sockets cannot be made.
    pub(super) fn start(seed: u64, shape: Shape) -> Result<Load> {
        let board = Arc::new(Board {
            phase: Mutex::new(Phase::Rest),
            changed: Condvar::new(),
        });
        let mut load = Load {
            board,
            oltp: Vec::new(),
            batch: Vec::new(),
            others: Vec::new(),
        };
        for number in 0..shape.clients {
            let pair = UnixStream::pair();
            let (near, far) = pair.map_err(|error| Error::Meta(format!("no socket: {error}")))?;
            load.others.push(thread::spawn(move || {
                ThreadGroup::Serve.enter()?;
                serve(far);
                Ok(())
            }));
            let board = Arc::clone(&load.board);
            let random = ChaCha8Rng::seed_from_u64(seed ^ (number << 32));
            load.oltp.push(thread::spawn(move || {
                ThreadGroup::Serve.enter()?;
                Ok(client(&board, near, random, shape.pause))
            }));
        }
        for _ in 0..shape.workers {
            let board = Arc::clone(&load.board);
            load.batch.push(thread::spawn(move || {
                ThreadGroup::Jobs.enter()?;
                Ok(worker(&board))
            }));
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

    /// Goes over to a phase.
    pub(super) fn enter(&self, phase: Phase) {
        self.board.set(phase);
    }

    /// Ends the threads; what OLTP did, and batch.
    ///
    /// # Errors
    /// That of a thread which could not enter its cgroup.
    pub(super) fn end(self) -> Result<(Outcome, Outcome)> {
        self.board.set(Phase::Over);
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

fn client(
    board: &Board,
    mut stream: UnixStream,
    mut random: ChaCha8Rng,
    pause: Duration,
) -> Outcome {
    let mut done = Outcome::default();
    // If it cannot be set, a missing answer hangs the run, which has a limit too.
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let mut request = 0u64;
    while board.wait_for(Phase::Burst) {
        thread::sleep(pause.mul_f64(-f64::ln(1.0 - random.random::<f64>())));
        if board.now() != Phase::Burst {
            continue;
        }
        let began = Instant::now();
        request += 1;
        let mut bytes = request.to_ne_bytes();
        let result = stream.write_all(&bytes);
        if result.and_then(|()| stream.read_exact(&mut bytes)).is_err() {
            // What comes later would be taken for the next request's.
            done.errors += 1;
            return done;
        }
        if u64::from_ne_bytes(bytes) == answer(request) {
            done.latencies_ns.push(began.elapsed().as_nanos() as u64);
        } else {
            done.errors += 1;
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
            errors: 0,
        };
        assert_eq!(done((1..=200).rev().collect()).p99_s(), Some(198e-9));
        assert_eq!(done(vec![5]).p99_s(), Some(5e-9));
        assert_eq!(done(Vec::new()).p99_s(), None);
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
        let board = Board {
            phase: Mutex::new(Phase::Burst),
            changed: Condvar::new(),
        };
        let (near, mut far) = UnixStream::pair().unwrap();
        let random = ChaCha8Rng::seed_from_u64(1);
        let done = thread::scope(|scope| {
            let client = scope.spawn(|| client(&board, near, random, Duration::from_millis(1)));
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
        assert_eq!((done.count(), done.errors), (2, 2));
    }
}
