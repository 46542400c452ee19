//! Messages on the standard error.
//!
//! Written with one system call and a buffer on the stack: the standard
//! library's `eprintln` keeps per-thread state whose registration allocates
//! with the program's `malloc`.

use std::fmt::{self, Write};

/// Longest message, in bytes; a longer one is cut.
const LENGTH_MAX: usize = 1024;

/// Text on the stack, cut at its end.
struct Line {
    text: [u8; LENGTH_MAX],
    length: usize,
}

impl Line {
    fn new() -> Line {
        Line {
            text: [0; LENGTH_MAX],
            length: 0,
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let room = &mut self.text[self.length..LENGTH_MAX - 1];
        let taken = piece.len().min(room.len());
        room[..taken].copy_from_slice(&piece.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}

/// Writes one line, with the library's name before it.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    let mut line = Line::new();
    // A cut message is better than none, and `write_str` never fails.
    let _never = write!(line, "giveway-cfl: {text}");
    line.text[line.length] = b'\n';
    // SAFETY: the buffer holds `length + 1` bytes. There is nobody to tell if
    // the standard error is closed.
    unsafe { libc::write(2, line.text.as_ptr().cast(), line.length + 1) };
}
