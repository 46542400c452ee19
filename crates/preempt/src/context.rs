//! Contexts, and the order in which they run.
//!
//! A worker has one context per level; the paper's TXCBs (Section 4.1) are the
//! [`Context`]s here. They all run on the worker's one kernel thread. Context 0
//! is what the thread did anyway; the others lie on the stacks of donors and
//! run their level's body whenever they are switched to:
//!
//! ```text
//! level 2  idle ─────────────────── body ─┐
//! level 1  idle ──── body ──┐▲            └─► body goes on ──┐
//! level 0  work ────┐▲      └┼── ✗ paused ▲                  └─► work goes on
//!                   └┴ paused: `below` of level 1
//!                    preempted           preempted
//! ```
//!
//! A context is in one of four states:
//!
//! | state | stopped where | resumed by |
//! | --- | --- | --- |
//! | running | | |
//! | paused | in `go_up`, at a poll point, a region's exit, or under a signal | the level that it made room for, when that is done |
//! | idle | in `leave`, at the root of its stack | a lower level's `go_up` |
//! | waiting | in `yield_below` | the context it waits for, at its next task boundary |
//!
//! Invariants, which the rest of the crate cites:
//!
//! - **C1** Only the worker's kernel thread touches `Contexts`, under whichever
//!   thread-locals. What signal handlers touch of it, they touch outside of
//!   regions only, and all changes are made inside of one. (The latter is asserted as
//!   C2. Not asserted: the thread, since to ask for it is a system call.)
//! - **C2** A context that does not run is stopped in `arch::switch`, inside a
//!   region of its own. So at every instruction of a switch, whichever
//!   thread-locals are in place, an interrupt finds a region and changes nothing.
//!   (Asserted in `switch`.)
//! - **C3** The `below` of the running context, the `below` of that one and so on
//!   are paused and strictly descending; the last is the base. No other context is
//!   paused. (Asserted in `go_up` and `go_down`.)
//! - **C4** A waiting context waits for one that runs, is paused, or will be
//!   resumed before it: a lower one. Its level is in no context's mask. (Asserted in
//!   `go_up` and `yield_below`.)
//! - **C5** Interrupts of its kind are blocked from the entry of a handler to its return, but
//!   for the time in which a context that can itself be preempted runs on top of
//!   it. Returning lets them in again in the same step that restores everything
//!   else. So at most one handler's frame is on each stack, however fast
//!   interrupts come. (Not asserted: a signal on top of a user interrupt breaks it; then the gate
//!   `Stack` refuses, and counts it.)

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::arch::{self, Saved};
use crate::delivery::{Kind, Route};
use crate::donor;
use crate::gate::{self, Gate};
use crate::level::{Level, Levels};
use crate::local::{self, Local};
#[cfg(tsan)]
use crate::sanitizer;
use crate::trail::Stop;

/// What a level runs whenever the worker goes to it.
pub(crate) type Body = Box<dyn FnMut(Level) + Send>;

/// One level's context: its TXCB.
pub(crate) struct Context {
    saved: UnsafeCell<Saved>,
    level: Level,
    local: *const Local,
    stack: Range<usize>,
    /// The level that runs when this one is done.
    below: Cell<Level>,
    /// The level that has to come to a task boundary before this one goes on.
    waits_for: Cell<Option<Level>>,
    /// A handler went to this context, which has let its kind in again (C5).
    unblocked: Cell<Option<Kind>>,
    /// A handler's frame is on this stack (C5).
    in_handler: Cell<bool>,
    /// The base has none.
    body: UnsafeCell<Option<Body>>,
    all: Cell<*const Contexts>,
}

/// The contexts of a worker.
pub(crate) struct Contexts {
    list: Box<[Context]>,
    route: Arc<Route>,
    /// A handler is going to a higher level, which finds its kind blocked.
    from_handler: Cell<Option<Kind>>,
    /// The worker is about to leave: no context waits for lower levels any more.
    leaving: Cell<bool>,
    quick_swap: bool,
    /// Where handlers of user interrupts run that find too little stack (L4).
    spare: Option<Spare>,
}

