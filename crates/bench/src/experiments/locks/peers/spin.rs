//! How spinning peers wait.
//!
//! A spinner that never yields keeps the holder off the CPU once there are
//! more threads than CPUs, and what is measured then is the scheduler's time
//! slice. All spinning peers therefore yield after the same number of looks.

/// Looks at the lock before the CPU is offered to others.
const LOOKS: u32 = 200;

/// Waits until `done` says so.
pub(super) fn wait_until(mut done: impl FnMut() -> bool) {
    loop {
        for _ in 0..LOOKS {
            if done() {
                return;
            }
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}
