//! What several of the programs need: a shell, and files.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::error::{Error, Result};

/// A shell that runs a line, and finds Debian's programs.
pub(super) fn shell(line: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", line])
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null());
    command
}

/// A log in nginx's usual form.
pub(super) fn access_log(lines: u32) -> String {
    let line = |n: u32| {
        let (minute, second, size) = (n / 60 % 60, n % 60, n * 7919 % 5000);
        format!(
            "127.0.0.1 - - [28/Nov/2026:00:{minute:02}:{second:02} +0000] \
             \"GET /page{n}.html HTTP/1.1\" 200 {size} \"-\" \"-\"\n"
        )
    };
    (0..lines).map(line).collect()
}

pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(Error::file("write", path))
}
