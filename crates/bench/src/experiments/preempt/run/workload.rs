//! The data of the mix, and single requests on them.
//!
//! A request knows when it was meant to start. Whoever has run it writes the time
//! since then into a slot of its own ([`Samples`]): one store, without a lock,
//! since two contexts of one worker may not share a lock and a third thread is
//! never waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use giveway_preempt::RegionMutex;
use giveway_txn::Isolation;

use crate::harness::Progress;
use crate::harness::error::{Error, Result};
use crate::workload::oltp::access::Engine;
use crate::workload::oltp::giveway::Giveway;
use crate::workload::oltp::load::load;
use crate::workload::oltp::q2::Q2;
use crate::workload::oltp::transactions::Terminal;
use crate::workload::tpcc::generate::{Input, Inputs, Size};

/// TPC-C's and Q2's tables in one database.
pub(crate) struct Workload {
    pub(crate) engine: Giveway,
    pub(crate) q2: Q2,
    pub(crate) warehouses: u32,
    pub(crate) size: Size,
    /// Why a request failed for good; the run is worth nothing then.
    failure: RegionMutex<Option<Error>>,
}

impl Workload {
    /// Loads everything.
    pub(crate) fn load(
        seed: u64,
        warehouses: u32,
        size: Size,
        q2_scale: f64,
        progress: Progress<'_>,
    ) -> Result<Arc<Self>> {
        let name = Giveway::NAME;
        let failed = |error: giveway_txn::Error| Error::Engine {
            engine: name,
            reason: error.to_string(),
        };
        // TPC-C is serializable under snapshot isolation, and Q2 only reads.
        let engine = Giveway::new(Isolation::Snapshot).map_err(failed)?;
        load(&engine, seed, warehouses, size, progress)?;
        progress(&format!("{name}: loading Q2's tables"));
        let q2 = Q2::load(engine.database(), q2_scale).map_err(failed)?;
        Ok(Arc::new(Workload {
            engine,
            q2,
            warehouses,
            size,
            failure: RegionMutex::new(None),
        }))
    }

    /// The first failure since the last call.
    pub(crate) fn failure(&self) -> Result<()> {
        self.failure.lock().take().map_or(Ok(()), Err)
    }

    fn perform(&self, work: &mut Work) {
        let outcome = match work {
            Work::Q2 => match self.q2.run() {
                Ok(offers) => {
                    std::hint::black_box(offers);
                    Ok(())
                }
                Err(error) => Err(Error::Engine {
                    engine: Giveway::NAME,
                    reason: error.to_string(),
                }),
            },
            Work::Urgent(input, terminal) => {
                let ended = self.engine.run(&mut terminal.order(input));
                ended
                    .map(|_| ())
                    .map_err(|failure| failure.named(Giveway::NAME))
            }
        };
        if let Err(error) = outcome {
            self.failure.lock().get_or_insert(error);
        }
    }
}

/// The three transactions of the mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    NewOrder,
    Payment,
    Q2,
}

/// What a request does.
enum Work {
    Q2,
    Urgent(Input, Terminal),
}

/// One request.
pub(crate) struct Request {
    workload: Arc<Workload>,
    samples: Arc<Samples>,
    slot: usize,
    due: Instant,
    work: Work,
}

impl Request {
    /// Runs it, and says how long it took from when it was due.
    pub(crate) fn run(mut self) {
        self.workload.perform(&mut self.work);
        let taken = self.due.elapsed().as_nanos();
        // A latency of 0 would look like a request that never ended.
        let taken = u64::try_from(taken).unwrap_or(u64::MAX).max(1);
        self.samples.put(self.slot, taken);
    }
}

/// Latencies in ns, by slot; 0 for what has not ended.
pub(crate) struct Samples {
    slots: Vec<AtomicU64>,
    ended: AtomicU64,
}

impl Samples {
    fn new(slots: usize) -> Arc<Self> {
        Arc::new(Samples {
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            ended: AtomicU64::new(0),
        })
    }

    fn put(&self, slot: usize, ns: u64) {
        self.slots[slot].store(ns, Ordering::Relaxed);
        // Release: who sees the count sees the slot.
        self.ended.fetch_add(1, Ordering::Release);
    }
}

/// Makes the requests of a run, and remembers what it made.
pub(crate) struct Requests {
    workload: Arc<Workload>,
    samples: Arc<Samples>,
    inputs: Vec<(Inputs, Terminal)>,
    next: usize,
    /// By slot.
    made: Vec<(Kind, Instant)>,
}

impl Requests {
    /// For at most so many requests.
    pub(crate) fn new(workload: &Arc<Workload>, seed: u64, slots: usize) -> Self {
        let inputs = (0..workload.warehouses).map(|number| {
            let inputs = Inputs::sized(seed, number, workload.warehouses, workload.size);
            let terminal = Terminal::new(inputs.home(), number);
            (inputs, terminal)
        });
        Requests {
            workload: Arc::clone(workload),
            samples: Samples::new(slots),
            inputs: inputs.collect(),
            next: 0,
            made: Vec::with_capacity(slots),
        }
    }

    /// How many have ended.
    pub(crate) fn ended(&self) -> u64 {
        // Acquire: pairs with the release of the one that ended.
        self.samples.ended.load(Ordering::Acquire)
    }

    /// New-Order and Payment by turns, homes by turns.
    pub(crate) fn urgent(&mut self, due: Instant) -> Request {
        let homes = self.inputs.len();
        let (inputs, terminal) = &mut self.inputs[self.next / 2 % homes];
        let (kind, input) = match self.next % 2 {
            0 => (Kind::NewOrder, inputs.new_order()),
            _ => (Kind::Payment, inputs.payment()),
        };
        self.next += 1;
        // The order takes the terminal's next number when it is run.
        let of_request = *terminal;
        terminal.skip();
        self.request(kind, due, Work::Urgent(input, of_request))
    }

    /// A run of Q2.
    pub(crate) fn q2(&mut self, due: Instant) -> Request {
        self.request(Kind::Q2, due, Work::Q2)
    }

    fn request(&mut self, kind: Kind, due: Instant, work: Work) -> Request {
        self.made.push((kind, due));
        Request {
            workload: Arc::clone(&self.workload),
            samples: Arc::clone(&self.samples),
            slot: self.made.len() - 1,
            due,
            work,
        }
    }

    /// Each request that was made: what, when it was due, and how long it took
    /// if it ended.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (Kind, Instant, Option<u64>)> {
        self.made
            .iter()
            .zip(&self.samples.slots)
            .map(|(made, slot)| {
                let ns = slot.load(Ordering::Relaxed);
                (made.0, made.1, (ns > 0).then_some(ns))
            })
    }
}
