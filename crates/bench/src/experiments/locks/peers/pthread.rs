//! The C library's mutex: the default kind, the kind with priority
//! inheritance, and whatever a library puts under the same names.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

use crossbeam_utils::CachePadded;
use libc::{c_int, pthread_mutex_t, pthread_mutexattr_t};

use crate::experiments::locks::lock::{BenchLock, LockHandle, Member};
use crate::harness::error::{Error, Result};

pub(super) type Init =
    unsafe extern "C" fn(*mut pthread_mutex_t, *const pthread_mutexattr_t) -> c_int;
pub(super) type Call = unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;

/// Room for a mutex whose C type a library may have filled differently, at an
/// address that does not change.
#[derive(Debug)]
pub(super) struct Cell(Box<CachePadded<UnsafeCell<pthread_mutex_t>>>);

// SAFETY: a pthread mutex is made for being used by several threads.
unsafe impl Sync for Cell {}

impl Cell {
    pub(super) fn new() -> Self {
        Cell(Box::new(CachePadded::new(UnsafeCell::new(
            libc::PTHREAD_MUTEX_INITIALIZER,
        ))))
    }

    pub(super) fn get(&self) -> *mut pthread_mutex_t {
        self.0.get()
    }
}

/// The C library's mutex.
#[derive(Debug)]
pub(super) struct Pthread(Cell);

impl Pthread {
    /// `PTHREAD_MUTEX_DEFAULT`.
    pub(super) fn plain() -> Result<Self> {
        Ok(Pthread(Cell::new()))
    }

    /// `PTHREAD_PRIO_INHERIT`.
    pub(super) fn inheriting() -> Result<Self> {
        let cell = Cell::new();
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised first; the mutex is unused.
        let status = unsafe {
            libc::pthread_mutexattr_init(attributes.as_mut_ptr());
            let protocol = libc::PTHREAD_PRIO_INHERIT;
            let status = libc::pthread_mutexattr_setprotocol(attributes.as_mut_ptr(), protocol);
            match status {
                0 => libc::pthread_mutex_init(cell.get(), attributes.as_ptr()),
                status => status,
            }
        };
        match status {
            0 => Ok(Pthread(cell)),
            status => Err(Error::Config(format!(
                "the C library makes no mutex with priority inheritance: {}; \
                 leave pthread-pi out of --locks",
                io::Error::from_raw_os_error(status)
            ))),
        }
    }
}

impl BenchLock for Pthread {
    type Handle<'a> = &'a Pthread;

    fn join(&self, _member: &Member) -> &Pthread {
        self
    }
}

// SAFETY: POSIX says so; the mutex is initialised and does not move.
unsafe impl LockHandle for &Pthread {
    fn lock(&mut self) {
        // SAFETY: the mutex is initialised, and not held by this thread.
        let status = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        assert_eq!(status, 0, "pthread_mutex_lock");
    }

    unsafe fn unlock(&mut self) {
        // SAFETY: the caller holds it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// A library's functions under the names of the C library's.
#[derive(Debug)]
pub(super) struct Interposed {
    cell: Cell,
    lock: Call,
    unlock: Call,
}

impl Interposed {
    /// Makes a mutex with the library's functions.
    pub(super) fn new(path: &Path, init: Option<Init>, lock: Call, unlock: Call) -> Result<Self> {
        let cell = Cell::new();
        if let Some(init) = init {
            // SAFETY: the room is that of a mutex, and nobody uses it yet.
            let status = unsafe { init(cell.get(), std::ptr::null()) };
            if status != 0 {
                return Err(Error::Library {
                    path: path.to_owned(),
                    reason: format!("its pthread_mutex_init fails with {status}"),
                });
            }
        }
        Ok(Interposed { cell, lock, unlock })
    }
}

impl BenchLock for Interposed {
    type Handle<'a> = &'a Interposed;

    fn join(&self, _member: &Member) -> &Interposed {
        self
    }
}

// SAFETY: what the library promises; the ledger would show a broken promise.
unsafe impl LockHandle for &Interposed {
    fn lock(&mut self) {
        // SAFETY: the mutex was made by the library, and is not held by this
        // thread.
        let status = unsafe { (self.lock)(self.cell.get()) };
        assert_eq!(status, 0, "the library's pthread_mutex_lock");
    }

    unsafe fn unlock(&mut self) {
        // SAFETY: the caller holds it.
        unsafe { (self.unlock)(self.cell.get()) };
    }
}
