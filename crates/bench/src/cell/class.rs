//! What a cell's work consists of: classes of connections that do the same work
//! with the same priority.
//!
//! | mix | class | work | tier | weight |
//! | --- | --- | --- | --- | --- |
//! | SOLO, SOLO-BG, MIN:MAX | `high` | TPC-C | time-sensitive | 10000 |
//! | | `low` | the job | background | 1 |
//! | 50:50 | `high` | TPC-C | time-sensitive | 10000 |
//! | | `equal` | the job | time-sensitive | 10000 |
//! | 2:3 | `three`, `two` | TPC-C | time-sensitive | 10000, 6667 |
//! | | `three`, `two` | the job | background | 3, 2 |
//!
//! (UFS paper, Tables 1 and 2, Section 6.4.) By cgroups, each class has a cgroup
//! of its own, which is called by its tier and its name; the server's own
//! processes are in that of the first class. By roles, all of the server is in
//! one, and a class is a role. A class that a mix leaves out has no clients.

use giveway_tier::{Tier, Weight};
use serde::{Deserialize, Serialize};

use crate::cell::config::{CellConfig, Mix};
use crate::workload::background::Job;

/// What the connections of a class do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// TPC-C's transactions, one after the other.
    Tpcc,
    /// Rounds of a background job, one after the other.
    Job(Job),
}

impl Work {
    /// Whether it is CPU-bursty.
    pub(crate) fn is_tpcc(self) -> bool {
        self == Work::Tpcc
    }
}

/// Connections that do the same work with the same priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    /// What tells it from others of its tier.
    pub name: &'static str,
    /// What it does.
    pub work: Work,
    /// Whether somebody waits for it.
    pub tier: Tier,
    /// Its share of what its tier has.
    pub weight: Weight,
    /// How many connections it has.
    pub clients: u32,
}

impl Class {
    /// The name of its cgroup: that begins with the label from which UFS takes
    /// the tier.
    pub(crate) fn group(&self) -> String {
        format!("{}.{}", self.tier, self.name)
    }
}

/// The weights of the mix 2:3, as its paper has them.
const THREE_OF: u32 = 3;
const TWO_OF: u32 = 2;
const TWO_THIRDS_OF_MOST: u32 = 6667;

impl CellConfig {
    /// The classes of the cell; the first is that of the server.
    pub(crate) fn classes(&self) -> Vec<Class> {
        use Tier::{Background, TimeSensitive};
        let class = |name, work: Work, tier, weight: u32| Class {
            name,
            work,
            tier,
            weight: Weight::try_from(weight).expect("the weights of mixes are valid"),
            clients: self.clients_of(work),
        };
        let (tpcc, job) = (Work::Tpcc, Work::Job(self.job));
        let (most, least) = (Weight::MAX.get(), Weight::MIN.get());
        let high = class("high", tpcc, TimeSensitive, most);
        match self.mix {
            Mix::Solo | Mix::SoloBackground | Mix::MinMax => {
                vec![high, class("low", job, Background, least)]
            }
            Mix::FiftyFifty => vec![high, class("equal", job, TimeSensitive, most)],
            Mix::TwoThree => vec![
                class("three", tpcc, TimeSensitive, most),
                class("two", tpcc, TimeSensitive, TWO_THIRDS_OF_MOST),
                class("three", job, Background, THREE_OF),
                class("two", job, Background, TWO_OF),
            ],
        }
    }

    /// Connections of each class that does this work: as many as there are
    /// server CPUs, unless it is said.
    fn clients_of(&self, work: Work) -> u32 {
        let (runs, said) = match work {
            Work::Tpcc => (self.mix.has_time_sensitive(), self.terminals),
            Work::Job(_) => (self.mix.has_background(), self.background_workers),
        };
        match (runs, said) {
            (false, _) => 0,
            (true, 0) => self.cpus,
            (true, count) => count,
        }
    }

    /// Number of terminals that run, of all classes.
    pub(crate) fn terminal_count(&self) -> u32 {
        self.count(Work::is_tpcc)
    }

    /// Number of background workers that run, of all classes.
    pub(crate) fn background_count(&self) -> u32 {
        self.count(|work| !work.is_tpcc())
    }

    fn count(&self, of: impl Fn(Work) -> bool) -> u32 {
        let classes = self.classes().into_iter();
        classes
            .filter(|class| of(class.work))
            .map(|class| class.clients)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(mix: Mix) -> Vec<(String, u32, u32)> {
        let config = CellConfig {
            mix,
            cpus: 4,
            background_workers: 3,
            ..CellConfig::default()
        };
        let of = |class: Class| (class.group(), class.weight.get(), class.clients);
        config.classes().into_iter().map(of).collect()
    }

    fn named(name: &str, weight: u32, clients: u32) -> (String, u32, u32) {
        (name.to_owned(), weight, clients)
    }

    #[test]
    fn priorities_are_those_of_the_paper() {
        let high = |clients| named("time_sensitive.high", 10_000, clients);
        let low = |clients| named("background.low", 1, clients);
        assert_eq!(classes(Mix::Solo), [high(4), low(0)]);
        assert_eq!(classes(Mix::SoloBackground), [high(0), low(3)]);
        assert_eq!(classes(Mix::MinMax), [high(4), low(3)]);
        let equal = named("time_sensitive.equal", 10_000, 3);
        assert_eq!(classes(Mix::FiftyFifty), [high(4), equal]);
    }

    #[test]
    fn two_to_three_is_the_ratio_in_both_tiers_and_every_class_has_its_own_clients() {
        assert_eq!(
            classes(Mix::TwoThree),
            [
                named("time_sensitive.three", 10_000, 4),
                named("time_sensitive.two", 6_667, 4),
                named("background.three", 3, 3),
                named("background.two", 2, 3),
            ]
        );
        let config = CellConfig {
            mix: Mix::TwoThree,
            cpus: 4,
            ..CellConfig::default()
        };
        assert_eq!((config.terminal_count(), config.background_count()), (8, 8));
    }
}
