//! The application's processes, which run throughout: what is not asked is at rest.
//!
//! | process | asked by |
//! | --- | --- |
//! | the API with a stub for a back end | wrk |
//! | the API with the back end | wrk |
//! | the back end alone | `alone.py run`, over a Unix socket |
//!
//! The API is a gunicorn with one process and four threads (section 3.1). It is told
//! never to end a worker that is slow to report: how slow a scheduler may make it is
//! what is to be found out.
//!
//! They are there once each has given an answer of the right form, and gone when
//! [`Servers`] is dropped.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use tempfile::TempDir;

use super::prepare::program;
use crate::experiments::meta::process::{self, Process};
use crate::harness::error::{Error, Result};

/// Loading a model takes no longer, in the lab neither.
const LIMIT: Duration = Duration::from_secs(600);
/// Documents of an answer.
const NEAREST: usize = 4;

/// All of them, ready.
#[derive(Debug)]
pub(super) struct Servers {
    /// Where the API listens that has a stub.
    pub(super) stub: u16,
    /// Where the one listens that has the back end.
    pub(super) whole: u16,
    /// Where the back end listens.
    pub(super) retrieval: PathBuf,
    processes: Vec<Process>,
    dir: TempDir,
}

impl Servers {
    /// Starts them on what lies in `prepared`, and waits.
    ///
    /// # Errors
    /// [`Error::Program`] with the last lines of one that ends or is not there in
    /// time; [`Error::File`].
    pub(super) fn start(prepared: &Path) -> Result<Servers> {
        let failed = |error: io::Error| Error::Meta(format!("no port or directory: {error}"));
        let dir = tempfile::tempdir().map_err(failed)?;
        let (stub, whole) = free_ports().map_err(failed)?;
        let retrieval = dir.path().join("retrieval");
        let mut servers = Servers {
            stub,
            whole,
            retrieval,
            processes: Vec::new(),
            dir,
        };
        let question = question(prepared)?;
        servers.add("api", &mut gunicorn(prepared, stub, "api:create()"))?;
        let create = format!("api:create({:?})", prepared.display().to_string());
        servers.add("ask", &mut gunicorn(prepared, whole, &create))?;
        let mut alone = program(prepared);
        alone.arg(prepared.join("alone.py")).arg("serve");
        alone.arg(prepared).arg(&servers.retrieval);
        servers.add("retrieval", &mut alone)?;
        process::wait(&mut servers.processes, LIMIT, || {
            answers(stub, &question)
                && answers(whole, &question)
                && UnixStream::connect(&servers.retrieval).is_ok()
        })?;
        Ok(servers)
    }

    fn add(&mut self, name: &'static str, command: &mut Command) -> Result<()> {
        let process = Process::start(name, self.dir.path(), command, false)?;
        self.processes.push(process);
        Ok(())
    }
}

fn gunicorn(prepared: &Path, port: u16, application: &str) -> Command {
    let mut command = program(prepared);
    command
        .args(["-m", "gunicorn", "--workers=1", "--threads=4"])
        .args(["--timeout=0", "--keep-alive=75", "--no-control-socket"])
        // Its sign of life is a file that it touches: not on a disk.
        .args(["--worker-tmp-dir=/dev/shm", "--log-level=warning"])
        .arg(format!("--bind=127.0.0.1:{port}"))
        .arg(application);
    command
}

/// Two ports that nobody listens at. Somebody may, by the time they are used: then
/// the server says so and ends.
fn free_ports() -> io::Result<(u16, u16)> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (listen()?, listen()?);
    Ok((one.local_addr()?.port(), other.local_addr()?.port()))
}

/// The first request of those that are prepared.
fn question(prepared: &Path) -> Result<String> {
    let path = prepared.join("requests.jsonl");
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    let first = text.lines().next().map(str::to_owned);
    first.ok_or_else(|| Error::Meta(format!("{} is empty", path.display())))
}

/// Whether a request gets an answer of the right form.
fn answers(port: u16, body: &str) -> bool {
    post(port, body).is_ok_and(|response| is_answer(&response))
}

fn post(port: u16, body: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(LIMIT))?;
    let length = body.len();
    write!(
        stream,
        "POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

fn is_answer(response: &str) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        documents: Vec<Document>,
    }
    #[derive(Deserialize)]
    struct Document {
        text: String,
    }
    let Some((head, body)) = response.split_once("\r\n\r\n") else {
        return false;
    };
    let answer = serde_json::from_str::<Answer>(body);
    head.starts_with("HTTP/1.1 200 ")
        && answer.is_ok_and(|answer| {
            let documents = answer.documents;
            documents.len() == NEAREST && documents.iter().all(|one| !one.text.is_empty())
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const DOCUMENTS: &str =
        r#"{"documents":[{"text":"a"},{"text":"b"},{"text":"c"},{"text":"d"}]}"#;

    #[test]
    fn an_answer_is_four_documents() {
        let good = format!("HTTP/1.1 200 OK\r\nServer: x\r\n\r\n{DOCUMENTS}");
        assert!(is_answer(&good));
        assert!(!is_answer(&good.replace("200 OK", "400 BAD REQUEST")));
        assert!(!is_answer(&good.replace(r#",{"text":"d"}"#, "")));
        assert!(!is_answer(&good.replace(r#""d""#, r#""""#)));
        assert!(!is_answer("HTTP/1.1 200 OK\r\n"));
    }

    #[test]
    fn a_request_is_posted_and_its_answer_read() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let mut length = 0;
            while !request[..length].ends_with(b"{\"question\":\"q\"}") {
                length += stream.read(&mut request[length..]).unwrap();
            }
            write!(stream, "HTTP/1.1 200 OK\r\n\r\n{DOCUMENTS}").unwrap();
            String::from_utf8(request[..length].to_vec()).unwrap()
        });
        assert!(answers(port, "{\"question\":\"q\"}"));
        let request = server.join().unwrap();
        assert!(request.starts_with("POST /ask HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nContent-Length: 16\r\n"), "{request}");
    }

    #[test]
    fn one_that_ends_is_told_of_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("requests.jsonl"), "{}\n").unwrap();
        // A shell takes what it is told to run for a script, and finds none.
        std::os::unix::fs::symlink("/bin/sh", dir.path().join("python")).unwrap();
        let error = Servers::start(dir.path()).unwrap_err().to_string();
        assert!(error.contains(" failed (exit status: "), "{error}");
        assert!(error.contains("No such file"), "{error}");
    }
}
