//! The two threads, and what is read at the edges of a window.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::error::{Error, Result};

/// What happened in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    pub(super) switches: u64,
    pub(super) seconds: f64,
}

/// Hands a byte back and forth, and reads something at both edges of the window. The
/// threads stay on the CPUs of their cgroup, which is one.
pub(super) fn run<T>(
    warmup_s: f64,
    seconds: f64,
    mut read: impl FnMut() -> Result<T>,
) -> Result<(Window, T, T)> {
    let failed = |error| Error::file("use a pipe of", Path::new("this process"))(error);
    let (from_peer, to_own) = std::io::pipe().map_err(failed)?;
    let (at_peer, to_peer) = std::io::pipe().map_err(failed)?;
    let peer = thread::spawn(move || echo(at_peer, to_own));
    let mut pair = (from_peer, to_peer);
    exchange(&mut pair, warmup_s).map_err(failed)?;
    let before = read()?;
    let window = exchange(&mut pair, seconds).map_err(failed)?;
    let after = read()?;
    // The peer reads the end of its pipe.
    drop(pair);
    peer.join()
        .expect("the peer does not panic")
        .map_err(failed)?;
    Ok((window, before, after))
}

/// Sends the byte and waits for it, for some time. A round is two switches.
fn exchange(pair: &mut (PipeReader, PipeWriter), seconds: f64) -> std::io::Result<Window> {
    /// Rounds between two looks at the clock.
    const ROUNDS: u64 = 100;
    let (begun, length) = (Instant::now(), Duration::from_secs_f64(seconds));
    let mut byte = [0];
    let mut switches = 0;
    while begun.elapsed() < length {
        for _ in 0..ROUNDS {
            pair.1.write_all(&byte)?;
            pair.0.read_exact(&mut byte)?;
        }
        switches += 2 * ROUNDS;
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Window { switches, seconds })
}

fn echo(mut from: PipeReader, mut to: PipeWriter) -> std::io::Result<()> {
    let mut byte = [0];
    while from.read(&mut byte)? > 0 {
        to.write_all(&byte)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back_and_both_edges_are_read() {
        let mut reads = 0;
        let (window, before, after) = run(0.0, 0.05, || {
            reads += 1;
            Ok(reads)
        })
        .unwrap();
        assert!(window.switches >= 200 && window.seconds >= 0.05);
        assert_eq!((before, after), (1, 2));
    }
}
