//! Turns events into slices of time.
//!
//! ```text
//!           waking            wake-up              switch to it
//!  (asleep) ──────► BEING WOKEN ─────► WAITING ──────────────────► RUNNING
//!     ▲                                   ▲                        │     │
//!     │                                   └──── switch from it, ───┘     │
//!     │                                         runnable: preempted      │
//!     └────────────────────── switch from it, not runnable ──────────────┘
//! ```
//!
//! A wait begins where its waker begins (`sched_waking`), so that it has the way to
//! another CPU in it. A waker may be early: the thread is about to sleep and still has its
//! CPU. Either it is found in the run queue and goes on, which its wake-up says while it
//! runs, and nothing was waited for. Or it leaves, and its wake-up is seen after that: it
//! has waited since it left.
//!
//! A thread may be in any state when the record begins: what began before has no slice.
//! Events of different CPUs may be out of order by microseconds; a slice's length is
//! then 0, never negative.

use std::collections::HashMap;

use giveway_tier::Tier;

use super::event::{Event, Thread, What};

/// Why a thread waited for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was woken up.
    Woken,
    /// It lost its CPU.
    Preempted,
}

/// Something to be seen in the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A thread had a CPU.
    Ran {
        /// Which.
        thread: Thread,
        /// Its tier, where it is known.
        tier: Option<Tier>,
        /// Where.
        cpu: u32,
        /// When, by the trace's clock.
        from_ns: u64,
        /// Until when.
        to_ns: u64,
        /// It would have gone on.
        was_preempted: bool,
    },
    /// A thread wanted a CPU and had none.
    Waited {
        /// Which.
        thread: Thread,
        /// Its tier, where it is known.
        tier: Option<Tier>,
        /// When.
        from_ns: u64,
        /// Until when.
        to_ns: u64,
        /// Since what.
        why: Why,
    },
    /// A thread lost its CPU to another.
    Preempted {
        /// The thread that lost it, and its tier.
        thread: Thread,
        /// See [`thread`](Mark::Preempted::thread).
        tier: Option<Tier>,
        /// The thread that got it, and its tier.
        by: Thread,
        /// See [`by`](Mark::Preempted::by).
        by_tier: Option<Tier>,
        /// For how long [`by`](Mark::Preempted::by) had waited since it was woken up;
        /// none if it was not, but had lost a CPU itself, or if its wake-up is not known.
        by_woken_ns: Option<u64>,
        /// Where.
        cpu: u32,
        /// When.
        at_ns: u64,
    },
    /// A thread ran ahead of its tier at some time within these.
    Boosted {
        /// Which.
        tid: u32,
        /// When it was last looked at before.
        from_ns: u64,
        /// When it was looked at.
        to_ns: u64,
        /// Boosts that began.
        boosts: u64,
        /// CPU time while boosted.
        boosted_ns: u64,
        /// The lock of the latest boost.
        lock: u64,
    },
    /// Events are missing, up to this time.
    Lost {
        /// Of which CPU.
        cpu: u32,
        /// How many.
        events: u64,
        /// When the next was seen.
        at_ns: u64,
    },
}

/// What is known of CPUs and threads at some time.
#[derive(Debug, Default)]
pub struct Timeline {
    running: HashMap<u32, (Thread, u64)>,
    /// By thread: when its waker began, or when it left its CPU after that.
    waking: HashMap<u32, u64>,
    waiting: HashMap<u32, (u64, Why)>,
    /// By CPU: lost since the last event there.
    lost: HashMap<u32, u64>,
}

impl Timeline {
    /// Events of a CPU are missing: what ran there and since when is not known.
    pub fn lose(&mut self, cpu: u32, events: u64) {
        self.running.remove(&cpu);
        *self.lost.entry(cpu).or_default() += events;
        // Any thread may have been woken, or have run there, unseen.
        self.waking.clear();
        self.waiting.clear();
    }

