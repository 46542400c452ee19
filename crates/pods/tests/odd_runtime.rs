//! Runtimes that do what none should: say nothing, end in the middle, send something
//! else. Their frames are written out by hand, byte for byte.
//!
//! Each waits for the whole question before it says anything, as a server does.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use giveway_pods::{Error, Runtime, Unanswered};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Long for a machine that is busy, and an error of its own.
const PATIENCE: Duration = Duration::from_secs(20);
/// Where the end of patience is what is waited for.
const SOON: Duration = Duration::from_millis(200);

// Types of frames, and their flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags, 0, 0, 0, stream]].concat();
    [&head[..], payload].concat()
}

/// Headers, none of which is remembered (RFC 7541, section 6.2.2).
fn headers(flags: u8, list: &[(&str, &str)]) -> Vec<u8> {
    let short = |text: &str| u8::try_from(text.len()).ok().filter(|&n| n < 127).unwrap();
    let mut block = Vec::new();
    for (name, value) in list {
        block.extend([0, short(name)]);
        block.extend(name.as_bytes());
        block.push(short(value));
        block.extend(value.as_bytes());
    }
    frame(HEADERS, END_HEADERS | flags, 1, &block)
}

/// The head of an answer, after the settings that come first.
fn head() -> Vec<u8> {
    let list = [(":status", "200"), ("content-type", "application/grpc")];
    [frame(SETTINGS, 0, 0, &[]), headers(0, &list)].concat()
}

/// A message of no pods, or the beginning of one, with its flag and its length.
fn message(flag: u8, length: u32, bytes: &[u8]) -> Vec<u8> {
    let framed = [&[flag], &length.to_be_bytes()[..], bytes].concat();
    frame(DATA, 0, 1, &framed)
}

fn trailers(list: &[(&str, &str)]) -> Vec<u8> {
    headers(END_STREAM, list)
}

/// Reads up to the frame that ends the question.
async fn question(client: &mut UnixStream) {
    let mut preface = [0; PREFACE.len()];
    client.read_exact(&mut preface).await.unwrap();
    assert_eq!(preface, PREFACE);
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        client.read_exact(&mut payload).await.unwrap();
        if head[3] == DATA && head[4] & END_STREAM != 0 {
            return;
        }
    }
}

/// What a runtime does after what it has said.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Hangs,
    Closes,
}

/// A runtime that goes by a script.
struct Odd {
    dir: tempfile::TempDir,
}

impl Odd {
    /// Answers each question with these bytes.
    fn says(bytes: &[u8], then: Then) -> Self {
        Odd::says_in_turn(vec![(bytes.to_owned(), then)])
    }

    /// Answers the first question with the first of these, and so on; the last stays.
    fn says_in_turn(script: Vec<(Vec<u8>, Then)>) -> Self {
        let (odd, listener) = Odd::listening();
        tokio::spawn(async move {
            for turn in 0.. {
                let (mut client, _) = listener.accept().await.unwrap();
                question(&mut client).await;
                let (bytes, then) = &script[turn.min(script.len() - 1)];
                client.write_all(bytes).await.unwrap();
                if *then == Then::Hangs {
                    hang(client).await;
                }
            }
        });
        odd
    }

    fn listening() -> (Self, UnixListener) {
        let odd = Odd {
            dir: tempfile::tempdir().unwrap(),
        };
        let listener = UnixListener::bind(odd.socket()).unwrap();
        (odd, listener)
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("runtime.sock")
    }

    fn runtime(&self) -> Runtime {
        let runtime = Runtime::at(&format!("unix://{}", self.socket().display()));
        runtime.unwrap().with_patience(PATIENCE)
    }

    /// The error of a question.
    async fn unanswered(&self) -> Unanswered {
        unanswered(&self.runtime()).await
    }

    /// The error of a question that is given up soon, and after how long.
    async fn given_up(&self) -> (Unanswered, Duration) {
        let asked = Instant::now();
        let why = unanswered(&self.runtime().with_patience(SOON)).await;
        (why, asked.elapsed())
    }
}

/// Says nothing more, until the client has had enough.
async fn hang(mut client: UnixStream) {
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest).await;
}

