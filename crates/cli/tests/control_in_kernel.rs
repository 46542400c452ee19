//! Nothing blocks `giveway start`, `stop` and `status` in a kernel that has sched_ext:
//! one guest tries everything (`control.sh`), one test per part. `control` runs the parts
//! that take no kernel on this machine.

use giveway_lab::LabSpec;

#[path = "guest/claims.rs"]
mod claims;
mod guest;

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
    held(claims::REAL);
    // Those that take no kernel run elsewhere, too.
    claims::MADE_UP.into_iter().for_each(held);
}
