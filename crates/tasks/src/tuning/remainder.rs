//! How much work is left of groups that an interval leaves unfinished.
//!
//! It is estimated from groups that ended: a group that has received *x* is expected to
//! need the mean of those that needed more than *x*. If there are none, it is expected
//! to need as much again as it has had, which is the mean for work with the heavy tail
//! of a Pareto distribution of index 2.

use std::collections::HashSet;

use crate::replay::Job;

/// Says what is left of the jobs of these groups.
pub(crate) fn estimate(jobs: &mut [Job], unfinished: &HashSet<u64>) {
    let is_left = |job: &Job| unfinished.contains(&job.word.id);
    let mut ended: Vec<u64> = (jobs.iter().filter(|job| !is_left(job)))
        .map(Job::received_ns)
        .collect();
    ended.sort_unstable();
    // What the i-th and all larger ones needed together.
    let mut sums = vec![0; ended.len() + 1];
    for (index, work_ns) in ended.iter().enumerate().rev() {
        sums[index] = sums[index + 1] + work_ns;
    }
    for job in jobs.iter_mut().filter(|job| is_left(job)) {
        let received_ns = job.received_ns();
        let smaller = ended.partition_point(|&work_ns| work_ns <= received_ns);
        job.after_ns = match (ended.len() - smaller) as u64 {
            0 => received_ns,
            larger => sums[smaller] / larger - received_ns,
        };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn job(number: u64, before_ns: u64, ran_ns: u64) -> Job {
        Job {
            before_ns,
            ..Job::done(number, 0, ran_ns)
        }
    }

    #[test]
    fn what_is_left_is_guessed_from_those_that_needed_more() {
        let mut jobs = [
            job(1, 0, 10),
            job(2, 20, 20),
            job(3, 0, 60),
            // Unfinished: two that ended needed more, one did, none did.
            job(4, 2, 8),
            job(5, 0, 40),
            job(6, 30, 30),
        ];
        estimate(&mut jobs, &HashSet::from([4, 5, 6]));
        assert_eq!(jobs.map(|job| job.after_ns), [0, 0, 0, 40, 20, 60]);
    }

    #[test]
    fn alone_a_group_needs_as_much_again() {
        let mut jobs = [job(1, 5, 5)];
        estimate(&mut jobs, &HashSet::from([1]));
        assert_eq!(jobs[0].after_ns, 10);
    }
}
