//! A private PostgreSQL server, and sessions with it.
//!
//! The server listens on a Unix socket in a directory of its own and nowhere
//! else. It runs as the user `postgres` when we are root, since it refuses to
//! run as root. It does not outlive us: dropping [`Server`] stops it, and the
//! kernel stops it (SIGQUIT) when the thread that started it dies. A server
//! stopped that way recovers at its next start, so prepared data is only kept
//! after [`Server::stop`].
//!
//! A [`Session`] is one connection driven by the calling thread: its runtime
//! has no thread of its own, so one terminal is one thread.

use std::fs::{self, File};
use std::future::Future;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Config, Connection, NoTls, Socket, tls::NoTlsStream};

use crate::harness::error::{Error, Result};
use crate::harness::files::PrivateDir;
use crate::workload::network::Distant;

/// How long a server may take to start or stop before it counts as hanging.
const SERVER_TIMEOUT: Duration = Duration::from_secs(120);

/// A PostgreSQL's programs and the user they run as.
#[derive(Clone, Debug)]
pub struct Installation {
    bin: PathBuf,
    /// Where its own libraries are, if the system's loader does not know it.
    libraries: Option<PathBuf>,
    owner: Option<(u32, u32)>,
}

impl Installation {
    /// The newest that is installed: looks in Debian's directories, newest
    /// first, then in PATH.
    ///
    /// # Errors
    /// [`Error::NoPostgres`]; [`Error::NoServerUser`] for root.
    pub fn find() -> Result<Self> {
        let mut versions: Vec<u32> = fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        versions.sort_unstable();
        let debian = versions
            .into_iter()
            .rev()
            .map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let bin = debian
            .chain(std::env::split_paths(&path))
            .find(|dir| dir.join("postgres").is_file() && dir.join("initdb").is_file())
            .ok_or(Error::NoPostgres)?;
        Ok(Installation {
            bin,
            libraries: None,
            owner: owner()?,
        })
    }

    /// One that was built for the lab (`postgres/lab-server.sh`) and lies in
    /// `dir`, wherever that is now.
    ///
    /// # Errors
    /// [`Error::NoLabServer`]; [`Error::NoServerUser`] for root.
    pub fn of_lab(dir: &Path) -> Result<Self> {
        let bin = dir.join("bin");
        if !(bin.join("postgres").is_file() && bin.join("initdb").is_file()) {
            return Err(Error::NoLabServer(dir.to_owned()));
        }
        Ok(Installation {
            bin,
            libraries: Some(dir.join("lib")),
            owner: owner()?,
        })
    }

    /// The (user, group) that must own the data, when it is not us.
    pub fn owner(&self) -> Option<(u32, u32)> {
        self.owner
    }

