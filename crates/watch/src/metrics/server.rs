//! Serves the metrics over as much of HTTP as a scraper needs.
//!
//! One thread serves all clients and never waits for a single one:
//!
//! ```text
//!   accept ──► asking ──request is whole──► answering ──all is sent──► closed
//!                │                              │                        ▲
//!                └── PATIENCE is over, or more than CLIENTS_MAX are there┘
//! ```
//!
//! The time limit is for a connection as a whole, so a client that reads or writes slowly
//! gets no more time. With too many clients the oldest connection is closed: a normal
//! client is done long before. A request other than `GET /metrics` gets an error that
//! says so.
//!
//! Known weakness: all clients wait while UFS takes a sample: 0.2 s, at most 2 s.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{CONTENT_TYPE, exposition};
use crate::source::Source;

/// For one request and its whole answer; as long as Prometheus waits by default.
const PATIENCE: Duration = Duration::from_secs(10);
/// Clients at a time.
const CLIENTS_MAX: usize = 64;
/// Longer requests are refused.
const REQUEST_MAX: usize = 8192;

/// Answers the clients that connect to `listener`, until it fails or `is_over` says so,
/// which is asked whenever a client has moved. A failed connection ends that one alone.
/// The listener does not block from then on.
///
/// # Errors
/// If the listener takes no more connections.
pub fn serve(
    listener: &TcpListener,
    source: &mut dyn Source,
    is_over: &dyn Fn() -> bool,
) -> io::Result<()> {
    serve_within(PATIENCE, listener, source, is_over)
}

