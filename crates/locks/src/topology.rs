//! Which socket a thread runs on (`sid`).
//!
//! The default asks the kernel for the NUMA node by `getcpu`, a system call of
//! 0.1 µs. A thread asks once in [`REFRESH`] slow paths: threads migrate seldom,
//! and a stale socket costs locality, never correctness. A machine with one node,
//! or one socket by decree, never asks. [`Topology::fake`] gives every thread one
//! of n sockets, so that the criterion can be tested where there is one.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use giveway_machine::topology as machine;

/// Sockets that are told apart. Higher numbers share.
pub(crate) const SOCKETS: usize = 16;
/// A thread looks up its socket once in this many slow paths.
pub(crate) const REFRESH: u32 = 64;

const UNKNOWN: u32 = u32::MAX;
/// Sockets of the topology in use; `UNKNOWN` until somebody asks.
static COUNT: AtomicU32 = AtomicU32::new(UNKNOWN);
/// Whether sockets are dealt out rather than looked up.
static FAKE: AtomicU32 = AtomicU32::new(0);
static DEALT: AtomicU32 = AtomicU32::new(0);

/// Where sockets come from, for the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// As the kernel says: one socket per NUMA node.
    Machine,
    /// One socket: the criterion is off.
    Flat,
    /// This many sockets, dealt out to threads in turn as they come. For tests.
    Fake(u8),
}

impl Topology {
    /// `sockets` sockets (1 to 16), dealt out to threads in turn.
    pub fn fake(sockets: u8) -> Topology {
        Topology::Fake(sockets.clamp(1, SOCKETS as u8))
    }

    /// Uses this topology from now on. Threads that have a socket keep it
    /// until they look again.
    pub fn install(self) {
        let (count, fake) = match self {
            Topology::Machine => (online_nodes(), 0),
            Topology::Flat => (1, 0),
            Topology::Fake(sockets) => (sockets.into(), 1),
        };
        FAKE.store(fake, Relaxed);
        COUNT.store(count, Relaxed);
    }

    /// How many sockets the topology in use has.
    pub fn sockets() -> u32 {
        sockets()
    }
}

/// How many sockets there are.
#[inline]
pub(crate) fn sockets() -> u32 {
    match COUNT.load(Relaxed) {
        UNKNOWN => {
            Topology::Machine.install();
            COUNT.load(Relaxed)
        }
        count => count,
    }
}

/// The socket for a thread that had `before`, or had none.
pub(crate) fn socket(before: Option<u32>) -> u32 {
    let count = sockets();
    if count == 1 {
        return 0;
    }
    if FAKE.load(Relaxed) != 0 {
        return before.unwrap_or_else(|| DEALT.fetch_add(1, Relaxed)) % count;
    }
    machine::current_node() % SOCKETS as u32
}

/// NUMA nodes of the machine, without allocating.
fn online_nodes() -> u32 {
    if cfg!(miri) || crate::sync::MODEL {
        return 1;
    }
    machine::nodes(SOCKETS as u32)
}
