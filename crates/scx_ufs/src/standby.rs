//! What `scx_ufs` waits for: the word to attach, and the word to stop.
//!
//! Somebody waits for the end of both: whoever swaps schedulers has none but
//! Linux's own in between. So neither is polled for. A thread sleeps in each,
//! and what it hears ends the main thread's wait at once.
//!
//! ```text
//!   standard input ── a line ─► attach      SIGINT, SIGTERM ─► stop
//!                  └─ its end ─► stop: whoever would give the word is gone
//! ```

use std::io::{BufRead, BufReader, Read};
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

/// The word to attach.
pub(crate) struct Word(Receiver<()>);

impl Word {
    /// Given by a line on standard input.
    pub(crate) fn on_stdin() -> Word {
        Word::on(std::io::stdin())
    }

    fn on(input: impl Read + Send + 'static) -> Word {
        let (tell, told) = bounded(1);
        std::thread::spawn(move || {
            let read = BufReader::new(input).read_line(&mut String::new());
            if read.is_ok_and(|length| length > 0) {
                let _ = tell.send(());
            }
        });
        Word(told)
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
    fn a_stop_ends_the_wait_for_the_word() {
        let (tell, stop) = never();
        let (_open, told) = bounded(1);
        tell.send(()).unwrap();
        assert!(!Word(told).wait(&stop));
    }
}
