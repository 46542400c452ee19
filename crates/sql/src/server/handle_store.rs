//! Objects that a client will ask for again, under handles that cannot be guessed.
//!
//! Clients disconnect without notice, so an object is dropped when it has not been asked
//! for during some time. Until then it takes up room, and room is bounded. No client is
//! refused: one that stores too many objects loses older ones of its own.
//!
//! S1. An owner has half of the places at most. One thing more takes the place of one
//!     of its own. (asserted in `put`)
//! S2. In a full store a thing takes the place of one of the peer that has the most,
//!     whatever its users are called: names cost nothing where no password is asked for.
//!     (asserted in `put`: the capacity; not which peer's thing goes)
//! S3. Of several, one that has never been asked for goes first, then the one that was
//!     last asked for the longest ago. (not asserted: `evict` takes the minimum)

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::Rng;

/// A handle: 128 random bits in hexadecimal.
pub(super) type Handle = String;

/// Whose things are counted together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) peer: Option<Peer>,
    pub(super) user: Arc<str>,
}

/// A machine that calls: by its address, of which a machine has 2^64 in IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer(IpAddr);

impl Peer {
    pub(super) fn new(address: IpAddr) -> Peer {
        Peer(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64 << 64;
                Ipv6Addr::from_bits(network).into()
            }
            address => address,
        })
    }
}

#[derive(Debug)]
pub(super) struct HandleStore<T> {
    kept_for: Duration,
    capacity: usize,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    things: HashMap<Handle, Kept<T>>,
    /// How many each owner has.
    counts: HashMap<Owner, usize>,
}

#[derive(Debug)]
struct Kept<T> {
    thing: Arc<T>,
    owner: Owner,
    was_asked_for: bool,
    asked_for: Instant,
}

impl<T> State<T> {
    fn insert(&mut self, handle: Handle, kept: Kept<T>) {
        *self.counts.entry(kept.owner.clone()).or_default() += 1;
        self.things.insert(handle, kept);
    }

    fn remove(&mut self, handle: &str) -> Option<Kept<T>> {
        let kept = self.things.remove(handle)?;
        let count = self.counts.get_mut(&kept.owner).expect("counted");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&kept.owner);
        }
        Some(kept)
    }

    /// Removes one of those whose owner is like that: S3.
    fn evict(&mut self, is_of: impl Fn(&Owner) -> bool) {
        let victim = (self.things.iter())
            .filter(|(_, kept)| is_of(&kept.owner))
            .min_by_key(|(_, kept)| (kept.was_asked_for, kept.asked_for))
            .map(|(handle, _)| handle.clone());
        if let Some(handle) = victim {
            self.remove(&handle);
        }
    }

    /// The peer that has the most.
    fn largest(&self) -> Option<Peer> {
        let mut counts: HashMap<Option<Peer>, usize> = HashMap::new();
        for (owner, count) in &self.counts {
            *counts.entry(owner.peer).or_default() += count;
        }
        let largest = counts.into_iter().max_by_key(|&(_, count)| count);
        largest.and_then(|(peer, _)| peer)
    }
}

impl<T> HandleStore<T> {
    pub(super) fn new(kept_for: Duration, capacity: usize) -> HandleStore<T> {
        HandleStore {
            kept_for,
            capacity,
            state: Mutex::new(State {
                things: HashMap::new(),
                counts: HashMap::new(),
            }),
        }
    }

