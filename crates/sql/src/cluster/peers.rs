//! Connections to the other servers of a cluster.
//!
//! All of them live on one thread (`side_thread`), which moves bytes; rows are decoded by
//! whoever reads them, in a worker's task. A connection is asked every second whether the
//! other side is there, and has three seconds for the answer: so a server that is stopped,
//! or whose machine has gone without a word, is noticed as soon as within [`SILENCE_MAX`].
//!
//! P1. A call that is dropped is reset, and the other side ends what it was for: a part, or
//!     a stream of rows. (tested: cancels and clients that leave)
//! P2. A server that has forgotten the login, because it was started anew, is logged in to
//!     again, once. (not asserted)
//! P3. A stream that nobody reads now does not hold up others of its connection: windows of
//!     streams are small beside that of the connection. Rows of the background wait for
//!     long while time-sensitive ones pass. (not asserted: two constants)

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::{Action, FlightData};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use giveway_tier::Tier;
use prost::Message;
use tokio::sync::mpsc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

use super::failure::{failed, lost};
use super::message::{Fetch, HELLO, Part, RUN, check_version};
use crate::error::SqlError;
use crate::side_thread::SideThread;

/// How often a connection is asked whether the other side is there.
const ASKED_EVERY: Duration = Duration::from_secs(1);
/// How long it has for the answer, and for a connection.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// After how long a silent server is known to be one.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(4);
/// What a stream may send before its reader reads, bytes, and all of a connection: P3.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// Messages of a stream that may wait for its reader.
const MESSAGES_MAX: usize = 2;

/// What a server has given out for a login; nothing if it has asked for none.
type Token = Option<MetadataValue<Ascii>>;

/// What to log in with.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) user: String,
    /// Without one, no login.
    pub(crate) password: Option<String>,
}

/// The other servers. Clones share the connections.
#[derive(Clone)]
pub(crate) struct Peers(Arc<Shared>);

struct Shared {
    thread: SideThread,
    login: Login,
    peers: Mutex<HashMap<String, Arc<Peer>>>,
}

struct Peer {
    address: String,
    channel: Channel,
    token: tokio::sync::Mutex<Token>,
}

impl Peers {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub(crate) fn start(login: Login) -> io::Result<Peers> {
        Ok(Peers(Arc::new(Shared {
            thread: SideThread::start("giveway-sql-net", Tier::TimeSensitive)?,
            login,
            peers: Mutex::default(),
        })))
    }

