//! Options as the lock paths read them: a slot of the table of profiles.
//!
//! A zeroed slot must mean the default options, because the profile of every
//! zeroed lock is one that nobody has written. So numbers are kept as differences
//! from their defaults, and criteria as those that are off.

use std::time::Duration;

use super::{Criteria, NAME, Options, SLICE_NS, SPIN_NS, Scope};
use crate::slab::Slot;
use crate::stats::Counters;
use crate::sync::{Acquire, AtomicU32, LooseU32, LooseU64, Relaxed, Release};

/// Options as the lock paths read them. Zeroes mean the default options.
pub(crate) struct Settings {
    link: AtomicU32,
    flags: LooseU32,
    /// Differences from the defaults, so that zero is the default.
    slice: LooseU64,
    spin: LooseU64,
    grace_ns: LooseU64,
    pub(crate) counters: Counters,
    name_len: LooseU32,
    name: [LooseU64; NAME / 8],
}

/// In `flags`. The criteria are the lowest bits, inverted.
const SCOPE_LOCK: u32 = 8;
const STRICT: u32 = 16;
const STATISTICS: u32 = 32;
const BARGING: u32 = 64;
const NO_BARGING: u32 = 128;

macro_rules! settings {
    ($name:expr) => {
        Settings {
            link: AtomicU32::new(0),
            flags: LooseU32::new(0),
            slice: LooseU64::new(0),
            spin: LooseU64::new(0),
            grace_ns: LooseU64::new(0),
            counters: Counters::new(),
            name_len: LooseU32::new(0),
            name: $name,
        }
    };
}

impl Slot for Settings {
    #[cfg(not(any(loom, shuttle)))]
    const ZERO: Settings = settings!([const { LooseU64::new(0) }; NAME / 8]);
    #[cfg(any(loom, shuttle))]
    fn zero() -> Settings {
        settings!(std::array::from_fn(|_| LooseU64::new(0)))
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl Settings {
    pub(super) fn set(&self, options: &Options, name: &str) {
        let mut flags = Criteria::ALL.0 & !options.criteria.0;
        let mut set = |on, bit| flags |= if on { bit } else { 0 };
        set(options.scope == Scope::Lock, SCOPE_LOCK);
        set(options.strict_guarantee, STRICT);
        set(options.statistics, STATISTICS);
        set(options.barging == Some(true), BARGING);
        set(options.barging == Some(false), NO_BARGING);
        let ns = |duration: Duration| duration.as_nanos().min(1 << 60) as u64;
        self.slice
            .store(ns(options.slice).wrapping_sub(SLICE_NS), Relaxed);
        self.spin
            .store(ns(options.spin).wrapping_sub(SPIN_NS), Relaxed);
        let grace = options.grace_period.min(Duration::from_secs(60));
        self.grace_ns.store(ns(grace), Relaxed);
        let name = &name.as_bytes()[..name.len().min(NAME)];
        for (word, bytes) in self.name.iter().zip(name.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(padded), Relaxed);
        }
        self.name_len.store(name.len() as u32, Relaxed);
        self.flags.store(flags, Release);
    }

    pub(super) fn name(&self) -> String {
        let len = self.name_len.load(Relaxed) as usize;
        let words = self
            .name
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes());
        let bytes: Vec<u8> = words.take(len).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[inline]
    fn flags(&self) -> u32 {
        self.flags.load(Acquire)
    }

    #[inline]
    pub(crate) fn criteria(&self) -> Criteria {
        Criteria(Criteria::ALL.0 & !self.flags())
    }

    #[inline]
    pub(crate) fn scope(&self) -> Scope {
        if self.flags() & SCOPE_LOCK != 0 {
            Scope::Lock
        } else {
            Scope::Thread
        }
    }

    #[inline]
    pub(crate) fn strict(&self) -> bool {
        self.flags() & STRICT != 0
    }

    #[inline]
    pub(crate) fn statistics(&self) -> bool {
        self.flags() & STATISTICS != 0
    }

    /// Whether locks of this profile stay metered when nobody contends.
    #[inline]
    pub(crate) fn always_metered(&self) -> bool {
        self.flags() & (STRICT | STATISTICS) != 0
    }

    #[inline]
    pub(crate) fn barging(&self, by_default: bool) -> bool {
        match self.flags() & (BARGING | NO_BARGING) {
            BARGING => true,
            NO_BARGING => false,
            _ => by_default,
        }
    }

    #[inline]
    pub(crate) fn slice_ns(&self) -> u64 {
        self.slice.load(Relaxed).wrapping_add(SLICE_NS)
    }

    #[inline]
    pub(crate) fn spin_ns(&self) -> u64 {
        self.spin.load(Relaxed).wrapping_add(SPIN_NS)
    }

    #[inline]
    pub(crate) fn grace_ns(&self) -> u64 {
        self.grace_ns.load(Relaxed)
    }
}
