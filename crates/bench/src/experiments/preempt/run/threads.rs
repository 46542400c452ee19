//! The plain rival: the same requests on OS threads.
//!
//! Each worker's CPU has two threads, one for Q2 and one for urgent requests, with
//! queues of the same sizes. The kernel preempts the first when the second wakes
//! up, if it has been told that the second is urgent.
//!
//! On UFS the tier comes from the cgroup: threads that run Q2 are moved into a
//! threaded cgroup called `background`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use giveway_tier::Tier;
use nix::unistd::gettid;

use super::cpus::{CpuPlan, Pinned};
use super::driver::{Task, Workers};
use super::method::Priority;
use crate::cell::cgroup::ThreadGroups;
use crate::cell::policy::Class;
use crate::harness::error::{Error, Result};

/// What a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    Urgent,
    Background,
}

/// A thread and the end of its queue.
struct Member {
    queue: Option<SyncSender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl Member {
    /// Starts a thread, and answers when it is what its duty asks for.
    fn start(
        cpu: usize,
        duty: Duty,
        places: usize,
        priority: Priority,
        group: Option<PathBuf>,
    ) -> Result<Self> {
        let (queue, tasks) = sync_channel(places);
        let (ready, readiness) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            let prepared = Pinned::to(cpu)
                .and_then(|pinned| prepare(duty, priority, group.as_deref()).map(|()| pinned));
            match prepared {
                // Pinned to its end.
                Ok(_pinned) => {
                    if ready.send(Ok(())).is_ok() {
                        serve(&tasks);
                    }
                }
                // Who waits for this answer does nothing else.
                Err(error) => drop(ready.send(Err(error))),
            }
        });
        let answer = readiness.recv();
        answer.unwrap_or_else(|_| Err(Error::Config("a worker thread ended early".to_owned())))?;
        Ok(Member {
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    fn offer(&self, task: Task) -> std::result::Result<(), Task> {
        let queue = self.queue.as_ref().expect("the thread was not stopped");
        queue.try_send(task).map_err(|error| match error {
            TrySendError::Full(task) | TrySendError::Disconnected(task) => task,
        })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Without its queue the thread ends after what is in it.
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been printed, and its request has not ended.
            let _ = thread.join();
        }
    }
}

fn serve(tasks: &Receiver<Task>) {
    while let Ok(task) = tasks.recv() {
        task();
    }
}

/// Tells the kernel what the calling thread is for.
fn prepare(duty: Duty, priority: Priority, group: Option<&Path>) -> Result<()> {
    match (priority, duty) {
        (Priority::Nice, Duty::Urgent) => nice(-20),
        (Priority::Nice, Duty::Background) => nice(19),
        (Priority::Fifo, Duty::Urgent) => Class::Fifo.apply(gettid().as_raw()),
        (Priority::Ufs, Duty::Background) => {
            let file = group.expect("the group was made before its threads");
            fs::write(file, gettid().to_string()).map_err(Error::file("write", file))
        }
        (Priority::Equal, _)
        | (Priority::Fifo, Duty::Background)
        | (Priority::Ufs, Duty::Urgent) => Ok(()),
    }
}

/// Sets the calling thread's nice value.
fn nice(value: i32) -> Result<()> {
    // SAFETY: the call takes no pointers. 0 is the calling thread, and Linux
    // keeps nice values by thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value) } {
        0 => Ok(()),
        _ => Err(Error::Class {
            pid: gettid().as_raw(),
            class: "nice -20 or 19",
            source: io::Error::last_os_error(),
        }),
    }
}

/// Threads with queues.
pub(crate) struct ThreadWorkers {
    low: Vec<Member>,
    high: Vec<Member>,
    /// Whose turn it is.
    turn: usize,
    // Its threads have ended when it goes.
    _group: Option<ThreadGroups>,
}

impl ThreadWorkers {
    /// Two threads on each worker's CPU.
    ///
    /// # Errors
    /// The priority needs a privilege or a cgroup that is not to be had.
    pub(crate) fn start(priority: Priority, places: usize, cpus: &CpuPlan) -> Result<Self> {
        let group = match priority {
            Priority::Ufs => Some(ThreadGroups::create("+cpu", &[Tier::Background.name()])?),
            Priority::Equal | Priority::Nice | Priority::Fifo => None,
        };
        let start = |duty, places| -> Result<Vec<Member>> {
            let cpus = cpus.workers.iter();
            let file = || group.as_ref().map(|group| group.groups()[0].threads());
            cpus.map(|cpu| Member::start(*cpu, duty, places, priority, file()))
                .collect()
        };
        Ok(ThreadWorkers {
            low: start(Duty::Background, 1)?,
            high: start(Duty::Urgent, places)?,
            turn: 0,
            _group: group,
        })
    }
}

impl Workers for ThreadWorkers {
    fn offer_low(&mut self, _: Instant, task: Task) -> bool {
        let mut task = task;
        for member in &self.low {
            match member.offer(task) {
                Ok(()) => return true,
                Err(refused) => task = refused,
            }
        }
        false
    }

    fn offer_high(&mut self, _: Instant, batch: &mut Vec<Task>) {
        let mut waiting = std::mem::take(batch).into_iter();
        let mut next = waiting.next();
        for _ in 0..self.high.len() {
            let member = &self.high[self.turn % self.high.len()];
            self.turn += 1;
            // As many as it has places for.
            while let Some(task) = next.take() {
                match member.offer(task) {
                    Ok(()) => next = waiting.next(),
                    Err(refused) => {
                        next = Some(refused);
                        break;
                    }
                }
            }
        }
        batch.extend(next.into_iter().chain(waiting));
    }

    /// Threads are woken by their queues.
    fn tick(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Barrier};

    #[test]
    fn queues_are_as_long_as_asked_for_and_order_is_kept() {
        let plan = CpuPlan {
            workers: vec![crate::experiments::preempt::run::cpus::allowed().unwrap()[0]],
            scheduler: 0,
        };
        let mut workers = ThreadWorkers::start(Priority::Equal, 2, &plan).unwrap();
        let busy = Arc::new(Barrier::new(2));
        let held = Arc::clone(&busy);
        let (begun, has_begun) = sync_channel(1);
        let hold: Task = Box::new(move || {
            begun.send(()).unwrap();
            held.wait();
        });
        workers.offer_high(Instant::now(), &mut vec![hold]);
        // Now it is out of the queue.
        has_begun.recv().unwrap();
        let order = Arc::new(AtomicU32::new(0));
        let mut batch: Vec<Task> = (0..4)
            .map(|number| {
                let order = Arc::clone(&order);
                let task = move || {
                    assert_eq!(order.fetch_add(1, Ordering::Relaxed), number);
                };
                Box::new(task) as Task
            })
            .collect();
        workers.offer_high(Instant::now(), &mut batch);
        let left = batch.len();
        // Whatever is found, the thread is let go before anybody waits for it.
        busy.wait();
        drop(workers);
        assert_eq!(left, 2);
        assert_eq!(order.load(Ordering::Relaxed), 2);
        for task in batch {
            task();
        }
    }
}
