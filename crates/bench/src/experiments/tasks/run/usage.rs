//! CPU time by threads' names, as the kernel counts it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

/// CPU time that threads have had.
pub(super) struct CpuTimes(BTreeMap<OsString, f64>);

impl CpuTimes {
    /// Of this process's threads with names of this beginning.
    pub(super) fn of(name: &str) -> CpuTimes {
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
        let time = |thread: fs::DirEntry| {
            let read = |file| fs::read_to_string(thread.path().join(file)).ok();
            let is_one = read("comm")?.trim_end().starts_with(name);
            // Time on a CPU, time in the queue, turns.
            let ns: u64 = read("schedstat")?.split(' ').next()?.parse().ok()?;
            is_one.then(|| (thread.file_name(), ns as f64 / 1e9))
        };
        CpuTimes(threads.flatten().filter_map(time).collect())
    }

    /// How much more that is than before, s. What threads had that have ended since is
    /// not known.
    pub(super) fn since_s(&self, before: &CpuTimes) -> f64 {
        let more = |(thread, s): (&OsString, &f64)| s - before.0.get(thread).unwrap_or(&0.0);
        self.0.iter().map(more).sum()
    }
}

/// What the machine could give to a new process now, bytes; none where it does not say.
pub(super) fn memory_available() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_s_time_is_counted_by_its_name() {
        let used_s = |name| {
            let before = CpuTimes::of(name);
            let mut sum = 0_u64;
            let worked = std::thread::Builder::new().name("usage-of-cpu-1".into());
            let worked = worked.spawn(move || {
                (0..20_000_000).for_each(|n: u64| sum = std::hint::black_box(sum ^ n));
                CpuTimes::of(name).since_s(&before)
            });
            worked.unwrap().join().unwrap()
        };
        assert!(used_s("usage-of-cpu") > 0.0);
        assert_eq!(used_s("nobody-has-this"), 0.0);
    }

    #[test]
    fn only_what_was_used_since_counts_whoever_has_ended() {
        let times = |threads: &[(&str, f64)]| {
            CpuTimes(threads.iter().map(|(tid, s)| ((*tid).into(), *s)).collect())
        };
        let before = times(&[("1", 5.0), ("2", 1.0)]);
        let after = times(&[("2", 3.0), ("3", 0.5)]);
        assert_eq!(after.since_s(&before), 2.5);
    }

    #[test]
    fn there_is_memory() {
        assert!(memory_available().unwrap() > 1 << 20);
    }
}
