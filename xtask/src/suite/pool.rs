//! Jobs side by side, on so many slots.
//!
//! A slot is a CPU; a job takes one, or all of them when nothing may run beside it. Jobs
//! start in the order in which they are given. The caller sorts, the longest first. Two
//! rules hold besides:
//!
//! - Nothing overtakes a job that is to be alone, so it is not starved.
//! - Jobs that take what others make wait for all of those. Other jobs overtake them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How often jobs that run are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// When a job may start.
pub(super) trait Job: Sync {
    /// Nothing may run beside it.
    fn alone(&self) -> bool;
    /// Others wait for it, those that `take`. It does not take anything itself.
    fn makes(&self) -> bool;
    fn takes(&self) -> bool;
}

/// What happens to a job.
pub(super) enum Event<R> {
    /// It has been running for this long.
    Runs(Duration),
    /// It has ended.
    Ended(R),
}

/// Runs `work` on every job and calls `on` for what happens, on the caller's thread.
/// When `stop` is set no further job starts.
pub(super) fn run<J: Job, R: Send>(
    jobs: &[J],
    slots: usize,
    stop: &AtomicBool,
    work: impl Fn(&J) -> R + Sync,
    mut on: impl FnMut(&J, Event<R>),
) {
    let work = &work;
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        let mut waiting: Vec<&J> = jobs.iter().collect();
        let mut running: Vec<(&J, Instant)> = Vec::new();
        loop {
            let now: Vec<&J> = running.iter().map(|(job, _)| *job).collect();
            let next = match stop.load(Ordering::Relaxed) {
                true => None,
                false => next(&waiting, &now, slots),
            };
            if let Some(next) = next {
                let job = waiting.remove(next);
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

/// Which of the jobs that wait starts beside those that run, if any.
fn next<J: Job>(waiting: &[&J], running: &[&J], slots: usize) -> Option<usize> {
    if running.len() >= slots || running.iter().any(|job| job.alone()) {
        return None;
    }
    let making = waiting.iter().chain(running).any(|job| job.makes());
    let ready = |job: &&J| !(making && job.takes());
    let first = waiting.iter().position(ready)?;
    (!waiting[first].alone() || running.is_empty()).then_some(first)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// `a` is alone, `m` makes, `t` takes, others are jobs like any.
    impl Job for char {
        fn alone(&self) -> bool {
            *self == 'a'
        }

        fn makes(&self) -> bool {
            *self == 'm'
        }

        fn takes(&self) -> bool {
            *self == 't'
        }
    }

    static GO: AtomicBool = AtomicBool::new(false);

    fn jobs(letters: &str) -> Vec<char> {
        letters.chars().collect()
    }

    /// Which job starts, of those that wait, beside those that run, on two slots.
    fn starts(waiting: &str, running: &str) -> Option<usize> {
        let (waiting, running) = (jobs(waiting), jobs(running));
        let (waiting, running): (Vec<&char>, Vec<&char>) =
            (waiting.iter().collect(), running.iter().collect());
        next(&waiting, &running, 2)
    }

    #[test]
    fn jobs_start_in_order_while_a_slot_is_free() {
        assert_eq!(starts("xyz", ""), Some(0));
        assert_eq!(starts("xyz", "x"), Some(0));
        assert_eq!(starts("xyz", "xy"), None);
        assert_eq!(starts("", "x"), None);
    }

    #[test]
    fn nothing_runs_beside_a_job_that_is_alone_and_none_overtakes_it() {
        assert_eq!(starts("ax", "y"), None);
        assert_eq!(starts("ax", ""), Some(0));
        assert_eq!(starts("xy", "a"), None);
    }

    #[test]
    fn what_takes_waits_for_what_makes_and_is_overtaken() {
        assert_eq!(starts("mtx", ""), Some(0));
        assert_eq!(starts("tx", "m"), Some(1));
        assert_eq!(starts("tmx", "x"), Some(1));
        assert_eq!(starts("tt", "m"), None);
        assert_eq!(starts("tt", "t"), Some(0));
    }

    #[test]
    fn every_job_runs_once_and_no_more_at_once_than_there_are_slots() {
        let jobs = jobs("xamtttxyxaxxxtyxxmxyxaxx");
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut done = Vec::new();
        let work = |job: &char| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            now.fetch_sub(1, Ordering::SeqCst);
            *job
        };
        run(&jobs, 3, &GO, work, |job, event| {
            if let Event::Ended(result) = event {
                assert_eq!(result, *job);
                done.push(result);
            }
        });
        done.sort_unstable();
        let mut all = jobs.clone();
        all.sort_unstable();
        assert_eq!(done, all);
        assert!(most.load(Ordering::SeqCst) <= 3);
    }

    #[test]
    fn a_job_that_is_alone_is() {
        let now = Mutex::new(0);
        let work = |job: &char| {
            *now.lock().unwrap() += 1;
            thread::sleep(Duration::from_millis(2));
            let mut now = now.lock().unwrap();
            assert!(!job.alone() || *now == 1, "{now} run");
            *now -= 1;
        };
        let mut order = String::new();
        run(&jobs("xaxax"), 2, &GO, work, |job, event| {
            if let Event::Ended(()) = event {
                order.push(*job);
            }
        });
        assert_eq!(order, "xaxax");
    }

    #[test]
    fn nothing_starts_after_a_stop() {
        let stop = AtomicBool::new(false);
        let ran = AtomicUsize::new(0);
        let work = |_: &char| {
            ran.fetch_add(1, Ordering::SeqCst);
            stop.store(true, Ordering::SeqCst);
        };
        run(&jobs("xyz"), 1, &stop, work, |_, _| {});
        assert_eq!(ran.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn long_jobs_are_reported_while_they_run() {
        let mut told = 0;
        let work = |_: &char| thread::sleep(LOOK + LOOK / 2);
        run(&jobs("x"), 1, &GO, work, |_, event| {
            told += usize::from(matches!(event, Event::Runs(_)));
        });
        assert_eq!(told, 1);
    }
}
