//! What takes longer than a change can wait for: `make test-long`.
//!
//! Not among the tests that cargo runs unasked (`test = false` in Cargo.toml).

use std::sync::OnceLock;

#[path = "package/build.rs"]
mod build;
mod dashboard;
#[path = "package/guest.rs"]
mod guest;
#[path = "pods/node.rs"]
mod node;
mod perfetto;
mod profile;
#[path = "guest/programs.rs"]
mod programs;
#[path = "loader/scx_loader.rs"]
mod scx_loader;
#[path = "guest/transcript.rs"]
mod transcript;

use build::built;
use transcript::hold;

/// These claims of `units.sh` held in the guest.
fn held(claims: &[&str]) {
    static SAID: OnceLock<String> = OnceLock::new();
    let said = SAID.get_or_init(|| guest::said(built(), "units.sh"));
    hold(said, claims);
}

#[test]
fn units_survive_reboots() {
    held(&["enabling_loads_nothing", "shutdown_before_it_was_loaded"]);
    held(&["boot_loads", "boot_serves_metrics", "shutdown_unloads"]);
    held(&["boot_loads_again", "shutdown_with_nothing_loaded"]);
    held(&["meta_loads_at_boot"]);
}

#[test]
fn units_start_again_after_a_crash() {
    held(&["crash_restores_the_kernel_default", "metrics_say_so"]);
    held(&["crash_restarts", "metrics_restart"]);
    held(&["meta_crash_restores_the_kernel_default"]);
    held(&["meta_crash_restarts", "meta_replaces_a_dead_scheduler"]);
}

#[test]
fn ufs_is_stopped_while_it_loads() {
    held(&["stop", "is_loading", "stop_while_it_loads"]);
    held(&["giveway_stop_while_it_loads"]);
}

#[test]
fn a_wrong_option_fails_once_with_the_remedy() {
    held(&["wrong_option_fails", "wrong_option_is_named"]);
    held(&["wrong_option_has_a_remedy"]);
    held(&["wrong_option_is_not_tried_again"]);
    held(&["wrong_value_fails", "wrong_value_is_named"]);
    held(&["wrong_value_has_a_remedy"]);
    held(&["wrong_value_is_not_tried_again", "start_after_a_failure"]);
}

#[test]
fn one_unit_at_a_time_loads_and_purging_ends_all() {
    held(&["giveway_takes_over", "meta_takes_over"]);
    held(&["purge_of_what_is_enabled", "nothing_of_it_failed"]);
}
