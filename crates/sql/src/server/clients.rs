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
//! A login may have fewer rights than others ([`Rights`]): one for background work raises
//! nothing, and where the servers of a cluster have a login of their own, clients run no
//! parts of queries. Whoever has no login is refused before the body of a call is read
//! ([`Clients::at_the_door`]).
//!
//! A login is cheap: the session is made when it is used first. A client that logs in too
//! often loses sessions of its own (`handle_store`), and no client is locked out.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use datafusion::common::config::ExtensionOptions;
use giveway_tier::Tier;
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

/// Names and passwords, and what whoever has one may do.
#[derive(Clone, Default)]
pub(super) struct Door {
    /// Of clients; without one, any client comes in under any name.
    pub(super) clients: Option<Credentials>,
    /// Of clients whose work is in the background.
    pub(super) background: Option<Credentials>,
    /// Of the servers of its cluster, if clients are to have other ones.
    pub(super) cluster: Option<Credentials>,
}

/// A name and its password.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: String,
}

/// What a login may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rights {
    /// The highest tier of its queries.
    pub(super) tier_max: Tier,
    /// Whether it may have parts of queries run, which read what they name.
    pub(super) is_peer: bool,
}

impl Door {
    /// What this server logs in with at others of its kind.
    pub(super) fn at_others(&self) -> cluster::Login {
        match self.cluster.as_ref().or(self.clients.as_ref()) {
            None => cluster::Login::default(),
            Some(credentials) => cluster::Login {
                user: credentials.user.clone(),
                password: Some(credentials.password.clone()),
            },
        }
    }

    /// What somebody may do who says this.
    fn rights(&self, given: Option<&Credentials>) -> Result<Rights, Status> {
        let client = Rights {
            tier_max: Tier::TimeSensitive,
            is_peer: self.cluster.is_none(),
        };
        let Some(clients) = &self.clients else {
            return Ok(client);
        };
        let given = given.ok_or_else(|| {
            Status::unauthenticated("log in first: this server asks for a user and a password")
        })?;
        let background = Rights {
            tier_max: Tier::Background,
            is_peer: false,
        };
        let peer = Rights {
            is_peer: true,
            ..client
        };
        let known = [
            (Some(clients), client),
            (self.background.as_ref(), background),
            (self.cluster.as_ref(), peer),
        ];
        // All are compared, whichever it is.
        let found = known.map(|(known, rights)| {
            let is_it = known.is_some_and(|known| {
                is_same(&given.user, &known.user) & is_same(&given.password, &known.password)
            });
            is_it.then_some(rights)
        });
        (found.into_iter().flatten().next())
            .ok_or_else(|| Status::unauthenticated("wrong user or password"))
    }
}

/// The sessions of a server's clients.
pub(super) struct Clients {
    door: Door,
    /// What new sessions are made like.
    base: Session,
    /// The session of calls without a token; nothing in it is ever set.
    anonymous: Arc<Session>,
    store: HandleStore<Login>,
}

/// A client that has logged in.
struct Login {
    owner: Owner,
    rights: Rights,
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
    pub(super) fn new(base: Session, door: Door) -> Clients {
        let anonymous = Arc::new(fork(&base, Tier::TimeSensitive));
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
        let rights = self.door.rights(given.as_ref())?;
        let user = given.map(|given| given.user).unwrap_or_default().into();
        let owner = Owner { peer, user };
        let login = Login {
            owner: owner.clone(),
            rights,
            session: OnceLock::new(),
        };
        Ok(self.store.put(&owner, login, 1, Instant::now()))
    }

    /// Whether this call may come in.
    pub(super) fn admit(&self, headers: &MetadataMap) -> Result<(), Status> {
        self.find(headers).map(|_| ())
    }

    /// Whether this call may come in, or may log in: before anything of it is read.
    pub(super) fn at_the_door(&self, headers: &MetadataMap) -> Result<(), Status> {
        match basic(headers) {
            Some(given) => self.door.rights(Some(&given)).map(|_| ()),
            None => self.admit(headers),
        }
    }

