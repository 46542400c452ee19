//! The methods that are compared: policies of the pool, and OS threads.

use std::fmt;

use giveway_preempt::{Delivery, Policy};

/// What preemption by signals is called.
pub(crate) const PREEMPT: &str = "preempt";

/// How urgent transactions come to run beside Q2.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Method {
    name: String,
    pub(crate) how: How,
}

/// What a method does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum How {
    /// A policy of the pool.
    Pool(Policy),
    /// A thread for urgent and one for background work on each worker's CPU,
    /// told apart to the kernel like this.
    Threads(Priority),
}

/// How the kernel is told which threads are urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Not at all.
    Equal,
    /// Nice -20 against 19.
    Nice,
    /// SCHED_FIFO against the normal class.
    Fifo,
    /// Tiers, on the UFS scheduler: by the cgroup of the background threads.
    Ufs,
}

impl Method {
    /// The pool's policy of that name, such as `cooperative:1000`.
    ///
    /// # Panics
    /// There is no such policy.
    pub(crate) fn policy(text: &str) -> Self {
        let policy = text.parse().expect("the policy is one of the pool's");
        let name = text.split_once(':').map_or(text, |(name, _)| name);
        Method {
            name: name.to_owned(),
            how: How::Pool(policy),
        }
    }

    /// The pool's preemption by this delivery.
    pub(crate) fn preempting(delivery: Delivery) -> Self {
        match delivery {
            Delivery::Signal => Method::policy(PREEMPT),
            delivery => Method::policy(&delivery.to_string()),
        }
    }

    /// OS threads.
    pub(crate) fn threads(priority: Priority) -> Self {
        let name = match priority {
            Priority::Equal => "threads",
            Priority::Nice => "threads-nice",
            Priority::Fifo => "threads-fifo",
            Priority::Ufs => "threads-ufs",
        };
        Method {
            name: name.to_owned(),
            how: How::Threads(priority),
        }
    }

    /// The same under another name.
    pub(crate) fn called(self, name: &str) -> Self {
        Method {
            name: name.to_owned(),
            ..self
        }
    }

    /// Its name in results.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
