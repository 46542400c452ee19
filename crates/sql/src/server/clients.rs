//! Clients: logins, their sessions, and the headers of their calls.
//!
//! ```text
//!   handshake, Basic user:password ──► session in the store, token
//!   call, Bearer token             ──► that session
//!   call without                   ──► one session for all of these
//! ```
//!
//! Sessions of clients share tables (a table that one creates is seen by all) and
//! have settings of their own. A call without a token is let in unless a password
//! is asked for; its settings come from headers (`giveway-tier`, `giveway-weight`,
//! `giveway-deadline`), which also go before those of a session.
//!
//! A login is cheap: the session is made when it is used first. A client that logs in too
//! often loses sessions of its own (`handle_store`), and no client is locked out.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use datafusion::common::config::ExtensionOptions;
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

use super::handle_store::{Handle, HandleStore, Owner, Peer};
use crate::cluster;
use crate::live;
use crate::options::QueryOptions;
use crate::session::Session;

/// How long an unused session is kept.
const IDLE_MAX: Duration = Duration::from_secs(3600);
/// Logins at a time.
const SESSIONS_MAX: usize = 10_000;
/// The headers, and the settings that they stand for.
const HEADERS: [(&str, &str); 3] = [
    ("giveway-tier", "tier"),
    ("giveway-weight", "weight"),
    ("giveway-deadline", "deadline"),
];

/// Whether clients have to log in.
#[derive(Clone)]
pub(super) enum Access {
    /// Any client, under any name.
    Open,
    /// The name and password.
    Password { user: String, password: String },
}

impl Access {
    /// What this server logs in with at others of its kind.
    pub(super) fn at_others(&self) -> cluster::Login {
        match self {
            Access::Open => cluster::Login::default(),
            Access::Password { user, password } => cluster::Login {
                user: user.clone(),
                password: Some(password.clone()),
            },
        }
    }
}

/// The sessions of a server's clients.
pub(super) struct Clients {
    door: Access,
    /// What new sessions are made like.
    base: Session,
    /// The session of calls without a token; nothing in it is ever set.
    anonymous: Arc<Session>,
    store: HandleStore<Login>,
}

/// A client that has logged in.
struct Login {
    owner: Owner,
    session: OnceLock<Arc<Session>>,
}

/// Where a call comes from.
pub(super) struct Caller {
    pub(super) session: Arc<Session>,
    /// Whose what it leaves behind is.
    pub(super) owner: Owner,
    /// Whether the session is there for the next call, too.
    pub(super) is_kept: bool,
    /// The session's settings, and what the headers say.
    pub(super) options: QueryOptions,
    /// When it called.
    pub(super) began: Instant,
}

impl Clients {
    pub(super) fn new(base: Session, door: Access) -> Clients {
        let anonymous = Arc::new(fork(&base));
        Clients {
            door,
            base,
            anonymous,
            store: HandleStore::new(IDLE_MAX, SESSIONS_MAX),
        }
    }

    /// The session that tables are looked up in for all clients.
    pub(super) fn base(&self) -> &Session {
        &self.base
    }

    /// Logs a client in; returns its token.
    pub(super) fn login(
        &self,
        headers: &MetadataMap,
        peer: Option<Peer>,
    ) -> Result<Handle, Status> {
        let given = basic(headers);
        if let Access::Password { user, password } = &self.door {
            let (given_user, given_password) = given.as_ref().ok_or_else(|| {
                Status::unauthenticated("this server asks for a user and a password")
            })?;
            let is_right = is_same(given_user, user) & is_same(given_password, password);
            if !is_right {
                return Err(Status::unauthenticated("wrong user or password"));
            }
        }
        let user = given.map(|(user, _)| user).unwrap_or_default().into();
        let owner = Owner { peer, user };
        let login = Login {
            owner: owner.clone(),
            session: OnceLock::new(),
        };
        Ok(self.store.put(&owner, login, Instant::now()))
    }

    /// Whether this call may come in.
    pub(super) fn admit(&self, headers: &MetadataMap) -> Result<(), Status> {
        self.find(headers).map(|_| ())
    }

