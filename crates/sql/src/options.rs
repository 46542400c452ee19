//! A session's options for its queries in SQL: `SET giveway.tier = 'background'`.
//!
//! The options live in DataFusion's configuration, so `SET` and `SHOW` work on them as on
//! any other; `RESET`, which DataFusion has for its own options only, is done by `session`.
//! They hold for queries made afterwards.

use std::any::Any;
use std::time::Duration;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{DataFusionError, Result, config_err};
use giveway_tier::{Tier, Weight};

/// Options of a session under the prefix `giveway`.
#[derive(Clone, Debug)]
pub struct QueryOptions {
    /// `giveway.tier`: `time_sensitive` or `background`.
    pub tier: Tier,
    /// `giveway.weight`: 1 to 10000.
    pub weight: Weight,
    /// `giveway.deadline`: how long a query may take, ms; 0 is for ever.
    pub deadline: Option<Duration>,
    /// Above which `giveway.tier` cannot be set: of a session for background work.
    pub tier_max: Tier,
}

impl Default for QueryOptions {
    /// Time-sensitive, without a deadline.
    fn default() -> QueryOptions {
        QueryOptions {
            tier: Tier::DEFAULT,
            weight: Weight::DEFAULT,
            deadline: None,
            tier_max: Tier::TimeSensitive,
        }
    }
}

impl QueryOptions {
    /// Sets an option to what it is by default; the tier to the highest that it may be.
    ///
    /// # Errors
    /// There is no such option.
    pub(crate) fn reset(&mut self, key: &str) -> Result<()> {
        let default = QueryOptions::default();
        match key {
            "tier" => self.tier = default.tier.min(self.tier_max),
            "weight" => self.weight = default.weight,
            "deadline" => self.deadline = default.deadline,
            _ => return unknown(key),
        }
        Ok(())
    }
}

fn unknown(key: &str) -> Result<()> {
    config_err!("there is no option giveway.{key}: set tier, weight or deadline")
}

impl ConfigExtension for QueryOptions {
    const PREFIX: &'static str = "giveway";
}

impl ExtensionOptions for QueryOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let refuse = |error: &dyn std::fmt::Display| {
            DataFusionError::Configuration(format!("giveway.{key}: {error}"))
        };
        match key {
            "tier" => {
                let tier = value.parse().map_err(|error| refuse(&error))?;
                if tier > self.tier_max {
                    return Err(refuse(&format!(
                        "this login is for work in the tier {}: log in as another user",
                        self.tier_max
                    )));
                }
                self.tier = tier;
            }
            "weight" => self.weight = value.parse().map_err(|error| refuse(&error))?,
            "deadline" => {
                let ms: u64 = (value.parse())
                    .map_err(|_| refuse(&format!("'{value}' is no number of milliseconds")))?;
                self.deadline = (ms > 0).then(|| Duration::from_millis(ms));
            }
            _ => return unknown(key),
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |key: &str, value: String, description| ConfigEntry {
            key: format!("giveway.{key}"),
            value: Some(value),
            description,
        };
        let deadline_ms = self.deadline.map_or(0, |deadline| deadline.as_millis());
        vec![
            entry(
                "tier",
                self.tier.to_string(),
                "Whether somebody waits for the queries: time_sensitive or background",
            ),
            entry(
                "weight",
                self.weight.to_string(),
                "Their share within the tier: 1 to 10000",
            ),
            entry(
                "deadline",
                deadline_ms.to_string(),
                "How long a query may take, ms; 0 is for ever",
            ),
        ]
    }
}
