//! The tiers of cgroups as the UFS that is loaded decides them.
//!
//! `run` must know the caller's tier and which name puts a cgroup into the one asked
//! for; `status`, `trace` and `pods` speak of tiers. Labels and default tier are options
//! of `scx_ufs`, which says them when it comes into force ([`giveway_tier::rule`]).
//! Where UFS is not loaded the rule is that of one without options.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use giveway_machine::sched_ext::SchedExt;
use giveway_tier::rule::{PATH, Rule};

use crate::service::UFS;

/// How long one that has just come into force may take to say its rule.
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
