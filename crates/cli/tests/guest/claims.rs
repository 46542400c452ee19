//! The claims of `control.sh`, by its parts.

/// What another user can do.
pub(crate) const OTHERS: &[&str] = &[
    "start",
    "modes",
    "status",
    "nobody_cannot_open_the_lock",
    "nobody_plants_nothing",
    "stop_beside_holders_and_namesakes",
    "start_beside_holders_and_namesakes",
    "stop_without_a_pid_file",
    "namesakes_stay",
    "start_beside_a_silent_bus",
    "rival_of_root_s_without_a_bus",
    "rival_is_named",
    "status_beside_links",
    "start_beside_links",
    "stop_beside_links",
    "links_are_not_followed",
    "status_beside_pipes",
    "start_beside_pipes",
    "stop_beside_pipes",
    "directory_below_a_narrow_umask",
    "start_beside_a_linked_directory",
    "linked_directory_is_named",
];

/// What root's own processes can do.
pub(crate) const HANGING: &[&str] = &[
    "start_waits_for_a_holder",
    "holder_is_named",
    "holder_has_a_remedy",
    "stop_beside_a_holder_of_root_s",
    "stop_names_the_holder",
    "status_of_a_stopped_loader",
    "stop_of_a_stopped_loader",
    "stop_of_a_stuck_loader",
    "start_of_a_stuck_loader",
];

/// What can become of `/run`.
pub(crate) const RUN: &[&str] = &[
    "status_on_a_read_only_run",
    "stop_on_a_read_only_run",
    "read_only_run_is_said",
    "start_on_a_read_only_run",
    "read_only_run_has_a_remedy",
    "status_on_a_full_run",
    "stop_on_a_full_run",
    "start_on_a_full_run",
    "stop_without_files",
    "stop_without_a_directory",
];

/// A systemd that does not answer.
pub(crate) const SYSTEMD: &[&str] = &[
    "status_beside_a_silent_systemd",
    "start_beside_a_silent_systemd",
    "silent_systemd_is_said",
    "start_beside_a_slow_systemd",
    "stop_is_told_again",
    "stop_beside_a_silent_systemd",
    "start_beside_a_hanging_systemd",
    "hanging_systemd_is_said",
    "stop_beside_a_hanging_systemd",
];

/// Those that take no kernel.
pub(crate) const MADE_UP: [&[&str]; 4] = [OTHERS, HANGING, RUN, SYSTEMD];