    /// A program that runs as the server's user.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        // The programs read their working directory, which may be closed to
        // the server's user.
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// Runs a program to its end.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        output(program, self.command(program).args(arguments))
    }

    /// Makes an empty cluster in `data`, which is new or empty.
    pub(crate) fn init(&self, data: &Path) -> Result<()> {
        let mut command = self.command("initdb");
        command
            .arg("-D")
            .arg(data)
            .args(["-U", USER, "-A", "trust"]);
        command.args(["-E", "UTF8", "--locale=C", "-N"]);
        output("initdb", &mut command).map(drop)
    }

    /// The version, as in `postgres (PostgreSQL) 17.6 …`.
    pub fn version(&self) -> Result<String> {
        let text = self.run("postgres", &["--version"])?;
        Ok(text
            .split_whitespace()
            .nth(2)
            .unwrap_or("unknown")
            .to_owned())
    }

    /// Starts a server on `data` with `settings` (name, value) and waits until
    /// it takes connections.
    pub fn start(&self, data: &Path, settings: &[(&str, String)]) -> Result<Server> {
        let run = PrivateDir::new(&std::env::temp_dir(), self.owner)?;
        let log = run.path().join("log");
        let out = File::create(&log).map_err(Error::file("create", &log))?;
        let err = out.try_clone().map_err(Error::file("open", &log))?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(data).arg("-k").arg(run.path());
        command.args(["-c", "listen_addresses="]);
        for (name, value) in settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command.stdout(out).stderr(err);
        // SAFETY: prctl is async-signal-safe and takes no memory of ours.
        unsafe {
            command
                .pre_exec(|| nix::sys::prctl::set_pdeathsig(Signal::SIGQUIT).map_err(Into::into));
        }
        let child = command
            .spawn()
            .map_err(Error::file("start", &self.bin.join("postgres")))?;
        let mut server = Server { child, run, log };
        let deadline = Instant::now() + SERVER_TIMEOUT;
        loop {
            match Session::connect(&server, "readiness", &[]) {
                Ok(_) => return Ok(server),
                Err(error) => {
                    let ended = server.child.try_wait().ok().flatten();
                    if ended.is_some() || Instant::now() > deadline {
                        let status = match ended {
                            Some(status) => status.to_string(),
                            None => format!("not ready after {SERVER_TIMEOUT:?}: {error}"),
                        };
                        return Err(server.failure(status));
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The user and group that a server runs as, when it cannot run as us.
fn owner() -> Result<Option<(u32, u32)>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let user = User::from_name("postgres")
        .ok()
        .flatten()
        .ok_or(Error::NoServerUser)?;
    Ok(Some((user.uid.as_raw(), user.gid.as_raw())))
}

/// Runs a command to its end; answers with what it printed.
pub(crate) fn output(program: &str, command: &mut Command) -> Result<String> {
    let path = PathBuf::from(command.get_program());
    let output = command.output().map_err(Error::file("run", &path))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(Error::Program {
        program: program.to_owned(),
        status: output.status.to_string(),
        output: last_lines(&String::from_utf8_lossy(&text)),
    })
}

/// The end of a program's output, enough to see why it failed.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// A running server; stopped when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    run: PrivateDir,
    log: PathBuf,
}

impl Server {
    /// The postmaster's process.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The directory of the socket.
    pub fn socket_dir(&self) -> &Path {
        self.run.path()
    }

    fn failure(&self, status: String) -> Error {
        let output = last_lines(&fs::read_to_string(&self.log).unwrap_or_default());
        Error::Program {
            program: "postgres".to_owned(),
            status,
            output,
        }
    }

    /// Stops the server with a checkpoint, so that the data needs no recovery.
    pub fn stop(mut self) -> Result<()> {
        self.end(Signal::SIGINT)
    }

    /// Stops the server at once; its data is about to be thrown away.
    pub fn abandon(mut self) -> Result<()> {
        // An immediate shutdown exits with 1 by design.
        match self.end(Signal::SIGQUIT) {
            Err(Error::Program { status, .. }) if status == "exit status: 1" => Ok(()),
            other => other,
        }
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        // A server that is gone already has its status collected below.
        let _ = kill(Pid::from_raw(self.pid()), signal);
        let deadline = Instant::now() + SERVER_TIMEOUT;
        loop {
            match self
                .child
                .try_wait()
                .map_err(Error::file("wait for", &self.log))?
            {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failure(status.to_string())),
                None if Instant::now() > deadline => {
                    return Err(self.failure(format!("still running {SERVER_TIMEOUT:?} later")));
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.end(Signal::SIGQUIT).is_err() {
            // The postmaster did not react within the limit. Its children
            // notice its death and end.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The superuser that made the data.
pub const USER: &str = "postgres";

/// Where a server is, who connects, and from how far away.
#[derive(Clone, Debug)]
pub struct Address {
    /// The directory of the server's socket.
    pub socket_dir: PathBuf,
    /// The role.
    pub role: &'static str,
    /// What every round trip takes longer than server and client need for it.
    pub round_trip: Duration,
}

impl Address {
    /// The superuser, beside the server.
    pub fn of(server: &Server) -> Self {
        Address {
            socket_dir: server.socket_dir().to_owned(),
            role: USER,
            round_trip: Duration::ZERO,
        }
    }
}

/// One connection, driven by the thread that calls.
pub struct Session {
    /// Statements go here, inside [`Session::wait`].
    pub client: Client,
    runtime: Runtime,
    backend: i32,
}

/// A connection that the caller polls itself, to see the server's notices.
pub(crate) type RawConnection = Connection<Socket, NoTlsStream>;

/// Connects as a role without spawning the connection's driver.
pub(crate) async fn connect_raw(
    socket_dir: &Path,
    role: &str,
    name: &str,
) -> Result<(Client, RawConnection), tokio_postgres::Error> {
    login(role, name, &[])
        .host_path(socket_dir)
        .connect(NoTls)
        .await
}

/// Who connects, and with which settings of the session.
fn login(role: &str, name: &str, options: &[(&str, &str)]) -> Config {
    let options: Vec<String> = options
        .iter()
        .map(|(name, value)| format!("-c {name}={value}"))
        .collect();
    let mut config = Config::new();
    config
        .user(role)
        .dbname("postgres")
        .application_name(name)
        .options(options.join(" "));
    config
}

/// A runtime that runs on its caller only.
pub(crate) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::file("make a runtime for", Path::new("connections")))
}

impl Session {
    /// Connects as the superuser. `options` are settings (name, value without
    /// spaces) of this session.
    pub fn connect(server: &Server, name: &str, options: &[(&str, &str)]) -> Result<Self> {
        Session::connect_at(&Address::of(server), name, options)
    }

    /// As [`Session::connect`], as any role and from any distance.
    pub fn connect_at(address: &Address, name: &str, options: &[(&str, &str)]) -> Result<Self> {
        let runtime = runtime()?;
        let what = format!("connecting ({name})");
        let socket = address.socket_dir.join(".s.PGSQL.5432");
        let stream = runtime
            .block_on(UnixStream::connect(&socket))
            .map_err(Error::file("connect to", &socket))?;
        let (client, backend) = runtime
            .block_on(async {
                let stream = Distant::new(stream, address.round_trip);
                let login = login(address.role, name, options);
                let (client, connection) = login.connect_raw(stream, NoTls).await?;
                // The driver ends with the client. An error of its own also
                // fails the statement in flight, which reports it.
                tokio::spawn(async move {
                    let _ = connection.await;
                });
                let row = client.query_one("SELECT pg_backend_pid()", &[]).await?;
                Ok((client, row.get(0)))
            })
            .map_err(Error::sql(what))?;
        Ok(Session {
            client,
            runtime,
            backend,
        })
    }

    /// The process of the server that serves this session.
    pub fn backend_pid(&self) -> i32 {
        self.backend
    }

    /// Drives the connection until `work` ends.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Runs statements whose results nobody needs.
    pub fn execute(&self, what: &str, sql: &str) -> Result<()> {
        self.wait(self.client.batch_execute(sql))
            .map_err(Error::sql(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_server_that_was_not_made_is_named_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let error = Installation::of_lab(dir.path()).unwrap_err().to_string();
        let name = dir.path().display().to_string();
        assert!(
            error.contains(&name) && error.contains("make servers"),
            "{error}"
        );
    }
}
