//! A scheduler for each power profile: the recipe of the metascheduler's page, run as it is
//! written there, in a guest with systemd, D-Bus, polkit and Debian's power-profiles-daemon.
//! The guest has no power to save: that daemon then offers the profiles `balanced` and
//! `power-saver`, and switches nothing.

use std::fs;
use std::sync::OnceLock;

use giveway_lab::Layer;

use crate::build::{built, tmp};
use crate::guest;
use crate::transcript::hold;

/// The first block of commands below the page's heading.
fn recipe() -> &'static str {
    let page = include_str!("../../../../docs/operate/metascheduler.md");
    let (_, below) = page
        .split_once("\n## A scheduler for each power profile\n")
        .expect("the heading");
    let (_, block) = below.split_once("\n```sh\n").expect("a block");
    let (block, _) = block.split_once("\n```\n").expect("its end");
    block
}

/// These claims of `profile.sh` held in the guest.
fn held(claims: &[&str]) {
    static SAID: OnceLock<String> = OnceLock::new();
    let said = SAID.get_or_init(|| {
        let dir = tmp("profile");
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join("recipe.sh");
        fs::write(&file, recipe()).unwrap();
        guest::said_by(built(), "profile.sh", &[&file], layer())
    });
    hold(said, claims);
}

fn layer() -> Layer {
    let systemd = guest::systemd();
    let packages = ["dbus", "polkitd", "power-profiles-daemon"].map(str::to_owned);
    Layer {
        packages: [systemd.packages, packages.to_vec()].concat(),
        ..systemd
    }
}

#[test]
fn recipe_for_power_profiles_runs_as_written() {
    held(&["profiles_are_there", "recipe_runs", "balanced_loads_ufs"]);
    held(&["power_saver_unloads_it", "balanced_loads_it_again"]);
    held(&["profiles_are_in_the_journal", "nothing_of_it_failed"]);
}

#[test]
fn recipe_for_power_profiles_outlives_restarts() {
    held(&["restarted_daemon_is_followed", "killed_watch_is_replaced"]);
    held(&["boot_follows_the_profile", "change_after_boot_is_followed"]);
}
