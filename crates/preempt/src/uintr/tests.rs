//! The handler's assembly, without the hardware.
//!
//! A signal plays the CPU: its handler pushes the frame of a user interrupt at
//! the interrupted instruction, below the red zone, and goes to the handler under
//! test. That is the one above but for its last instruction: UIRET becomes what
//! does the same elsewhere, IRETQ on a frame with the two selectors that it
//! wants. The user interrupt flag is a variable.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;
use crate::delivery::Route;
use crate::level::Level;
use crate::mail::Mail;
use crate::worker::Worker;

#[path = "../../tests/registers/machine.rs"]
mod machine;

use machine::{hold, pattern, spoil, width};

/// UIF: whether user interrupts are let in.
static FLAG: AtomicBool = AtomicBool::new(true);
static ARRIVED: AtomicU64 = AtomicU64::new(0);
static MISALIGNED: AtomicU64 = AtomicU64::new(0);

handler! {
    handler_under_test,
    interrupted,
    [
        // From the top: ss, rsp, flags, cs, rip; each is at the same distance
        // below, or one word less far, with every push.
        "push 0x2b",
        "push qword ptr [rsp + 0x18]",
        "push qword ptr [rsp + 0x18]",
        "push 0x33",
        "push qword ptr [rsp + 0x20]",
        "mov byte ptr [rip + {flag}], 1",
        "iretq"
    ],
    flag = sym FLAG
}

/// Delivers a user interrupt at the instruction that the signal came to, as the
/// CPU would.
unsafe extern "C" fn deliver(
    _signal: libc::c_int,
    _info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    if !FLAG.swap(false, Relaxed) {
        // Not let in. The CPU would keep it; the test sends another.
        return;
    }
    // SAFETY: the kernel passes a ucontext, whose stack pointer has room.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let rsp = registers[libc::REG_RSP as usize] as u64;
        let frame = (((rsp - 128) & !15) as *mut u64).sub(4);
        frame.write(7);
        frame.add(1).write(registers[libc::REG_RIP as usize] as u64);
        frame.add(2).write(registers[libc::REG_EFL as usize] as u64);
        frame.add(3).write(rsp);
        registers[libc::REG_RSP as usize] = frame as i64;
        registers[libc::REG_RIP as usize] = handler_under_test as *const () as i64;
    }
    ARRIVED.fetch_add(1, Relaxed);
}

fn install() {
    prepare_extended_state();
    // SAFETY: plain data; `deliver` changes the interrupted frame only as a user
    // interrupt would.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = deliver as *const () as usize;
        // On the stack that std gives each thread for such purposes: the CPU
        // would leave nothing between the red zone and its own frame.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()),
            0
        );
    }
}

#[test]
fn a_frame_is_left_as_it_was_found() {
    static STOP: AtomicBool = AtomicBool::new(false);
    install();
    let width = width();
    let (say, hear) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        let worker = Worker::builder()
            .delivery(Delivery::Signal)
            .level("spoil", |_| {
                let here = 0u128;
                if !(&raw const here).addr().is_multiple_of(16) {
                    MISALIGNED.fetch_add(1, Relaxed);
                }
                // SAFETY: overwrites only what a function may.
                unsafe { spoil() };
            })
            .enter()
            .unwrap();
        say.send((worker.remote(), crate::signal::thread_id()))
            .unwrap();
        let mut seed = 0;
        while !STOP.load(Acquire) {
            seed += 1;
            let machine = pattern(seed, width);
            assert_eq!(
                machine.differences(&hold(&machine)),
                [""; 0],
                "pattern {seed}"
            );
        }
    });
    let (remote, thread) = hear.recv().unwrap();
    let start = Instant::now();
    let lasts = || {
        let (taken, lasted) = (remote.counters().taken, start.elapsed().as_secs());
        // On a machine that is busy, until there is something to judge by.
        taken < 5_000 && (lasted < 5 || taken <= 20 && lasted < 60)
    };
    while lasts() && !worker.is_finished() {
        let mail = route_mail(&remote);
        mail.post_for_handler(Level::new(1));
        crate::signal::send(thread, libc::SIGUSR1).unwrap();
        let sent = Instant::now();
        while sent.elapsed() < Duration::from_micros(20) {
            std::hint::spin_loop();
        }
    }
    STOP.store(true, Release);
    worker.join().expect("patterns are found again");
    let counters = remote.counters();
    println!("{counters:?}, {} delivered", ARRIVED.load(Relaxed));
    assert!(counters.taken > 20, "{counters:?}");
    assert_eq!(counters.interrupts, ARRIVED.load(Relaxed));
    assert_eq!(MISALIGNED.load(Relaxed), 0);
}

fn route_mail(remote: &crate::remote::Remote) -> &Mail {
    Route::mail(remote.route())
}

#[test]
fn the_area_has_room_for_what_is_saved() {
    prepare_extended_state();
    let bytes = STATE_BYTES.load(Relaxed);
    let mask = STATE_MASK.load(Relaxed);
    // The legacy area and the header.
    assert!(bytes >= 576, "{bytes}");
    assert_eq!(mask & 3, 3, "x87 and SSE: {mask:#x}");
    assert_eq!(mask & TILES, 0);
}

#[test]
fn the_error_names_what_is_missing() {
    // Where there is hardware and driver, the first worker is the test.
    if let Err(missing) = detect() {
        let error = Delivery::UserInterrupt.check().unwrap_err();
        assert!(error.to_string().contains(missing));
        assert!(!Delivery::available().contains(&Delivery::UserInterrupt));
    }
}
