//! Attach and detach commands on standard input, and stop by signal.
//!
//! With `--standby` each line on standard input is a command: attach if UFS is
//! detached, else detach. Linux's own scheduler runs until the command has taken effect,
//! so commands are not polled for: a thread reads them, and the main thread wakes at
//! once.
//!
//! ```text
//!                    a line                      SIGINT, SIGTERM ─► stop
//!              ┌────────────────►┐
//!   ── ready ──┤                 attached
//!         │    └◄────────────────┘
//!         │          a line
//!         └─ end of the input ─► stop: no command can come any more
//! ```

use std::io::{BufRead as _, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, bounded};

/// A request to stop, which is never withdrawn.
pub(crate) struct Stop {
    flag: Arc<AtomicBool>,
    /// Ends a wait; the flag decides.
    asked: Receiver<()>,
}

impl Stop {
    /// Made by SIGINT and SIGTERM.
    pub(crate) fn on_signals() -> Result<Stop, ctrlc::Error> {
        let flag = Arc::new(AtomicBool::new(false));
        let (tell, asked) = bounded(1);
        let set = Arc::clone(&flag);
        ctrlc::set_handler(move || {
            set.store(true, Ordering::Relaxed);
            // Full: a request that was not received yet ends the wait as well.
            let _ = tell.try_send(());
        })?;
        Ok(Stop { flag, asked })
    }

    /// Whether a stop was requested.
    pub(crate) fn is_asked(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The channel on which to wait for it.
    pub(crate) fn asked(&self) -> &Receiver<()> {
        &self.asked
    }

    /// For code that polls it.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }
}

/// Commands to attach or detach, in turn.
pub(crate) struct Commands(Receiver<()>);

impl Commands {
    /// Each line on standard input is one.
    pub(crate) fn on_stdin() -> Commands {
        Commands::on(std::io::stdin())
    }

    fn on(input: impl Read + Send + 'static) -> Commands {
        let (tell, told) = bounded(1);
        std::thread::spawn(move || {
            for _ in BufReader::new(input)
                .lines()
                .take_while(|line| line.is_ok())
            {
                // The receiver is gone: this process ends.
                if tell.send(()).is_err() {
                    return;
                }
            }
        });
        Commands(told)
    }

    /// The channel on which to wait for one. It closes with standard input.
    pub(crate) fn received(&self) -> &Receiver<()> {
        &self.0
    }

    /// Waits for one; false if none will come, or a stop was requested.
    pub(crate) fn wait(&self, stop: &Stop) -> bool {
        crossbeam_channel::select! {
            recv(self.0) -> line => line.is_ok() && !stop.is_asked(),
            recv(stop.asked) -> _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn never() -> (crossbeam_channel::Sender<()>, Stop) {
        let (tell, asked) = bounded(1);
        let flag = Arc::default();
        (tell, Stop { flag, asked })
    }

    #[test]
    fn a_line_is_a_command_and_the_end_of_input_is_not() {
        let (_tell, stop) = never();
        assert!(Commands::on(Cursor::new("attach\n")).wait(&stop));
        assert!(!Commands::on(Cursor::new("")).wait(&stop));
    }

    #[test]
    fn each_line_is_one_command() {
        let (_tell, stop) = never();
        let commands = Commands::on(Cursor::new("attach\ndetach\nattach"));
        let heard = (0..4).map(|_| commands.wait(&stop));
        assert_eq!(Vec::from_iter(heard), [true, true, true, false]);
    }

    #[test]
    fn a_stop_ends_the_wait_for_a_command() {
        let (tell, stop) = never();
        let (_open, told) = bounded(1);
        tell.send(()).unwrap();
        assert!(!Commands(told).wait(&stop));
    }
}
