//! One gRPC call over a Unix socket: a question, and one answer or the reason why
//! there is none.
//!
//! PROTOCOL (grpc/grpc: doc/PROTOCOL-HTTP2.md), of which this is the part that a call
//! with one message each way takes. HTTP/2 is the crate `h2`'s.
//!
//! ```text
//!   we                                        the server
//!   connect, preface, SETTINGS         ──►
//!   HEADERS  POST /SERVICE/METHOD      ──►
//!            te: trailers, grpc-timeout
//!   DATA     frame, END_STREAM         ──►
//!                                      ◄──    HEADERS  :status 200
//!                                      ◄──    DATA     frame, in pieces of any size
//!                                      ◄──    HEADERS  grpc-status 0, END_STREAM
//!                                             or, without an answer, all at once:
//!                                      ◄──    HEADERS  :status 200, grpc-status 12,
//!                                                      grpc-message, END_STREAM
//!
//!   frame:  0 (not compressed) │ length, 4 bytes, big-endian │ message
//! ```
//!
//! EACH CALL HAS A CONNECTION OF ITS OWN. So a runtime that was restarted between two
//! calls is found again, nothing has to be polled between them, and no answer can
//! belong to an earlier call. It costs a connect and two small frames every few seconds.
//!
//! LIMITS. One deadline covers connecting and the whole answer, so a server that sends
//! a byte now and then does not block us. The answer's length is checked as soon as its
//! five bytes are there, before the message is read.
//!
//! Known weakness: no TLS, no TCP, no compression, no details beyond `grpc-message`. A
//! runtime's socket has none of the first three.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, Method, Request, StatusCode, Version, header};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

/// What stands before each message: the flag and the length.
const PREFIX: usize = 5;
/// For headers and trailers, in bytes; `grpc-message` is a sentence.
const HEADERS_MAX: u32 = 64 << 10;
/// The numbers of statuses that mean something here, and the names of all.
const OK: u32 = 0;
const DEADLINE_EXCEEDED: u32 = 4;
const UNIMPLEMENTED: u32 = 12;
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Why a call has no answer, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// No connection.
    #[error(
        "cannot connect to {}: {error}; it must be running, this must be its socket, and \
         connecting takes root", socket.display()
    )]
    NotThere {
        /// Where it was looked for.
        socket: PathBuf,
        /// What connect(2) says.
        error: io::Error,
    },
    /// Something else than a container runtime listens there.
    #[error("what listens at {} does not speak gRPC: {why}", socket.display())]
    NotGrpc {
        /// Where it was asked.
        socket: PathBuf,
        /// What it did instead.
        why: String,
    },
    /// The connection was there, and ended.
    #[error(
        "the connection ended before the answer did: {0}; if this stays, its log says why it \
         ends"
    )]
    Lost(String),
    /// Time is over.
    #[error("it has not answered within {0:?}; if this stays, it hangs or is overloaded")]
    Slow(Duration),
    /// It serves other versions of the interface, or none.
    #[error(
        "it does not serve version 1 of the Container Runtime Interface ({0}); containerd does \
         from 1.6 on, unless its configuration lists cri in disabled_plugins"
    )]
    Unimplemented(String),
    /// It says that it cannot.
    #[error("it answers {}: {message}", name(*.code))]
    Status {
        /// The number of the status.
        code: u32,
        /// The server's sentence about it.
        message: String,
    },
    /// Longer than an answer may be.
    #[error("its answer has {length} bytes, more than the {max} that are read")]
    TooLarge {
        /// The answer's length as it says it.
        length: usize,
        /// What would be read.
        max: usize,
    },
    /// Compressed, though we offered no compression.
    #[error("its answer is compressed, which it was not asked for; report this")]
    Compressed,
    /// Not as the protocol wants it.
    #[error("its answer cannot be read: {0}; report this")]
    Malformed(String),
}

fn name(code: u32) -> String {
    let known = NAMES.get(code as usize).map(|&name| name.to_owned());
    known.unwrap_or_else(|| format!("status {code}"))
}

/// The server's address, and how long to wait and read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) socket: &'a Path,
    /// `/SERVICE/METHOD`.
    pub(crate) path: &'static str,
    /// For connection and answer together.
    pub(crate) patience: Duration,
    /// Bytes that an answer may have.
    pub(crate) answer_max: usize,
}

