//! The table's descriptor for those who may use it but cannot open it.
//!
//! A process may be kept from the pin by more than its permissions: a mount
//! namespace in which `/run/giveway/bpf` is not, or groups that it got before
//! its user joined. It connects to a socket instead and receives one message,
//! the table's size in bytes and its descriptor. A peer without the right gets
//! nothing and is hung up on.
//!
//! The right: root, or a user whose primary group owns the table, or who is a
//! member of it by the user database. The kernel says who the peer is
//! (`SO_PEERCRED`), as of its `connect`.
//!
//! Known weakness: one peer at a time; a message fits into any socket's buffer,
//! so none can hold the others up.

use std::fs;
use std::io::IoSlice;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use log::warn;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind,
    getsockopt, listen, sendmsg, socket, sockopt,
};
use nix::unistd::{Gid, Uid, User, getgrouplist};

/// Serves the descriptor `map`, of a table of `size` bytes, at `path` from a
/// thread of its own, for as long as this process lives. A load after the first
/// goes on with the same table, and with the same door.
pub(crate) fn serve(path: &Path, map: OwnedFd, size: usize, gid: Gid) -> Result<()> {
    static OPEN: AtomicBool = AtomicBool::new(false);
    if OPEN.swap(true, Ordering::Relaxed) {
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
        loop {
            if let Err(error) = answer(&door, &map, size, gid) {
                warn!("a client of the hint table was not served: {error:#}");
                // Out of descriptors, perhaps: not at full speed.
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    });
    Ok(())
}

fn answer(door: &OwnedFd, map: &OwnedFd, size: usize, gid: Gid) -> Result<()> {
    let peer: RawFd = accept4(door.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: accept has just given us this descriptor.
    let peer = unsafe { OwnedFd::from_raw_fd(peer) };
    let who = getsockopt(&peer.as_fd(), sockopt::PeerCredentials)?;
    if !may_use(Uid::from_raw(who.uid()), Gid::from_raw(who.gid()), gid) {
        return Ok(());
    }
    let bytes = (size as u64).to_ne_bytes();
    let descriptor = [map.as_raw_fd()];
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
