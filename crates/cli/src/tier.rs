//! The rule by which the loaded UFS gives cgroups their tiers.
//!
//! `run` needs the caller's tier and a name for the tier asked for; `status`, `trace` and
//! `pods` show tiers. Labels and default tier are options of `scx_ufs`, which publishes
//! them when it attaches ([`giveway_tier::rule`]). Without UFS, the rule is that of a UFS
//! without options.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use giveway_machine::sched_ext::SchedExt;
use giveway_tier::rule::{PATH, Rule};

use crate::service::UFS;

/// How long a UFS that has just attached may take to publish its rule.
const SAID_AFTER: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(20);

/// The rule of the loaded UFS. None if UFS is loaded and does not say it.
pub(crate) fn rule(kernel: &SchedExt) -> Option<Rule> {
    if !kernel.state().is(UFS) {
        return Some(Rule::default());
    }
    let end = Instant::now() + SAID_AFTER;
    loop {
        let rule = Rule::published(Path::new(PATH), kernel.loads());
        if rule.is_some() || Instant::now() >= end {
            return rule;
        }
        thread::sleep(RETRY);
    }
}

/// The same, or after a note on standard error that of a UFS without options.
pub(crate) fn rule_or_default(kernel: &SchedExt) -> Rule {
    rule(kernel).unwrap_or_else(|| {
        eprintln!(
            "giveway: note: the loaded UFS does not say its labels (it is of another version, or \
             cannot write {PATH}); taking them for the defaults"
        );
        Rule::default()
    })
}
