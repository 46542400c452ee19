//! Running the host programs the lab is built with: what they print goes to
//! the progress and, if they fail, into the error.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{LabError, Result};
use crate::progress::Progress;

/// How many last lines of a failed program an error shows.
const TAIL_LINES: usize = 15;

/// Programs the lab calls, and the Debian package of each.
const TOOLS: &[(&str, &str)] = &[
    ("apt-get", "apt"),
    ("dpkg", "dpkg"),
    ("mmdebstrap", "mmdebstrap"),
    ("mke2fs", "e2fsprogs"),
    ("xz", "xz-utils"),
    ("tar", "tar"),
];

/// Programs that building QEMU needs beside [`TOOLS`].
pub(crate) const BUILD_TOOLS: &[(&str, &str)] = &[
    ("cc", "gcc"),
    ("make", "make"),
    ("ninja", "ninja-build"),
    ("patch", "patch"),
    ("pkg-config", "pkg-config"),
    ("python3", "python3-venv"),
    ("flex", "flex"),
    ("bison", "bison"),
];

/// Refuses to start without the programs that every use of the lab needs.
pub(crate) fn check_tools() -> Result<()> {
    require(TOOLS)
}

/// Refuses to go on without `tools`.
pub(crate) fn require(tools: &[(&str, &str)]) -> Result<()> {
    for (tool, package) in tools {
        if find(tool).is_none() {
            return Err(LabError::MissingTool {
                tool: (*tool).into(),
                package: (*package).into(),
            });
        }
    }
    Ok(())
}

/// Refuses to go on without the C headers of these libraries, by the Debian package
/// of each. Not all of them come with a pkg-config file on every release.
pub(crate) fn require_headers(headers: &[(&str, &str)]) -> Result<()> {
    for (header, package) in headers {
        if !Path::new("/usr/include").join(header).is_file() {
            return Err(LabError::MissingTool {
                tool: (*header).into(),
                package: (*package).into(),
            });
        }
    }
    Ok(())
}

/// A Python with pip, in an environment of its own below `dir`.
pub(crate) fn python(dir: &Path, progress: &dyn Progress) -> Result<PathBuf> {
    require(&[("python3", "python3-venv")])?;
    let venv = dir.join("venv");
    run(
        "making a Python environment",
        Command::new("python3").args(["-m", "venv"]).arg(&venv),
        progress,
    )?;
    Ok(venv.join("bin/python"))
}

/// The path of a program, looked up as a shell would, and in the directories
/// of system programs, which are not in everybody's PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

/// Runs `command` to its end; every line it prints goes to `progress`.
pub(crate) fn run(what: &str, command: &mut Command, progress: &dyn Progress) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |status: String, tail: VecDeque<String>| LabError::Command {
        what: what.into(),
        status,
        tail: Vec::from(tail).join("\n"),
    };
    // One pipe for both streams keeps their lines in order.
    let (reader, writer) = std::io::pipe().map_err(LabError::io("making a pipe for", &program))?;
    let twin = writer
        .try_clone()
        .map_err(LabError::io("making a pipe for", &program))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(twin)
        .spawn()
        .map_err(LabError::io("starting", &program))?;
    // The command keeps its ends of the pipe open, and with them the loop below.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut tail = VecDeque::new();
    for line in BufReader::new(reader)
        .split(b'\n')
        .map_while(|line| line.ok())
    {
        let line = String::from_utf8_lossy(&line).into_owned();
        progress.detail(&line);
        tail.push_back(line);
        if tail.len() > TAIL_LINES {
            tail.pop_front();
        }
    }
    let status = child
        .wait()
        .map_err(LabError::io("waiting for", &program))?;
    if status.success() {
        Ok(())
    } else {
        Err(failed(status.to_string(), tail))
    }
}

/// Runs `command` and returns what it printed.
pub(crate) fn output(what: &str, command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(LabError::io("starting", &program))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.lines().collect();
    Err(LabError::Command {
        what: what.into(),
        status: output.status.to_string(),
        tail: lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    #[test]
    fn a_failed_program_shows_its_last_lines_and_status() {
        let error = run(
            "counting",
            Command::new("sh").args(["-c", "seq 100; exit 3"]),
            &Silent,
        )
        .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("exit status: 3") && text.contains("\n100"),
            "{text}"
        );
        assert!(!text.contains("\n85\n"), "{text}");
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let text = require(&[("no-such-tool", "some-package")])
            .unwrap_err()
            .to_string();
        assert!(text.contains("no-such-tool") && text.contains("apt-get install some-package"));
    }
}
