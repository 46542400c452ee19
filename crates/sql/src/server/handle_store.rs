//! Objects that a client will ask for again, under handles that cannot be guessed.
//!
//! Clients disconnect without notice, so an object is dropped when it has not been asked
//! for during some time. Until then it takes up room, and room is bounded. No client is
//! refused: one that stores too many objects loses older ones of its own.
//!
//! A large thing has several places ([`places`]).
//!
//! S1. An owner has half of the places at most. One thing more takes the places of some
//!     of its own. (asserted in `put`)
//! S2. In a full store a thing takes the places of some of the peer that has the most,
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

/// Bytes of a text in one place.
const PLACE_BYTES: usize = 2048;

/// How many places something takes that is made of such a text.
pub(super) fn places(text: &str) -> usize {
    1 + text.len() / PLACE_BYTES
}

/// How often things that nobody has asked for are looked for.
const LOOK: Duration = Duration::from_secs(10);

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
    /// How many places each owner has.
    counts: HashMap<Owner, usize>,
    /// The sum of these.
    taken: usize,
    looked: Option<Instant>,
}

#[derive(Debug)]
struct Kept<T> {
    thing: Arc<T>,
    owner: Owner,
    places: usize,
    was_asked_for: bool,
    asked_for: Instant,
}

impl<T> State<T> {
    fn insert(&mut self, handle: Handle, kept: Kept<T>) {
        *self.counts.entry(kept.owner.clone()).or_default() += kept.places;
        self.taken += kept.places;
        self.things.insert(handle, kept);
    }

    fn remove(&mut self, handle: &str) -> Option<Kept<T>> {
        let kept = self.things.remove(handle)?;
        let count = self.counts.get_mut(&kept.owner).expect("counted");
        *count -= kept.places;
        if *count == 0 {
            self.counts.remove(&kept.owner);
        }
        self.taken -= kept.places;
        Some(kept)
    }

    /// Removes one of those whose owner is like that: S3. False if there is none.
    fn evict(&mut self, is_of: impl Fn(&Owner) -> bool) -> bool {
        let victim = (self.things.iter())
            .filter(|(_, kept)| is_of(&kept.owner))
            .min_by_key(|(_, kept)| (kept.was_asked_for, kept.asked_for))
            .map(|(handle, _)| handle.clone());
        victim.is_some_and(|handle| self.remove(&handle).is_some())
    }

    /// Removes what nobody has asked for so long.
    fn purge(&mut self, kept_for: Duration, now: Instant) {
        self.looked = Some(now);
        let is_over = |kept: &Kept<T>| now.duration_since(kept.asked_for) >= kept_for;
        let over: Vec<Handle> = (self.things.iter())
            .filter(|(_, kept)| is_over(kept))
            .map(|(handle, _)| handle.clone())
            .collect();
        for handle in over {
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
                taken: 0,
                looked: None,
            }),
        }
    }

    /// Puts a thing there that takes so many [`places`], at most half of them; `now` is
    /// what it is kept from.
    pub(super) fn put(&self, owner: &Owner, thing: T, places: usize, now: Instant) -> Handle {
        let places = places.min(self.capacity / 2);
        let mut state = crate::lock(&self.state);
        let is_due = |looked: Instant| now.duration_since(looked) >= LOOK;
        if state.looked.is_none_or(is_due) || state.taken + places > self.capacity {
            state.purge(self.kept_for, now);
        }
        let has = |state: &State<T>| state.counts.get(owner).copied().unwrap_or(0);
        // S1.
        while has(&state) + places > self.capacity / 2 {
            state.evict(|other| other == owner);
        }
        // S2.
        while state.taken + places > self.capacity {
            let peer = state.largest();
            state.evict(|other| other.peer == peer);
        }
        let handle = format!("{:032x}", rand::rng().random::<u128>());
        let kept = Kept {
            thing: Arc::new(thing),
            owner: owner.clone(),
            places,
            was_asked_for: false,
            asked_for: now,
        };
        state.insert(handle.clone(), kept);
        debug_assert!(
            state.counts[owner] <= self.capacity / 2,
            "S1: {} places of {owner:?}",
            state.counts[owner]
        );
        debug_assert!(state.taken <= self.capacity, "S2: the store is too full");
        debug_assert_eq!(state.counts.values().sum::<usize>(), state.taken);
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
    pub(super) fn take(&self, handle: &str, now: Instant) -> Option<Arc<T>> {
        let mut state = crate::lock(&self.state);
        let kept = state.remove(handle)?;
        (now.duration_since(kept.asked_for) < self.kept_for).then_some(kept.thing)
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
        let a = store.put(&one, 'a', 1, at(0));
        let b = store.put(&two, 'b', 1, at(0));
        assert_ne!(a, b);
        assert_eq!(store.get(&a, at(9)).as_deref(), Some(&'a'));
        // Full; b has been left.
        let c = store.put(&two, 'c', 1, at(11));
        assert_eq!(store.get(&b, at(11)), None);
        assert_eq!(store.get(&a, at(12)).as_deref(), Some(&'a'));
        assert_eq!(store.take(&c, at(12)).as_deref(), Some(&'c'));
        assert_eq!(store.take(&c, at(12)), None);
        assert_eq!(store.get(&a, at(22)), None);
    }

    #[test]
    fn an_owner_of_too_much_loses_its_own() {
        let store = HandleStore::new(Duration::from_secs(10), 8);
        let start = Instant::now();
        let (ann, bob) = (owner("10.0.0.1", "ann"), owner("10.0.0.1", "bob"));
        let anns = store.put(&ann, 0, 1, start);
        let bobs: Vec<_> = (0..4).map(|i| store.put(&bob, i, 1, start)).collect();
        // S3: three are in use.
        for handle in &bobs[1..] {
            assert!(store.get(handle, start).is_some());
        }
        for i in 4..100 {
            store.put(&bob, i, 1, start);
        }
        assert!(store.get(&anns, start).is_some());
        assert_eq!(store.get(&bobs[0], start), None, "S1");
        assert!(bobs[1..].iter().all(|one| store.get(one, start).is_some()));
    }

    #[test]
    fn large_things_take_several_places_and_old_ones_go_unasked() {
        let store = HandleStore::new(Duration::from_secs(10), 8);
        let (ann, bob) = (owner("10.0.0.1", "ann"), owner("10.0.0.2", "bob"));
        let start = Instant::now();
        let later = start + Duration::from_secs(11);
        let small = store.put(&ann, 0, 1, start);
        let large = store.put(&ann, 1, 3, start);
        assert!(store.get(&small, start).is_some() && store.get(&large, start).is_some());
        // S1: both have to go.
        let whole = store.put(&ann, 2, 100, start);
        assert!(store.get(&small, start).is_none() && store.get(&large, start).is_none());
        assert!(store.take(&whole, later).is_none(), "too late");
        let left = store.put(&ann, 3, 1, start);
        store.put(&bob, 4, 1, later);
        assert!(!crate::lock(&store.state).things.contains_key(&left));
        assert_eq!(crate::lock(&store.state).taken, 1);
    }

    #[test]
    fn a_peer_with_many_names_makes_room_for_others() {
        let store = HandleStore::new(Duration::from_secs(10), 8);
        let start = Instant::now();
        let ann = store.put(&owner("10.0.0.1", "ann"), 0, 1, start);
        let bob = store.put(&owner("::ffff:10.0.0.2", "bob"), 0, 1, start);
        assert!(store.get(&bob, start).is_some());
        for i in 0..100 {
            let flooding = owner("10.0.0.2", &format!("user {i}"));
            store.put(&flooding, i, 1, start);
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
