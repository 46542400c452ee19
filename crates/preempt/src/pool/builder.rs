//! How a pool is made.

use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock;
use crate::delivery::Delivery;
use crate::error::EnterError;
use crate::level::Level;
use crate::lowering::{Lowering, Plan, Standing};
use crate::policy::Policy;
use crate::pool::common::Common;
use crate::pool::station::{Base, Server, Station};
use crate::pool::tick::{Alarm, Tuning};
use crate::pool::{Member, Occupation, Pool, Ticker};
use crate::presence::{Parking, Serving};
use crate::queue::{Consumer, queue};
use crate::remote::Remote;
use crate::starvation::{Since, Starvation, Threshold};
use crate::stats::{Books, Submissions};
use crate::tuning::{Goal, GoalError};
use crate::worker::Worker;

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There would be no workers.
    #[error("a pool needs workers: give PoolBuilder::workers at least 1")]
    NoWorkers,
    /// Fewer than two levels, or more than there can be.
    #[error("{0} levels: give PoolBuilder::levels 2 to {max}", max = Level::MAX.get() + 1)]
    Levels(usize),
    /// A queue that is always full.
    #[error("level {0} has queues without places: give PoolBuilder::capacity at least 1")]
    NoPlaces(Level),
    /// A capacity for a level that is not there.
    #[error("there is no level {0} to have a capacity: give PoolBuilder::levels more of them")]
    NoSuchLevel(Level),
    /// Too few CPUs to pin every worker to one.
    #[error("{cpus} CPUs for {workers} workers: give PoolBuilder::pin one for each")]
    Pins {
        /// How many CPUs were given.
        cpus: usize,
        /// How many workers there are.
        workers: usize,
    },
    /// A CPU that this process may not use.
    #[error("worker {worker} cannot run on CPU {cpu}: {source}; choose one of the process's CPUs")]
    Pin {
        /// Which worker.
        worker: usize,
        /// Which CPU.
        cpu: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The goal makes no sense.
    #[error(transparent)]
    Goal(#[from] GoalError),
    /// A thread could not become a worker.
    #[error("worker {worker}: {source}")]
    Enter {
        /// Which one.
        worker: usize,
        /// Why not.
        source: EnterError,
    },
    /// A thread could not be started.
    #[error("no thread: {0}; fewer workers need fewer threads")]
    Thread(#[from] io::Error),
}

/// How a pool is made. Defaults are those of the paper's experiments (Section 6.1),
/// except for the delivery.
#[derive(Clone, Debug)]
pub struct PoolBuilder {
    workers: usize,
    pin: Option<Vec<usize>>,
    levels: usize,
    capacities: Vec<(Level, u32)>,
    policy: Policy,
    threshold: Threshold,
    since: Since,
    goal: Option<Goal>,
    spin: Duration,
    signal: Option<i32>,
    stack_bytes: Option<usize>,
    ticker: Ticker,
    lowering: Option<Plan>,
}

/// Places of a queue of the base, and of a higher level (Section 6.1).
const PLACES: (u32, u32) = (1, 4);

impl Default for PoolBuilder {
    fn default() -> PoolBuilder {
        let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        PoolBuilder {
            workers: (cpus - 1).max(1),
            pin: None,
            levels: 2,
            capacities: Vec::new(),
            policy: Policy::best(),
            threshold: Threshold::DISABLED,
            since: Since::FirstInLine,
            goal: None,
            spin: Duration::from_micros(20),
            signal: None,
            stack_bytes: None,
            ticker: Ticker::Thread,
            lowering: None,
        }
    }
}

impl PoolBuilder {
    /// How many worker threads; one less than CPUs, at least 1, by default.
    pub fn workers(mut self, workers: usize) -> PoolBuilder {
        self.workers = workers;
        self
    }

    /// Where the workers run: the first on the first of these CPUs, and so on.
    pub fn pin(mut self, cpus: impl IntoIterator<Item = usize>) -> PoolBuilder {
        self.pin = Some(cpus.into_iter().collect());
        self
    }

    /// How many levels, the base included: 2 to 16.
    pub fn levels(mut self, levels: usize) -> PoolBuilder {
        self.levels = levels;
        self
    }

    /// How many tasks of a level may wait for each worker: 1 at the base and 4
    /// above it by default.
    pub fn capacity(mut self, level: Level, places: u32) -> PoolBuilder {
        self.capacities.push((level, places));
        self
    }

    /// When workers leave background work; [`Policy::best`] by default.
    pub fn policy(mut self, policy: Policy) -> PoolBuilder {
        self.policy = policy;
        self
    }

    /// The starvation threshold L_max (Section 5).
    pub fn threshold(mut self, threshold: Threshold) -> PoolBuilder {
        self.threshold = threshold;
        self
    }

    /// From when on the time of higher levels is held against them.
    pub fn since(mut self, since: Since) -> PoolBuilder {
        self.since = since;
        self
    }

    /// Has the threshold tuned to this goal, instead of a fixed one.
    pub fn goal(mut self, goal: Goal) -> PoolBuilder {
        self.goal = Some(goal);
        self
    }

    /// For how long a worker without work looks for some before it sleeps: 20 µs
    /// by default. Being woken costs the worker about 50 µs, and the submitter
    /// a system call.
    pub fn spin(mut self, spin: Duration) -> PoolBuilder {
        self.spin = spin;
        self
    }

    /// Which signal preempts, for policies that use one; SIGURG by default. The
    /// whole process must leave it alone.
    pub fn signal(mut self, signal: i32) -> PoolBuilder {
        self.signal = Some(signal);
        self
    }

    /// How large the stack of each context above the base is.
    pub fn stack_bytes(mut self, bytes: usize) -> PoolBuilder {
        self.stack_bytes = Some(bytes);
        self
    }

    /// What does the periodic work: a thread of the pool, by default.
    pub fn ticker(mut self, ticker: Ticker) -> PoolBuilder {
        self.ticker = ticker;
        self
    }

    /// Has each worker tell the kernel, by what `make` returns, when it runs
    /// background work only: when it begins a background task and nothing was
    /// urgent for as long as `after`. By default the kernel is not told. For UFS,
    /// `make` returns a [`HintSlot`](crate::HintSlot).
    ///
    /// `make` is called on the worker's thread, with the worker's number, before it
    /// takes tasks.
    pub fn lowering(
        mut self,
        after: Duration,
        make: impl Fn(usize) -> Box<dyn Lowering> + Send + Sync + 'static,
    ) -> PoolBuilder {
        let make = Arc::new(make);
        self.lowering = Some(Plan { after, make });
        self
    }

    /// Starts the workers.
    ///
    /// # Errors
    /// Each variant of [`BuildError`] says what to change. No thread is left
    /// behind.
    pub fn build(self) -> Result<Pool, BuildError> {
        self.check()?;
        let places = self.places()?;
        let tuning = self.goal.map(Tuning::new);
        let threshold = tuning.as_ref().map_or(self.threshold, Tuning::threshold);
        let alarm = (self.ticker == Ticker::Thread).then(Alarm::new);
        let common = Common::new(self.policy, threshold, self.since, self.spin, alarm);
        let common = Arc::new(common);
        let mut members = Vec::new();
        for worker in 0..self.workers {
            match self.start(worker, &common, &places) {
                Ok(member) => members.push(member),
                Err(error) => {
                    // Its drop ends those that were started.
                    let none = Vec::new();
                    drop(Pool::new(common, members, none, None));
                    return Err(error);
                }
            }
        }
        let submissions = places.iter().map(|_| Submissions::new()).collect();
        let pool = Pool::new(common, members, submissions, tuning);
        if self.ticker == Ticker::Thread {
            pool.start_ticker()?;
        }
        pool.start_watch()?;
        Ok(pool)
    }

    fn check(&self) -> Result<(), BuildError> {
        if self.workers == 0 {
            return Err(BuildError::NoWorkers);
        }
        if !(2..=usize::from(Level::MAX.get()) + 1).contains(&self.levels) {
            return Err(BuildError::Levels(self.levels));
        }
        match &self.pin {
            Some(cpus) if cpus.len() < self.workers => {
                return Err(BuildError::Pins {
                    cpus: cpus.len(),
                    workers: self.workers,
                });
            }
            _ => {}
        }
        if let Some(goal) = self.goal {
            goal.check()?;
        }
        Ok(())
    }

    /// How many places the queues of each level have.
    fn places(&self) -> Result<Vec<NonZeroU32>, BuildError> {
        let mut places = vec![PLACES.1; self.levels];
        places[0] = PLACES.0;
        for &(level, number) in &self.capacities {
            *places
                .get_mut(level.index())
                .ok_or(BuildError::NoSuchLevel(level))? = number;
        }
        let check = |(number, level): (u32, u8)| {
            NonZeroU32::new(number).ok_or(BuildError::NoPlaces(Level::new(level)))
        };
        places.into_iter().zip(0..).map(check).collect()
    }

    /// Starts a worker, and waits until it has become one.
    fn start(
        &self,
        worker: usize,
        common: &Arc<Common>,
        places: &[NonZeroU32],
    ) -> Result<Member, BuildError> {
        let consumers: Vec<_> = places.iter().map(|&places| queue(places)).collect();
        let station = Arc::new(Station {
            common: Arc::clone(common),
            queues: consumers
                .iter()
                .map(|consumer| Arc::clone(consumer.queue()))
                .collect(),
            books: places.iter().map(|_| Books::new()).collect(),
            parking: Parking::new(),
            serving: Serving::new(),
            starvation: Starvation::new(),
            standing: Standing::new(),
            occupations: places.iter().map(|_| Occupation::new()).collect(),
        });
        let recruit = Recruit {
            worker,
            cpu: self.pin.as_ref().map(|cpus| cpus[worker]),
            // A worker that may be interrupted later has to be ready for it.
            delivery: self.policy.delivery().unwrap_or(Delivery::best()),
            signal: self.signal,
            stack_bytes: self.stack_bytes,
            lowering: self.lowering.clone(),
            station: Arc::clone(&station),
            consumers,
        };
        let (tell, told) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("giveway-{worker}"))
            .spawn(move || recruit.work(&tell))?;
        match told.recv() {
            Ok(Ok(remote)) => Ok(Member {
                station,
                remote,
                thread,
            }),
            Ok(Err(error)) => {
                join(thread);
                Err(error)
            }
            Err(_) => {
                join(thread);
                unreachable!("a worker says whether it works, or panics");
            }
        }
    }
}

/// A thread that is to become a worker.
struct Recruit {
    worker: usize,
    cpu: Option<usize>,
    delivery: Delivery,
    signal: Option<i32>,
    stack_bytes: Option<usize>,
    lowering: Option<Plan>,
    station: Arc<Station>,
    consumers: Vec<Consumer<crate::pool::station::Entry>>,
}

impl Recruit {
    /// The whole life of the thread.
    fn work(self, tell: &mpsc::Sender<Result<Remote, BuildError>>) {
        // The builder waits for the answer, so the channel is open.
        let say = |what| tell.send(what).expect("the builder waits");
        if let Err(error) = self.pin() {
            return say(Err(error));
        }
        if let Some(Plan { after, make }) = &self.lowering {
            let standing = &self.station.standing;
            standing.attach(make(self.worker), *after, clock::now());
        }
        let mut builder = Worker::builder().delivery(self.delivery);
        if let Some(signal) = self.signal {
            builder = builder.signal(signal);
        }
        if let Some(bytes) = self.stack_bytes {
            builder = builder.stack_bytes(bytes);
        }
        let mut consumers = self.consumers.into_iter();
        let base = consumers.next().expect("there are at least two levels");
        for (consumer, level) in consumers.zip(1..) {
            let mut server = Server::new(Arc::clone(&self.station), consumer);
            let name = format!("giveway-{}.{level}", self.worker);
            builder = builder.level(name, move |level| server.serve(level));
        }
        match builder.enter() {
            Ok(worker) => {
                say(Ok(worker.remote()));
                Base::new(self.station, base).work();
            }
            Err(source) => say(Err(BuildError::Enter {
                worker: self.worker,
                source,
            })),
        }
    }

    /// Moves the thread to its CPU.
    fn pin(&self) -> Result<(), BuildError> {
        let Some(cpu) = self.cpu else { return Ok(()) };
        pin_to(cpu).map_err(|source| BuildError::Pin {
            worker: self.worker,
            cpu,
            source,
        })
    }
}

/// Lets the current thread run on this CPU alone.
fn pin_to(cpu: usize) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Waits for a thread, and passes its panic on.
pub(crate) fn join(thread: JoinHandle<()>) {
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
