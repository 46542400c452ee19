//! Where samples come from: the socket on which the loaded scheduler answers.
//!
//! The protocol is that of the scx project's statistics servers: a request is a
//! line of JSON, `{"req":"stats","args":{}}`; so is the answer,
//! `{"errno":0,"args":{"resp":...}}`. Each sample is a connection of its own, so
//! that a UFS that leaves and comes back is found again.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{
    self, AddressFamily, SockFlag, SockType, UnixAddr, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use serde::Deserialize;
use serde_json::Value;

use crate::sample::Sample;

/// Where every scheduler of the scx project answers.
pub const SOCKET: &str = "/var/run/scx/root/stats";

/// UFS looks for requests at least five times a second.
const PATIENCE: Duration = Duration::from_secs(2);

/// Something that can be asked for a sample.
pub trait Source {
    /// One sample, of now.
    ///
    /// # Errors
    /// Says why there is none, and what helps.
    fn sample(&mut self) -> Result<Sample, SourceError>;
}

/// Why there is no sample.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No answer.
    #[error("no scheduler serves statistics at {path}")]
    Absent {
        /// Where the socket should be.
        path: PathBuf,
    },
    /// The socket is not for this user.
    #[error("this user may not read statistics at {path}")]
    Forbidden {
        /// Where the socket is.
        path: PathBuf,
    },
    /// UFS is there and does not answer, as one that is stopped.
    #[error("UFS has not answered at {path} within {} s", PATIENCE.as_secs())]
    Silent {
        /// Where the socket is.
        path: PathBuf,
    },
    /// The answer is not one of UFS.
    #[error("what answers at {path} is not UFS as this version knows it: {reason}")]
    Foreign {
        /// Where the socket is.
        path: PathBuf,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The connection failed.
    #[error("cannot read statistics at {path}: {source}")]
    Broken {
        /// Where the socket is.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl SourceError {
    /// What helps.
    pub fn remedy(&self) -> &'static str {
        match self {
            SourceError::Absent { .. } => "load UFS, without --no-stats: giveway start",
            SourceError::Forbidden { .. } => "use sudo",
            SourceError::Silent { .. } => "giveway stop ends it; then giveway start",
            SourceError::Foreign { .. } => "see what is loaded: giveway status",
            SourceError::Broken { .. } => "try again; 'giveway status' says whether UFS is loaded",
        }
    }
}

/// The loaded scheduler.
#[derive(Clone, Debug)]
pub struct StatsSocket {
    path: PathBuf,
}

impl StatsSocket {
    /// Asks at `path`, usually [`SOCKET`].
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn ask(&self) -> io::Result<String> {
        let mut stream = connect(&self.path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"{\"req\":\"stats\",\"args\":{}}\n")?;
        let mut line = String::new();
        match BufReader::new(stream).read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }
}

/// A connection whose queue is not waited in for ever: that of a server that is stopped
/// fills up with those who asked before.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let fd = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // Of connecting, and of writing afterwards.
    let patience = TimeVal::new(PATIENCE.as_secs() as i64, 0);
    setsockopt(&fd, sockopt::SendTimeout, &patience)?;
    socket::connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(fd.into())
}

impl Source for StatsSocket {
    fn sample(&mut self) -> Result<Sample, SourceError> {
        let path = self.path.clone();
        let line = self.ask().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                SourceError::Absent { path: path.clone() }
            }
            io::ErrorKind::PermissionDenied => SourceError::Forbidden { path: path.clone() },
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                SourceError::Silent { path: path.clone() }
            }
            _ => SourceError::Broken {
                path: path.clone(),
                source,
            },
        })?;
        read(&line).map_err(|reason| SourceError::Foreign { path, reason })
    }
}

#[derive(Deserialize)]
struct Answer {
    errno: i32,
    #[serde(default)]
    args: Arguments,
}

#[derive(Default, Deserialize)]
struct Arguments {
    #[serde(default)]
    resp: Value,
}

/// The sample in one line of answer.
fn read(line: &str) -> Result<Sample, String> {
    let answer: Answer = serde_json::from_str(line).map_err(|error| error.to_string())?;
    if answer.errno != 0 {
        return Err(format!("error {}: {}", answer.errno, answer.args.resp));
    }
    serde_json::from_value(answer.args.resp).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// What a socket that gives this answer is found to say.
    fn answered(answer: &'static str) -> Result<Sample, SourceError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stats");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut asked = String::new();
            BufReader::new(&stream).read_line(&mut asked).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
            asked
        });
        let sample = StatsSocket::at(path).sample();
        let asked: Value = serde_json::from_str(&server.join().unwrap()).unwrap();
        assert_eq!(asked["req"], "stats");
        sample
    }

    #[test]
    fn a_sample_is_the_answer_to_a_request() {
        let line = "{\"errno\":0,\"args\":{\"resp\":{\"nr_cpus\":4,\"tiers\":{}}}}\n";
        assert_eq!(answered(line).unwrap().nr_cpus, 4);
    }

    #[test]
    fn another_scheduler_is_told_from_ufs() {
        let line = "{\"errno\":0,\"args\":{\"resp\":{\"nr_cpus\":4}}}\n";
        let error = answered(line).unwrap_err();
        assert!(matches!(error, SourceError::Foreign { .. }), "{error}");
        let error = answered("{\"errno\":22,\"args\":{\"resp\":\"no\"}}\n").unwrap_err();
        assert!(error.to_string().contains("error 22"), "{error}");
        let error = answered("").unwrap_err();
        assert!(matches!(error, SourceError::Broken { .. }), "{error}");
    }

    #[test]
    fn a_server_that_is_stopped_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stats");
        // Nobody takes connections; the queue holds some of them.
        let _listener = UnixListener::bind(&path).unwrap();
        let nonblocking = || {
            let flags = SockFlag::SOCK_NONBLOCK;
            let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
            let to = UnixAddr::new(&path).unwrap();
            socket::connect(fd.as_raw_fd(), &to).ok().map(|()| fd)
        };
        let before = std::time::Instant::now();
        let error = StatsSocket::at(&path).sample().unwrap_err();
        assert!(matches!(error, SourceError::Silent { .. }), "{error}");
        // The queue is full.
        let _queue: Vec<_> = std::iter::from_fn(nonblocking).collect();
        let error = StatsSocket::at(&path).sample().unwrap_err();
        assert!(matches!(error, SourceError::Silent { .. }), "{error}");
        assert!(error.remedy().contains("giveway stop"));
        assert!(before.elapsed() < 5 * PATIENCE, "{:?}", before.elapsed());
    }

    #[test]
    fn a_missing_socket_names_the_remedy() {
        let error = StatsSocket::at("/no/such/socket").sample().unwrap_err();
        assert!(error.to_string().contains("/no/such/socket"), "{error}");
        assert!(error.remedy().contains("giveway start"));
    }
}