    /// Runs something beside the connections.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.thread.spawn(task);
    }

    fn peer(&self, address: &str) -> Result<Arc<Peer>, SqlError> {
        let mut peers = crate::lock(&self.0.peers);
        if let Some(peer) = peers.get(address) {
            return Ok(Arc::clone(peer));
        }
        let endpoint = Endpoint::new(format!("http://{address}"))
            .map_err(|error| lost(address, error))?
            .connect_timeout(ANSWER_MAX)
            .tcp_nodelay(true)
            // P3.
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(ASKED_EVERY)
            .keep_alive_timeout(ANSWER_MAX)
            .keep_alive_while_idle(true);
        // The connection is made on that thread, and stays there.
        let _entered = self.0.thread.enter();
        let peer = Arc::new(Peer {
            address: address.to_owned(),
            channel: endpoint.connect_lazy(),
            token: tokio::sync::Mutex::default(),
        });
        peers.insert(address.to_owned(), Arc::clone(&peer));
        Ok(peer)
    }

    /// Asks a server whether it is a worker of this version.
    ///
    /// # Errors
    /// Why it is none.
    pub(super) async fn greet(&self, address: &str) -> Result<(), String> {
        let greeting = async {
            let answer = self.act(address, HELLO, Vec::new()).await?;
            let answer = answer.into_inner().message().await;
            answer.map_err(|status| failed(address, &status))
        };
        match tokio::time::timeout(SILENCE_MAX, greeting).await {
            Ok(Ok(answer)) => {
                let body = answer.map(|answer| answer.body).unwrap_or_default();
                check_version(&String::from_utf8_lossy(&body))
            }
            Ok(Err(SqlError::WorkerLost { why, .. })) => Err(format!("it does not answer ({why})")),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {SILENCE_MAX:?}")),
        }
    }

    /// Runs a part to its end.
    ///
    /// # Errors
    /// Why it has failed.
    pub(super) async fn run(&self, address: &str, part: &Part) -> Result<Lease, SqlError> {
        let mut answers = (self.act(address, RUN, part.encode_to_vec()).await?).into_inner();
        match answers.message().await {
            Ok(Some(_)) => Ok(Lease {
                worker: address.to_owned(),
                answers,
            }),
            Ok(None) => Err(lost(address, "it said nothing of the part")),
            Err(status) => Err(failed(address, &status)),
        }
    }

    async fn act(
        &self,
        address: &str,
        action: &str,
        body: Vec<u8>,
    ) -> Result<Response<Streaming<arrow_flight::Result>>, SqlError> {
        let action = Action::new(action, body);
        self.call(address, move |mut client, token| {
            let request = signed(action.clone(), token);
            async move { client.do_action(request).await }.boxed()
        })
        .await
    }

    /// P2.
    async fn call<T>(
        &self,
        address: &str,
        call: impl Fn(FlightServiceClient<Channel>, &Token) -> BoxFuture<'static, Result<T, Status>>,
    ) -> Result<T, SqlError> {
        let peer = self.peer(address)?;
        let client = FlightServiceClient::new(peer.channel.clone())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        let token = peer.token(&self.0.login, None).await?;
        let answer = match call(client.clone(), &token).await {
            Err(status) if status.code() == Code::Unauthenticated && token.is_some() => {
                let token = peer.token(&self.0.login, token).await?;
                call(client, &token).await
            }
            answer => answer,
        };
        answer.map_err(|status| failed(address, &status))
    }

    /// The messages that one partition of a part's rows comes in. Whoever drops the
    /// receiver ends the call.
    pub(super) fn fetch(
        &self,
        address: String,
        fetch: Fetch,
    ) -> mpsc::Receiver<Result<FlightData, SqlError>> {
        let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
        let peers = self.clone();
        self.spawn(async move {
            let pumping = async {
                let ticket = fetch.ticket();
                let rows = peers.call(&address, move |mut client, token| {
                    let request = signed(ticket.clone(), token);
                    async move { client.do_get(request).await }.boxed()
                });
                let mut rows = rows.await?.into_inner();
                while let Some(message) =
                    (rows.message().await).map_err(|status| failed(&address, &status))?
                {
                    if sender.send(Ok(message)).await.is_err() {
                        break;
                    }
                }
                Ok(())
            };
            tokio::select! {
                // P1.
                () = sender.closed() => {}
                pumped = pumping => if let Err(error) = pumped {
                    let _ = sender.send(Err(error)).await;
                }
            }
        });
        receiver
    }
}

/// A request with the login's token.
fn signed<T>(body: T, token: &Token) -> Request<T> {
    let mut request = Request::new(body);
    if let Some(token) = token {
        request
            .metadata_mut()
            .insert("authorization", token.clone());
    }
    request
}

impl Peer {
    /// The token of a login other than `stale`; none if there is no password.
    async fn token(&self, login: &Login, stale: Token) -> Result<Token, SqlError> {
        let Some(password) = &login.password else {
            return Ok(None);
        };
        let mut token = self.token.lock().await;
        if token.is_none() || *token == stale {
            let mut client = FlightSqlServiceClient::new(self.channel.clone());
            (client.handshake(&login.user, password).await)
                .map_err(|error| lost(&self.address, format!("login: {error}")))?;
            let bearer = format!("Bearer {}", client.token().cloned().unwrap_or_default());
            *token = bearer.parse().ok();
        }
        Ok(token.clone())
    }
}

/// A part that is done, and whose rows are kept until this is dropped.
pub(super) struct Lease {
    worker: String,
    answers: Streaming<arrow_flight::Result>,
}

impl Lease {
    /// Waits until the worker has gone.
    pub(super) async fn lost(mut self) -> SqlError {
        match self.answers.message().await {
            Ok(_) => lost(&self.worker, "it ended a call"),
            Err(status) => failed(&self.worker, &status),
        }
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").finish_non_exhaustive()
    }
}
