//! Ranges of keys, as the user writes them and as the index sees them.

use std::ops::Bound;

use super::{Key, KeyBuf, KeySpec};
use crate::error::SchemaError;

/// From which key to which a scan goes. A bound may have fewer parts than the
/// key and then stands for all keys that begin with it.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<L, U> {
    lower: Bound<L>,
    upper: Bound<U>,
}

impl KeyRange<(), ()> {
    /// Every key.
    pub fn all() -> KeyRange<(), ()> {
        KeyRange::new(Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: Key + Clone> KeyRange<K, K> {
    /// The keys that begin with these parts.
    pub fn prefix(key: K) -> KeyRange<K, K> {
        KeyRange::between(key.clone(), key)
    }
}

impl<L: Key> KeyRange<L, ()> {
    /// This key and those after it.
    pub fn at_least(lower: L) -> KeyRange<L, ()> {
        KeyRange::new(Bound::Included(lower), Bound::Unbounded)
    }
}

impl<U: Key> KeyRange<(), U> {
    /// This key and those before it.
    pub fn at_most(upper: U) -> KeyRange<(), U> {
        KeyRange::new(Bound::Unbounded, Bound::Included(upper))
    }
}

impl<L: Key, U: Key> KeyRange<L, U> {
    /// From the first to the second key, both included.
    pub fn between(lower: L, upper: U) -> KeyRange<L, U> {
        KeyRange::new(Bound::Included(lower), Bound::Included(upper))
    }

    /// Between any bounds.
    pub fn new(lower: Bound<L>, upper: Bound<U>) -> KeyRange<L, U> {
        KeyRange { lower, upper }
    }

    pub(crate) fn encode(&self, spec: &KeySpec) -> Result<Span, SchemaError> {
        let mut from = KeyBuf::new();
        let mut empty = false;
        match &self.lower {
            Bound::Unbounded => {}
            Bound::Included(key) => spec.prefix(key, &mut from)?,
            Bound::Excluded(key) => {
                spec.prefix(key, &mut from)?;
                empty = !from.succeed();
            }
        }
        let mut to = Some(KeyBuf::new());
        match (&self.upper, to.as_mut().expect("just made")) {
            (Bound::Unbounded, _) => to = None,
            (Bound::Excluded(key), end) => spec.prefix(key, end)?,
            (Bound::Included(key), end) => {
                spec.prefix(key, end)?;
                if !end.succeed() {
                    to = None;
                }
            }
        }
        empty |= to
            .as_ref()
            .is_some_and(|to| to.as_slice() <= from.as_slice());
        Ok(Span { from, to, empty })
    }
}

/// Encoded keys from `from` up to, without, `to`; `None` is after all keys.
pub(crate) struct Span {
    pub(crate) from: KeyBuf,
    pub(crate) to: Option<KeyBuf>,
    pub(crate) empty: bool,
}

impl Span {
    /// The keys that begin with this one.
    pub(crate) fn prefix(key: &KeyBuf) -> Span {
        let mut end = KeyBuf::from(key.as_slice());
        let to = end.succeed().then_some(end);
        Span {
            from: KeyBuf::from(key.as_slice()),
            to,
            empty: false,
        }
    }

    /// From one encoded key up to, without, another.
    pub(crate) fn new(from: &[u8], to: Option<&[u8]>) -> Span {
        Span {
            from: KeyBuf::from(from),
            to: to.map(KeyBuf::from),
            empty: to.is_some_and(|to| to <= from),
        }
    }

    /// Where it ends.
    #[inline]
    pub(crate) fn end(&self) -> Option<&[u8]> {
        self.to.as_ref().map(KeyBuf::as_slice)
    }
}
