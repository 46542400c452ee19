//! The programs of this tree, beside the command under test.

use std::path::Path;
use std::process::Command;

use assert_cmd::cargo::cargo_bin;

/// The directory of the command under test, with the programs of these packages in it.
pub(crate) fn with(packages: &[&str]) -> &'static Path {
    let dir = cargo_bin!("giveway").parent().unwrap();
    // The runner of all tests has built them already.
    if std::env::var_os("GIVEWAY_BUILT").is_none() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked"]);
        for package in packages {
            build.args(["--package", package]);
        }
        if dir.ends_with("release") {
            build.arg("--release");
        }
        let built = build.status().unwrap().success();
        assert!(built, "{} do not build", packages.join(" and "));
    }
    dir
}