    /// Puts a thing there; `now` is what it is kept from.
    pub(super) fn put(&self, owner: &Owner, thing: T, now: Instant) -> Handle {
        let mut state = crate::lock(&self.state);
        if state.things.len() >= self.capacity {
            let is_over = |kept: &Kept<T>| now.duration_since(kept.asked_for) >= self.kept_for;
            let over: Vec<Handle> = (state.things.iter())
                .filter(|(_, kept)| is_over(kept))
                .map(|(handle, _)| handle.clone())
                .collect();
            for handle in over {
                state.remove(&handle);
            }
        }
        let has = state.counts.get(owner).copied().unwrap_or(0);
        if has >= self.capacity / 2 {
            // S1.
            state.evict(|other| other == owner);
        } else if state.things.len() >= self.capacity {
            // S2.
            let peer = state.largest();
            state.evict(|other| other.peer == peer);
        }
        let handle = format!("{:032x}", rand::rng().random::<u128>());
        let kept = Kept {
            thing: Arc::new(thing),
            owner: owner.clone(),
            was_asked_for: false,
            asked_for: now,
        };
        state.insert(handle.clone(), kept);
        debug_assert!(
            state.counts[owner] <= self.capacity / 2,
            "S1: {} things of {owner:?}",
            state.counts[owner]
        );
        debug_assert!(
            state.things.len() <= self.capacity,
            "S2: the store is too full"
        );
        debug_assert_eq!(state.counts.values().sum::<usize>(), state.things.len());
        handle
    }

    /// Asks for a thing, which is then kept for longer.
    pub(super) fn get(&self, handle: &str, now: Instant) -> Option<Arc<T>> {
        let mut state = crate::lock(&self.state);
        let kept = state.things.get_mut(handle)?;
        if now.duration_since(kept.asked_for) >= self.kept_for {
            state.remove(handle);
            return None;
        }
        kept.asked_for = now;
        kept.was_asked_for = true;
        Some(Arc::clone(&kept.thing))
    }

    /// Takes a thing away.
    pub(super) fn take(&self, handle: &str) -> Option<Arc<T>> {
        let mut state = crate::lock(&self.state);
        state.remove(handle).map(|kept| kept.thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(address: &str, user: &str) -> Owner {
        Owner {
            peer: Some(Peer::new(address.parse().unwrap())),
            user: user.into(),
        }
    }

    #[test]
    fn things_are_kept_while_somebody_asks() {
        let (one, two) = (owner("10.0.0.1", "ann"), owner("10.0.0.2", "ann"));
        let store = HandleStore::new(Duration::from_secs(10), 2);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let a = store.put(&one, 'a', at(0));
        let b = store.put(&two, 'b', at(0));
        assert_ne!(a, b);
        assert_eq!(store.get(&a, at(9)).as_deref(), Some(&'a'));
        // Full; b has been left.
        let c = store.put(&two, 'c', at(11));
        assert_eq!(store.get(&b, at(11)), None);
        assert_eq!(store.get(&a, at(12)).as_deref(), Some(&'a'));
        assert_eq!(store.take(&c).as_deref(), Some(&'c'));
        assert_eq!(store.take(&c), None);
        assert_eq!(store.get(&a, at(22)), None);
    }

    #[test]
    fn an_owner_of_too_much_loses_its_own() {
        let store = HandleStore::new(Duration::from_secs(10), 8);
        let start = Instant::now();
        let (ann, bob) = (owner("10.0.0.1", "ann"), owner("10.0.0.1", "bob"));
        let anns = store.put(&ann, 0, start);
        let bobs: Vec<_> = (0..4).map(|i| store.put(&bob, i, start)).collect();
        // S3: three are in use.
        for handle in &bobs[1..] {
            assert!(store.get(handle, start).is_some());
        }
        for i in 4..100 {
            store.put(&bob, i, start);
        }
        assert!(store.get(&anns, start).is_some());
        assert_eq!(store.get(&bobs[0], start), None, "S1");
        assert!(bobs[1..].iter().all(|one| store.get(one, start).is_some()));
    }

    #[test]
    fn a_peer_with_many_names_makes_room_for_others() {
        let store = HandleStore::new(Duration::from_secs(10), 8);
        let start = Instant::now();
        let ann = store.put(&owner("10.0.0.1", "ann"), 0, start);
        let bob = store.put(&owner("::ffff:10.0.0.2", "bob"), 0, start);
        assert!(store.get(&bob, start).is_some());
        for i in 0..100 {
            let flooding = owner("10.0.0.2", &format!("user {i}"));
            store.put(&flooding, i, start);
        }
        assert!(store.get(&ann, start).is_some(), "S2");
        assert!(store.get(&bob, start).is_some(), "S3");
        assert_eq!(
            owner("fe80::1", "ann"),
            owner("fe80::ffff:1:2:3", "ann"),
            "one machine"
        );
    }
}
