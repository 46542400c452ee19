//! Becoming a worker, and ceasing to be one.
//!
//! Entering happens in an order in which each step can fail without leaving
//! anything behind: checks, donors, route, contexts; only the last step, which
//! opens the masks, makes the thread preemptible, and it cannot fail. Leaving is
//! the same backwards.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Once};

use crate::arch::{self, Saved};
use crate::context::{self, Body, Context, Contexts};
use crate::debugger::Listed;
use crate::delivery::{Delivery, Route};
use crate::donor::{self, Donor};
use crate::error::EnterError;
use crate::gate;
use crate::level::Level;
use crate::local::{self, Local};
use crate::region::region;
use crate::remote::Remote;
#[cfg(asan)]
use crate::sanitizer;

/// The current thread as a worker, until it is dropped.
///
/// The thread's own work is level 0. Dropping lets those go on who wait in
/// [`yield_below`](crate::yield_below), and then stops taking requests; bodies
/// are dropped by this thread, thread-locals of their contexts by the threads
/// that lent them.
///
/// # Panics
/// Dropping it inside a region.
#[must_use = "the thread is a worker as long as this value lives"]
pub struct Worker {
    /// Before the contexts, of which it tells (G1).
    listed: Option<Listed>,
    contexts: Box<Contexts>,
    /// After the contexts, which lie on the donors' stacks.
    donors: Vec<Donor>,
    /// It is about this thread.
    thread: PhantomData<*mut ()>,
}

/// How a thread becomes a worker.
pub struct Builder {
    delivery: Delivery,
    signal: i32,
    stack_bytes: usize,
    levels: Vec<(String, Body)>,
}

impl Worker {
    /// A worker without levels yet, with the delivery [`Delivery::best`], signal
    /// SIGURG, and stacks of 2 MiB.
    pub fn builder() -> Builder {
        Builder {
            delivery: Delivery::best(),
            signal: libc::SIGURG,
            stack_bytes: 2 << 20,
            levels: Vec::new(),
        }
    }

    /// The end of this worker that other threads use.
    pub fn remote(&self) -> Remote {
        Remote::new(Arc::clone(self.contexts.route()))
    }

    /// For tests that play another CPU.
    #[cfg(test)]
    pub(crate) fn contexts_mut(&mut self) -> &mut Contexts {
        &mut self.contexts
    }

    /// How many levels there are, the thread's own included.
    pub fn levels(&self) -> usize {
        self.contexts.list().len()
    }
}

impl Builder {
    /// How requests reach the worker.
    pub fn delivery(mut self, delivery: Delivery) -> Builder {
        self.delivery = delivery;
        self
    }

    /// Which signal preempts, for all but `Poll`. The whole process must leave
    /// it alone.
    pub fn signal(mut self, signal: i32) -> Builder {
        self.signal = signal;
        self
    }

    /// How large the stack of each level above 0 is; at least 128 KiB.
    pub fn stack_bytes(mut self, bytes: usize) -> Builder {
        self.stack_bytes = bytes;
        self
    }

    /// Adds a level above those added so far: level 1, 2, and so on. The worker
    /// runs `body` whenever it goes to the level; it returns when there is no
    /// more to do, or to let the lower level go on. `name` is that of the thread
    /// whose identity the body has, which debuggers and panic messages show.
    ///
    /// A panic of the body is counted, and the lower level goes on.
    pub fn level(
        mut self,
        name: impl Into<String>,
        body: impl FnMut(Level) + Send + 'static,
    ) -> Builder {
        self.levels.push((name.into(), Box::new(body)));
        self
    }

    /// Makes the current thread a worker.
    ///
    /// From the first worker on, panic messages of the whole process are written
    /// inside a region: a context that panicked while the context below holds
    /// standard error would wait for ever.
    ///
    /// # Errors
    /// Each variant of [`EnterError`] says what to change; the thread is then
    /// what it was.
    ///
    /// # Panics
    /// Inside a region.
    pub fn enter(self) -> Result<Worker, EnterError> {
        self.check()?;
        if self.delivery.interrupts() {
            gate::prepare()?;
        }
        let donors = self.donors()?;
        let count = self.levels.len() + 1;
        let route = Route::to_here(self.delivery, self.signal, count)?;
        write_panics_in_regions();

        let mut list = vec![Context::new(
            Level::BASE,
            Saved::running(arch::thread_pointer()),
            local::with(|local| local as *const Local),
            donor::stack_bounds(),
            None,
        )];
        for ((_, body), (donor, number)) in self.levels.into_iter().zip(donors.iter().zip(1..)) {
            let lent = donor.lent();
            list.push(Context::new(
                Level::new(number),
                Saved::running(lent.thread_pointer),
                lent.local,
                lent.stack.clone(),
                Some(body),
            ));
        }
        let _region = region();
        let contexts = Contexts::new(list.into(), Arc::new(route));
        for (context, donor) in contexts.list()[1..].iter().zip(&donors) {
            let lent = donor.lent();
            // SAFETY: the donor sleeps and has lent what is below `top` (D1);
            // nobody switches to the context yet.
            unsafe {
                *context.saved() = arch::first_frame(
                    lent.top,
                    lent.thread_pointer,
                    context::root,
                    std::ptr::from_ref(context).cast(),
                );
                // The region that the root arrives in (C2).
                (*lent.local).enter();
            }
        }
        // SAFETY: `Worker` drops it before its contexts.
        let listed = unsafe { Listed::here(&contexts) };
        contexts.set_masks();
        Ok(Worker {
            listed: Some(listed),
            contexts,
            donors,
            thread: PhantomData,
        })
    }

    fn check(&self) -> Result<(), EnterError> {
        if local::with(|local| local.context().is_some()) {
            return Err(EnterError::AlreadyWorker);
        }
        assert!(
            local::with(Local::depth) == 0,
            "a thread becomes a worker outside of all regions"
        );
        if self.levels.is_empty() {
            return Err(EnterError::NoLevels);
        }
        if self.levels.len() > Level::MAX.index() {
            return Err(EnterError::TooManyLevels(self.levels.len()));
        }
        if self.stack_bytes < donor::LEAST_STACK {
            return Err(EnterError::StackTooSmall {
                bytes: self.stack_bytes,
                least: donor::LEAST_STACK,
            });
        }
        Ok(())
    }

    fn donors(&self) -> Result<Vec<Donor>, EnterError> {
        let start = |((name, _), number): (&(String, Body), u8)| {
            Donor::start(name.clone(), self.stack_bytes).map_err(|source| EnterError::Donor {
                level: Level::new(number),
                source,
            })
        };
        self.levels.iter().zip(1..).map(start).collect()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        assert!(
            local::with(Local::depth) == 0,
            "a worker leaves outside of all regions"
        );
        self.contexts.finish_waiting();
        let _region = region();
        self.contexts.route().close();
        self.listed = None;
        self.contexts.unbind();
        #[cfg(asan)]
        for donor in &self.donors {
            let lent = donor.lent();
            // SAFETY: no context runs there any more, and the donor still sleeps (D1).
            unsafe { sanitizer::ends(lent.stack.start..lent.top.addr()) };
        }
        // The contexts are stopped for good: their donors may wake up.
        self.donors.clear();
    }
}

/// Sees to it that panic messages are written inside a region.
fn write_panics_in_regions() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let _region = region();
            before(info);
        }));
    });
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("levels", &self.levels())
            .field("remote", &self.remote())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("delivery", &self.delivery)
            .field("signal", &self.signal)
            .field("stack_bytes", &self.stack_bytes)
            .field("levels", &self.levels.len())
            .finish()
    }
}
