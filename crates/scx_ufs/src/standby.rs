//! What `scx_ufs` waits for: the word to come into force, or to leave and wait
//! for its next time, and the word to stop.
//!
//! Somebody waits for the end of each: whoever swaps schedulers has none but
//! Linux's own in between. So none is polled for. A thread sleeps in each, and
//! what it hears ends the main thread's wait at once.
//!
//! ```text
//!                    a line                      SIGINT, SIGTERM ─► stop
//!              ┌────────────────►┐
//!   ── ready ──┤                 in force
//!         │    └◄────────────────┘
//!         │          a line
//!         └─ the input's end ─► stop: whoever would give the word is gone
//! ```

use std::io::{BufRead as _, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, bounded};

/// The word to stop. Once given it stays given.
pub(crate) struct Stop {
    flag: Arc<AtomicBool>,
    /// Ends a wait; the flag counts.
    asked: Receiver<()>,
}

impl Stop {
    /// Given by SIGINT and SIGTERM.
    pub(crate) fn on_signals() -> Result<Stop, ctrlc::Error> {
        let flag = Arc::new(AtomicBool::new(false));
        let (tell, asked) = bounded(1);
        let set = Arc::clone(&flag);
        ctrlc::set_handler(move || {
            set.store(true, Ordering::Relaxed);
            // One that has not been taken yet is as good.
            let _ = tell.try_send(());
        })?;
        Ok(Stop { flag, asked })
    }

    /// Whether it has been given.
    pub(crate) fn is_asked(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// To wait for it among other things.
    pub(crate) fn asked(&self) -> &Receiver<()> {
        &self.asked
    }

    /// For those who look at it now and then.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }
}

/// The word to come, and to go.
pub(crate) struct Word(Receiver<()>);

impl Word {
    /// Given by each line on standard input.
    pub(crate) fn on_stdin() -> Word {
        Word::on(std::io::stdin())
    }

    fn on(input: impl Read + Send + 'static) -> Word {
        let (tell, told) = bounded(1);
        std::thread::spawn(move || {
            for _ in BufReader::new(input)
                .lines()
                .take_while(|line| line.is_ok())
            {
                // Nobody listens any more: this process ends.
                if tell.send(()).is_err() {
                    return;
                }
            }
        });
        Word(told)
    }

    /// To wait for it among other things. It ends with standard input.
    pub(crate) fn given(&self) -> &Receiver<()> {
        &self.0
    }

    /// Waits for it; false if it will not come, or `stop` was given.
    pub(crate) fn wait(&self, stop: &Stop) -> bool {
        crossbeam_channel::select! {
            recv(self.0) -> word => word.is_ok() && !stop.is_asked(),
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
    fn a_line_is_the_word_and_an_end_without_one_is_not() {
        let (_tell, stop) = never();
        assert!(Word::on(Cursor::new("attach\n")).wait(&stop));
        assert!(!Word::on(Cursor::new("")).wait(&stop));
    }

    #[test]
    fn each_line_is_a_word_of_its_own() {
        let (_tell, stop) = never();
        let word = Word::on(Cursor::new("attach\nleave\nattach"));
        let heard = (0..4).map(|_| word.wait(&stop));
        assert_eq!(Vec::from_iter(heard), [true, true, true, false]);
    }

    #[test]
    fn a_stop_ends_the_wait_for_the_word() {
        let (tell, stop) = never();
        let (_open, told) = bounded(1);
        tell.send(()).unwrap();
        assert!(!Word(told).wait(&stop));
    }
}
