//! Errors of the environment. Each message says what to do about it.

use std::io;

use crate::delivery::Delivery;
use crate::level::Level;

/// Why a thread could not become a worker.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The thread is a worker already, or runs on behalf of one.
    #[error("this thread is a worker already: drop its Worker first, or start another thread")]
    AlreadyWorker,
    /// There is no level above the worker's own.
    #[error("a worker needs at least one level above its own: call Builder::level")]
    NoLevels,
    /// More levels than there are.
    #[error("{0} levels are too many: a worker has at most {max}", max = Level::MAX)]
    TooManyLevels(usize),
    /// A body would overrun its stack in the first signal handler.
    #[error("a stack of {bytes} bytes is too small: Builder::stack_bytes needs at least {least}")]
    StackTooSmall {
        /// What was asked for.
        bytes: usize,
        /// The least that is accepted.
        least: usize,
    },
    /// No thread could be started to lend its stack and thread-locals.
    #[error("no thread for level {level}: {source}; fewer levels or workers need fewer threads")]
    Donor {
        /// The level that has no context.
        level: Level,
        /// What the system said.
        source: io::Error,
    },
    /// The code is in a shared library, where a context's thread-locals are found
    /// by functions that must not be preempted.
    #[error("preemption works in executables only: link giveway-preempt into the program itself")]
    NotExecutable,
    /// Without a library of its own, the C library cannot be told from the engine.
    #[error(
        "the C library is linked statically: link it dynamically, or enter with \
         Delivery::Poll (a pool: with Policy::Preempt and Delivery::Poll)"
    )]
    StaticLibc,
    /// The worker's way of being reached does not work here.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
}

/// Why requests cannot be delivered in a given way.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The machine has no such thing.
    #[error("no {delivery} here: {missing}; `Delivery::best` is what this machine has")]
    Unsupported {
        /// What was asked for.
        delivery: Delivery,
        /// What is missing.
        missing: &'static str,
    },
    /// The program handles the signal itself.
    #[error(
        "signal {0} has a handler already: choose another one with Builder::signal or \
         PoolBuilder::signal"
    )]
    SignalTaken(i32),
    /// There is no such signal, or it cannot be caught.
    #[error(
        "signal {0} cannot be used: choose SIGURG, SIGUSR1 or SIGUSR2 with Builder::signal or \
         PoolBuilder::signal"
    )]
    BadSignal(i32),
    /// The worker was entered without what this delivery needs.
    #[error("the worker was not entered with {0}: name it in Builder::delivery")]
    NotPrepared(Delivery),
    /// A thread for a measurement could not become a worker.
    #[error("no worker to measure: {0}")]
    Measure(String),
    /// The system refused.
    #[error("{delivery}: {source}")]
    System {
        /// What was asked for.
        delivery: Delivery,
        /// What the system said.
        source: io::Error,
    },
}
