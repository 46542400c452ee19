//! `run`, `start`, `stop` and `status` against a kernel that has sched_ext and
//! cgroup v2: one guest tries everything (`guest.sh`), one test per claim.

use giveway_lab::LabSpec;

mod guest;

/// Every one of these claims held in the guest.
fn held(claims: &[&str]) {
    guest::held(&LabSpec::default(), "guest.sh", claims);
}

#[test]
fn a_command_runs_in_the_tier_and_with_the_weight_it_was_given() {
    held(&["tier", "weight", "tier_weights"]);
}

#[test]
fn background_run_has_idle_io_priority_and_weight() {
    held(&["io_background", "io_time_sensitive", "io_tier_weights"]);
    held(&["io_undelegated"]);
}

#[test]
fn all_runs_weigh_little_at_the_disk_unless_one_is_time_sensitive() {
    held(&["io_of_background_runs", "io_of_time_sensitive_runs"]);
    held(&["io_after_runs"]);
}

#[test]
fn weights_that_an_administrator_gave_stay() {
    held(&["given_weights_of_urgent_runs"]);
    held(&["given_weights_of_background_runs"]);
}

#[test]
fn raised_run_loses_idle_io_priority_and_others_keep_their_own() {
    held(&["io_raised", "io_kept"]);
}

#[test]
fn the_command_s_status_is_passed_on() {
    held(&[
        "status",
        "status_below_who_ignores_children",
        "killed",
        "not_found",
        "not_executable",
    ]);
}

#[test]
fn a_signal_to_the_supervisor_reaches_the_command() {
    held(&["signal"]);
}

#[test]
fn runs_leave_no_cgroup_behind() {
    held(&["leaf_removed", "leaf_removed_after_failure"]);
    held(&["orphan_kept", "orphan_swept", "left_running"]);
}

#[test]
fn run_without_ufs_prints_a_note_unless_quiet() {
    held(&["note", "quiet", "no_note"]);
}

#[test]
fn other_users_need_a_delegated_cgroup_and_cannot_raise_themselves() {
    held(&["undelegated", "undelegated_remedy", "delegated"]);
    held(&["raising", "raising_error"]);
}

#[test]
fn start_loads_ufs_and_waits_until_the_kernel_has_it() {
    held(&["start_not_root", "start", "start_ops", "start_again"]);
    held(&["start_again_with_options", "doctor_native"]);
}

#[test]
fn doctor_says_that_the_newest_kernel_lacks_nothing() {
    held(&["doctor_features"]);
}

#[test]
fn another_scheduler_is_named_and_left_alone() {
    held(&["start_occupied", "start_occupied_names", "stop_occupied"]);
}

#[test]
fn a_start_that_fails_says_why_and_leaves_nothing_running() {
    held(&[
        "start_bad_option",
        "start_bad_option_says",
        "start_bad_option_leaves",
    ]);
}

#[test]
fn status_shows_the_scheduler_and_the_work_in_each_tier() {
    held(&[
        "status_scheduler",
        "status_uptime",
        "status_leaf",
        "status_last_exit",
    ]);
}

#[test]
fn top_shows_processes_in_their_tiers() {
    held(&["process_tiers"]);
}

#[test]
fn stop_unloads_ufs_and_waits_until_it_is_out() {
    held(&["stop_when_out", "stop", "stop_leaves"]);
}

#[test]
fn a_killed_scheduler_can_be_started_again() {
    held(&["killed_is_out", "start_after_kill", "stop_after_kill"]);
}

#[test]
fn files_any_user_can_lock_do_not_block_root() {
    held(&["start_beside_a_holder", "stop_beside_a_holder"]);
    held(&["locks_are_root_s"]);
}

#[test]
fn command_waits_at_most_its_timeout_and_names_the_lock_holder() {
    held(&["start_waits", "start_names_the_holder", "start_goes_on"]);
}

#[test]
fn process_names_alone_are_not_trusted() {
    held(&["doctor_beside_a_namesake", "start_beside_namesakes"]);
    held(&["status_beside_a_namesake", "stop_beside_namesakes"]);
    held(&["namesakes_are_left_alone"]);
}

#[test]
fn run_and_status_use_the_loaded_labels() {
    held(&["run_label", "run_label_of_others", "run_label_counts"]);
    held(&["status_labelled", "status_labels", "run_label_of_the_next"]);
}

#[test]
fn run_and_status_use_the_loaded_default_tier() {
    held(&["run_default", "raising_above_the_default", "status_default"]);
}

#[test]
fn marking_warns_if_loaded_ufs_ignores_marks() {
    held(&["mark_note", "mark_without_note"]);
}

#[test]
fn marked_cgroup_counts_in_its_tier_in_ufs_statistics() {
    held(&["mark_counts", "status_marked"]);
}

#[test]
fn trace_has_the_tiers_of_ufs() {
    held(&["trace_tiers"]);
}
