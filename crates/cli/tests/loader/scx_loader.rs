//! The metascheduler beside the released scx_loader, in a guest with systemd, D-Bus and
//! polkit.
//!
//! scx_loader comes from its registry, by version, and is compiled here.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use giveway_lab::Layer;

use crate::build::{built, tmp};
use crate::guest;
use crate::transcript::hold;

const SCX_LOADER: &str = "scx_loader@1.1.3";

/// These claims of `scx_loader.sh` held in the guest.
fn held(claims: &[&str]) {
    static SAID: OnceLock<String> = OnceLock::new();
    let said =
        SAID.get_or_init(|| guest::said_by(built(), "scx_loader.sh", &[&scx_loader()], layer()));
    hold(said, claims);
}

fn layer() -> Layer {
    let systemd = guest::systemd();
    let packages = ["dbus", "polkitd"].map(str::to_owned).to_vec();
    Layer {
        packages: [systemd.packages, packages].concat(),
        ..systemd
    }
}

/// The program; compiled once.
fn scx_loader() -> PathBuf {
    let root = tmp("scx_loader");
    let mut cargo = Command::new(env!("CARGO"));
    // Not by the workspace's wrapper, which records what is compiled.
    cargo.env_remove("RUSTC_WORKSPACE_WRAPPER");
    cargo.args(["install", "--quiet", "--locked", SCX_LOADER, "--root"]);
    assert!(cargo.arg(&root).status().unwrap().success(), "{SCX_LOADER}");
    root.join("bin/scx_loader")
}

#[test]
fn who_does_not_know_of_scx_loader_is_refused() {
    held(&["scx_loader_runs", "start_is_refused", "doctor_names_it"]);
    held(&["run_is_refused", "unknown_is_refused"]);
}

#[test]
fn scx_loader_starts_what_the_metascheduler_says() {
    held(&["scx_loader_starts_it", "options_arrive", "it_takes_turns"]);
    held(&["nobody_stops_nothing", "stop_stops_it"]);
}

#[test]
fn mishaps_beside_scx_loader_are_mended() {
    held(&["dead_scheduler_is_replaced", "killed_daemon_leaves_it"]);
    held(&["daemon_takes_over", "restarted_loader_goes_on"]);
}

#[test]
fn scx_loader_s_default_makes_room_and_returns() {
    held(&["default_makes_room", "default_returns"]);
    held(&["start_without_it", "nothing_of_it_failed"]);
}
