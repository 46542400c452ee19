//! Messages, to a terminal or to the systemd journal.
//!
//! ```text
//! terminal, file   [WARN] the text
//! journal          <4>the text        sd-daemon(3): the journal keeps the level
//! ```
//!
//! so that `journalctl -p warning -u giveway` shows what an operator has to know.
//! Standard error is the journal's if systemd says so in `JOURNAL_STREAM`, device
//! and inode of the stream that it gave; another program may have put something else
//! in its place since. Each line of a text has the level, as the journal takes lines.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;

use log::{Level, LevelFilter, Log, Metadata, Record};

/// Where messages go.
struct Journal {
    /// Whether standard error is the journal, which understands levels.
    is_journal: bool,
}

/// Has messages up to `level` go to standard error. To be called once.
pub(crate) fn open(level: LevelFilter) {
    let stream = std::env::var("JOURNAL_STREAM").ok();
    let is_journal = stream.is_some() && stream == standard_error();
    log::set_boxed_logger(Box::new(Journal { is_journal })).expect("no other logger is set");
    log::set_max_level(level);
}

/// Device and inode of standard error, as `JOURNAL_STREAM` has them.
fn standard_error() -> Option<String> {
    let found = std::fs::metadata("/proc/self/fd/2").ok()?;
    Some(format!("{}:{}", found.dev(), found.ino()))
}

impl Log for Journal {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let text = written(self.is_journal, record.level(), &record.args().to_string());
            // Nobody may be reading any more; scheduling goes on.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// A message as it is written.
fn written(is_journal: bool, level: Level, text: &str) -> String {
    if !is_journal {
        return format!("[{level}] {text}\n");
    }
    // Those of syslog(3): err, warning, info, debug.
    let number = match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| format!("<{number}>{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_gets_levels_line_by_line() {
        let text = "thrown out:\n\n  a task waited";
        assert_eq!(
            written(true, Level::Error, text),
            "<3>thrown out:\n<3>  a task waited\n"
        );
        assert_eq!(written(true, Level::Info, "loaded"), "<6>loaded\n");
        assert_eq!(written(false, Level::Warn, "odd"), "[WARN] odd\n");
    }

    #[test]
    fn standard_error_is_told_by_device_and_inode() {
        let found = standard_error().unwrap();
        let numbers: Vec<u64> = found.split(':').map(|n| n.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 2);
    }
}
