//! Locks that a worker takes, and how it records them for UFS: in its slot, or, as an
//! unpatched PostgreSQL server does, in its own memory.

use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use giveway_hints::slot::{Reader, Slot, Table};
use giveway_tier::Tier;

/// How threads tell UFS what they hold and wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Tell {
    /// Not at all.
    Nothing,
    /// In their slots.
    Slot,
    /// As an unpatched server does, which leaves UFS to read its memory:
    /// lightweight locks by tranche, spinlocks by nothing.
    Reader,
    /// The same with a heavyweight lock.
    Heavyweight,
}

impl Tell {
    pub(crate) fn from_number(number: u64) -> Self {
        [Tell::Nothing, Tell::Slot, Tell::Reader, Tell::Heavyweight][number as usize % 4]
    }
}

/// A lock of either kind, with the words that an unpatched server would have
/// in it. Its number for hints is its address.
#[repr(C)]
pub(crate) struct Lock {
    tranche: u16,
    /// Bit 30: somebody waits.
    state: AtomicU32,
    /// The list of its holders: previous, next.
    holders: [AtomicU64; 2],
    sleeping: Mutex<()>,
    spinning: AtomicBool,
}

pub(crate) enum Held<'a> {
    Sleeping(#[expect(dead_code, reason = "held until dropped")] MutexGuard<'a, ()>),
    Spinning(&'a AtomicBool),
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Held::Spinning(word) = self {
            word.store(false, Ordering::Release);
        }
    }
}

const LWLOCK_CLASS: u32 = 0x0100_0000;
const LOCK_CLASS: u32 = 0x0300_0000;
const SPIN_EVENT: u32 = 0x0900_0007;
const HAS_WAITERS: u32 = 30;

/// What an unpatched server has for each backend, with the entry by which the
/// backend is in a heavyweight lock's list.
#[repr(C)]
#[derive(Default)]
struct Backend {
    nheld: AtomicU32,
    pid: AtomicU32,
    held: [AtomicU64; 4],
    event_addr: AtomicU64,
    event: AtomicU32,
    me_addr: AtomicU64,
    wait_lock: AtomicU64,
    link: [AtomicU64; 2],
    link_backend: AtomicU64,
}

/// A thread's way to tell.
pub(crate) struct Teller {
    tell: Tell,
    slot: Slot,
    backend: &'static Backend,
}

impl Teller {
    pub(crate) fn new(tell: Tell, tier: Tier) -> Result<Self> {
        let slot = Table::open(None)?.attach().context("no slot is free")?;
        slot.set_domain(u64::from(std::process::id()));
        slot.set_tier(tier);
        let backend: &'static Backend = Box::leak(Box::default());
        if matches!(tell, Tell::Reader | Tell::Heavyweight) {
            let address = |word: &AtomicU64| std::ptr::from_ref(word) as u64;
            let event = std::ptr::from_ref(&backend.event) as u64;
            backend.event_addr.store(event, Ordering::Relaxed);
            backend
                .pid
                .store(nix::unistd::gettid().as_raw() as u32, Ordering::Relaxed);
            let me = std::ptr::from_ref(backend) as u64;
            backend.me_addr.store(me, Ordering::Relaxed);
            backend.link_backend.store(me, Ordering::Relaxed);
            slot.set_reader(&Reader {
                nheld_addr: std::ptr::from_ref(&backend.nheld) as u64,
                held_addr: address(&backend.held[0]),
                wait_event_ptr_addr: address(&backend.event_addr),
                lwlock_tranche_off: offset_of!(Lock, tranche) as u32,
                lwlock_state_off: offset_of!(Lock, state) as u32,
                lwlock_has_waiters_bit: HAS_WAITERS,
                wait_event_lwlock_class: LWLOCK_CLASS,
                wait_event_lock_class: LOCK_CLASS,
                wait_event_spin: SPIN_EVENT,
                my_proc_addr: address(&backend.me_addr),
                proc_waitlock_off: offset_of!(Backend, wait_lock) as u32,
                lock_proclocks_off: offset_of!(Lock, holders) as u32,
                proclock_link_off: offset_of!(Backend, link) as u32,
                proclock_proc_off: offset_of!(Backend, link_backend) as u32,
                proc_pid_off: offset_of!(Backend, pid) as u32,
                ..Reader::default()
            });
        }
        Ok(Self {
            tell,
            slot,
            backend,
        })
    }

    pub(crate) fn wait(&self, lock: &Lock, spin: bool) {
        let event = match self.tell {
            Tell::Nothing => return,
            Tell::Slot => return self.slot.wait(lock.number()),
            Tell::Reader if spin => SPIN_EVENT,
            Tell::Reader => LWLOCK_CLASS | u32::from(lock.tranche),
            Tell::Heavyweight => LOCK_CLASS,
        };
        lock.state.fetch_or(1 << HAS_WAITERS, Ordering::Relaxed);
        self.backend
            .wait_lock
            .store(lock.number(), Ordering::Relaxed);
        self.backend.event.store(event, Ordering::Relaxed);
    }

    pub(crate) fn wait_done(&self) {
        self.slot.wait_done();
        self.backend.event.store(0, Ordering::Relaxed);
    }

    pub(crate) fn hold(&self, lock: &Lock, spin: bool) {
        match self.tell {
            Tell::Slot => self.slot.hold(lock.number()),
            Tell::Reader if !spin => {
                self.backend.held[0].store(lock.number(), Ordering::Relaxed);
                self.backend.nheld.store(1, Ordering::Relaxed);
            }
            Tell::Heavyweight => {
                let head = std::ptr::from_ref(&lock.holders) as u64;
                let entry = std::ptr::from_ref(&self.backend.link) as u64;
                self.backend.link[1].store(head, Ordering::Relaxed);
                lock.holders[1].store(entry, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    pub(crate) fn release(&self, lock: &Lock) {
        if self.tell == Tell::Slot {
            self.slot.release(lock.number());
        }
        self.backend.nheld.store(0, Ordering::Relaxed);
    }
}

impl Lock {
    pub(crate) fn new(tranche: usize) -> Self {
        Self {
            tranche: 70 + tranche as u16,
            state: AtomicU32::new(0),
            holders: Default::default(),
            sleeping: Mutex::new(()),
            spinning: AtomicBool::new(false),
        }
    }

    fn number(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }

    pub(crate) fn take(&self, spin: bool, teller: &Teller) -> Held<'_> {
        let free = || {
            self.spinning
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        if spin {
            if !free() {
                teller.wait(self, spin);
                while !free() {
                    sleep(Duration::from_millis(1));
                }
                teller.wait_done();
            }
            return Held::Spinning(&self.spinning);
        }
        match self.sleeping.try_lock() {
            Ok(guard) => Held::Sleeping(guard),
            Err(TryLockError::Poisoned(_)) => unreachable!("no holder panics"),
            Err(TryLockError::WouldBlock) => {
                teller.wait(self, spin);
                let guard = self.sleeping.lock().expect("no holder panics");
                teller.wait_done();
                Held::Sleeping(guard)
            }
        }
    }
}
