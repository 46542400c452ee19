//! Serves the exposition over HTTP: as much of it as a scraper needs.
//!
//! One connection at a time, one request each, two seconds for it: a scraper
//! that stalls delays the next by that much and cannot do more. A request that is
//! not `GET /metrics` gets an answer that says so.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{CONTENT_TYPE, exposition};
use crate::source::Source;

/// For one request and its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longer requests are refused.
const REQUEST_MAX: usize = 8192;

/// Answers whoever connects to `listener`, until it fails or `is_over` says so,
/// which is asked between connections. A failed connection ends that one alone.
///
/// # Errors
/// If the listener takes no more connections.
pub fn serve(
    listener: &TcpListener,
    source: &mut dyn Source,
    is_over: &dyn Fn() -> bool,
) -> io::Result<()> {
    while !is_over() {
        let (stream, _) = match listener.accept() {
            Ok(accepted) => accepted,
            // The client went away, or a signal came.
            Err(error) if is_passing(&error) => continue,
            Err(error) => return Err(error),
        };
        // Whom an answer does not reach has its own words for it.
        let _ = converse(stream, source);
    }
    Ok(())
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    )
}

fn converse(mut stream: TcpStream, source: &mut dyn Source) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = request(&mut stream)?;
    let answer = answer(&request, source);
    stream.write_all(answer.as_bytes())
}

/// All up to the empty line that ends a request without a body.
fn request(stream: &mut TcpStream) -> io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") && bytes.len() < REQUEST_MAX {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => break,
            n => bytes.extend_from_slice(&part[..n]),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
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
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::sample::Sample;
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

    /// What the server answers to each of `requests`.
    fn answers<const N: usize>(sample: Option<Sample>, requests: [&str; N]) -> [String; N] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let is_over = || served.fetch_add(1, Ordering::Relaxed) == N as u32;
                serve(&listener, &mut Fixed(sample), &is_over).unwrap();
            });
            requests.map(|request| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(request.as_bytes()).unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                text
            })
        })
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
    fn a_connection_that_says_nothing_does_not_end_the_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(TcpStream::connect(address).unwrap());
        let asked = AtomicU32::new(0);
        let is_over = || asked.fetch_add(1, Ordering::Relaxed) == 1;
        serve(&listener, &mut Fixed(None), &is_over).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
