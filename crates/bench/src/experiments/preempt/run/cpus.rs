//! Which CPU does what.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::harness::error::{Error, Result};

/// CPUs of the workers and of the scheduling thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuPlan {
    pub(crate) workers: Vec<usize>,
    pub(crate) scheduler: usize,
}

/// The CPUs that this process may use.
pub(crate) fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(pinning)?;
    Ok((0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .collect())
}

impl CpuPlan {
    /// The first CPU schedules, the next ones work.
    ///
    /// # Errors
    /// There are too few: a scheduling thread that shares a CPU with a worker
    /// measures the kernel's time slice.
    pub(crate) fn of(cpus: &[usize], workers: u32) -> Result<Self> {
        match cpus.split_first() {
            Some((scheduler, others)) if others.len() >= workers as usize && workers > 0 => {
                Ok(CpuPlan {
                    workers: others[..workers as usize].to_vec(),
                    scheduler: *scheduler,
                })
            }
            _ => Err(Error::Config(format!(
                "{workers} workers and a scheduling thread need a CPU each, and there are {}: \
                 give --workers at most {}",
                cpus.len(),
                cpus.len().saturating_sub(1)
            ))),
        }
    }
}

/// Keeps the calling thread on one CPU as long as this lives.
pub(crate) struct Pinned(CpuSet);

impl Pinned {
    pub(crate) fn to(cpu: usize) -> Result<Self> {
        let this = Pid::from_raw(0);
        let before = sched_getaffinity(this).map_err(pinning)?;
        let mut set = CpuSet::new();
        set.set(cpu).map_err(pinning)?;
        sched_setaffinity(this, &set).map_err(pinning)?;
        Ok(Pinned(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The CPUs were allowed before; if they are not any more, the kernel has
        // moved the thread itself.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.0);
    }
}

fn pinning(error: nix::Error) -> Error {
    Error::Config(format!("cannot choose the CPUs of a thread: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_cpu() {
        let plan = CpuPlan::of(&[2, 5, 6], 2).unwrap();
        assert_eq!((plan.scheduler, plan.workers), (2, vec![5, 6]));
        let error = CpuPlan::of(&[2, 5], 2).unwrap_err().to_string();
        assert!(error.contains("--workers at most 1"), "{error}");
        assert!(CpuPlan::of(&[2, 5], 0).is_err());
    }

    #[test]
    fn pinning_ends() {
        let before = allowed().unwrap();
        let pinned = Pinned::to(before[0]).unwrap();
        assert_eq!(allowed().unwrap(), [before[0]]);
        drop(pinned);
        assert_eq!(allowed().unwrap(), before);
    }
}
