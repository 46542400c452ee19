//! Waking by address: what the last step of a hand-over may meet.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use giveway_machine::futex::{Deadline, WaitResult, wait, wake};

/// Memory of its own, so that it can be gone: a page.
fn page() -> *mut AtomicU32 {
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}

#[test]
fn a_word_that_is_gone_can_be_woken() {
    let word = page();
    // SAFETY: the mapping is this test's own, and nobody refers to it.
    assert_eq!(unsafe { libc::munmap(word.cast(), 4096) }, 0);
    assert_eq!(wake(word, 1), 0);
}

/// The thread's `errno` after `call`, if it was E2BIG before.
fn errno_after(call: impl FnOnce()) -> i32 {
    // SAFETY: the address is the thread's own `errno`.
    unsafe { *libc::__errno_location() = libc::E2BIG };
    call();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

#[test]
fn errno_stays_as_it_was_whatever_the_kernel_answers() {
    let word = AtomicU32::new(7);
    let changed = || assert_eq!(wait(&word, 8, None), WaitResult::Woken);
    assert_eq!(errno_after(changed), libc::E2BIG);
    let soon = Deadline::after(Duration::from_millis(1));
    let late = || assert_eq!(wait(&word, 7, soon), WaitResult::TimedOut);
    assert_eq!(errno_after(late), libc::E2BIG);
    // No word is at an odd address.
    let odd = ptr::from_ref(&word).wrapping_byte_add(1);
    let refused = || assert_eq!(wake(odd, 1), 0);
    assert_eq!(errno_after(refused), libc::E2BIG);
}
