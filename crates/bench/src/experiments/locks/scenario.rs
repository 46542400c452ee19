//! What the threads of one run do.

use super::lock::{EQUAL_WEIGHT, GroupSpec, Member};

/// One run: sets of threads at one lock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scenario {
    pub(crate) sets: Vec<Set>,
    /// Length of the measured window.
    pub(crate) seconds: f64,
    /// Length of the run before it.
    pub(crate) warmup_s: f64,
    pub(crate) seed: u64,
    pub(crate) arrivals: Option<Arrivals>,
}

/// Threads that do the same.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) threads: u32,
    /// Length of the critical section.
    pub(crate) inside_ns: f64,
    /// Work between two of them.
    pub(crate) outside_ns: f64,
    /// Weight of each thread.
    pub(crate) weight: u32,
    /// Name and weight of their group.
    pub(crate) group: Option<(&'static str, u32)>,
}

impl Set {
    pub(crate) const fn new(name: &'static str, threads: u32, inside_ns: f64) -> Self {
        Set {
            name,
            threads,
            inside_ns,
            outside_ns: 0.0,
            weight: EQUAL_WEIGHT,
            group: None,
        }
    }

    pub(crate) fn member(&self) -> Member {
        let group = self.group.map(|(name, weight)| GroupSpec {
            name: name.to_owned(),
            weight,
        });
        Member {
            weight: self.weight,
            group,
        }
    }

    /// What the set is entitled to, beside the others'.
    fn claim(&self) -> f64 {
        match self.group {
            Some((_, weight)) => f64::from(weight),
            None => f64::from(self.weight) * f64::from(self.threads),
        }
    }
}

/// The share of hold time that each set is entitled to.
pub(crate) fn entitled(sets: &[Set]) -> Vec<f64> {
    let total: f64 = sets.iter().map(Set::claim).sum();
    sets.iter().map(|set| set.claim() / total).collect()
}

/// Threads that come while the run is on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arrivals {
    /// Time from one to the next, on average.
    pub(crate) every_ns: u64,
    /// How long each stays, from its first turn on.
    pub(crate) stays_ns: u64,
    /// Each is a thread that the lock has never seen; else one thread comes
    /// back again and again.
    pub(crate) new_threads: bool,
    /// Length of its critical sections.
    pub(crate) inside_ns: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_claim_by_weight_and_groups_once() {
        let mut sets = [Set::new("a", 2, 1.0), Set::new("b", 6, 1.0)];
        assert_eq!(entitled(&sets), [0.25, 0.75]);
        sets[0].weight = 3 * EQUAL_WEIGHT;
        assert_eq!(entitled(&sets), [0.5, 0.5]);
        sets[0].group = Some(("a", 100));
        sets[1].group = Some(("b", 300));
        assert_eq!(entitled(&sets), [0.25, 0.75]);
    }
}
