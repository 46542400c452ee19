//! The background tasks that one worker has taken from its queue and not
//! started: which is next, if several wait?
//!
//! Tasks of one weight form a class and run in the order in which they came.
//! Classes share the worker's background time by stride scheduling: each has a
//! *pass*, its running time divided by its weight, and the class with the
//! lowest pass is next.
//!
//! A class that had nothing waiting starts over at the pass of the class that
//! was chosen last, unless it is ahead of it: idleness earns no credit, and
//! does not cancel a debt from a time when others waited. When nothing waits at the
//! end of a task, all passes are reset: no class has lost anything.
//!
//! Known weakness: two submitters of the same weight share one class. A worker
//! cannot tell them apart, and with a queue of one place, the default, there is
//! nothing to choose from anyway.

use std::collections::{BTreeMap, VecDeque};

use giveway_tier::Weight;

/// What time costs a class of weight 1; the largest weight pays 1 a nanosecond.
const SCALE: u64 = Weight::MAX.get() as u64;

/// Tasks in classes.
#[derive(Debug)]
pub(crate) struct Backlog<T> {
    classes: BTreeMap<Weight, Class<T>>,
    /// The pass of the class chosen last.
    virtual_time: u64,
    len: usize,
}

#[derive(Debug)]
struct Class<T> {
    tasks: VecDeque<T>,
    pass: u64,
}

impl<T> Backlog<T> {
    pub(crate) fn new() -> Backlog<T> {
        Backlog {
            classes: BTreeMap::new(),
            virtual_time: 0,
            len: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a task at the end of its class.
    pub(crate) fn put(&mut self, weight: Weight, task: T) {
        let virtual_time = self.virtual_time;
        let class = self.classes.entry(weight).or_insert_with(|| Class {
            tasks: VecDeque::new(),
            pass: virtual_time,
        });
        if class.tasks.is_empty() {
            class.pass = class.pass.max(virtual_time);
        }
        class.tasks.push_back(task);
        self.len += 1;
    }

    /// Takes the next task.
    pub(crate) fn take(&mut self) -> Option<(Weight, T)> {
        let waiting = self
            .classes
            .iter_mut()
            .filter(|(_, class)| !class.tasks.is_empty());
        // Of equal passes the heavier class's, which is the one that is owed more.
        let (&weight, class) = waiting.rev().min_by_key(|(_, class)| class.pass)?;
        let task = class.tasks.pop_front()?;
        self.virtual_time = class.pass;
        self.len -= 1;
        Some((weight, task))
    }

    /// Enters what a task of this weight took, ns.
    pub(crate) fn charge(&mut self, weight: Weight, run_ns: u64) {
        if let Some(class) = self.classes.get_mut(&weight) {
            let cost = run_ns.saturating_mul(SCALE) / u64::from(weight.get());
            class.pass = class.pass.saturating_add(cost);
        }
        if self.is_empty() {
            self.classes.clear();
            self.virtual_time = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(number: u32) -> Weight {
        Weight::try_from(number).unwrap()
    }

    /// Runs for a while with tasks of `weights` always waiting, each taking
    /// `cost`; returns each one's share of the time.
    fn shares(weights: &[(u32, u64)], rounds: u32) -> Vec<f64> {
        let mut backlog = Backlog::new();
        for &(number, _) in weights {
            backlog.put(weight(number), ());
            backlog.put(weight(number), ());
        }
        let mut time = vec![0u64; weights.len()];
        for _ in 0..rounds {
            let (chosen, ()) = backlog.take().unwrap();
            let index = weights
                .iter()
                .position(|&(number, _)| weight(number) == chosen)
                .unwrap();
            time[index] += weights[index].1;
            backlog.charge(chosen, weights[index].1);
            backlog.put(chosen, ());
        }
        let total: u64 = time.iter().sum();
        time.iter()
            .map(|&part| part as f64 / total as f64)
            .collect()
    }

    #[test]
    fn time_is_shared_by_weight_whatever_the_tasks_take() {
        for costs in [[1000, 1000], [1000, 7000], [9000, 500]] {
            let shares = shares(&[(100, costs[0]), (300, costs[1])], 4000);
            assert!((shares[0] - 0.25).abs() < 0.01, "{costs:?}: {shares:?}");
        }
    }

    #[test]
    fn one_class_is_first_in_first_out() {
        let mut backlog = Backlog::new();
        for number in 0..5 {
            backlog.put(Weight::DEFAULT, number);
        }
        let order: Vec<i32> = std::iter::from_fn(|| backlog.take().map(|(_, task)| task)).collect();
        assert_eq!(order, [0, 1, 2, 3, 4]);
        assert!(backlog.is_empty());
    }

    /// Takes the next task, which takes `cost`, and has another one like it wait.
    fn step(backlog: &mut Backlog<()>, cost: u64) -> Weight {
        let (chosen, ()) = backlog.take().unwrap();
        backlog.put(chosen, ());
        backlog.charge(chosen, cost);
        chosen
    }

    #[test]
    fn idleness_earns_no_credit() {
        let mut backlog = Backlog::new();
        backlog.put(weight(100), ());
        backlog.put(weight(101), ());
        for _ in 0..1000 {
            step(&mut backlog, 1000);
        }
        // One that was idle until now gets a third, not all.
        backlog.put(weight(102), ());
        let late = (0..99)
            .filter(|_| step(&mut backlog, 1000) == weight(102))
            .count();
        assert!((30..=36).contains(&late), "{late}");
    }

    #[test]
    fn idleness_does_not_cancel_a_debt() {
        let mut backlog = Backlog::new();
        backlog.put(weight(200), ());
        backlog.put(weight(100), ());
        step(&mut backlog, 1000);
        // The light one takes long, while the other waits, and goes away.
        let (chosen, ()) = backlog.take().unwrap();
        assert_eq!(chosen, weight(100));
        backlog.charge(chosen, 1_000_000);
        step(&mut backlog, 1000);
        // It comes back, and waits until the other has had as much by weight.
        backlog.put(weight(100), ());
        let others = std::iter::from_fn(|| (step(&mut backlog, 1000) != chosen).then_some(()));
        let others = others.count();
        assert!((1990..=2010).contains(&others), "{others}");
    }

    #[test]
    fn passes_are_reset_when_nothing_waits() {
        let mut backlog = Backlog::new();
        for number in 1..=1000 {
            backlog.put(weight(number), ());
            let (chosen, ()) = backlog.take().unwrap();
            backlog.charge(chosen, 1000);
        }
        assert!(backlog.classes.is_empty());
    }
}
