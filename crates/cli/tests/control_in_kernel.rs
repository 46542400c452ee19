//! Nothing blocks `giveway start`, `stop` and `status` in a kernel that has sched_ext:
//! one guest tries everything (`control.sh`), one test per part. `control` runs the parts
//! that take no kernel on this machine.

use giveway_lab::LabSpec;

#[path = "guest/claims.rs"]
mod claims;
mod guest;

/// With the real kernel, loader and socket.
const REAL: &[&str] = &[
    "sysrq_stop",
    "sysrq_is_said",
    "real_start",
    "real_status_beside_silent_clients",
    "real_slots_beside_silent_clients",
    "real_top_beside_silent_clients",
    "real_sockets_of_root_s",
    "real_files_are_not_for_others",
    "real_status_of_a_stopped_loader",
    "real_top_of_a_stopped_loader",
    "real_top_says_so",
    "real_stop_of_a_stopped_loader",
    "real_stop_of_a_frozen_loader",
    "real_status_beside_a_monitor",
    "real_stop_beside_a_monitor",
    "real_series_after_short_lived_cgroups",
    "real_series_are_there",
];

/// Every one of these claims held in the guest.
fn held(claims: &[&str]) {
    guest::held(&LabSpec::default(), "control.sh", claims);
}

#[test]
fn other_users_block_neither_start_nor_stop_nor_status() {
    held(claims::OTHERS);
}

#[test]
fn hanging_processes_of_root_are_named_and_left_behind() {
    held(claims::HANGING);
}

#[test]
fn full_and_read_only_run_do_not_keep_ufs_loaded() {
    held(claims::RUN);
}

#[test]
fn systemd_that_does_not_answer_is_not_waited_for() {
    held(claims::SYSTEMD);
}

#[test]
fn real_loader_is_unloaded_in_every_state() {
    held(REAL);
    // Those that take no kernel run elsewhere, too.
    claims::MADE_UP.into_iter().for_each(held);
}
