//! A server that database clients can talk to: Arrow Flight SQL.
//!
//! ```no_run
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use giveway_sql::Engine;
//! use giveway_sql::server::Server;
//!
//! let session = Engine::builder().build()?.session();
//! let server = Server::builder(session).bind("127.0.0.1:50051".parse()?).await?;
//! println!("listening on {}", server.address());
//! server.serve(std::future::pending(), Duration::from_secs(10)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Each query is submitted to the engine when its client comes for the rows, and
//! cancelled when the client goes away. Tiers, weights and deadlines come with `SET
//! giveway.tier = …` in a client's session, or with the headers `giveway-tier`,
//! `giveway-weight` and `giveway-deadline` of a call.
//!
//! | module | question |
//! | --- | --- |
//! | `handle_store` | What is kept for clients, and for how long? |
//! | `status` | How is an error said? |
//! | `connections` | How many connections are there, before anybody has logged in? |
//! | `clients` | Which client calls, with which rights and settings? |
//! | `keys`, `metadata` | What is there? |
//! | `wire` | How are schemas, tickets and rows sent? |
//! | `queries`, `prepared` | What becomes of a query, and of a prepared statement? |
//! | `parts` | How does it serve a cluster? |
//! | `service` | What is kept between calls? |
//! | `calls` | What happens in each call? |
//!
//! Known weakness: no TLS. A password and all data go over the wire as they are;
//! beyond one machine, put a proxy that speaks TLS before it.

mod calls;
mod clients;
mod connections;
mod handle_store;
mod keys;
mod metadata;
mod parts;
mod prepared;
mod queries;
mod service;
mod status;
mod wire;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use nix::sys::resource::{Resource, getrlimit};
use tokio::net::TcpListener;
use tonic::Request;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server as Transport;

use crate::cluster::{Peers, Worker};
use crate::live;
use crate::session::Session;
use clients::{Clients, Credentials, Door};
use connections::connections;
use service::Service;

/// Bytes of a message from a client: a statement, a batch of parameters, a part of a plan.
const MESSAGE_MAX: usize = 16 << 20;

/// Calls of a connection at a time.
const CALLS_MAX: u32 = 1 << 12;
/// The same where it is a coordinator's, which has a call for each part and each partition
/// that is fetched.
const PART_CALLS_MAX: u32 = 1 << 16;

/// Connections at a time.
const CONNECTIONS_MAX: usize = 4096;
/// Descriptors that are not for connections: files of tables and of results.
const FILES: usize = 256;

/// Why a server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Choose another address, or end the program that has it.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Ask for a password, or listen on a loopback address.
    #[error(
        "{0} can be reached from other machines, and anybody could read files through it: ask \
         for a password, or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// Ask for a password, too: without one, everybody has all rights.
    #[error(
        "a login for background work, or for a cluster, is nothing without one for clients: \
         ask for a password"
    )]
    NoPassword,
    /// Connections cannot be taken any more.
    #[error("the server has failed: {0}")]
    Transport(#[from] tonic::transport::Error),
    /// The session cannot be served.
    #[error("the server cannot be set up: {0}")]
    Setup(String),
}

/// A server that does not listen yet.
#[must_use = "nothing listens before bind"]
pub struct Builder {
    session: Session,
    door: Door,
    is_read_only: bool,
    is_worker: bool,
    keepalive: Duration,
}

impl Builder {
    /// Requires clients to log in with these. Without, every client is accepted, and
    /// the server listens on loopback addresses only.
    pub fn password(mut self, user: impl Into<String>, password: impl Into<String>) -> Builder {
        self.door.clients = Some(credentials(user, password));
        self
    }

