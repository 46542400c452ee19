//! Connections before anybody has logged in: how many, and for how long.
//!
//! A connection takes a file descriptor, and whoever can reach the port can make some. So
//! there are fewer than descriptors, half of them for one peer at most, and one that does
//! not begin to speak HTTP/2 is closed. Afterwards the transport asks whether the client is
//! still there.
//!
//! ```text
//!   accept ──▶ counted by peer ──▶ first bytes of HTTP/2 ──▶ transport
//!                  │ too many          │ not in time
//!                  ▼                   ▼
//!                closed              closed
//! ```

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::handle_store::Peer;

/// What a client sends first: "PRI * HTTP/2.0" and two empty lines.
const PREFACE_BYTES: usize = 24;
/// How often a connection is looked at that has sent a part of that.
const LOOK: Duration = Duration::from_millis(20);
/// How long to wait if the system has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// How many connections each peer has.
#[derive(Debug)]
struct Counts {
    max: usize,
    by_peer: Mutex<HashMap<Peer, usize>>,
}

impl Counts {
    /// A place for one more of this peer, if there is one.
    fn place(self: &Arc<Self>, peer: Peer) -> Option<Place> {
        let mut by_peer = crate::lock(&self.by_peer);
        let all: usize = by_peer.values().sum();
        let own = by_peer.get(&peer).copied().unwrap_or_default();
        if all >= self.max || own >= self.max / 2 {
            return None;
        }
        by_peer.insert(peer, own + 1);
        Some(Place {
            counts: Arc::clone(self),
            peer,
        })
    }
}

/// A connection that is counted.
#[derive(Debug)]
struct Place {
    counts: Arc<Counts>,
    peer: Peer,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_peer = crate::lock(&self.counts.by_peer);
        match by_peer.get_mut(&self.peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                by_peer.remove(&self.peer);
            }
        }
    }
}

/// The connections of a listener, `max` at a time, of clients that begin to speak within
/// `patience`.
pub(super) fn connections(
    listener: TcpListener,
    max: usize,
    patience: Duration,
) -> impl Stream<Item = io::Result<Connection>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let counts = Arc::new(Counts {
            max,
            by_peer: Mutex::default(),
        });
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => return,
            };
            let Ok((stream, address)) = accepted else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let Some(place) = counts.place(Peer::new(address.ip())) else {
                continue;
            };
            let sender = sender.clone();
            tokio::spawn(async move {
                if let Ok(true) = tokio::time::timeout(patience, speaks(&stream)).await {
                    // A small answer does not wait for a larger one.
                    let _ = stream.set_nodelay(true);
                    let connection = Connection {
                        stream,
                        _place: place,
                    };
                    let _ = sender.send(Ok(connection)).await;
                }
            });
        }
    });
    unfold(receiver, async |mut receiver| {
        let next = receiver.recv().await?;
        Some((next, receiver))
    })
}

/// Waits until a client has sent what it sends first; false if it has gone.
async fn speaks(stream: &TcpStream) -> bool {
    let mut bytes = [0; PREFACE_BYTES];
    loop {
        match stream.peek(&mut bytes).await {
            Ok(PREFACE_BYTES) => return true,
            Ok(0) | Err(_) => return false,
            Ok(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// A connection that is counted as long as it is there.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    _place: Place,
}

impl Connection {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_half_of_the_places_and_gives_them_back() {
        let counts = Arc::new(Counts {
            max: 6,
            by_peer: Mutex::default(),
        });
        let peer = |last: u8| Peer::new([10, 0, 0, last].into());
        let place = |last| counts.place(peer(last));
        let mut ones: Vec<Place> = (0..3).map(|_| place(1).unwrap()).collect();
        assert!(place(1).is_none(), "half of them");
        let twos: Vec<Place> = (0..3).map(|_| place(2).unwrap()).collect();
        assert!(place(3).is_none(), "all of them");
        ones.pop();
        let three = place(3).unwrap();
        drop((ones, twos, three));
        assert!(crate::lock(&counts.by_peer).is_empty());
    }
}
