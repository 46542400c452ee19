//! The descriptor of his own table for each user who may have one.
//!
//! A table's pin is for root alone, who may be kept from it by a mount namespace in which
//! `/run/giveway/bpf` is not. Others connect to a socket and receive one message, the
//! size in bytes of their user's table and its descriptor; it is made when first asked
//! for. A peer without the right gets nothing and is hung up on.
//!
//! The right: root, or a user whose primary group owns the table, or who is a
//! member of it by the user database. The kernel says who the peer is
//! (`SO_PEERCRED`), as of its `connect`: its effective user, as this process's user
//! namespace, the first one, numbers it.
//!
//! Known weakness: one peer at a time; a message fits into any socket's buffer,
//! so none can hold the others up.

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

/// What is given out: the tables of the latest load, and to which group.
type Stock = Option<(Arc<Mutex<Tables>>, Gid)>;

static STOCK: Mutex<Stock> = Mutex::new(None);

/// Gives the tables out at `path` from a thread of its own, for as long as this process
/// lives. A load after the first goes on with the same door.
pub(crate) fn serve(path: &Path, tables: Arc<Mutex<Tables>>, gid: Gid) -> Result<()> {
    let is_open = lock(&STOCK).replace((tables, gid)).is_some();
    if is_open {
        return Ok(());
    }
    let _ = fs::remove_file(path);
    let flags = SockFlag::SOCK_CLOEXEC;
    let door = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(door.as_raw_fd(), &UnixAddr::new(path)?)
        .with_context(|| format!("cannot make the socket {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    listen(&door, Backlog::new(16)?)?;
    std::thread::spawn(move || {
        let mut without = HashSet::new();
        loop {
            if let Err(error) = answer(&door, &mut without) {
                warn!("a client of the hint table was not served: {error:#}");
                // Out of descriptors, perhaps: not at full speed.
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    });
    Ok(())
}

/// What is behind a lock here is whole at any time.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `without`: users for whom no table could be made, so that it is said once.
fn answer(door: &OwnedFd, without: &mut HashSet<u32>) -> Result<()> {
    let peer: RawFd = accept4(door.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: accept has just given us this descriptor.
    let peer = unsafe { OwnedFd::from_raw_fd(peer) };
    let who = getsockopt(&peer.as_fd(), sockopt::PeerCredentials)?;
    let Some((tables, gid)) = lock(&STOCK).clone() else {
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
                warn!("user {} goes without hints: {error:#}", who.uid());
            }
            return Ok(());
        }
    };
    let descriptor = [map.as_fd().as_raw_fd()];
    let control = [ControlMessage::ScmRights(&descriptor)];
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    // A peer that has gone is not our failure.
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
    fn root_and_the_owning_group_may_and_others_may_not() {
        let (nobody, owner) = (Uid::from_raw(65534), Gid::from_raw(4711));
        assert!(may_use(Uid::from_raw(0), Gid::from_raw(1), owner));
        assert!(may_use(nobody, owner, owner));
        assert!(!may_use(nobody, Gid::from_raw(65534), owner));
        assert!(!may_use(Uid::from_raw(4242), Gid::from_raw(1), owner));
    }
}