    /// Lets clients in with these, too, whose queries are in the background whatever they
    /// ask for.
    pub fn background_password(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Builder {
        self.door.background = Some(credentials(user, password));
        self
    }

    /// Has the servers of its cluster log in with these, and no others: clients do not have
    /// parts of queries run, which may read any file. Without, they log in like clients.
    pub fn cluster_password(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Builder {
        self.door.cluster = Some(credentials(user, password));
        self
    }

    /// Refuses statements that change or write something (`CREATE`, `INSERT`, `COPY`).
    pub fn read_only(mut self, is_read_only: bool) -> Builder {
        self.is_read_only = is_read_only;
        self
    }

    /// Runs parts of queries for coordinators of clusters, which log in like clients. It
    /// logs in at other workers with its own user and password.
    pub fn worker(mut self, is_worker: bool) -> Builder {
        self.is_worker = is_worker;
        self
    }

    /// How long a client may be silent before it is asked whether it is still there, and
    /// how long it has for the answer; 10 s by default. The queries of one that does not
    /// answer end: its machine has gone without a word.
    pub fn keepalive(mut self, keepalive: Duration) -> Builder {
        self.keepalive = keepalive;
        self
    }

    /// Listens; port 0 is any free one. Clients that connect wait for
    /// [`Server::serve`].
    pub async fn bind(self, address: SocketAddr) -> Result<Server, ServerError> {
        let Door {
            clients,
            background,
            cluster,
        } = &self.door;
        if clients.is_none() && (background.is_some() || cluster.is_some()) {
            return Err(ServerError::NoPassword);
        }
        if clients.is_none() && !address.ip().is_loopback() {
            return Err(ServerError::Open(address));
        }
        let failed = |source| ServerError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let setup = |error: &dyn fmt::Display| ServerError::Setup(error.to_string());
        live::install(&self.session).map_err(|error| setup(&error))?;
        let worker = match self.is_worker {
            true => {
                let peers = Peers::start(self.door.at_others()).map_err(|error| setup(&error))?;
                Some(Arc::new(Worker::new(self.session.clone(), peers)))
            }
            false => None,
        };
        let clients = Arc::new(Clients::new(self.session.clone(), self.door));
        let service = Service::new(clients, self.is_read_only, worker);
        let service = service.map_err(|error| setup(&error))?;
        Ok(Server {
            session: self.session,
            listener,
            address,
            service,
            keepalive: self.keepalive,
        })
    }
}

fn credentials(user: impl Into<String>, password: impl Into<String>) -> Credentials {
    Credentials {
        user: user.into(),
        password: password.into(),
    }
}

/// A server that listens.
pub struct Server {
    session: Session,
    listener: TcpListener,
    address: SocketAddr,
    service: Service,
    keepalive: Duration,
}

impl Server {
    /// A server for the tables and the engine of a session. Clients get sessions of
    /// their own, which share the tables and begin with its settings.
    pub fn builder(session: Session) -> Builder {
        Builder {
            session,
            door: Door::default(),
            is_read_only: false,
            is_worker: false,
            keepalive: Duration::from_secs(10),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is done. Then no client is accepted any more, and calls that
    /// are there have `grace` to end; queries that still run are cancelled, and their
    /// clients told.
    pub async fn serve(
        self,
        stop: impl Future<Output = ()> + Send,
        grace: Duration,
    ) -> Result<(), ServerError> {
        let clients = Arc::clone(&self.service.clients);
        let calls_max = match self.service.worker {
            Some(_) => PART_CALLS_MAX,
            None => CALLS_MAX,
        };
        let service = FlightServiceServer::new(self.service)
            .max_decoding_message_size(MESSAGE_MAX)
            .max_encoding_message_size(usize::MAX);
        // Messages of strangers are not read: they may be large.
        let service = InterceptedService::new(service, move |request: Request<()>| {
            clients.at_the_door(request.metadata())?;
            Ok(request)
        });
        let (stopping, stopped) = tokio::sync::oneshot::channel::<()>();
        let stop = async {
            stop.await;
            // The timer of the grace period may be gone by now.
            let _ = stopping.send(());
        };
        let incoming = connections(self.listener, connections_max(), self.keepalive);
        let serving = Transport::builder()
            .http2_keepalive_interval(Some(self.keepalive))
            .http2_keepalive_timeout(Some(self.keepalive))
            .max_concurrent_streams(calls_max)
            .http2_max_pending_accept_reset_streams(Some(calls_max as usize))
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, stop);
        let out_of_patience = async {
            match stopped.await {
                Ok(()) => tokio::time::sleep(grace).await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::pin!(serving);
        tokio::select! {
            served = &mut serving => return Ok(served?),
            () = out_of_patience => {}
        }
        let engine = self.session.engine();
        for query in engine.running() {
            engine.cancel(query.id);
        }
        // A client that reads nothing keeps its call; it has been patient enough.
        match tokio::time::timeout(CANCELLED_MAX, serving).await {
            Ok(served) => Ok(served?),
            Err(_) => Ok(()),
        }
    }
}

/// So many connections as there are descriptors for, beside those of files.
fn connections_max() -> usize {
    let (descriptors, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
    (descriptors.saturating_sub(FILES).max(descriptors / 2)).min(CONNECTIONS_MAX)
}

/// For how long clients of cancelled queries have to hear of it.
const CANCELLED_MAX: Duration = Duration::from_secs(2);

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
