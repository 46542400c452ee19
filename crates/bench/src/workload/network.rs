//! A network between a client and its server, as far as time goes.
//!
//! The paper's clients are on a second machine; ours are beside the server, on
//! CPUs of their own. What is missing is the time that a request and its answer
//! are under way, in which the server's process sleeps. [`Distant`] adds it, as
//! one delay per round trip: the first bytes that arrive after something was
//! sent are handed on late.
//!
//! The delay blocks the thread, which is right only where a thread serves one
//! connection (see [`Session`](crate::workload::postgres::Session)); a runtime's timers
//! are too coarse for tens of microseconds. Bandwidth and the CPU time of a
//! network card's interrupts are not modelled.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection over which a round trip takes longer.
pub(crate) struct Distant<S> {
    stream: S,
    round_trip: Duration,
    /// Something was sent, and nothing has been received since.
    asked: bool,
}

impl<S> Distant<S> {
    pub(crate) fn new(stream: S, round_trip: Duration) -> Self {
        Distant {
            stream,
            round_trip,
            asked: false,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Distant<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if std::mem::take(&mut self.asked) && !self.round_trip.is_zero() {
            std::thread::sleep(self.round_trip);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Distant<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.asked = true;
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_round_trip_is_late_once_and_whole() {
        let round_trip = Duration::from_millis(20);
        crate::workload::postgres::runtime()
            .unwrap()
            .block_on(async {
                let (near, mut far) = tokio::io::duplex(64);
                let mut near = Distant::new(near, round_trip);
                near.write_all(b"ask").await.unwrap();
                far.write_all(b"answer").await.unwrap();
                let started = Instant::now();
                let mut answer = [0; 6];
                near.read_exact(&mut answer[..3]).await.unwrap();
                let first = started.elapsed();
                near.read_exact(&mut answer[3..]).await.unwrap();
                assert_eq!(&answer, b"answer");
                assert!(first >= round_trip, "{first:?}");
                assert!(started.elapsed() - first < round_trip);
            });
    }
}