/// A stack of its own, with room for a handler and for signals on top of it.
struct Spare(Box<[MaybeUninit<u128>]>);

impl Spare {
    fn new() -> Spare {
        Spare(Box::new_uninit_slice(
            donor::LEAST_STACK / size_of::<u128>(),
        ))
    }

    /// The first address above it; a multiple of 16.
    fn top(&self) -> usize {
        self.0.as_ptr_range().end.expose_provenance()
    }
}

/// What takes a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// The context itself, at a poll point or a region's exit.
    Itself,
    /// The handler of an interrupt, on the context's stack, at this instruction.
    Handler(Kind, usize),
}

/// How a [`yield_below`] went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "with nothing below, the caller has to resolve its conflict otherwise"]
pub enum Yielded {
    /// The lower level has come to a task boundary.
    Ran,
    /// No lower level of this worker is paused; the conflict is with another one.
    NothingBelow,
}

impl Context {
    /// A context that is stopped, or running if it is the base. Bound to the
    /// others by [`Contexts::new`].
    pub(crate) fn new(
        level: Level,
        saved: Saved,
        local: *const Local,
        stack: Range<usize>,
        body: Option<Body>,
    ) -> Context {
        Context {
            saved: UnsafeCell::new(saved),
            level,
            local,
            stack,
            below: Cell::new(Level::BASE),
            waits_for: Cell::new(None),
            unblocked: Cell::new(None),
            in_handler: Cell::new(false),
            body: UnsafeCell::new(body),
            all: Cell::new(std::ptr::null()),
        }
    }

    #[inline]
    pub(crate) fn level(&self) -> Level {
        self.level
    }

    pub(crate) fn saved(&self) -> *mut Saved {
        self.saved.get()
    }

    #[inline]
    fn all(&self) -> &Contexts {
        // SAFETY: set by Contexts::new, which owns this context.
        unsafe { &*self.all.get() }
    }

    fn local(&self) -> &Local {
        // SAFETY: a donor's, or the worker thread's own; both outlive the
        // contexts (L3).
        unsafe { &*self.local }
    }
}

impl Contexts {
    /// Puts the contexts of a worker together; the first is the base. None can be
    /// preempted yet: the masks are empty.
    pub(crate) fn new(list: Box<[Context]>, route: Arc<Route>) -> Box<Contexts> {
        // Tests play user interrupts by signals.
        let spare = (cfg!(test) || route.receives_user_interrupts()).then(Spare::new);
        let all = Box::new(Contexts {
            list,
            route,
            spare,
            from_handler: Cell::new(None),
            leaving: Cell::new(false),
            quick_swap: arch::quick_swap(),
        });
        let spare = all.spare.as_ref().map_or(0, Spare::top);
        for context in &all.list {
            context.all.set(&raw const *all);
            let room = gate::room(&context.stack);
            // SAFETY: the box, its list and the spare stack live until the worker has
            // unbound all of them (L3).
            unsafe { (context.local()).bind(context, all.route.mail(), room, spare) };
        }
        all
    }

    pub(crate) fn list(&self) -> &[Context] {
        &self.list
    }

    pub(crate) fn route(&self) -> &Arc<Route> {
        &self.route
    }

    /// Lets requests in, except for levels that wait.
    pub(crate) fn set_masks(&self) {
        let waiting = |context: &&Context| context.waits_for.get().is_some();
        let closed = self.list.iter().filter(waiting);
        let closed = closed.fold(0, |set, context| set | context.level.bit());
        for context in &self.list {
            context.local().set_mask(context.level.above() & !closed);
        }
    }

    /// Ends all contexts but the base, which is the caller, inside a region.
    pub(crate) fn unbind(&self) {
        for context in &self.list {
            context.local().unbind();
        }
        for idle in &self.list[1..] {
            // Its root will not do it any more.
            let outermost = idle.local().exit();
            assert!(outermost, "an idle context is in its root's region alone");
        }
    }

