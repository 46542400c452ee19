//! Serves the metrics over HTTP.
//!
//! ```text
//!   clients ──► one thread: hyper, a task for each ──asks──► sampler, a thread
//!                 ▲                                              │
//!                 └──────────────── the latest text ◄────────────┘
//! ```
//!
//! HTTP is hyper's, which is kept, is fuzzed by others, and is in this program's lock file
//! for gRPC in any case; it takes less code here than a parser and a poll loop of our own
//! did. What it leaves to its caller is here:
//!
//! - A connection as a whole has `PATIENCE`, so a client that reads or writes slowly
//!   gets no more time.
//! - Above `CLIENTS_MAX` clients the oldest that has not asked yet is hung up on, or, if
//!   all have, the oldest. A normal client asks at once and is done long before.
//! - A sample takes UFS 0.2 s, and at most some seconds if it does not answer. Nobody
//!   waits for the sample of another: a text that is younger than `FRESH` is for all,
//!   and so is the next one for all who ask meanwhile.
//!
//! Known weakness: as many clients as there can be, each of which asks and then does not
//! read, can have an honest one hung up on.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE as KIND, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::listed::Listed;
use super::{CONTENT_TYPE, exposition};
use crate::source::Source;

/// For one request and its whole answer; as long as Prometheus waits by default.
const PATIENCE: Duration = Duration::from_secs(10);
/// Clients at a time. Each takes a descriptor, of which a service has 1024.
const CLIENTS_MAX: usize = 256;
/// Longer requests are refused; the least that hyper takes.
const REQUEST_MAX: usize = 8192;
/// How old a text may be: far less than the time between two scrapes.
const FRESH: Duration = Duration::from_millis(500);
/// How long no connection is taken after one could not be.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers the clients that connect to `listener`. A failed connection ends that one
/// alone.
///
/// # Errors
/// If the listener cannot be used.
pub fn serve(listener: net::TcpListener, source: impl Source + Send + 'static) -> io::Result<()> {
    serve_until(std::future::pending(), PATIENCE, listener, source)
}

/// Until `end` is over.
fn serve_until(
    end: impl Future<Output = ()>,
    patience: Duration,
    listener: net::TcpListener,
    source: impl Source + Send + 'static,
) -> io::Result<()> {
    let latest = Latest::of(source);
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        let mut end = pin!(end);
        let mut clients = Clients::default();
        loop {
            tokio::select! {
                () = &mut end => return Ok(()),
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => clients.admit(stream, &latest, patience),
                    // It went away already; or there are no descriptors left.
                    Err(_) => tokio::time::sleep(PAUSE).await,
                },
            }
        }
    })
}

/// Those that are connected, the oldest first.
#[derive(Default)]
struct Clients(VecDeque<Client>);

struct Client {
    task: AbortHandle,
    has_asked: Arc<AtomicBool>,
}

