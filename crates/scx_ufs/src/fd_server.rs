//! Passes the fd of a user's hint table over a Unix socket (`SCM_RIGHTS`).
//!
//! Only root can open a table's pin, and in a mount namespace without
//! `/run/giveway/bpf` root cannot either. A client connects to the socket and receives
//! one message: the size in bytes of its user's table, and the table's fd. The table is
//! made at the first request. A client without the right gets nothing, and its
//! connection is closed.
//!
//! The right: root, a user whose primary group is the tables' group, and the members of
//! that group by the user database. The kernel says which user the client is
//! (`SO_PEERCRED`, as of `connect`): its effective user, by its number in the initial
//! user namespace.
//!
//! A client that says nothing, reads nothing or leaves delays no other: nothing is awaited
//! from any, and the message fits into the buffer of any socket. The queue of those who
//! wait is as long as the kernel allows, so that one who connects as fast as he can does
//! not keep others out.
//!
//! Known weakness: clients are served one at a time, and the user database is asked for
//! each that is not root. Where that is slow, they wait for each other.

use std::collections::HashSet;
use std::fs;
use std::io::IoSlice;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use log::warn;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind,
    getsockopt, listen, sendmsg, socket, sockopt,
};
use nix::unistd::{Gid, Uid, User, getgrouplist};

use crate::users::Tables;

/// The tables of the latest load, and the group that may use them.
type Served = Option<(Arc<Mutex<Tables>>, Gid)>;

static SERVED: Mutex<Served> = Mutex::new(None);

/// Serves the tables at `path` in a thread of its own, for as long as this process
/// lives. Later loads use the same socket.
pub(crate) fn serve(path: &Path, tables: Arc<Mutex<Tables>>, gid: Gid) -> Result<()> {
    let is_open = lock(&SERVED).replace((tables, gid)).is_some();
    if is_open {
        return Ok(());
    }
    let _ = fs::remove_file(path);
    let flags = SockFlag::SOCK_CLOEXEC;
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(listener.as_raw_fd(), &UnixAddr::new(path)?)
        .with_context(|| format!("cannot make the socket {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    listen(&listener, Backlog::MAXCONN)?;
    std::thread::spawn(move || {
        let mut without = HashSet::new();
        loop {
            if let Err(error) = answer(&listener, &mut without) {
                warn!("a client of the hint table was not served: {error:#}");
                // Maybe there are no descriptors left: do not retry at full speed.
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    });
    Ok(())
}

/// Locks a mutex whose contents are valid even if a thread panicked.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `without`: users for whom no table could be made, so that each is logged once.
fn answer(listener: &OwnedFd, without: &mut HashSet<u32>) -> Result<()> {
    let peer: RawFd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: accept has just given us this descriptor.
    let peer = unsafe { OwnedFd::from_raw_fd(peer) };
    let who = getsockopt(&peer.as_fd(), sockopt::PeerCredentials)?;
    let Some((tables, gid)) = lock(&SERVED).clone() else {
        return Ok(());
    };
    if !may_use(Uid::from_raw(who.uid()), Gid::from_raw(who.gid()), gid) {
        return Ok(());
    }
    let mut tables = lock(&tables);
    let bytes = (tables.size() as u64).to_ne_bytes();
    let map = match tables.of(who.uid()) {
        Ok(map) => map,
        Err(error) => {
            if without.insert(who.uid()) {
                warn!("user {} gets no hint table: {error:#}", who.uid());
            }
            return Ok(());
        }
    };
    let descriptor = [map.as_fd().as_raw_fd()];
    let control = [ControlMessage::ScmRights(&descriptor)];
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    // A client that has gone is no failure.
    let _ = sendmsg::<UnixAddr>(
        peer.as_raw_fd(),
        &[IoSlice::new(&bytes)],
        &control,
        flags,
        None,
    );
    Ok(())
}

fn may_use(uid: Uid, primary: Gid, owner: Gid) -> bool {
    if uid.is_root() || primary == owner {
        return true;
    }
    let Ok(Some(user)) = User::from_uid(uid) else {
        return false;
    };
    std::ffi::CString::new(user.name)
        .ok()
        .and_then(|name| getgrouplist(&name, user.gid).ok())
        .is_some_and(|groups| groups.contains(&owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_owning_group_may_use_tables() {
        let (nobody, owner) = (Uid::from_raw(65534), Gid::from_raw(4711));
        assert!(may_use(Uid::from_raw(0), Gid::from_raw(1), owner));
        assert!(may_use(nobody, owner, owner));
        assert!(!may_use(nobody, Gid::from_raw(65534), owner));
        assert!(!may_use(Uid::from_raw(4242), Gid::from_raw(1), owner));
    }
}