    /// Resumes all contexts that wait, for as long as it takes: the base is done.
    pub(crate) fn finish_waiting(&self) {
        self.leaving.set(true);
        while self.waiting_for(Level::BASE).next().is_some() {
            task_boundary();
        }
    }

    fn get(&self, level: Level) -> &Context {
        &self.list[level.index()]
    }

    /// Whether a request for this level can be served at all.
    fn has(&self, level: Level) -> bool {
        level.index() < self.list.len()
    }

    /// The contexts that wait for this level's, the most urgent first.
    fn waiting_for(&self, level: Level) -> impl Iterator<Item = &Context> {
        let waits = move |context: &&Context| context.waits_for.get() == Some(level);
        self.list.iter().rev().filter(waits)
    }

    /// Stops `from`, which runs, inside a region, and resumes `to`.
    #[inline]
    fn switch(&self, from: &Context, to: &Context) {
        debug_assert_ne!(from.local().depth(), 0, "C2");
        debug_assert_ne!(to.local().depth(), 0, "C2");
        self.route.trail().run(to.level);
        #[cfg(tsan)]
        sanitizer::stops(to);
        // SAFETY: both are contexts of this thread; `from` runs, `to` is stopped,
        // and both are inside a region (C2).
        unsafe { arch::switch(from.saved.get(), to.saved.get(), self.quick_swap) }
        #[cfg(tsan)]
        sanitizer::goes_on(from);
    }

    /// Pauses `from`, inside a region, and lets an idle higher level run.
    #[inline]
    fn go_up(&self, from: &Context, level: Level, by: By) {
        self.route.mail().take(level);
        let to = self.get(level);
        debug_assert!(to.waits_for.get().is_none(), "C4");
        to.below.set(from.level);
        debug_assert!(self.descends(to), "C3");
        self.from_handler.set(match by {
            By::Handler(kind, _) => Some(kind),
            By::Itself => None,
        });
        self.stopped(from, by, || self.switch(from, to));
    }

    /// Leaves a trail while `from` is stopped in the middle of something.
    #[inline]
    fn stopped(&self, from: &Context, by: By, meanwhile: impl FnOnce()) {
        let trail = self.route.trail();
        let stop = match by {
            By::Handler(_, at) => Stop::Interrupted(at),
            By::Itself => Stop::ByItself,
        };
        trail.stop(from.level, stop);
        meanwhile();
        trail.go_on(from.level);
    }

    /// Whether the contexts below one descend to the base, and all that are paused
    /// are among them (C3). For assertions.
    fn descends(&self, from: &Context) -> bool {
        let (mut at, mut chain) = (from, from.level.bit());
        while at.level != Level::BASE {
            let below = self.get(at.below.get());
            if below.level >= at.level {
                return false;
            }
            at = below;
            chain |= at.level.bit();
        }
        let is_paused = |context: &Context| {
            context.waits_for.get().is_none() && self.route.trail().stopped(context.level).is_some()
        };
        let mut contexts = self.list.iter();
        contexts.all(|context| chain & context.level.bit() != 0 || !is_paused(context))
    }

    /// Leaves `from`, inside a region, for the context below it.
    #[inline]
    fn go_down(&self, from: &Context) {
        debug_assert!(self.descends(from), "C3");
        if let Some(kind) = from.unblocked.take() {
            // Below is the handler that came here (C5), whose return lets in what its
            // entry kept out, and nothing else.
            self.route.set_blocked(kind, true);
        }
        self.switch(from, self.get(from.below.get()));
    }
}

/// The current context, if this is a worker.
#[inline]
fn with_context<R>(f: impl FnOnce(&Local, &Context) -> R) -> Option<R> {
    local::with(|local| local.context().map(|context| f(local, context)))
}