impl Clients {
    /// Serves one more, for so long.
    fn admit(&mut self, stream: TcpStream, latest: &Latest, patience: Duration) {
        self.0.retain(|client| !client.task.is_finished());
        if self.0.len() >= CLIENTS_MAX {
            let is_silent = |client: &Client| !client.has_asked.load(Ordering::Relaxed);
            let oldest = self.0.iter().position(is_silent).unwrap_or(0);
            if let Some(client) = self.0.remove(oldest) {
                client.task.abort();
            }
        }
        let has_asked = Arc::new(AtomicBool::new(false));
        let (asked, latest) = (Arc::clone(&has_asked), latest.clone());
        let task = tokio::spawn(async move {
            let service = service_fn(|request| {
                asked.store(true, Ordering::Relaxed);
                answer(request, latest.clone())
            });
            let connection = http1::Builder::new()
                .keep_alive(false)
                .max_buf_size(REQUEST_MAX)
                .serve_connection(TokioIo::new(stream), service);
            // What became of it is the client's affair.
            let _ = tokio::time::timeout(patience, connection).await;
        });
        self.0.push_back(Client {
            task: task.abort_handle(),
            has_asked,
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    latest: Latest,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    // Parameters select nothing here.
    let (status, kind, body) = match request.uri().path() {
        _ if !is_read => (
            StatusCode::METHOD_NOT_ALLOWED,
            "text/plain",
            Bytes::from_static(b"only GET and HEAD are answered\n"),
        ),
        "/metrics" => (StatusCode::OK, CONTENT_TYPE, latest.text().await),
        _ => (
            StatusCode::NOT_FOUND,
            "text/plain",
            Bytes::from_static(b"metrics are at /metrics\n"),
        ),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(KIND, HeaderValue::from_static(kind));
    if !is_read {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    Ok(response)
}

/// What was last sampled.
#[derive(Clone)]
struct Sampled {
    /// When it came; none yet.
    at: Option<Instant>,
    text: Bytes,
}

/// The latest text, and a way to have a newer one made.
#[derive(Clone)]
struct Latest {
    /// One order at most waits: it is for all who gave it.
    order: SyncSender<()>,
    sampled: watch::Receiver<Sampled>,
}

impl Latest {
    /// Of what this source gives, in a thread that ends with the last of those who ask.
    fn of(mut source: impl Source + Send + 'static) -> Latest {
        let (order, orders): (_, Receiver<()>) = sync_channel(1);
        let none = Sampled {
            at: None,
            text: Bytes::new(),
        };
        let (tell, sampled) = watch::channel(none);
        thread::spawn(move || {
            let began = Instant::now();
            let mut listed = Listed::default();
            while orders.recv().is_ok() {
                let sample = source.sample().ok();
                let at = Instant::now();
                let sample = sample.map(|sample| listed.thinned(sample, at - began));
                let text = Bytes::from(exposition(sample.as_ref()));
                tell.send_replace(Sampled { at: Some(at), text });
            }
        });
        Latest { order, sampled }
    }

    /// A text that was fresh when it was asked for, or came after that.
    async fn text(mut self) -> Bytes {
        let asked = Instant::now();
        loop {
            {
                let sampled = self.sampled.borrow_and_update();
                if let Some(at) = sampled.at
                    && at + FRESH >= asked
                {
                    return sampled.text.clone();
                }
            }
            // Full: the order that waits there is ours, too.
            let _ = self.order.try_send(());
            if self.sampled.changed().await.is_err() {
                // The sampler has died: as if there was no UFS.
                return Bytes::from(exposition(None));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Mutex;

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
        served_from(patience, Fixed(sample), client)
    }

    /// The same with a source of its own.
    fn served_from<T>(
        patience: Duration,
        source: impl Source + Send + 'static,
        client: impl FnOnce(&dyn Fn() -> TcpStream) -> T,
    ) -> T {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (end, over) = tokio::sync::oneshot::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(|| {
                let end = async { drop(over.await) };
                serve_until(end, patience, listener, source).unwrap();
            });
            // Dropped in any case, which is the end.
            let _end = end;
            client(&|| TcpStream::connect(address).unwrap())
        })
    }

    fn asked(mut stream: TcpStream, request: &str) -> String {
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// What the server answers to each of `requests`, without the date: they are not all
    /// of one second.
    fn answers<const N: usize>(sample: Option<Sample>, requests: [&str; N]) -> [String; N] {
        let dateless = |answer: String| {
            let lines = answer.split_inclusive("\r\n");
            lines.filter(|line| !line.starts_with("date: ")).collect()
        };
        served(PATIENCE, sample, |connect| {
            requests.map(|request| dateless(asked(connect(), request)))
        })
    }

    const GET: &str = "GET /metrics HTTP/1.1\r\n\r\n";

    /// A sample whose exposition no connection takes in one piece.
    fn large() -> Sample {
        of_paths(400)
    }

    /// One with as many cgroups as there can be, and more, with paths of so many parts.
    fn of_paths(parts: usize) -> Sample {
        let cgroup = CgroupSample {
            path: "/long".repeat(parts),
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
                thread::sleep(Duration::from_millis(50));
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
            let slow = thread::spawn(move || dawdle(slow, begun + PATIENCE));
            let answer = asked(connect(), GET);
            assert!(answer.ends_with("# EOF\n"));
            let took = begun.elapsed();
            assert!(!slow.is_finished(), "it was not slow");
            assert!(took < PATIENCE / 2, "{took:?}");
        });
    }

    #[test]
    fn an_answer_that_is_read_slowly_ends_when_its_time_is_over() {
        // Long enough to make the answer on a busy machine.
        let patience = Duration::from_millis(1500);
        served(patience, Some(large()), |connect| {
            let mut slow = connect();
            slow.write_all(GET.as_bytes()).unwrap();
            let size = announced(&mut slow);
            assert!(
                dawdle(slow, Instant::now() + 2 * patience) < size,
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
        let length = headers.split("content-length: ").nth(1).unwrap();
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
        let length = format!("content-length: {}", body.len());
        assert!(headers.lines().any(|line| line == length), "{headers}");
        assert_eq!(body, exposition(Some(&sample())));
        assert_eq!(query, get);
        assert_eq!(head, format!("{headers}\r\n\r\n"));
        assert!(root.starts_with("HTTP/1.1 404 ") && root.contains("/metrics\n"));
        assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("allow: GET"));
    }

    #[test]
    fn without_ufs_a_scrape_succeeds_and_says_so() {
        let [get] = answers(None, ["GET /metrics HTTP/1.1\r\n\r\n"]);
        assert!(get.ends_with("giveway_up 0\n# EOF\n"), "{get}");
    }

    #[test]
    fn connection_that_ends_at_once_does_not_end_the_server() {
        served(PATIENCE, Some(sample()), |connect| {
            for _ in 0..10 {
                drop(connect());
            }
            assert!(asked(connect(), GET).ends_with("# EOF\n"));
        });
    }

    /// A source that takes as long as UFS does, and notes how often it was asked.
    struct Slow(Sample, Arc<Mutex<usize>>);

    /// UFS looks for requests so often.
    const SAMPLE: Duration = Duration::from_millis(200);

    impl Source for Slow {
        fn sample(&mut self) -> Result<Sample, SourceError> {
            thread::sleep(SAMPLE);
            *self.1.lock().unwrap() += 1;
            Ok(self.0.clone())
        }
    }

    #[test]
    fn a_hundred_slow_clients_delay_a_scrape_by_less_than_a_tenth_of_a_second() {
        const CLIENTS: usize = 100;
        const DELAY_MAX: Duration = Duration::from_millis(100);
        let samples = Arc::new(Mutex::new(0));
        // Of several, and after a pause in which the last text grows old.
        let scrape = |connect: &dyn Fn() -> TcpStream| {
            let once = || {
                thread::sleep(2 * FRESH);
                let begun = Instant::now();
                let answer = asked(connect(), GET);
                assert!(answer.ends_with("# EOF\n"));
                begun.elapsed()
            };
            let mut took: Vec<Duration> = (0..5).map(|_| once()).collect();
            took.sort();
            took
        };
        served_from(
            PATIENCE,
            Slow(of_paths(20), Arc::clone(&samples)),
            |connect| {
                let alone = scrape(connect)[4];
                let is_over = AtomicBool::new(false);
                let (took, left) = thread::scope(|scope| {
                    let mut slow: Vec<TcpStream> = (0..CLIENTS).map(|_| connect()).collect();
                    // A third says nothing; one asks, a byte at a time; one has asked and
                    // does not read.
                    for stream in slow.iter_mut().skip(2).step_by(3) {
                        stream.write_all(GET.as_bytes()).unwrap();
                    }
                    let slow = scope.spawn(|| {
                        for byte in GET.bytes().cycle() {
                            if is_over.load(Ordering::Relaxed) {
                                break;
                            }
                            for stream in slow.iter_mut().skip(1).step_by(3) {
                                // Hung up on, when its time is over.
                                let _ = stream.write_all(&[byte]);
                            }
                            thread::sleep(PATIENCE / 10);
                        }
                        slow
                    });
                    let took = scrape(connect);
                    is_over.store(true, Ordering::Relaxed);
                    (took, slow.join().unwrap().len())
                });
                assert_eq!(left, CLIENTS);
                let slowest = took[4];
                eprintln!("alone {alone:?}, beside {CLIENTS} slow clients {took:?}");
                assert!(
                    slowest < alone + DELAY_MAX,
                    "{took:?} beside {CLIENTS} slow clients, {alone:?} alone"
                );
            },
        );
        let samples = *samples.lock().unwrap();
        // One each, and a few for all who do not read.
        assert!((10..20).contains(&samples), "{samples}");
    }

    #[test]
    fn those_who_ask_at_the_same_time_have_one_sample() {
        let samples = Arc::new(Mutex::new(0));
        served_from(PATIENCE, Slow(sample(), Arc::clone(&samples)), |connect| {
            let streams: Vec<TcpStream> = (0..50).map(|_| connect()).collect();
            thread::scope(|scope| {
                for stream in streams {
                    scope.spawn(|| assert!(asked(stream, GET).ends_with("# EOF\n")));
                }
            });
        });
        // That of those who came first, and at most one for the others.
        let samples = *samples.lock().unwrap();
        assert!((1..=2).contains(&samples), "{samples}");
    }

    #[test]
    fn a_text_is_for_all_while_it_is_fresh_and_no_longer() {
        let samples = Arc::new(Mutex::new(0));
        let taken = || *samples.lock().unwrap();
        served_from(PATIENCE, Slow(sample(), Arc::clone(&samples)), |connect| {
            asked(connect(), GET);
            asked(connect(), GET);
            assert_eq!(taken(), 1);
            thread::sleep(FRESH);
            asked(connect(), GET);
            assert_eq!(taken(), 2);
        });
    }
}