fn serve_within(
    patience: Duration,
    listener: &TcpListener,
    source: &mut dyn Source,
    is_over: &dyn Fn() -> bool,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    // The oldest first.
    let mut clients = VecDeque::new();
    while !is_over() {
        wait(listener, &clients)?;
        // No more at a time, so that new connections do not delay the accepted ones.
        for _ in 0..CLIENTS_MAX {
            match listener.accept() {
                Ok((stream, _)) => {
                    if clients.len() == CLIENTS_MAX {
                        clients.pop_front();
                    }
                    // A client that is gone already gets no answer.
                    clients.extend(Client::new(stream, patience).ok());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        clients.retain_mut(|client| client.goes_on(source));
    }
    Ok(())
}

/// The client went away, or a signal came.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    )
}

/// Waits until a client connects, one can go on, or one has had its time.
fn wait(listener: &TcpListener, clients: &VecDeque<Client>) -> io::Result<()> {
    let mut watched = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    watched.extend(clients.iter().map(|client| {
        let awaited = match client.talk {
            Talk::Asking(_) => PollFlags::POLLIN,
            Talk::Answering { .. } => PollFlags::POLLOUT,
        };
        PollFd::new(client.stream.as_fd(), awaited)
    }));
    let left = |client: &Client| client.until.saturating_duration_since(Instant::now());
    let limit = clients
        .iter()
        .map(left)
        .min()
        .map_or(PollTimeout::NONE, |left| {
            // Rounded up, so that it is over then.
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
    match poll(&mut watched, limit) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A client that has connected.
struct Client {
    stream: TcpStream,
    /// When it is hung up on.
    until: Instant,
    talk: Talk,
}

enum Talk {
    /// What has come of the request.
    Asking(Vec<u8>),
    Answering {
        answer: Vec<u8>,
        sent: usize,
    },
}

impl Client {
    fn new(stream: TcpStream, patience: Duration) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Client {
            stream,
            until: Instant::now() + patience,
            talk: Talk::Asking(Vec::new()),
        })
    }

    /// Takes and gives what can be taken and given at once; whether there is more.
    fn goes_on(&mut self, source: &mut dyn Source) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        loop {
            match self.step(source) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    fn step(&mut self, source: &mut dyn Source) -> io::Result<bool> {
        match &mut self.talk {
            Talk::Asking(request) => {
                let mut part = [0; 1024];
                let n = self.stream.read(&mut part)?;
                request.extend_from_slice(&part[..n]);
                if n == 0 || is_whole(request) {
                    let answer = answer(&String::from_utf8_lossy(request), source);
                    self.talk = Talk::Answering {
                        answer: answer.into_bytes(),
                        sent: 0,
                    };
                }
                Ok(true)
            }
            Talk::Answering { answer, sent } => {
                *sent += self.stream.write(&answer[*sent..])?;
                Ok(*sent < answer.len())
            }
        }
    }
}

/// Whether the empty line is there that ends a request without a body.
fn is_whole(request: &[u8]) -> bool {
    request.len() >= REQUEST_MAX || request.windows(4).any(|end| end == b"\r\n\r\n")
}

fn answer(request: &str, source: &mut dyn Source) -> String {
    let mut words = request.lines().next().unwrap_or_default().split(' ');
    let method = words.next().unwrap_or_default();
    // Parameters select nothing here.
    let path = words.next().unwrap_or_default().split('?').next();
    let (status, kind, body) = match (method, path) {
        ("GET" | "HEAD", Some("/metrics")) => {
            let sample = source.sample().ok();
            ("200 OK", CONTENT_TYPE, exposition(sample.as_ref()))
        }
        ("GET" | "HEAD", _) => (
            "404 Not Found",
            "text/plain",
            "metrics are at /metrics\n".to_owned(),
        ),
        _ => (
            "405 Method Not Allowed\r\nAllow: GET, HEAD",
            "text/plain",
            "only GET and HEAD are answered\n".to_owned(),
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    match method {
        "HEAD" => head,
        _ => head + &body,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;
    use crate::sample::{CgroupSample, Sample};
    use crate::source::SourceError;
    use crate::top::model::tests::sample;

    struct Fixed(Option<Sample>);

    impl Source for Fixed {
        fn sample(&mut self) -> Result<Sample, SourceError> {
            self.0
                .clone()
                .ok_or(SourceError::Absent { path: "X".into() })
        }
    }

    /// What comes of `client` while a server has this sample.
    fn served<T>(
        patience: Duration,
        sample: Option<Sample>,
        client: impl FnOnce(&dyn Fn() -> TcpStream) -> T,
    ) -> T {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let is_over = || is_done.load(Ordering::Relaxed);
                serve_within(patience, &listener, &mut Fixed(sample), &is_over).unwrap();
            });
            let _end = End(&is_done, address);
            client(&|| TcpStream::connect(address).unwrap())
        })
    }

    /// Has the server end, which asks whether to when somebody connects.
    struct End<'a>(&'a AtomicBool, SocketAddr);

    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
            let _ = TcpStream::connect(self.1);
        }
    }

    fn asked(mut stream: TcpStream, request: &str) -> String {
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// What the server answers to each of `requests`.
    fn answers<const N: usize>(sample: Option<Sample>, requests: [&str; N]) -> [String; N] {
        served(PATIENCE, sample, |connect| {
            requests.map(|request| asked(connect(), request))
        })
    }

    const GET: &str = "GET /metrics HTTP/1.1\r\n\r\n";

    /// A sample whose exposition no connection takes in one piece.
    fn large() -> Sample {
        let cgroup = CgroupSample {
            path: "/long".repeat(400),
            ..CgroupSample::default()
        };
        let cgroups = (0..1000).map(|id| (id, cgroup.clone())).collect();
        Sample {
            cgroups,
            ..sample()
        }
    }

    /// Reads a little now and then until `end`, and then what there is; how much.
    fn dawdle(mut stream: TcpStream, end: Instant) -> usize {
        let (mut part, mut read) = ([0; 65536], 0);
        // An error is as good as an end: it was hung up on.
        while let Ok(n @ 1..) = stream.read(&mut part) {
            read += n;
            if Instant::now() < end {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        read
    }

    #[test]
    fn slow_client_delays_no_other() {
        served(PATIENCE, Some(large()), |connect| {
            let mut slow = connect();
            slow.write_all(GET.as_bytes()).unwrap();
            // Its answer has begun.
            slow.read_exact(&mut [0; 1]).unwrap();
            let begun = Instant::now();
            let slow = std::thread::spawn(move || dawdle(slow, begun + PATIENCE));
            let answer = asked(connect(), GET);
            assert!(answer.ends_with("# EOF\n"));
            let took = begun.elapsed();
            assert!(!slow.is_finished(), "it was not slow");
            assert!(took < PATIENCE / 2, "{took:?}");
        });
    }

    #[test]
    fn an_answer_that_is_read_slowly_ends_when_its_time_is_over() {
        let patience = Duration::from_millis(500);
        served(patience, Some(large()), |connect| {
            let mut slow = connect();
            slow.write_all(GET.as_bytes()).unwrap();
            let size = announced(&mut slow);
            assert!(
                dawdle(slow, Instant::now() + 4 * patience) < size,
                "all of it"
            );
        });
    }

    /// The length that an answer says it has.
    fn announced(stream: &mut TcpStream) -> usize {
        let mut headers = String::new();
        while !headers.ends_with("\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            headers.push(char::from(byte[0]));
        }
        let length = headers.split("Content-Length: ").nth(1).unwrap();
        length.split("\r\n").next().unwrap().parse().unwrap()
    }

    #[test]
    fn silent_clients_are_closed_oldest_first() {
        served(Duration::from_secs(60), Some(sample()), |connect| {
            let mut silent: Vec<TcpStream> = (0..2 * CLIENTS_MAX).map(|_| connect()).collect();
            assert!(asked(connect(), GET).ends_with("# EOF\n"));
            // Hung up on long before its time is over.
            silent[0].set_read_timeout(Some(PATIENCE)).unwrap();
            assert!(matches!(silent[0].read(&mut [0; 1]), Ok(0)));
        });
    }

    #[test]
    fn a_scraper_gets_the_exposition_and_others_are_told() {
        let [get, query, head, root, post] = answers(
            Some(sample()),
            [
                "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                "GET /metrics?a=b HTTP/1.1\r\n\r\n",
                "HEAD /metrics HTTP/1.1\r\n\r\n",
                "GET / HTTP/1.1\r\n\r\n",
                "POST /metrics HTTP/1.1\r\n\r\n",
            ],
        );
        let (headers, body) = get.split_once("\r\n\r\n").unwrap();
        assert!(headers.starts_with("HTTP/1.1 200 OK\r\n"), "{headers}");
        assert!(headers.contains(CONTENT_TYPE), "{headers}");
        assert!(headers.contains(&format!("Content-Length: {}\r\n", body.len())));
        assert_eq!(body, exposition(Some(&sample())));
        assert_eq!(query, get);
        assert_eq!(head, format!("{headers}\r\n\r\n"));
        assert!(root.starts_with("HTTP/1.1 404 ") && root.contains("/metrics\n"));
        assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("Allow: GET"));
    }

    #[test]
    fn without_ufs_a_scrape_succeeds_and_says_so() {
        let [get] = answers(None, ["GET /metrics HTTP/1.1\r\n\r\n"]);
        assert!(get.ends_with("giveway_up 0\n# EOF\n"), "{get}");
    }

    #[test]
    fn silent_connection_does_not_end_the_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(TcpStream::connect(address).unwrap());
        let asked = AtomicU32::new(0);
        let is_over = || asked.fetch_add(1, Ordering::Relaxed) == 1;
        serve(&listener, &mut Fixed(None), &is_over).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
