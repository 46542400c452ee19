//! What a thread is called.
//!
//! PostgreSQL writes what a backend is into its command line ("postgres: app shop
//! \[local\] SELECT"), which says more than the name of the program. Other programs
//! name their threads.
//!
//! A command line is as long as its owner says, gigabytes if he likes, and reading it
//! waits for his memory. So it is read only of programs that are called as PostgreSQL is,
//! and no further than a title goes. Known weakness: whoever calls his program `postgres`
//! can have the reader wait.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// What PostgreSQL's programs are called.
const SERVERS: [&[u8]; 2] = [b"postgres", b"postmaster"];
/// How much of a command line is read, in bytes.
const TITLE_MAX: u64 = 1024;

/// The title of thread `tid` as the files below `proc` have it; none if it is
/// gone.
pub fn title(proc: &Path, tid: u32) -> Option<String> {
    let dir = proc.join(tid.to_string());
    let name = fs::read(dir.join("comm")).ok()?;
    if SERVERS.contains(&name.trim_ascii_end()) {
        let line = beginning(&dir.join("cmdline"));
        let first = line.split(|&byte| byte == 0).next().unwrap_or_default();
        if first.starts_with(b"postgres: ") {
            return Some(printable(first));
        }
    }
    Some(printable(&name))
}

/// The beginning of a file; nothing of one that cannot be read.
fn beginning(path: &Path) -> Vec<u8> {
    let mut line = Vec::new();
    if let Ok(file) = File::open(path) {
        // What was read until an error counts.
        let _ = file.take(TITLE_MAX).read_to_end(&mut line);
    }
    line
}

/// A name, which is any program's own choice, as a terminal may have it: without control
/// characters, without those that turn the direction of writing, without blanks at its
/// end. What is no UTF-8 is `\u{fffd}`.
pub fn printable(name: &[u8]) -> String {
    let turns = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let name = String::from_utf8_lossy(name);
    let name: String = name
        .chars()
        .filter(|&c| !c.is_control() && !turns(c))
        .collect();
    name.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_has_its_title_and_others_have_their_name() {
        let proc = tempfile::tempdir().unwrap();
        let thread = |tid: u32, cmdline: &[u8], comm: &str| {
            let dir = proc.path().join(tid.to_string());
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("cmdline"), cmdline).unwrap();
            fs::write(dir.join("comm"), comm).unwrap();
        };
        thread(7, b"postgres: app shop [local] idle\0\0\0", "postgres\n");
        thread(8, b"/usr/bin/train\0--fast\0", "wor\u{1b}ker\n");
        let long = [b"postgres: ".as_slice(), &[b'x'; 1 << 20]].concat();
        thread(10, &long, "postgres\n");
        thread(11, &long, "train\n");
        let name = |tid| title(proc.path(), tid);
        assert_eq!(name(7).as_deref(), Some("postgres: app shop [local] idle"));
        assert_eq!(name(8).as_deref(), Some("worker"));
        assert_eq!(name(9), None);
        assert_eq!(name(10).map(|title| title.len()), Some(1024));
        assert_eq!(name(11).as_deref(), Some("train"));
    }

    #[test]
    fn a_name_brings_no_control_to_a_terminal() {
        assert_eq!(printable(b"\x1b[2Jx\x07\x7f \n"), "[2Jx");
        // A control character of two bytes, and one that writes to the left.
        assert_eq!(printable("a\u{9b}2J\u{202e}b".as_bytes()), "a2Jb");
        assert_eq!(printable(b"caf\xe9"), "caf\u{fffd}");
        assert_eq!(printable("größer".as_bytes()), "größer");
    }
}
