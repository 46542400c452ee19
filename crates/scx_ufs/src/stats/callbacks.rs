//! What the callbacks cost, by the kernel's own clock.
//!
//! The kernel times BPF programs while `kernel.bpf_stats_enabled` is set. That
//! makes each call longer: compare only what was measured with it.

use std::collections::BTreeMap;

use libbpf_rs::query::ProgInfoIter;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

/// One callback.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(
    desc = "one callback, over all CPUs",
    _om_prefix = "callback_",
    _om_label = "callback"
)]
pub struct CallbackStats {
    #[stat(desc = "calls that were timed")]
    pub calls: u64,
    #[stat(desc = "their time in nanoseconds")]
    pub run_ns: u64,
}

/// UFS's callbacks that the kernel has timed. There is one UFS at a time, so
/// all programs with its prefix are this one's.
pub(super) fn measured() -> BTreeMap<String, CallbackStats> {
    ProgInfoIter::default()
        .filter(|program| program.run_cnt > 0)
        .filter_map(|program| {
            let name = program.name.to_str()?.strip_prefix("ufs_")?.to_owned();
            let stats = CallbackStats {
                calls: program.run_cnt,
                run_ns: program.run_time_ns,
            };
            Some((name, stats))
        })
        .collect()
}
