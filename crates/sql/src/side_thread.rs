//! Threads beside the workers, each with a Tokio runtime of one thread.
//!
//! Workers run what can be cut into tasks. The rest runs here:
//!
//! | thread | runs | lives as long as |
//! | --- | --- | --- |
//! | attendants | admission, the ends of queries (`run`) | the engine |
//! | net | connections to the other servers of a cluster (`cluster`) | those connections |
//! | readers | waits of readers of files; their system calls are on its blocking threads | the engine |
//! | one for each plan that spawns tasks, when it runs | the tasks of `EXPLAIN ANALYZE`, of writers, of recursive terms | the query |
//!
//! D1. Nothing of a plan runs on the attendants' thread: a step that takes seconds
//!     there would delay the beginnings and ends of all queries. (not asserted:
//!     DataFusion spawns, and says nothing of it;
//!     `deadlines_are_kept_beside_explain_analyze` tests it)
//! D2. Plans that spawn tasks do not share a thread: a long step delays its own plan
//!     only. (not asserted: as D1)
//! D3. What runs here yields after a turn (T2 of `task_time`), so a plan whose query has
//!     ended does too. (tested: `crowd` waits for its memory)
//!
//! Each is a runtime of one thread, also because stock operators spawn further tasks on
//! runtimes of several.
//!
//! A plan's own thread says the tier of its query to UFS. Known weakness: without UFS,
//! what `EXPLAIN ANALYZE` runs in the background takes as much of a CPU as the system
//! gives to a thread.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use giveway_tasks::ThreadTier;
use giveway_tier::Tier;
use tokio::runtime::{Builder, EnterGuard, Handle};
use tokio::sync::oneshot;

use crate::statement::STACK_BYTES;
use crate::task_time::take_turns;

/// A thread of a plan's own, started when the plan is run: plans that wait have none.
#[derive(Debug)]
pub(crate) struct LateThread {
    tier: Tier,
    thread: OnceLock<Arc<SideThread>>,
    starting: Mutex<()>,
}

impl LateThread {
    pub(crate) fn new(tier: Tier) -> LateThread {
        LateThread {
            tier,
            thread: OnceLock::new(),
            starting: Mutex::new(()),
        }
    }

    /// What needs no thread of its own, and has this one.
    pub(crate) fn shared(thread: &Arc<SideThread>) -> LateThread {
        LateThread {
            thread: Arc::clone(thread).into(),
            ..LateThread::new(Tier::TimeSensitive)
        }
    }

    /// As [`SideThread::enter`].
    ///
    /// # Errors
    /// The system gives no more threads.
    pub(crate) fn enter(&self) -> io::Result<EnterGuard<'_>> {
        if self.thread.get().is_none() {
            let _starting = crate::lock(&self.starting);
            if self.thread.get().is_none() {
                let started = SideThread::start("giveway-sql-task", self.tier)?;
                let _ = self.thread.set(Arc::new(started));
            }
        }
        Ok(self.thread.get().expect("set above").enter())
    }
}

/// A runtime on a thread of its own, which ends when this is dropped and a step that is
/// being run has come to its end.
#[derive(Debug)]
pub(crate) struct SideThread {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl SideThread {
    /// Starts the thread, for work of this tier.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub(crate) fn start(name: &str, tier: Tier) -> io::Result<SideThread> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        std::thread::Builder::new()
            .name(name.to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let kernel = ThreadTier::attach();
                kernel.say(tier);
                take_turns();
                let _ = runtime.block_on(stopped);
            })?;
        Ok(SideThread {
            handle,
            _stop: stop,
        })
    }

    /// What is spawned until the guard is dropped, is spawned there.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// The thread's runtime.
    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }
}
