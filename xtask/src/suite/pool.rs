//! Jobs side by side, on so many slots.
//!
//! A slot is a CPU. A job takes one slot, or all of them when nothing may run beside
//! it. Jobs start strictly in the order in which they are given: one that does not fit
//! yet is waited for and not overtaken, so a job that takes all slots is not starved.
//! The caller sorts, the longest first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How often jobs that run are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What happens to a job.
pub(super) enum Event<R> {
    /// It has been running for this long.
    Runs(Duration),
    /// It has ended.
    Ended(R),
}

/// Runs `work` on every job and calls `on` for what happens, on the caller's thread.
/// When `stop` is set no further job starts.
pub(super) fn run<J: Sync, R: Send>(
    jobs: &[J],
    slots: usize,
    needs: impl Fn(&J) -> usize,
    stop: &AtomicBool,
    work: impl Fn(&J) -> R + Sync,
    mut on: impl FnMut(&J, Event<R>),
) {
    let work = &work;
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        let mut waiting = jobs.iter().peekable();
        let mut running: Vec<(&J, Instant)> = Vec::new();
        let mut free = slots;
        loop {
            let fits = |job: &&J| needs(job).min(slots) <= free && !stop.load(Ordering::Relaxed);
            if let Some(job) = waiting.next_if(fits) {
                free -= needs(job).min(slots);
                running.push((job, Instant::now()));
                let sender = sender.clone();
                scope.spawn(move || {
                    // The receiver lives until every job has ended.
                    let _ = sender.send((job, work(job)));
                });
                continue;
            }
            if running.is_empty() {
                return;
            }
            match ended.recv_timeout(LOOK) {
                Ok((job, result)) => {
                    running.retain(|(other, _)| !std::ptr::eq(*other, job));
                    free += needs(job).min(slots);
                    on(job, Event::Ended(result));
                }
                Err(RecvTimeoutError::Timeout) => {
                    for (job, start) in &running {
                        on(job, Event::Runs(start.elapsed()));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => unreachable!("this holds a sender"),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    static GO: AtomicBool = AtomicBool::new(false);

    #[test]
    fn no_more_jobs_run_at_once_than_there_are_slots() {
        let jobs: Vec<usize> = (0..40).collect();
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut done = Vec::new();
        let work = |job: &usize| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            now.fetch_sub(1, Ordering::SeqCst);
            *job
        };
        run(
            &jobs,
            3,
            |_| 1,
            &GO,
            work,
            |_, event| {
                if let Event::Ended(job) = event {
                    done.push(job);
                }
            },
        );
        done.sort_unstable();
        assert_eq!(done, jobs);
        assert!(most.load(Ordering::SeqCst) <= 3);
    }

    #[test]
    fn nothing_runs_beside_a_job_that_takes_all_slots_and_none_overtakes_it() {
        // Those with 9 take all slots, of which there are fewer.
        let jobs = [1, 1, 9, 1, 9, 1, 1];
        let now = Mutex::new(Vec::new());
        let work = |job: &usize| {
            now.lock().unwrap().push(*job);
            thread::sleep(Duration::from_millis(2));
            let mut beside = now.lock().unwrap();
            assert!(*job != 9 || beside.len() == 1, "{beside:?}");
            let at = beside.iter().position(|other| other == job).unwrap();
            beside.remove(at);
        };
        let mut order = Vec::new();
        run(
            &jobs,
            2,
            |job| *job,
            &GO,
            work,
            |job, event| {
                if let Event::Ended(()) = event {
                    order.push(*job);
                }
            },
        );
        assert_eq!(order, jobs);
    }

    #[test]
    fn nothing_starts_after_a_stop() {
        let stop = AtomicBool::new(false);
        let ran = AtomicUsize::new(0);
        let work = |_: &usize| {
            ran.fetch_add(1, Ordering::SeqCst);
            stop.store(true, Ordering::SeqCst);
        };
        run(&[1, 2, 3], 1, |_| 1, &stop, work, |_, _| {});
        assert_eq!(ran.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn long_jobs_are_reported_while_they_run() {
        let mut told = 0;
        let work = |_: &usize| thread::sleep(LOOK + LOOK / 2);
        run(
            &[1],
            1,
            |_| 1,
            &GO,
            work,
            |_, event| {
                told += usize::from(matches!(event, Event::Runs(_)));
            },
        );
        assert_eq!(told, 1);
    }
}
