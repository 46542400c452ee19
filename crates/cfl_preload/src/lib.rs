//! Completely fair locking for programs that cannot be changed.
//!
//! `libgiveway_cfl.so`, put in front of a program with `LD_PRELOAD`, replaces
//! pthread (and C11) mutexes and condition variables by the CFL locks of
//! `giveway-locks`, in the very bytes that the program has for them. For users:
//! `docs/operate/preload.md`.
//!
//! ```text
//!   program, libraries
//!        │ pthread_mutex_lock(m)             │ pthread_cond_wait(c, m)
//!        ▼                                   ▼
//!   exports ─── c11 ──► mutex ◄──────────── cond ──► cancel.c
//!                        │  │                │
//!            kind is ours│  │kind is not     │shared between processes
//!                        ▼  ▼                ▼
//!                     lock  glibc ◄──────── shared
//!                        │
//!                  giveway-locks
//!
//!   mode ──► config          once, at the first call: ours or glibc's?
//!      └───► layout          can ours and glibc's be told apart?
//!   threads                  the group, when a thread gets a name; and its number
//!   stats ──► report         per lock, if asked for
//!   time                     what programs wait until
//!   errno, fork, message     helpers
//!   arena                    memory, never the program's
//! ```
//!
//! Rules that hold in every function reached from an exported one:
//!
//! 1. It may be inside the program's `malloc`, before any constructor, or in a
//!    thread that is about to end. So nothing on a lock's path allocates,
//!    registers a destructor of thread-local data, or panics (but for the
//!    assertions of a debug build, which abort the program).
//! 2. It leaves `errno` as it was.
//! 3. It is no cancellation point, except waiting for a condition variable;
//!    there no frame has anything to drop.
//! 4. A mutex or condition variable is treated by one side only, ours or
//!    glibc's, from its initialisation on; which one is told by bits that glibc
//!    has at the same place, and by a mode that is decided before the first
//!    lock.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "unit tests leave out the exported symbols, or would run on them"
    )
)]

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("this library replaces functions of glibc on x86-64 and aarch64");

mod arena;
mod c11;
mod cond;
mod config;
mod errno;
mod exports;
mod fork;
mod glibc;
mod keys;
mod layout;
mod lock;
mod message;
mod mode;
mod mutex;
mod report;
mod shared;
mod stats;
mod threads;
mod time;

/// Unit tests run on the usual allocator; the arena gives little back.
#[cfg(not(test))]
#[global_allocator]
static ARENA: arena::Arena = arena::Arena::new();

/// Reads the settings at load even if the program takes no lock, so that a
/// mistake in them is reported.
extern "C" fn begin() {
    mode::is_cfl();
}

extern "C" fn end() {
    stats::finish();
}

#[cfg(not(test))]
mod sections {
    //! Run by the dynamic linker when the library is loaded and at exit.

    #[used]
    // SAFETY: the section holds pointers to functions of this type.
    #[unsafe(link_section = ".init_array")]
    static BEGIN: extern "C" fn() = super::begin;

    #[used]
    // SAFETY: as above.
    #[unsafe(link_section = ".fini_array")]
    static END: extern "C" fn() = super::end;
}
