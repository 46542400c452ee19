//! Reads what a guest prints while it runs, from the file its serial port
//! writes to. A file never blocks the guest, which a pipe could.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{LabError, Result};

/// How many last lines an error shows.
const TAIL_LINES: usize = 40;

/// A growing file, read line by line.
#[derive(Debug)]
pub(crate) struct Follower {
    file: File,
    partial: Vec<u8>,
}

impl Follower {
    pub(crate) fn open(path: &Path) -> Result<Follower> {
        // QEMU truncates the file it finds; creating it here leaves nothing to race for.
        File::create(path).map_err(LabError::io("creating", path))?;
        let file = File::open(path).map_err(LabError::io("opening", path))?;
        Ok(Follower {
            file,
            partial: Vec::new(),
        })
    }

    /// Passes on every line that has been completed since the last call.
    pub(crate) fn poll(&mut self, line: &mut dyn FnMut(&str)) {
        let mut chunk = Vec::new();
        // A read error here would repeat at the next call, and the guest's end
        // is noticed elsewhere; the lines read so far are kept.
        let _ = self.file.read_to_end(&mut chunk);
        for byte in chunk {
            match byte {
                b'\n' => {
                    line(&String::from_utf8_lossy(&self.partial));
                    self.partial.clear();
                }
                b'\r' => {}
                byte => self.partial.push(byte),
            }
        }
    }

    /// Passes on what is left, ended by a newline or not.
    pub(crate) fn finish(&mut self, line: &mut dyn FnMut(&str)) {
        self.poll(line);
        if !self.partial.is_empty() {
            line(&String::from_utf8_lossy(&self.partial));
            self.partial.clear();
        }
    }
}

/// The last lines of a console's file.
pub(crate) fn tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).replace('\r', "");
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Whether the kernel gave up, and what it said.
pub(crate) fn panic_message(path: &Path) -> Option<String> {
    let text = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let at = text.find("Kernel panic - not syncing")?;
    text[at..].lines().next().map(|line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_are_passed_on_when_complete_and_the_rest_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console");
        let mut follower = Follower::open(&path).unwrap();
        let mut writer = File::options().append(true).open(&path).unwrap();
        let mut seen = Vec::new();
        write!(writer, "one\r\ntw").unwrap();
        follower.poll(&mut |line| seen.push(line.to_owned()));
        assert_eq!(seen, ["one"]);
        write!(writer, "o\nthree").unwrap();
        follower.finish(&mut |line| seen.push(line.to_owned()));
        assert_eq!(seen, ["one", "two", "three"]);
    }

    #[test]
    fn a_panic_is_found_among_other_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console");
        std::fs::write(
            &path,
            "[1.0] fine\r\n[1.1] Kernel panic - not syncing: No init\r\n[1.2] trace\r\n",
        )
        .unwrap();
        assert_eq!(
            panic_message(&path).unwrap(),
            "Kernel panic - not syncing: No init"
        );
        std::fs::write(&path, "[1.0] fine\n").unwrap();
        assert_eq!(panic_message(&path), None);
    }
}