    /// Whether this call may be one of its cluster.
    pub(super) fn admit_peer(&self, headers: &MetadataMap) -> Result<(), Status> {
        let is_peer = match self.find(headers)? {
            Some(login) => login.rights.is_peer,
            None => self.door.cluster.is_none(),
        };
        match is_peer {
            true => Ok(()),
            false => Err(Status::permission_denied(
                "parts of queries are for the servers of a cluster: give all of them the same \
                 GIVEWAY_SQL_CLUSTER_PASSWORD",
            )),
        }
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
                let made = || Arc::new(fork(&self.base, login.rights.tier_max));
                let session = login.session.get_or_init(made);
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
            self.store.take(token, Instant::now());
        }
    }

    /// The login that a call refers to; `None` if it refers to none and needs none.
    fn find(&self, headers: &MetadataMap) -> Result<Option<Arc<Login>>, Status> {
        match bearer(headers) {
            Some(token) => match self.store.get(token, Instant::now()) {
                Some(login) => Ok(Some(login)),
                None => Err(Status::unauthenticated(
                    "unknown or expired token: log in again",
                )),
            },
            None => self.door.rights(None).map(|_| None),
        }
    }
}

/// The peer of a call's connection.
pub(super) fn peer<T>(request: &Request<T>) -> Option<Peer> {
    request.remote_addr().map(|address| Peer::new(address.ip()))
}

/// A session with the tables and settings of another one, for work of this tier at most.
fn fork(base: &Session, tier_max: Tier) -> Session {
    let session = base.engine().session();
    let (from, to) = (base.context(), session.context());
    for name in from.catalog_names() {
        if let Some(catalog) = from.catalog(&name) {
            to.register_catalog(name, catalog);
        }
    }
    let mut options = base.options();
    options.tier_max = options.tier_max.min(tier_max);
    options.tier = options.tier.min(tier_max);
    session.set_options(options);
    live::install_function(&session);
    session
}

fn bearer(headers: &MetadataMap) -> Option<&str> {
    let header = headers.get("authorization")?.to_str().ok()?;
    header.strip_prefix("Bearer ")
}

fn basic(headers: &MetadataMap) -> Option<Credentials> {
    let header = headers.get("authorization")?.to_str().ok()?;
    let text = BASE64_STANDARD
        .decode(header.strip_prefix("Basic ")?)
        .ok()?;
    let text = String::from_utf8(text).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(Credentials {
        user: user.to_owned(),
        password: password.to_owned(),
    })
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
        assert!(basic(&headers).is_none());
        let encoded = BASE64_STANDARD.encode("ann:a:b");
        headers.insert("authorization", format!("Basic {encoded}").parse().unwrap());
        let given = basic(&headers).unwrap();
        assert_eq!((&*given.user, &*given.password), ("ann", "a:b"));
        assert_eq!(bearer(&headers), None);
        headers.insert("authorization", "Bearer 17".parse().unwrap());
        assert_eq!(bearer(&headers), Some("17"));
    }

    #[test]
    fn each_login_has_its_rights() {
        let credentials = |user: &str, password: &str| Credentials {
            user: user.into(),
            password: password.into(),
        };
        let rights = |tier_max, is_peer| Rights { tier_max, is_peer };
        let (urgent, background) = (Tier::TimeSensitive, Tier::Background);
        let mut door = Door::default();
        assert_eq!(door.rights(None).unwrap(), rights(urgent, true));
        door.clients = Some(credentials("ann", "a"));
        door.background = Some(credentials("bob", "b"));
        assert_eq!(door.at_others().password.as_deref(), Some("a"));
        let of = |door: &Door, user: &str, password: &str| {
            let given = credentials(user, password);
            door.rights(Some(&given)).ok()
        };
        assert_eq!(of(&door, "ann", "a"), Some(rights(urgent, true)));
        assert_eq!(of(&door, "bob", "b"), Some(rights(background, false)));
        door.cluster = Some(credentials("servers", "c"));
        assert_eq!(of(&door, "ann", "a"), Some(rights(urgent, false)));
        assert_eq!(of(&door, "servers", "c"), Some(rights(urgent, true)));
        assert_eq!(door.at_others().password.as_deref(), Some("c"));
        for (user, password) in [("ann", "b"), ("bob", "a"), ("", ""), ("ann", "")] {
            assert_eq!(of(&door, user, password), None, "{user}");
        }
        assert!(door.rights(None).is_err());
    }

    #[test]
    fn passwords_are_compared_whole() {
        assert!(is_same("secret", "secret"));
        for wrong in ["secre", "secrets", "Secret", ""] {
            assert!(!is_same(wrong, "secret"), "{wrong}");
        }
    }
}
