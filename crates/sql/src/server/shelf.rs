//! Things that a client will ask for again, under handles nobody can guess.
//!
//! Clients go away without a word, so what they have left is dropped after a time
//! in which nobody asked for it. Sweeping is done when something is put there, and
//! a shelf that is full of things in use refuses more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::Rng;

/// A handle: 128 random bits in hexadecimal.
pub(super) type Handle = String;

/// There is no room: everything has been asked for lately.
#[derive(Debug)]
pub(super) struct Full;

#[derive(Debug)]
pub(super) struct Shelf<T> {
    kept_for: Duration,
    capacity: usize,
    things: Mutex<HashMap<Handle, Kept<T>>>,
}

#[derive(Debug)]
struct Kept<T> {
    thing: Arc<T>,
    asked_for: Instant,
}

impl<T> Shelf<T> {
    pub(super) fn new(kept_for: Duration, capacity: usize) -> Shelf<T> {
        Shelf {
            kept_for,
            capacity,
            things: Mutex::default(),
        }
    }

    /// Puts a thing there; `now` is what it is kept from.
    pub(super) fn put(&self, thing: T, now: Instant) -> Result<Handle, Full> {
        let mut things = crate::lock(&self.things);
        if things.len() >= self.capacity {
            things.retain(|_, kept| now.duration_since(kept.asked_for) < self.kept_for);
        }
        if things.len() >= self.capacity {
            return Err(Full);
        }
        let handle = format!("{:032x}", rand::rng().random::<u128>());
        let kept = Kept {
            thing: Arc::new(thing),
            asked_for: now,
        };
        things.insert(handle.clone(), kept);
        Ok(handle)
    }

    /// Asks for a thing, which is then kept for longer.
    pub(super) fn get(&self, handle: &str, now: Instant) -> Option<Arc<T>> {
        let mut things = crate::lock(&self.things);
        let kept = things.get_mut(handle)?;
        if now.duration_since(kept.asked_for) >= self.kept_for {
            things.remove(handle);
            return None;
        }
        kept.asked_for = now;
        Some(Arc::clone(&kept.thing))
    }

    /// Takes a thing away.
    pub(super) fn take(&self, handle: &str) -> Option<Arc<T>> {
        let mut things = crate::lock(&self.things);
        things.remove(handle).map(|kept| kept.thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_kept_while_somebody_asks() {
        let shelf = Shelf::new(Duration::from_secs(10), 2);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let a = shelf.put('a', at(0)).unwrap();
        let b = shelf.put('b', at(0)).unwrap();
        assert_ne!(a, b);
        assert_eq!(shelf.get(&a, at(9)).as_deref(), Some(&'a'));
        // Full, with both in use; then b has been left.
        assert!(shelf.put('c', at(9)).is_err());
        let c = shelf.put('c', at(11)).unwrap();
        assert_eq!(shelf.get(&b, at(11)), None);
        assert_eq!(shelf.get(&a, at(12)).as_deref(), Some(&'a'));
        assert_eq!(shelf.take(&c).as_deref(), Some(&'c'));
        assert_eq!(shelf.take(&c), None);
        assert_eq!(shelf.get(&a, at(22)), None);
    }
}
