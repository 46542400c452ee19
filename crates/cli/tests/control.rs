//! Nothing blocks `giveway start`, `stop` and `status`: `control.sh` with a made-up kernel,
//! in a mount namespace of its own on this machine. `control_in_kernel` runs the same in
//! a guest, with the real loader.

use std::process::Command;

use assert_cmd::cargo::cargo_bin;

#[path = "guest/claims.rs"]
mod claims;

#[test]
fn nobody_and_nothing_blocks_the_control_plane() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: takes root, to act as others; control_in_kernel has the same claims");
        return;
    }
    let giveway = cargo_bin!("giveway");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", giveway.parent().unwrap().display());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/control.sh");
    let output = Command::new("unshare")
        .args([
            "--mount",
            "--fork",
            "--pid",
            "--mount-proc",
            "--kill-child",
            "sh",
            script,
        ])
        .env("PATH", path)
        .env("GIVEWAY_NATIVE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    for claims in claims::MADE_UP {
        for claim in claims {
            let held = said.lines().any(|line| line == format!("ok {claim}"));
            assert!(held, "{claim} did not hold:\n{said}{errors}");
        }
    }
}