async fn unanswered(runtime: &Runtime) -> Unanswered {
    match runtime.pods().await {
        Err(Error::Silent(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// That a question was given up when its time was over.
fn was_slow((why, after): (Unanswered, Duration)) {
    assert!(
        matches!(why, Unanswered::Slow(time) if time == SOON),
        "{why}"
    );
    assert!(after >= SOON && after < PATIENCE, "{after:?}");
}

#[tokio::test]
async fn answer_of_these_frames_is_understood() {
    let parts = [
        head(),
        message(0, 0, &[]),
        trailers(&[("grpc-status", "0")]),
    ];
    let odd = Odd::says(&parts.concat(), Then::Hangs);
    assert_eq!(odd.runtime().pods().await.unwrap(), []);
}

#[tokio::test]
async fn answer_that_is_whole_counts_though_the_connection_ends() {
    let parts = [
        head(),
        message(0, 0, &[]),
        trailers(&[("grpc-status", "0")]),
    ];
    let odd = Odd::says(&parts.concat(), Then::Closes);
    assert_eq!(odd.runtime().pods().await.unwrap(), []);
}

#[tokio::test]
async fn runtime_that_does_not_accept_is_given_up() {
    let (odd, _listener) = Odd::listening();
    was_slow(odd.given_up().await);
}

#[tokio::test]
async fn runtime_that_stops_anywhere_is_given_up() {
    for said in [
        vec![],
        frame(SETTINGS, 0, 0, &[]),
        head(),
        [head(), message(0, 8, b"half")].concat(),
        [head(), message(0, 0, &[])].concat(),
    ] {
        was_slow(Odd::says(&said, Then::Hangs).given_up().await);
    }
}

#[tokio::test]
async fn runtime_that_dribbles_is_given_up() {
    let (odd, listener) = Odd::listening();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        question(&mut client).await;
        let begun = [head(), message(0, 1000, b"a")].concat();
        client.write_all(&begun).await.unwrap();
        while client.write_all(&frame(DATA, 0, 1, b"a")).await.is_ok() {
            sleep(SOON / 20).await;
        }
    });
    was_slow(odd.given_up().await);
}

#[tokio::test]
async fn connection_that_ends_anywhere_is_an_error() {
    for said in [
        vec![],
        frame(SETTINGS, 0, 0, &[]),
        head(),
        [head(), message(0, 8, b"half")].concat(),
        [head(), message(0, 0, &[])].concat(),
    ] {
        let why = Odd::says(&said, Then::Closes).unanswered().await;
        assert!(matches!(why, Unanswered::Lost(_)), "{said:?}: {why}");
    }
}

#[tokio::test]
async fn question_that_is_cut_off_is_an_error() {
    let no_error = [0; 4];
    let refused = [0, 0, 0, 7];
    let last_stream_0 = [0; 4];
    for broken_off in [
        frame(RST_STREAM, 0, 1, &refused),
        frame(RST_STREAM, 0, 1, &no_error),
        frame(GOAWAY, 0, 0, &[last_stream_0, no_error].concat()),
    ] {
        let said = [frame(SETTINGS, 0, 0, &[]), broken_off].concat();
        let why = Odd::says(&said, Then::Hangs).unanswered().await;
        assert!(matches!(why, Unanswered::Lost(_)), "{said:?}: {why}");
    }
}

#[tokio::test]
async fn connection_that_was_lost_is_made_again() {
    let whole = [
        head(),
        message(0, 0, &[]),
        trailers(&[("grpc-status", "0")]),
    ];
    let odd = Odd::says_in_turn(vec![
        (whole.concat(), Then::Closes),
        (head(), Then::Closes),
        (whole.concat(), Then::Hangs),
    ]);
    let runtime = odd.runtime();
    assert_eq!(runtime.pods().await.unwrap(), []);
    let why = unanswered(&runtime).await;
    assert!(matches!(why, Unanswered::Lost(_)), "{why}");
    assert_eq!(runtime.pods().await.unwrap(), []);
}

#[tokio::test]
async fn length_beyond_the_limit_is_refused_at_once() {
    let said = [head(), message(0, (16 << 20) + 1, b"begun")].concat();
    let asked = Instant::now();
    let why = Odd::says(&said, Then::Hangs).unanswered().await;
    assert!(matches!(why, Unanswered::TooLarge { .. }), "{why}");
    assert!(asked.elapsed() < PATIENCE);
    assert!(why.to_string().contains("16777217 bytes"), "{why}");
}

#[tokio::test]
async fn answer_that_is_compressed_is_refused() {
    let parts = [
        head(),
        message(1, 4, b"gzip"),
        trailers(&[("grpc-status", "0")]),
    ];
    let why = Odd::says(&parts.concat(), Then::Hangs).unanswered().await;
    assert!(matches!(why, Unanswered::Compressed), "{why}");
}

#[tokio::test]
async fn status_counts_wherever_it_stands() {
    let status = [("grpc-status", "7"), ("grpc-message", "not%20you")];
    let only = [(":status", "200"), ("content-type", "application/grpc")];
    let only = [&only[..], &status].concat();
    for said in [
        // Alone, after nothing, after the beginning of a message, after a message.
        [frame(SETTINGS, 0, 0, &[]), trailers(&only)].concat(),
        [head(), trailers(&status)].concat(),
        [head(), message(0, 8, b"half"), trailers(&status)].concat(),
        [head(), message(0, 0, &[]), trailers(&status)].concat(),
    ] {
        let why = Odd::says(&said, Then::Hangs).unanswered().await;
        assert_eq!(why.to_string(), "it answers PERMISSION_DENIED: not you");
    }
}

/// The server has the deadline, too; its clock may be ahead of ours.
#[tokio::test]
async fn deadline_that_the_server_notices_is_ours() {
    let said = [head(), trailers(&[("grpc-status", "4")])].concat();
    let why = Odd::says(&said, Then::Hangs).unanswered().await;
    assert!(matches!(why, Unanswered::Slow(PATIENCE)), "{why}");
}

/// Both happen before the client looks: its thread is the one that sleeps.
#[tokio::test]
async fn status_that_comes_too_late_is_no_answer() {
    let (odd, listener) = Odd::listening();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        question(&mut client).await;
        std::thread::sleep(SOON);
        let said = [head(), trailers(&[("grpc-status", "1")])].concat();
        client.write_all(&said).await.unwrap();
        hang(client).await;
    });
    was_slow(odd.given_up().await);
}

