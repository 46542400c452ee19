//! The library on other releases of glibc than the one it was built with: the
//! layout of what it replaces is glibc's own business, and has changed.
//!
//! A program runs on another glibc by that glibc's own dynamic linker, which is
//! unpacked from Debian's package and kept on disk.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::tempdir;

use crate::support::{command, counting, preload, program, reports, run, total};

/// A Debian release's C library.
struct Glibc {
    /// Where its files are.
    libraries: PathBuf,
}

impl Glibc {
    /// The glibc of a Debian suite, fetched if need be. A test that cannot have it
    /// fails: that is what it is there to test.
    fn of(suite: &str) -> Glibc {
        let tree = giveway_lab::unpacked(suite, &["libc6", "libgcc-s1"], &giveway_lab::Lines);
        let tree = tree.unwrap_or_else(|error| {
            panic!(
                "glibc of Debian {suite} is missing, and so is this test: {error}\n\
                 remedy: let apt reach a Debian mirror (GIVEWAY_DEBIAN_MIRROR names one), once"
            )
        });
        let libraries = tree
            .join("usr/lib")
            .join(format!("{}-linux-gnu", std::env::consts::ARCH));
        Glibc { libraries }
    }

    /// `program` on this glibc.
    fn command(&self, program: &Path) -> Command {
        let mut command = command(self.libraries.join("ld-linux-x86-64.so.2"));
        command
            .arg("--library-path")
            .arg(&self.libraries)
            .arg(program);
        command
    }

    /// Its version, as it tells it.
    fn version(&self) -> (u32, u32) {
        let said = run(command(self.libraries.join("ld-linux-x86-64.so.2")).arg("--version"));
        let words = said.stdout.split_whitespace();
        let numbers = words.filter_map(|word| word.trim_end_matches('.').split_once('.'));
        let mut versions = numbers.filter_map(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        versions.next().expect("a version")
    }
}

/// Every answer of these programs is the same on our locks as on that glibc's own, and
/// what is shared between processes works.
fn same_answers(suite: &str, at_least: (u32, u32)) {
    let glibc = Glibc::of(suite);
    assert!(glibc.version() >= at_least, "{:?}", glibc.version());
    let directory = tempdir().unwrap();
    for name in ["forwarded", "cond", "cancel", "kinds", "c11"] {
        let program = program(name, directory.path());
        let glibcs = run(&mut glibc.command(&program)).good();
        let mut with_ours = glibc.command(&program);
        with_ours.env("GIVEWAY_CFL", counting(directory.path(), ""));
        let ours = run(preload(&mut with_ours)).good();
        assert_eq!(ours, glibcs, "{name} on glibc {:?}", glibc.version());
    }
    assert!(total(&reports(directory.path()), "acquisitions") > 0);
}

#[test]
fn the_answers_are_those_of_glibc_2_41() {
    same_answers("trixie", (2, 41));
}

#[test]
fn the_answers_are_those_of_the_newest_glibc() {
    same_answers("sid", (2, 43));
}