    /// What an event shows, given everybody's tier.
    pub fn see(&mut self, event: Event, tier: impl Fn(u32) -> Option<Tier>) -> Vec<Mark> {
        let Event { at_ns, cpu, what } = event;
        let mut marks = Vec::new();
        if let Some(events) = self.lost.remove(&cpu) {
            marks.push(Mark::Lost { cpu, events, at_ns });
        }
        match what {
            What::Waking(thread) => {
                if thread.tid != 0 {
                    self.waking.insert(thread.tid, at_ns);
                }
            }
            What::Wakeup(thread) => {
                let since_ns = self.waking.remove(&thread.tid).unwrap_or(at_ns);
                // Of one that runs it means nothing: it is forgotten when that leaves.
                if thread.tid != 0 {
                    let waiting = self.waiting.entry(thread.tid);
                    waiting.or_insert((since_ns, Why::Woken));
                }
            }
            What::Switch {
                prev,
                is_runnable,
                next,
            } => {
                // The wake-up may be seen too late.
                let woken = self.waking.remove(&next.tid);
                let waited = self.waiting.remove(&next.tid);
                let waited = waited.or(woken.map(|since_ns| (since_ns, Why::Woken)));
                let was_preempted = is_runnable && prev.tid != 0;
                if let Some((thread, from_ns)) = self.running.remove(&cpu)
                    && thread.tid == prev.tid
                    && prev.tid != 0
                {
                    marks.push(Mark::Ran {
                        tier: tier(prev.tid),
                        thread: prev.clone(),
                        cpu,
                        from_ns,
                        to_ns: at_ns.max(from_ns),
                        was_preempted,
                    });
                }
                if was_preempted {
                    self.waiting.insert(prev.tid, (at_ns, Why::Preempted));
                    if next.tid != 0 {
                        let by_woken_ns = match waited {
                            Some((from_ns, Why::Woken)) => Some(at_ns.saturating_sub(from_ns)),
                            _ => None,
                        };
                        marks.push(Mark::Preempted {
                            tier: tier(prev.tid),
                            thread: prev,
                            by_tier: tier(next.tid),
                            by: next.clone(),
                            by_woken_ns,
                            cpu,
                            at_ns,
                        });
                    }
                } else {
                    self.waiting.remove(&prev.tid);
                    if let Some(since_ns) = self.waking.get_mut(&prev.tid) {
                        *since_ns = at_ns.max(*since_ns);
                    }
                }
                if let Some((from_ns, why)) = waited {
                    marks.push(Mark::Waited {
                        tier: tier(next.tid),
                        thread: next.clone(),
                        from_ns,
                        to_ns: at_ns.max(from_ns),
                        why,
                    });
                }
                self.running.insert(cpu, (next, at_ns));
            }
            // It goes on where it runs or waits.
            What::Moved(_) => {}
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: u32) -> Thread {
        Thread {
            tid,
            name: format!("t{tid}"),
        }
    }

    /// Threads below 10 are time-sensitive, those below 20 background.
    fn tier(tid: u32) -> Option<Tier> {
        match tid {
            1..10 => Some(Tier::TimeSensitive),
            10..20 => Some(Tier::Background),
            _ => None,
        }
    }

    fn switch(at_ns: u64, prev: u32, is_runnable: bool, next: u32) -> Event {
        Event {
            at_ns,
            cpu: 0,
            what: What::Switch {
                prev: thread(prev),
                is_runnable,
                next: thread(next),
            },
        }
    }

    fn waking(at_ns: u64, tid: u32) -> Event {
        Event {
            at_ns,
            cpu: 1,
            what: What::Waking(thread(tid)),
        }
    }

    fn wakeup(at_ns: u64, tid: u32) -> Event {
        Event {
            at_ns,
            cpu: 0,
            what: What::Wakeup(thread(tid)),
        }
    }

    fn marks(events: impl IntoIterator<Item = Event>) -> Vec<Mark> {
        let mut timeline = Timeline::default();
        let events = events.into_iter();
        events.flat_map(|event| timeline.see(event, tier)).collect()
    }

    fn waits(marks: &[Mark]) -> Vec<(u32, u64, u64, Why)> {
        let wait = |mark: &Mark| match mark {
            Mark::Waited {
                thread,
                from_ns,
                to_ns,
                why,
                ..
            } => Some((thread.tid, *from_ns, *to_ns, *why)),
            _ => None,
        };
        marks.iter().filter_map(wait).collect()
    }

    #[test]
    fn a_wake_up_that_preempts_is_a_run_a_preemption_and_two_waits() {
        let marks = marks([
            switch(100, 0, true, 11),
            wakeup(200, 1),
            switch(210, 11, true, 1),
            switch(300, 1, false, 11),
            switch(400, 11, false, 0),
        ]);
        let ran = |tid, from_ns, to_ns, was_preempted| Mark::Ran {
            thread: thread(tid),
            tier: tier(tid),
            cpu: 0,
            from_ns,
            to_ns,
            was_preempted,
        };
        let waited = |tid, from_ns, to_ns, why| Mark::Waited {
            thread: thread(tid),
            tier: tier(tid),
            from_ns,
            to_ns,
            why,
        };
        assert_eq!(
            marks,
            [
                ran(11, 100, 210, true),
                Mark::Preempted {
                    thread: thread(11),
                    tier: Some(Tier::Background),
                    by: thread(1),
                    by_tier: Some(Tier::TimeSensitive),
                    by_woken_ns: Some(10),
                    cpu: 0,
                    at_ns: 210,
                },
                waited(1, 200, 210, Why::Woken),
                ran(1, 210, 300, false),
                waited(11, 210, 300, Why::Preempted),
                ran(11, 300, 400, false),
            ]
        );
    }

    #[test]
    fn wake_up_latency_of_a_preemption_is_known_only_after_a_wake_up() {
        let marks = marks([
            switch(100, 0, true, 11),
            // Of 1 nothing was seen; 11 has lost its CPU itself.
            switch(200, 11, true, 1),
            switch(300, 1, true, 11),
        ]);
        let woken = marks.iter().filter_map(|mark| match mark {
            Mark::Preempted { by_woken_ns, .. } => Some(*by_woken_ns),
            _ => None,
        });
        assert_eq!(woken.collect::<Vec<_>>(), [None, None]);
    }

    #[test]
    fn the_idle_thread_neither_runs_nor_waits() {
        assert!(marks([switch(1, 0, true, 0), wakeup(2, 0), switch(3, 0, true, 1)]).is_empty());
    }

    #[test]
    fn a_second_wake_up_and_one_of_who_runs_change_nothing() {
        let marks = marks([
            wakeup(1, 1),
            wakeup(5, 1),
            switch(9, 0, true, 1),
            wakeup(10, 1),
            switch(20, 1, false, 0),
            switch(30, 0, true, 1),
        ]);
        assert_eq!(waits(&marks), [(1, 1, 9, Why::Woken)]);
    }

    #[test]
    fn a_wait_begins_with_its_waker() {
        let marks = marks([
            waking(5, 1),
            wakeup(8, 1),
            switch(20, 11, true, 1),
            switch(30, 1, false, 0),
            // Another's wake-up, whose waker is not in the record.
            wakeup(40, 2),
            switch(45, 0, true, 2),
        ]);
        assert_eq!(
            waits(&marks),
            [(1, 5, 20, Why::Woken), (2, 40, 45, Why::Woken)]
        );
        let woken = marks.iter().find_map(|mark| match mark {
            Mark::Preempted { by_woken_ns, .. } => Some(*by_woken_ns),
            _ => None,
        });
        assert_eq!(woken, Some(Some(15)));
    }

    #[test]
    fn who_is_woken_before_it_has_left_waits_since_it_left() {
        let marks = marks([
            switch(1, 0, true, 1),
            waking(10, 1),
            switch(12, 1, false, 0),
            wakeup(15, 1),
            switch(20, 0, true, 1),
        ]);
        assert_eq!(waits(&marks), [(1, 12, 20, Why::Woken)]);
    }

    #[test]
    fn who_is_woken_in_the_run_queue_goes_on_and_waits_for_nothing() {
        let marks = marks([
            switch(1, 0, true, 1),
            waking(10, 1),
            wakeup(11, 1),
            switch(12, 1, false, 0),
            switch(20, 0, true, 1),
            // Likewise, but preempted before its waker has found it.
            waking(30, 1),
            switch(31, 1, true, 11),
            wakeup(32, 1),
            switch(40, 11, true, 1),
            switch(50, 1, false, 0),
            switch(60, 0, true, 1),
        ]);
        assert_eq!(waits(&marks), [(1, 31, 40, Why::Preempted)]);
    }

    #[test]
    fn a_wake_up_that_is_seen_too_late_makes_one_wait() {
        let marks = marks([
            waking(10, 1),
            switch(15, 0, true, 1),
            wakeup(16, 1),
            switch(20, 1, false, 0),
            switch(30, 0, true, 1),
        ]);
        assert_eq!(waits(&marks), [(1, 10, 15, Why::Woken)]);
    }

    #[test]
    fn what_was_lost_makes_no_slice() {
        let mut timeline = Timeline::default();
        timeline.see(switch(1, 0, true, 1), tier);
        timeline.see(wakeup(2, 2), tier);
        timeline.see(waking(3, 2), tier);
        timeline.lose(0, 3);
        timeline.lose(0, 4);
        let marks = timeline.see(switch(50, 1, false, 2), tier);
        let lost = Mark::Lost {
            cpu: 0,
            events: 7,
            at_ns: 50,
        };
        assert_eq!(marks, [lost]);
    }

    #[test]
    fn a_clock_that_goes_back_makes_an_empty_slice() {
        let marks = marks([wakeup(10, 1), switch(9, 0, true, 1), switch(8, 1, false, 0)]);
        assert_eq!(waits(&marks), [(1, 10, 10, Why::Woken)]);
        assert!(matches!(
            marks[1],
            Mark::Ran {
                from_ns: 9,
                to_ns: 9,
                ..
            }
        ));
    }
}
