//! Priorities by SQL: a role for each kind of work, with settings of the
//! extension (UFS paper, Section 5.3), and nothing else.
//!
//! | | role | tier, weight | in the 50:50 mix |
//! | --- | --- | --- | --- |
//! | TPC-C | `tpcc` | time-sensitive, 10000 | the same |
//! | background | `tpch` | background, 1 | time-sensitive, 10000 |
//!
//! Both are superusers, as everybody is in cells by cgroups, so that no right
//! is checked in one cell and not in the other. A role's settings hold for
//! connections made after they were given.

use giveway_tier::{Tier, Weight};

use crate::cell::class::{Class, Work};
use crate::cell::config::CellConfig;
use crate::cell::setup::{By, Hints};
use crate::harness::error::{Error, Result};
use crate::workload::postgres::{Session, USER};

/// Who connects as whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Roles {
    terminals: &'static str,
    background: &'static str,
}

impl Roles {
    /// Without roles: everybody is the same superuser.
    const NONE: Roles = Roles {
        terminals: USER,
        background: USER,
    };
    const BY_TIER: Roles = Roles {
        terminals: "tpcc",
        background: "tpch",
    };

    /// The roles of a cell, made if it has any.
    pub(super) fn create(
        config: &CellConfig,
        classes: &[Class],
        control: &Session,
    ) -> Result<Self> {
        if config.by == By::Cgroups {
            return Ok(Roles::NONE);
        }
        let roles = Roles::BY_TIER;
        control.execute("creating the extension", "CREATE EXTENSION giveway")?;
        for (role, tier, weight) in roles.settings(classes) {
            control.execute(
                "making the roles",
                &format!(
                    "CREATE ROLE {role} LOGIN SUPERUSER; \
                     ALTER ROLE {role} SET giveway.tier = {tier}; \
                     ALTER ROLE {role} SET giveway.weight = {weight}"
                ),
            )?;
        }
        Ok(roles)
    }

    /// Who does this work.
    pub(super) fn of(self, work: Work) -> &'static str {
        match work {
            Work::Tpcc => self.terminals,
            Work::Job(_) => self.background,
        }
    }

    fn settings(self, classes: &[Class]) -> impl Iterator<Item = (&'static str, Tier, Weight)> {
        let of = move |class: &Class| (self.of(class.work), class.tier, class.weight);
        classes.iter().map(of)
    }

    /// Refuses a cell in which the settings do nothing: the server accepts them
    /// whether or not it reaches the scheduler. Call it when all are connected.
    pub(super) fn require_effect(
        self,
        config: &CellConfig,
        classes: &[Class],
        control: &Session,
    ) -> Result<()> {
        if config.by == By::Cgroups {
            return Ok(());
        }
        require_extension(control, config.hints)?;
        for (role, tier, _) in self.settings(classes) {
            let strays = control
                .wait(control.client.query_one(
                    "SELECT count(*) FROM giveway_stat_activity \
                     WHERE usename = $1 AND tier IS DISTINCT FROM $2",
                    &[&role, &tier.to_string()],
                ))
                .map_err(Error::sql("asking for the tiers of sessions"))?;
            if strays.get::<_, i64>(0) > 0 {
                return Err(Error::Config(format!(
                    "sessions of the role {role} are not in the tier {tier}: all hint slots may be \
                     taken"
                )));
            }
        }
        Ok(())
    }
}

/// Refuses a server whose extension, which has been created, does not reach UFS or gives
/// it other hints.
pub(crate) fn require_extension(control: &Session, hints: Hints) -> Result<()> {
    let status = control
        .wait(
            control
                .client
                .query("SELECT item, value FROM giveway_status()", &[]),
        )
        .map_err(Error::sql("asking what the extension can do"))?;
    let wanted = [("table", "mapped"), ("hints", hints.name())];
    for row in status {
        let (item, value): (&str, &str) = (row.get(0), row.get(1));
        // A reason may follow, after a colon.
        let found = value.split(':').next().unwrap_or_default();
        if wanted
            .iter()
            .any(|(name, wanted)| *name == item && *wanted != found)
        {
            return Err(Error::Config(format!(
                "the extension has no effect: {item}: {value}"
            )));
        }
    }
    Ok(())
}

/// The server's settings beyond those of every cell.
pub(super) fn server_settings(config: &CellConfig) -> Vec<(&'static str, String)> {
    match config.by {
        By::Cgroups => Vec::new(),
        By::Roles => vec![
            ("shared_preload_libraries", "giveway".to_owned()),
            ("giveway.hints", config.hints.to_string()),
        ],
    }
}
