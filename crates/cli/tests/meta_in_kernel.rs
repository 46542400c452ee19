//! `giveway meta` against a kernel that has sched_ext: one guest tries
//! everything (`meta.sh`), one test per claim. In the guest every scheduler's
//! start, end and death is real; what cannot be arranged there, such as a load
//! that hangs, is tried against a made-up kernel in `giveway-metasched`.

use giveway_lab::LabSpec;

mod guest;

/// Every one of these claims held in the guest.
fn held(claims: &[&str]) {
    guest::held(&LabSpec::default(), "meta.sh", claims);
}

#[test]
fn the_list_says_what_can_run_and_why_the_rest_cannot() {
    held(&["list_usable", "list_unusable"]);
}

#[test]
fn a_scheduler_that_fails_to_load_is_measured_as_such() {
    held(&["measure", "measure_counts", "measure_words"]);
    held(&["measure_leaves", "plan"]);
}

#[test]
fn foreign_scheduler_is_left_alone() {
    held(&["measure_occupied", "aside", "one_process"]);
}

#[test]
fn schedulers_take_turns_one_at_a_time() {
    held(&["one_daemon", "ops", "one_at_a_time", "bad_said"]);
}

#[test]
fn killed_scheduler_is_reported_and_restarted() {
    held(&["killed_said", "killed_status", "killed_tried_again"]);
}

#[test]
fn a_scheduler_that_does_not_answer_is_killed() {
    held(&["stopped_said", "stopped_is_out"]);
}

#[test]
fn pause_keeps_the_kernel_default_scheduler() {
    held(&["status_when_out", "paused", "paused_status", "resumed"]);
    held(&["metrics"]);
}

#[test]
fn stop_unloads_ufs_for_good_and_nothing_else() {
    held(&["stop_in_a_turn", "stop_says_who_is_paused"]);
    held(&["stop_is_for_good", "stop_is_no_fault"]);
    held(&["stop_while_paused", "monitor_stays"]);
}

#[test]
fn no_scheduler_outlives_the_daemon() {
    held(&["daemon_killed", "ended", "ended_leaves"]);
}

#[test]
fn only_root_can_lock_the_daemon_and_any_user_sees_it_run() {
    held(&["one_daemon", "lock_is_root_s", "status_by_others"]);
}