/// Runs `f` inside a region; its end takes what is due.
#[inline]
fn inside<R>(local: &Local, context: &Context, f: impl FnOnce() -> R) -> R {
    local.enter();
    let result = f();
    if local.exit() {
        take_due(local, context, By::Itself);
    }
    result
}

/// Takes what is due, at a poll point or a region's exit. Does nothing inside a
/// region.
#[cold]
pub(crate) fn take_due_here() {
    with_context(|local, context| {
        if local.depth() == 0 {
            take_due(local, context, By::Itself);
        }
    });
}

/// Takes what is due, outside of all regions: the most urgent first, until
/// nothing is.
fn take_due(local: &Local, context: &Context, by: By) {
    let all = context.all();
    // Looking outside of the region: an interrupt after the look takes its
    // request itself, one before it has left it in the mail.
    while all.route.mail().due(Relaxed) & local.mask() != 0 {
        local.enter();
        // Again, and for good: a handler may have been quicker.
        let due = Levels(all.route.mail().due(Relaxed) & local.mask());
        if let Some(level) = due.highest() {
            all.go_up(context, level, by);
        }
        local.exit();
    }
}

/// What a signal handler, or the handler of a user interrupt, does: it opens the
/// mail and goes up if the four gates let it. `at` is the program counter and the
/// stack pointer of what was interrupted.
pub(crate) fn interrupted(kind: Kind, at: (usize, usize)) {
    with_context(|local, context| {
        let all = context.all();
        let mail = all.route.mail();
        mail.arrive();
        let due = mail.due(Relaxed);
        if Levels(due & 0xffff).is_empty() {
            // Taken or acknowledged before the interrupt came.
            return;
        }
        // A stray signal on top of a user interrupt; otherwise C5 forbids it.
        let nested = context.in_handler.get().then_some(Gate::Stack);
        match nested.or_else(|| gate::refusal(local, due, at)) {
            Some(gate) => {
                mail.count_deferral(gate);
                all.route.refused(gate);
            }
            None => {
                context.in_handler.set(true);
                take_due(local, context, By::Handler(kind, at.0));
                context.in_handler.set(false);
                debug_assert_eq!(local.depth(), 0, "L1");
            }
        }
    });
}

/// The root of every context but the base: never returns, because its stack ends
/// here.
pub(crate) unsafe extern "C" fn root(context: *const ()) -> ! {
    #[cfg(tsan)]
    sanitizer::goes_on(context.cast::<Context>());
    // SAFETY: `first_frame` was given a context, which lives as long as it can be
    // switched to.
    let context = unsafe { &*context.cast::<Context>() };
    loop {
        run_body(context);
        leave(context);
    }
}

/// Arrives in the region that the context was stopped in, runs the body outside
/// of it, and is inside a region again.
fn run_body(context: &Context) {
    let all = context.all();
    let local = context.local();
    let top = context.level.index() + 1 == all.list.len();
    if let Some(kind) = all.from_handler.take().filter(|_| !top) {
        // A context that can be preempted must hear of it (C5).
        context.unblocked.set(Some(kind));
        all.route.set_blocked(kind, false);
    }
    if local.exit() {
        take_due(local, context, By::Itself);
    }
    // SAFETY: only this function uses the body, and a context runs it once at a
    // time.
    let body = unsafe { &mut *context.body.get() };
    let body = body.as_mut().expect("a level above the base has a body");
    if catch_unwind(AssertUnwindSafe(|| body(context.level))).is_err() {
        // The panic hook has printed it; there is no caller to pass it on to.
        all.route.mail().count_panic();
    }
    // What it has forgotten to close.
    local.close_all();
    task_boundary();
    local.enter();
}

/// Goes to the context below, and stays there until the next request.
fn leave(context: &Context) {
    let all = context.all();
    let below = context.below.get();
    // Contexts that waited for this one now wait for the one below.
    for waiting in all.waiting_for(context.level) {
        waiting.waits_for.set(Some(below));
        waiting.below.set(below);
    }
    all.go_down(context);
}

