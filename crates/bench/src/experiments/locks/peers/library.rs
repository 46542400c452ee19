//! Locks from a shared library: `--library NAME=PATH`.
//!
//! Either four functions, which see threads, weights and groups:
//!
//! ```c
//! void *giveway_bench_new(void);                  // a lock; never freed
//! void *giveway_bench_join(void *lock, unsigned weight,
//!                          const char *group, unsigned group_weight);
//!                                                 // called by each thread; group
//!                                                 // is NULL without one; returns
//!                                                 // what the next two are given
//! void  giveway_bench_lock(void *lock, void *thread);
//! void  giveway_bench_unlock(void *lock, void *thread);
//! ```
//!
//! or `pthread_mutex_lock` and `pthread_mutex_unlock`, and if it likes
//! `pthread_mutex_init`, as interposers for `LD_PRELOAD` have them; such a lock
//! sees nothing but the calling thread. A library stays loaded to the end: its
//! threads' destructors may run late.

use std::ffi::{CString, c_char, c_uint, c_void};
use std::path::Path;
use std::ptr;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

use super::pthread::{Call, Init, Interposed};
use crate::experiments::locks::kind::{Kind, Traits};
use crate::experiments::locks::lock::{BenchLock, LockHandle, Member};
use crate::harness::error::{Error, Result};

type New = unsafe extern "C" fn() -> *mut c_void;
type Join = unsafe extern "C" fn(*mut c_void, c_uint, *const c_char, c_uint) -> *mut c_void;
type Use = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// The lock of a library, under a name of the user's.
pub(super) fn kind(name: &str, path: &Path) -> Result<Kind> {
    let fail = |reason: String| Error::Library {
        path: path.to_owned(),
        reason,
    };
    // SAFETY: loading runs the library's constructors: the user named a file
    // whose code is to be run.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| fail(error.to_string()))?;
    let library: &'static Library = Box::leak(Box::new(library));
    let owned = path.to_owned();
    if let Some(table) = Table::of(library).map_err(fail)? {
        let traits = Traits {
            weighted: true,
            ..Traits::default()
        };
        let make = move || Custom::new(&owned, table);
        return Ok(Kind::new(name, "from --library, four functions", make).with(traits));
    }
    let lock: Option<Call> = own_symbol(library, "pthread_mutex_lock");
    let unlock: Option<Call> = own_symbol(library, "pthread_mutex_unlock");
    let init: Option<Init> = own_symbol(library, "pthread_mutex_init");
    match (lock, unlock) {
        (Some(lock), Some(unlock)) => Ok(Kind::new(name, "from --library, pthread", move || {
            Interposed::new(&owned, init, lock, unlock)
        })),
        _ => Err(fail(
            "it has neither giveway_bench_new, _join, _lock and _unlock, nor \
             pthread_mutex_lock and pthread_mutex_unlock of its own"
                .to_owned(),
        )),
    }
}

fn symbol<T: Copy>(library: &Library, name: &str) -> Option<T> {
    // SAFETY: the type is what the module's text demands of that name.
    let found: Symbol<T> = unsafe { library.get(name.as_bytes()) }.ok()?;
    Some(*found)
}

/// A function of the library itself: the search goes on in what it is linked
/// with, and would find the C library's.
fn own_symbol<T: Copy>(library: &Library, name: &str) -> Option<T> {
    let address: usize = symbol(library, name)?;
    let c_name = CString::new(name).ok()?;
    // SAFETY: a look-up by name.
    let of_libc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c_name.as_ptr()) };
    match address == of_libc.addr() {
        true => None,
        false => symbol(library, name),
    }
}

#[derive(Clone, Copy, Debug)]
struct Table {
    new: New,
    join: Join,
    lock: Use,
    unlock: Use,
}

impl Table {
    /// All four, or none.
    fn of(library: &Library) -> std::result::Result<Option<Table>, String> {
        let Some(new) = symbol(library, "giveway_bench_new") else {
            return Ok(None);
        };
        let missing = |name: &str| format!("it has giveway_bench_new and no {name}");
        let name = "giveway_bench_join";
        let join = symbol(library, name).ok_or_else(|| missing(name))?;
        let name = "giveway_bench_lock";
        let lock = symbol(library, name).ok_or_else(|| missing(name))?;
        let name = "giveway_bench_unlock";
        let unlock = symbol(library, name).ok_or_else(|| missing(name))?;
        Ok(Some(Table {
            new,
            join,
            lock,
            unlock,
        }))
    }
}

/// A lock of the four functions.
#[derive(Debug)]
struct Custom {
    table: Table,
    lock: *mut c_void,
}

// SAFETY: the library's functions take the lock from any thread, by contract.
unsafe impl Send for Custom {}
// SAFETY: as above.
unsafe impl Sync for Custom {}

impl Custom {
    fn new(path: &Path, table: Table) -> Result<Self> {
        // SAFETY: the function takes nothing and is what the contract says.
        let lock = unsafe { (table.new)() };
        if lock.is_null() {
            return Err(Error::Library {
                path: path.to_owned(),
                reason: "its giveway_bench_new returned NULL".to_owned(),
            });
        }
        Ok(Custom { table, lock })
    }
}

struct CustomHandle<'a> {
    custom: &'a Custom,
    thread: *mut c_void,
}

impl BenchLock for Custom {
    type Handle<'a> = CustomHandle<'a>;

    fn join(&self, member: &Member) -> CustomHandle<'_> {
        let group = member.group.as_ref();
        // Names are ours and hold no zero byte.
        let name = group.and_then(|group| CString::new(group.name.as_str()).ok());
        let thread = {
            let name = name.as_ref().map_or(ptr::null(), |name| name.as_ptr());
            let group_weight = group.map_or(0, |group| group.weight);
            // SAFETY: the lock is the library's; the name outlives the call.
            unsafe { (self.table.join)(self.lock, member.weight, name, group_weight) }
        };
        CustomHandle {
            custom: self,
            thread,
        }
    }
}

// SAFETY: what the library promises; the ledger would show a broken promise.
unsafe impl LockHandle for CustomHandle<'_> {
    fn lock(&mut self) {
        let Custom { table, lock } = self.custom;
        // SAFETY: both pointers are the library's own.
        unsafe { (table.lock)(*lock, self.thread) };
    }

    unsafe fn unlock(&mut self) {
        let Custom { table, lock } = self.custom;
        // SAFETY: both pointers are the library's own, and the lock is held.
        unsafe { (table.unlock)(*lock, self.thread) };
    }
}