#[tokio::test]
async fn end_without_message_or_status_is_an_error() {
    let ok = [("grpc-status", "0")];
    let only = [
        (":status", "200"),
        ("content-type", "application/grpc"),
        ok[0],
    ];
    for (said, expected) in [
        (
            [frame(SETTINGS, 0, 0, &[]), trailers(&only)].concat(),
            "no message",
        ),
        ([head(), trailers(&ok)].concat(), "too early"),
        (
            [head(), message(0, 8, b"half"), trailers(&ok)].concat(),
            "too early",
        ),
        (
            [
                head(),
                message(0, 0, &[]),
                message(0, 0, &[]),
                trailers(&ok),
            ]
            .concat(),
            "more than one",
        ),
        (
            [head(), frame(DATA, END_STREAM, 1, &[0; 5])].concat(),
            "no status",
        ),
        (
            [
                head(),
                message(0, 0, &[]),
                trailers(&[("grpc-status", "x")]),
            ]
            .concat(),
            "grpc-status is",
        ),
    ] {
        let why = Odd::says(&said, Then::Hangs).unanswered().await;
        assert!(matches!(why, Unanswered::Malformed(_)), "{why}");
        assert!(why.to_string().contains(expected), "{why}");
    }
}

#[tokio::test]
async fn what_is_no_runtime_is_told_apart() {
    let page = [(":status", "404"), ("content-type", "text/html")];
    for said in [
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(),
        vec![0xff; 1000],
        [frame(SETTINGS, 0, 0, &[]), trailers(&page)].concat(),
    ] {
        let odd = Odd::says(&said, Then::Hangs);
        let why = odd.unanswered().await;
        assert!(matches!(why, Unanswered::NotGrpc { .. }), "{said:?}: {why}");
        let socket = odd.socket().display().to_string();
        assert!(why.to_string().contains(&socket), "{why}");
    }
}
