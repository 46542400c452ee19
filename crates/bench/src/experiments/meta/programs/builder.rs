//! The compile job: gcc of small sources from Debian's package of the stb libraries, one
//! after the other.
//!
//! Those that are chosen take about the same time, so that files can be counted, and the
//! least: a run has more of them.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::means::{shell, write};
use crate::experiments::meta::load::{Board, Outcome, Phase};
use crate::experiments::meta::process::Process;
use crate::harness::error::{Error, Result};

/// Libraries of one file each; the definition makes it a source.
const SOURCES: [(&str, &str); 2] = [
    ("divide", "STB_DIVIDE_IMPLEMENTATION"),
    ("leakcheck", "STB_LEAKCHECK_IMPLEMENTATION"),
];

/// What a builder says of a file.
const DONE: &str = "done\n";

/// Writes the sources; where they are.
pub(super) fn write_sources(dir: &Path) -> Result<Vec<PathBuf>> {
    let source = |(name, definition): (&str, &str)| {
        let path = dir.join(format!("{name}.c"));
        let text = format!("#define {definition}\n#include <stb/stb_{name}.h>\n");
        write(&path, &text).map(|()| path)
    };
    SOURCES.into_iter().map(source).collect()
}

/// Compiles a file when it is told to.
#[derive(Debug)]
pub(super) struct Builder {
    process: Process,
    /// Which one, from 0: they begin with different sources.
    number: usize,
}

impl Builder {
    /// Starts it in the cgroup of the calling thread.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn start(dir: &Path, number: usize) -> Result<Builder> {
        let object = dir.join(format!("{number}.o"));
        let compile = format!("gcc -O0 -w -c \"$source\" -o '{}'", object.display());
        Builder::of(&compile, dir, number)
    }

    fn of(compile: &str, dir: &Path, number: usize) -> Result<Builder> {
        let line = format!(
            "while read -r source; do if {compile}; then echo done; else echo failed; fi; done"
        );
        let mut command = shell(&line);
        command.stdin(Stdio::piped());
        let process = Process::start("builder", dir, &mut command, true)?;
        Ok(Builder { process, number })
    }

    /// File after file in windows, until all is over. A file's time is that of windows,
    /// since a builder is frozen outside them.
    pub(super) fn work(mut self, board: &Board, sources: &[PathBuf]) -> Outcome {
        let mut done = Outcome::default();
        let pipes = (
            self.process.child.stdin.take(),
            self.process.child.stdout.take(),
        );
        let (Some(mut orders), Some(words)) = pipes else {
            unreachable!("both are piped");
        };
        let mut words = BufReader::new(words);
        for source in sources.iter().cycle().skip(self.number) {
            if !board.wait_for(Phase::Window) {
                break;
            }
            let began = board.windows();
            let word = build(&mut orders, &mut words, source);
            let took_ns = (board.windows() - began).as_nanos() as u64;
            match word.as_deref() {
                Ok(DONE) if board.now() == Phase::Over => done.interrupted_ns.push(took_ns),
                Ok(DONE) => done.latencies_ns.push(took_ns),
                Ok(_) => done.errors += 1,
                Err(_) => {
                    done.errors += 1;
                    break;
                }
            }
        }
        done
    }
}

/// Has a file compiled; what is said of it.
fn build(orders: &mut impl Write, words: &mut impl BufRead, source: &Path) -> io::Result<String> {
    let order = format!("{}\n", source.display());
    orders.write_all(order.as_bytes())?;
    let mut word = String::new();
    match words.read_line(&mut word)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    /// What a builder does in a window, by this command, and then over the end.
    fn worked(compile: &str) -> Outcome {
        let dir = tempfile::tempdir().unwrap();
        let builder = Builder::of(compile, dir.path(), 1).unwrap();
        let sources = ["a.c", "b.c", "c.c"].map(PathBuf::from);
        let board = Board::new(Phase::Rest);
        thread::scope(|scope| {
            let worker = scope.spawn(|| builder.work(&board, &sources));
            board.set(Phase::Window);
            thread::sleep(Duration::from_millis(200));
            board.set(Phase::Over);
            worker.join().unwrap()
        })
    }

    #[test]
    fn files_are_counted_and_one_that_the_end_interrupts_is_by_itself() {
        // Begins with the second source; the third takes longer than the window.
        let done = worked("test \"$source\" = b.c || sleep 0.6");
        assert_eq!((done.latencies_ns.len(), done.errors), (1, 0));
        assert_eq!(done.interrupted_ns.len(), 1);
        assert!(done.interrupted_ns[0] < 600_000_000, "{done:?}");
        assert!(done.count() > 1.0);
    }

    #[test]
    fn a_file_that_does_not_compile_is_an_error() {
        let done = worked("sleep 0.02; false");
        assert!(done.errors > 0 && done.latencies_ns.is_empty(), "{done:?}");
        // So is a builder that ends.
        assert_eq!(worked("exit 1").errors, 1);
    }

    #[test]
    fn sources_are_libraries_of_the_package() {
        let dir = tempfile::tempdir().unwrap();
        let sources = write_sources(dir.path()).unwrap();
        let text = std::fs::read_to_string(&sources[1]).unwrap();
        assert_eq!(
            text,
            "#define STB_LEAKCHECK_IMPLEMENTATION\n#include <stb/stb_leakcheck.h>\n"
        );
    }
}