impl Call<'_> {
    /// The answer to a question, as bytes.
    pub(crate) async fn ask(self, question: &[u8]) -> Result<Bytes, Unanswered> {
        let end = Instant::now() + self.patience;
        match timeout_at(end, self.ask_until(question, end)).await {
            // The server has our deadline, too, and may say so before we notice.
            Ok(Err(Unanswered::Status { code, .. }))
                if code == DEADLINE_EXCEEDED || Instant::now() >= end =>
            {
                Err(Unanswered::Slow(self.patience))
            }
            Ok(answer) => answer,
            Err(_) => Err(Unanswered::Slow(self.patience)),
        }
    }

    async fn ask_until(self, question: &[u8], end: Instant) -> Result<Bytes, Unanswered> {
        let stream = UnixStream::connect(self.socket).await;
        let stream = stream.map_err(|error| Unanswered::NotThere {
            socket: self.socket.to_owned(),
            error,
        })?;
        let (requests, connection) = Builder::new()
            .enable_push(false)
            .max_header_list_size(HEADERS_MAX)
            .handshake(stream)
            .await
            .map_err(|error| self.broken(&error))?;
        // The connection reads and writes for the exchange. When it ends, what it has
        // read by then may still hold the whole answer.
        let mut exchange = pin!(self.exchange(requests, question, end));
        let mut connection = pin!(connection);
        let mut ended = false;
        loop {
            tokio::select! {
                answer = &mut exchange => return answer,
                _ = &mut connection, if !ended => ended = true,
            }
        }
    }

    async fn exchange(
        self,
        requests: SendRequest<Bytes>,
        question: &[u8],
        end: Instant,
    ) -> Result<Bytes, Unanswered> {
        let broken = |error| self.broken(&error);
        let mut requests = requests.ready().await.map_err(broken)?;
        let (answer, mut sending) = requests
            .send_request(self.request(end), false)
            .map_err(broken)?;
        sending.send_data(frame(question), true).map_err(broken)?;
        let (head, mut body) = answer.await.map_err(broken)?.into_parts();

        // An error may be all there is, and its status the whole of it.
        if let Some(status) = Status::of(&head.headers) {
            status?;
            return Err(Unanswered::Malformed("no message".into()));
        }
        self.is_grpc(head.status, &head.headers)?;
        let message = self.read(&mut body).await?;
        let trailers = body.trailers().await.map_err(broken)?;
        let status = trailers.as_ref().and_then(Status::of);
        status.unwrap_or_else(|| Err(Unanswered::Malformed("no status after it".into())))?;
        message.whole()
    }

    /// The request's head.
    fn request(self, end: Instant) -> Request<()> {
        let left = end.saturating_duration_since(Instant::now());
        // Rounded up, so that the server gives up no earlier than we do. Eight digits
        // are allowed: a day and more, in milliseconds.
        let left = left.as_micros().div_ceil(1000).clamp(1, 99_999_999);
        Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(format!("http://localhost{}", self.path))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header("grpc-timeout", format!("{left}m"))
            .header(
                header::USER_AGENT,
                concat!("giveway-pods/", env!("CARGO_PKG_VERSION")),
            )
            .body(())
            .expect("every part of it is written as HTTP wants it")
    }

    /// Whether the head of an answer is one of gRPC.
    fn is_grpc(self, status: StatusCode, headers: &HeaderMap) -> Result<(), Unanswered> {
        let kind = headers.get(header::CONTENT_TYPE);
        let kind = kind.map_or(&b""[..], |kind| kind.as_bytes());
        if status == StatusCode::OK && kind.starts_with(b"application/grpc") {
            return Ok(());
        }
        let kind = String::from_utf8_lossy(kind);
        Err(self.not_grpc(format!("HTTP status {status}, content of type '{kind}'")))
    }

    /// Reads until the server sends no more, within the limit.
    async fn read(self, body: &mut RecvStream) -> Result<Answer, Unanswered> {
        let mut answer = Answer::new(self.answer_max);
        while let Some(piece) = body.data().await {
            let piece = piece.map_err(|error| self.broken(&error))?;
            answer.push(&piece)?;
            // The server may send as much again.
            let released = body.flow_control().release_capacity(piece.len());
            released.map_err(|error| self.broken(&error))?;
        }
        Ok(answer)
    }

    /// What an error of the connection says about the server.
    fn broken(self, error: &h2::Error) -> Unanswered {
        // We broke it off: what came were no frames.
        if error.is_go_away() && error.is_library() {
            return self.not_grpc(error.to_string());
        }
        Unanswered::Lost(error.to_string())
    }

    fn not_grpc(self, why: String) -> Unanswered {
        Unanswered::NotGrpc {
            socket: self.socket.to_owned(),
            why,
        }
    }
}

/// A message with what stands before it.
fn frame(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a question is short");
    [&[0], &length.to_be_bytes()[..], message].concat().into()
}

/// An answer as far as it has been read: its frame, from the flag on.
struct Answer {
    read: Vec<u8>,
    max: usize,
}

