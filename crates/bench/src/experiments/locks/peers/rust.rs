//! The locks that Rust programs use: the standard library's, and everything
//! that speaks `lock_api`.

use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard};

use crossbeam_utils::CachePadded;
use parking_lot_012::lock_api::RawMutex as _;

use crate::experiments::locks::lock::{BenchLock, LockHandle, Member};

/// `std::sync::Mutex`.
#[derive(Debug, Default)]
pub(super) struct Std(CachePadded<Mutex<()>>);

/// A user of it, with the guard while it holds the lock.
#[derive(Debug)]
pub(super) struct StdHandle<'a>(&'a Mutex<()>, Option<MutexGuard<'a, ()>>);

impl BenchLock for Std {
    type Handle<'a> = StdHandle<'a>;

    fn join(&self, _member: &Member) -> StdHandle<'_> {
        StdHandle(&self.0, None)
    }
}

// SAFETY: the guard is kept until `unlock`.
unsafe impl LockHandle for StdHandle<'_> {
    fn lock(&mut self) {
        // It protects nothing that a panic could leave half-changed.
        self.1 = Some(self.0.lock().unwrap_or_else(|poison| poison.into_inner()));
    }

    unsafe fn unlock(&mut self) {
        self.1 = None;
    }
}

/// parking_lot up to 0.12: `lock_api` 0.4, eventually fair.
pub(super) struct ParkingLot12(CachePadded<parking_lot_012::RawMutex>);

impl Default for ParkingLot12 {
    fn default() -> Self {
        ParkingLot12(CachePadded::new(parking_lot_012::RawMutex::INIT))
    }
}

impl BenchLock for ParkingLot12 {
    type Handle<'a> = &'a ParkingLot12;

    fn join(&self, _member: &Member) -> &ParkingLot12 {
        self
    }
}

// SAFETY: what `lock_api::RawMutex` promises.
unsafe impl LockHandle for &ParkingLot12 {
    fn lock(&mut self) {
        self.0.lock();
    }

    unsafe fn unlock(&mut self) {
        // SAFETY: the caller holds it.
        unsafe { self.0.unlock() };
    }
}

/// A raw mutex of `lock_api` 0.5: parking_lot 0.13, and CFL.
#[derive(Debug)]
pub(super) struct Raw<R>(CachePadded<R>);

/// A user of it, with what the lock wants back from its holder.
#[derive(Debug)]
pub(super) struct RawHandle<'a, R: lock_api::RawMutex> {
    raw: &'a R,
    /// Initialised from `lock` to `unlock`.
    guard: MaybeUninit<R::Guard>,
}

impl<R: lock_api::RawMutex> Raw<R> {
    pub(super) fn new(raw: R) -> Self {
        Raw(CachePadded::new(raw))
    }

    pub(super) fn handle(&self) -> RawHandle<'_, R> {
        RawHandle {
            raw: &self.0,
            guard: MaybeUninit::uninit(),
        }
    }
}

impl BenchLock for Raw<parking_lot_013::RawMutex> {
    type Handle<'a> = RawHandle<'a, parking_lot_013::RawMutex>;

    fn join(&self, _member: &Member) -> Self::Handle<'_> {
        self.handle()
    }
}

// SAFETY: what `lock_api::RawMutex` promises.
unsafe impl<R: lock_api::RawMutex> LockHandle for RawHandle<'_, R> {
    fn lock(&mut self) {
        self.guard.write(self.raw.lock());
    }

    unsafe fn unlock(&mut self) {
        // SAFETY: the caller holds the lock, so that `lock` wrote the guard,
        // and it is read once.
        unsafe { self.raw.unlock(self.guard.assume_init_read()) };
    }
}

/// No lock: what the loop around a pair costs. Excludes nobody, and is
/// therefore measured alone only.
#[derive(Debug)]
pub(super) struct Nothing;

impl BenchLock for Nothing {
    type Handle<'a> = NothingHandle;

    fn join(&self, _member: &Member) -> NothingHandle {
        NothingHandle(0)
    }
}

/// Counts, so that the loop is not empty.
#[derive(Debug)]
pub(super) struct NothingHandle(u64);

// SAFETY: the registry marks it as a baseline, which is measured with one
// thread only.
unsafe impl LockHandle for NothingHandle {
    fn lock(&mut self) {
        self.0 = std::hint::black_box(self.0 + 1);
    }

    unsafe fn unlock(&mut self) {}
}