    /// The caller.
    pub(super) fn caller(
        &self,
        headers: &MetadataMap,
        peer: Option<Peer>,
    ) -> Result<Caller, Status> {
        let login = self.find(headers)?;
        let is_kept = login.is_some();
        let (session, owner) = match login {
            Some(login) => {
                let session = login.session.get_or_init(|| Arc::new(fork(&self.base)));
                (Arc::clone(session), login.owner.clone())
            }
            None => {
                let user = Arc::default();
                (Arc::clone(&self.anonymous), Owner { peer, user })
            }
        };
        let mut options = session.options();
        for (header, setting) in HEADERS {
            if let Some(value) = headers.get(header) {
                let value = value
                    .to_str()
                    .map_err(|_| Status::invalid_argument(format!("{header}: not a text")))?;
                options.set(setting, value).map_err(|error| {
                    Status::invalid_argument(format!("header {header}: {error}"))
                })?;
            }
        }
        Ok(Caller {
            session,
            owner,
            is_kept,
            options,
            began: Instant::now(),
        })
    }

    /// Ends the session of a call; nothing if it has none.
    pub(super) fn logout(&self, headers: &MetadataMap) {
        if let Some(token) = bearer(headers) {
            self.store.take(token);
        }
    }

    /// The login that a call refers to; `None` if it refers to none and needs none.
    fn find(&self, headers: &MetadataMap) -> Result<Option<Arc<Login>>, Status> {
        match (bearer(headers), &self.door) {
            (Some(token), _) => match self.store.get(token, Instant::now()) {
                Some(login) => Ok(Some(login)),
                None => Err(Status::unauthenticated(
                    "unknown or expired token: log in again",
                )),
            },
            (None, Access::Open) => Ok(None),
            (None, Access::Password { .. }) => Err(Status::unauthenticated(
                "log in first: this server asks for a user and a password",
            )),
        }
    }
}

/// The peer of a call's connection.
pub(super) fn peer<T>(request: &Request<T>) -> Option<Peer> {
    request.remote_addr().map(|address| Peer::new(address.ip()))
}

/// A session with the tables and settings of another one.
fn fork(base: &Session) -> Session {
    let session = base.engine().session();
    let (from, to) = (base.context(), session.context());
    for name in from.catalog_names() {
        if let Some(catalog) = from.catalog(&name) {
            to.register_catalog(name, catalog);
        }
    }
    session.set_options(base.options());
    live::install_function(&session);
    session
}

fn bearer(headers: &MetadataMap) -> Option<&str> {
    let header = headers.get("authorization")?.to_str().ok()?;
    header.strip_prefix("Bearer ")
}

fn basic(headers: &MetadataMap) -> Option<(String, String)> {
    let header = headers.get("authorization")?.to_str().ok()?;
    let text = BASE64_STANDARD
        .decode(header.strip_prefix("Basic ")?)
        .ok()?;
    let text = String::from_utf8(text).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// Compares in a time that says nothing about where two texts differ.
fn is_same(given: &str, right: &str) -> bool {
    let differences = given
        .bytes()
        .zip(right.bytes())
        .fold(0, |differences, (a, b)| differences | (a ^ b));
    differences == 0 && given.len() == right.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_from_a_header() {
        let mut headers = MetadataMap::new();
        assert_eq!(basic(&headers), None);
        let encoded = BASE64_STANDARD.encode("ann:a:b");
        headers.insert("authorization", format!("Basic {encoded}").parse().unwrap());
        assert_eq!(basic(&headers), Some(("ann".into(), "a:b".into())));
        assert_eq!(bearer(&headers), None);
        headers.insert("authorization", "Bearer 17".parse().unwrap());
        assert_eq!(bearer(&headers), Some("17"));
    }

    #[test]
    fn passwords_are_compared_whole() {
        assert!(is_same("secret", "secret"));
        for wrong in ["secre", "secrets", "Secret", ""] {
            assert!(!is_same(wrong, "secret"), "{wrong}");
        }
    }
}
