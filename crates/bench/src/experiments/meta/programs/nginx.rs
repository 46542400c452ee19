//! nginx, and what asks it: one page by HTTP/1.1, compressed anew for each request, over
//! connections that stay.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::means::{access_log, write};
use crate::experiments::meta::load::{Ask, PATIENCE};
use crate::experiments::meta::process::{self, Process};
use crate::harness::error::{Error, Result};

/// It starts in less, in the lab too.
const LIMIT: Duration = Duration::from_secs(60);
/// Lines of the page: about 4 KiB.
const PAGE_LINES: u32 = 40;
const REQUEST: &[u8] =
    b"GET /page.html HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n";

/// A server, ready.
#[derive(Debug)]
pub(super) struct Nginx {
    pub(super) process: Process,
    port: u16,
    /// The page, compressed.
    page: Vec<u8>,
}

impl Nginx {
    /// Starts one in the cgroup of the calling thread, and waits.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Program`] if it ends or does not answer.
    pub(super) fn start(dir: &Path) -> Result<Nginx> {
        let failed = |error: io::Error| Error::Meta(format!("no port for nginx: {error}"));
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let port = free.local_addr().map_err(failed)?.port();
        drop(free);
        let pages = dir.join("pages");
        fs::create_dir(&pages).map_err(Error::file("create", &pages))?;
        write(&pages.join("page.html"), &access_log(PAGE_LINES))?;
        let file = dir.join("nginx.conf");
        write(&file, &configuration(dir, port))?;
        let mut command = Command::new("/usr/sbin/nginx");
        command
            .arg("-e")
            .arg("stderr")
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null());
        let mut process = Process::start("nginx", dir, &mut command, false)?;
        let mut page = Vec::new();
        process::wait(std::slice::from_mut(&mut process), LIMIT, || {
            let answer = connect(port).and_then(|mut stream| ask(&mut stream));
            page = answer.unwrap_or_default();
            !page.is_empty()
        })?;
        Ok(Nginx {
            process,
            port,
            page,
        })
    }

    /// A client with a connection of its own. The right answer is the first one's.
    ///
    /// # Errors
    /// [`Error::Meta`] if it cannot connect.
    pub(super) fn client(&mut self) -> Result<impl Ask + use<>> {
        let failed = |error| Error::Meta(format!("no connection to nginx: {error}"));
        let mut stream = connect(self.port).map_err(failed)?;
        let page = self.page.clone();
        Ok(move |_| Ok(ask(&mut stream)? == page))
    }
}

/// One worker: which of several gets a connection is chance, and a worker that has all of
/// them would be half of a server.
fn configuration(dir: &Path, port: u16) -> String {
    let dir = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|of| format!("{of}_temp_path {dir}/{of};\n"))
        .concat();
    format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid {dir}/nginx.pid;\n\
         events {{ worker_connections 64; }}\n\
         http {{\n{temporary}access_log {dir}/access.log;\ndefault_type text/html;\n\
         gzip on;\nkeepalive_requests 1000000;\nkeepalive_timeout 1h;\n\
         server {{ listen 127.0.0.1:{port}; root {dir}/pages; }}\n}}\n"
    )
}

fn connect(port: u16) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

/// Asks for the page once; its bytes as they come, without their framing.
fn ask(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    stream.get_mut().write_all(REQUEST)?;
    answer(stream)
}

/// The body of an answer with status 200. nginx sends what it compresses in chunks.
fn answer(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let status = line(stream)?;
    let (mut is_chunked, mut is_compressed) = (false, false);
    loop {
        let header = line(stream)?.to_ascii_lowercase();
        match header.as_str() {
            "" => break,
            "transfer-encoding: chunked" => is_chunked = true,
            "content-encoding: gzip" => is_compressed = true,
            _ => {}
        }
    }
    if !status.starts_with("HTTP/1.1 200 ") || !is_chunked || !is_compressed {
        return Err(wrong());
    }
    let mut body = Vec::new();
    loop {
        let length = usize::from_str_radix(&line(stream)?, 16).map_err(|_| wrong())?;
        let before = body.len();
        body.resize(before + length, 0);
        stream.read_exact(&mut body[before..])?;
        if !line(stream)?.is_empty() {
            return Err(wrong());
        }
        if length == 0 {
            return Ok(body);
        }
    }
}

/// A line without its end.
fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.take(4096).read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(text) => Ok(text.to_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "HTTP/1.1 200 OK\r\nServer: nginx\r\nTransfer-Encoding: chunked\r\n\
                          Content-Encoding: gzip\r\n\r\n3\r\nabc\r\n0a\r\n0123456789\r\n0\r\n\r\n";

    #[test]
    fn an_answer_is_its_chunks_and_ends_with_them() {
        let twice = ANSWER.repeat(2);
        let mut stream = twice.as_bytes();
        for _ in 0..2 {
            assert_eq!(answer(&mut stream).unwrap(), b"abc0123456789");
        }
        assert!(answer(&mut stream).is_err(), "there is no third");
    }

    #[test]
    fn what_is_refused_plain_or_broken_is_no_answer() {
        for (right, wrong) in [
            ("200 OK", "404 Not Found"),
            ("Content-Encoding: gzip\r\n", ""),
            ("\r\n0a\r\n", "\r\n09\r\n"),
            ("\r\n0a\r\n", "\r\nxx\r\n"),
            ("\r\n0\r\n\r\n", ""),
        ] {
            let text = ANSWER.replace(right, wrong);
            assert_ne!(text, ANSWER);
            assert!(answer(&mut text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn nginx_writes_to_its_directory_only() {
        let text = configuration(Path::new("/d"), 8080);
        for path in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            assert!(
                text.contains(&format!("{path}_temp_path /d/{path};")),
                "{text}"
            );
        }
        for file in ["pid /d/", "access_log /d/", "listen 127.0.0.1:8080;"] {
            assert!(text.contains(file), "{text}");
        }
    }
}