/// The level that the caller runs at; `None` on a thread that is no worker.
#[inline]
pub fn current_level() -> Option<Level> {
    with_context(|_, context| context.level)
}

/// A worker, told apart from all others that exist at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkerId(usize);

/// The worker that the caller runs on; `None` on a thread that is no worker.
#[inline]
pub fn current_worker() -> Option<WorkerId> {
    with_context(|_, context| WorkerId(context.all.get().addr()))
}

/// Runs the body of a higher level now, once, and returns after it: a voluntary
/// switch, of about 50 ns and back. Whatever was requested for that level counts
/// as taken.
///
/// False, and nothing happens, if the caller is no worker, if the level is not
/// above the caller's, does not exist, or waits in [`yield_below`].
///
/// # Panics
/// Inside a region: the caller may hold a latch that the higher level wants.
#[inline]
pub fn yield_to(level: Level) -> bool {
    with_context(|local, context| {
        assert_outside(local, "yield_to");
        let all = context.all();
        if !all.has(level) || level.bit() & local.mask() == 0 {
            return false;
        }
        inside(local, context, || all.go_up(context, level, By::Itself));
        true
    })
    .unwrap_or(false)
}

/// Lets the context that the caller has preempted run until its next
/// [`task_boundary`], and returns then. For work that conflicts with a
/// transaction that is paused below it: repeating would never end, since the
/// paused one cannot finish. (The paper's low transactions only read and never
/// conflict.)
///
/// Until it returns, the caller's level takes no requests; those above it do.
///
/// # Panics
/// Inside a region: the lower context may want a latch that the caller holds.
pub fn yield_below() -> Yielded {
    with_context(|local, context| {
        assert_outside(local, "yield_below");
        let all = context.all();
        if context.level == Level::BASE || all.leaving.get() {
            return Yielded::NothingBelow;
        }
        all.route.mail().count_yield();
        let below = context.below.get();
        debug_assert!(all.get(below).waits_for.get().is_none(), "C4");
        inside(local, context, || {
            context.waits_for.set(Some(below));
            all.set_masks();
            all.stopped(context, By::Itself, || all.go_down(context));
        });
        Yielded::Ran
    })
    .unwrap_or(Yielded::NothingBelow)
}

/// Counts a panic of code that the caller ran for others.
#[cold]
pub(crate) fn count_panic() {
    local::with(|local| local.mail().count_panic());
}

/// Says that the caller is between two tasks and holds nothing: a context that waits
/// for that in [`yield_below`] goes on. The root of each context says so when a
/// body returns.
///
/// # Panics
/// Inside a region: that context may want a latch that the caller holds.
#[inline]
pub fn task_boundary() {
    with_context(|local, context| {
        assert_outside(local, "task_boundary");
        let all = context.all();
        inside(local, context, || {
            // Each once: one that yields again waits for the next boundary.
            for waiting in all.waiting_for(context.level) {
                waiting.waits_for.set(None);
                all.set_masks();
                all.switch(context, waiting);
            }
        });
    });
}

#[inline]
fn assert_outside(local: &Local, what: &str) {
    assert!(
        local.depth() == 0,
        "{what} inside a region: drop the region, and its latches, first"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::delivery::Delivery;
    use crate::worker::Worker;

    #[test]
    fn without_wrfsbase_the_kernel_swaps_the_thread_pointer() {
        static SEEN: AtomicUsize = AtomicUsize::new(0);
        let mut worker = Worker::builder()
            .delivery(Delivery::Poll)
            .level("high", |_| SEEN.store(arch::thread_pointer(), Relaxed))
            .enter()
            .unwrap();
        worker.contexts_mut().quick_swap = false;
        let mine = arch::thread_pointer();
        for _ in 0..2 {
            assert!(yield_to(Level::new(1)));
            assert_eq!(arch::thread_pointer(), mine);
            assert_ne!(SEEN.swap(mine, Relaxed), mine);
        }
    }
}