impl Answer {
    fn new(max: usize) -> Self {
        Answer {
            read: Vec::new(),
            max,
        }
    }

    /// Takes what came next.
    fn push(&mut self, piece: &[u8]) -> Result<(), Unanswered> {
        self.read.extend_from_slice(piece);
        let Some(length) = self.length()? else {
            return Ok(());
        };
        match self.read.len() > PREFIX + length {
            true => Err(Unanswered::Malformed("more than one message".into())),
            false => Ok(()),
        }
    }

    /// How long the message is, once that has been read.
    fn length(&self) -> Result<Option<usize>, Unanswered> {
        let Some(&[flag, a, b, c, d]) = self.read.first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        match flag {
            0 if length > self.max => Err(Unanswered::TooLarge {
                length,
                max: self.max,
            }),
            0 => Ok(Some(length)),
            1 => Err(Unanswered::Compressed),
            _ => Err(Unanswered::Malformed(format!("flag {flag} before it"))),
        }
    }

    /// The message, if all of it is there.
    fn whole(self) -> Result<Bytes, Unanswered> {
        match self.length()? {
            Some(length) if self.read.len() == PREFIX + length => {
                Ok(Bytes::from(self.read).split_off(PREFIX))
            }
            _ => Err(Unanswered::Malformed("it ends too early".into())),
        }
    }
}

/// How a call ended, by `grpc-status` and `grpc-message`.
struct Status;

impl Status {
    /// None if these headers do not say it.
    fn of(headers: &HeaderMap) -> Option<Result<(), Unanswered>> {
        let code = headers.get("grpc-status")?;
        let Some(code) = code.to_str().ok().and_then(|code| code.parse().ok()) else {
            let what = format!("grpc-status is {code:?}");
            return Some(Err(Unanswered::Malformed(what)));
        };
        let message = headers.get("grpc-message");
        let message = message.map_or_else(String::new, |text| decoded(text.as_bytes()));
        Some(match code {
            OK => Ok(()),
            UNIMPLEMENTED => Err(Unanswered::Unimplemented(message)),
            code => Err(Unanswered::Status { code, message }),
        })
    }
}

/// A text in which `%XX` stands for a byte. What is none is left as it is.
fn decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer that may have 100 bytes and comes in these pieces.
    fn read(pieces: &[&[u8]]) -> Result<Bytes, Unanswered> {
        let mut answer = Answer::new(100);
        for piece in pieces {
            answer.push(piece)?;
        }
        answer.whole()
    }

    #[test]
    fn answer_comes_in_pieces_of_any_size() {
        let framed = frame(b"pods");
        assert_eq!(&framed[..], b"\0\0\0\0\x04pods");
        for cut in 0..=framed.len() {
            let (before, after) = framed.split_at(cut);
            assert_eq!(&read(&[before, after]).unwrap()[..], b"pods", "{cut}");
        }
        assert_eq!(read(&[&frame(b"")]).unwrap().len(), 0);
        assert_eq!(read(&[&frame(&[7; 100])]).unwrap().len(), 100);
    }

    #[test]
    fn length_is_checked_before_the_message_is_there() {
        let error = read(&[b"\0\0\0\0", b"\x65"]).unwrap_err();
        let Unanswered::TooLarge { length, max } = error else {
            panic!("{error}");
        };
        assert_eq!((length, max), (101, 100));
        let error = read(&[b"\0\xff\xff\xff\xff"]).unwrap_err();
        assert!(matches!(error, Unanswered::TooLarge { .. }), "{error}");
    }

    #[test]
    fn answer_that_is_not_one_plain_message_is_refused() {
        let error = read(&[b"\x01\0\0\0\0"]).unwrap_err();
        assert!(matches!(error, Unanswered::Compressed), "{error}");
        for pieces in [
            &[&b""[..]][..],
            &[b"\0\0\0\0"],
            &[b"\0\0\0\0\x04pod"],
            &[b"\0\0\0\0\x04pods", b"\0"],
            &[b"\x02\0\0\0\0"],
        ] {
            let error = read(pieces).unwrap_err();
            assert!(matches!(error, Unanswered::Malformed(_)), "{error}");
        }
    }

    #[test]
    fn messages_of_statuses_are_decoded() {
        for (text, expected) in [
            ("", ""),
            ("no%3A 100 %25", "no: 100 %"),
            ("%C3%BCber", "über"),
            ("50% of %zz %4", "50% of %zz %4"),
            ("%ff", "\u{fffd}"),
        ] {
            assert_eq!(decoded(text.as_bytes()), expected);
        }
    }

    #[test]
    fn statuses_have_names() {
        assert_eq!(name(14), "UNAVAILABLE");
        assert_eq!(name(17), "status 17");
    }
}
