//! A query to be submitted: a name, tier and weight, and its pipelines.

use std::fmt;

use giveway_tier::{Tier, Weight};

use crate::error::Why;
use crate::pipeline::Pipeline;

/// A query: pipelines that run one after the other, each by all workers.
#[must_use = "a query does nothing before it is submitted"]
pub struct Query {
    pub(crate) name: String,
    pub(crate) tier: Tier,
    pub(crate) weight: Weight,
    pub(crate) is_static: bool,
    pub(crate) pipelines: Vec<Box<dyn Pipeline>>,
}

impl Query {
    /// A query without pipelines: time-sensitive, of the default weight, with a
    /// priority that decays if the policy says so.
    pub fn new(name: impl Into<String>) -> Query {
        Query {
            name: name.into(),
            tier: Tier::DEFAULT,
            weight: Weight::DEFAULT,
            is_static: false,
            pipelines: Vec::new(),
        }
    }

    /// Whether somebody waits for it. Background queries run when no
    /// time-sensitive one has work for a worker.
    pub fn tier(mut self, tier: Tier) -> Query {
        self.tier = tier;
        self
    }

    /// Its share within its tier: scales both p0 and p_min (Section 3.2, custom
    /// priorities, the second way).
    pub fn weight(mut self, weight: Weight) -> Query {
        self.weight = weight;
        self
    }

    /// Its priority does not decay (Section 3.2, custom priorities, the first way):
    /// it is always treated like one that has just come.
    pub fn static_priority(mut self) -> Query {
        self.is_static = true;
        self
    }

    /// Adds a pipeline, to be run after those that are there.
    pub fn pipeline(mut self, pipeline: impl Pipeline + 'static) -> Query {
        self.pipelines.push(Box::new(pipeline));
        self
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("name", &self.name)
            .field("tier", &self.tier)
            .field("weight", &self.weight)
            .field("is_static", &self.is_static)
            .field("pipelines", &self.pipelines.len())
            .finish()
    }
}

/// A query that was not taken.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Refused {
    /// The query, to be submitted elsewhere or later.
    pub query: Query,
    /// What to do about it.
    pub why: Why,
}
