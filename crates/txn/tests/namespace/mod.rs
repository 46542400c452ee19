//! A test that runs again as a child, in a mount namespace of its own.

use std::path::Path;
use std::process::Command;

/// Runs the test `name` of this program again, after the shell command `mount`. Both find
/// `path` in the variable `told`, by which the child knows that it is one. Says so and does
/// nothing where there are no such namespaces.
pub(crate) fn run_again(name: &str, told: &str, path: &Path, mount: &str) {
    let run = |script: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--mount", "sh", "-c", script]);
        unshare.arg(std::env::current_exe().unwrap());
        unshare.env(told, path).output()
    };
    if !run(mount).is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: no mount namespace for an ordinary user here");
        return;
    }
    let child = run(&format!(
        "{mount} && exec \"$0\" --exact {name} --nocapture"
    ))
    .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{said}{errors}");
    assert!(said.contains("1 passed"), "{said}");
}
