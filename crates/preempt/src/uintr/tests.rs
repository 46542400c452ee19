//! The handler's assembly, without the hardware.
//!
//! A signal plays the CPU: its handler pushes the frame of a user interrupt at
//! the interrupted instruction, below the red zone, and goes to the handler under
//! test. That is the one above but for its last instruction: UIRET becomes what
//! does the same elsewhere, IRETQ on a frame with the two selectors that it
//! wants. The user interrupt flag is a variable, and all threads have the same: one test
//! at a time.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
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

/// Nobody else plays the CPU until the guard is dropped.
fn install() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    FLAG.store(true, Relaxed);
    ARRIVED.store(0, Relaxed);
    prepare();
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
    alone
}

#[test]
fn a_frame_is_left_as_it_was_found() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let _alone = install();
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

/// A stack as a coroutine's: no context's, and small. From the highest address, where its
/// stack pointer is until it is told to go on.
#[repr(C, align(64))]
struct Foreign {
    below: [u8; 8192],
    /// What the CPU and the general registers take, with the red zone.
    frame: [u8; 512],
}

/// Runs on a stack without room until `go_on`, in a loop that an interrupt may find.
unsafe fn stand_on(stack_pointer: *mut u8, go_on: &AtomicBool) {
    // SAFETY: the caller's, which says that the memory below is for this.
    unsafe {
        asm!(
            "mov {own}, rsp",
            "mov rsp, {there}",
            "2:",
            "pause",
            "cmp byte ptr [{go_on}], 0",
            "je 2b",
            "mov rsp, {own}",
            own = out(reg) _,
            there = in(reg) stack_pointer,
            go_on = in(reg) go_on.as_ptr(),
        );
    }
}

#[test]
fn nothing_is_written_below_a_stack_that_has_no_room() {
    static GO_ON: AtomicBool = AtomicBool::new(false);
    let _alone = install();
    let (say, hear) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        let worker = Worker::builder()
            .delivery(Delivery::Signal)
            .level("none", |_| ())
            .enter()
            .unwrap();
        let mut stack = Box::new(Foreign {
            below: [0xa5; 8192],
            frame: [0xa5; 512],
        });
        let top = stack.frame.as_mut_ptr_range().end;
        say.send((worker.remote(), crate::signal::thread_id()))
            .unwrap();
        // SAFETY: the frame is for this, and the array below shows if it is not enough.
        unsafe { stand_on(top, &GO_ON) };
        let written = stack.below.iter().filter(|byte| **byte != 0xa5).count();
        assert!(stack.frame.iter().any(|byte| *byte != 0xa5), "none came");
        written
    });
    let (remote, thread) = hear.recv().unwrap();
    let start = Instant::now();
    while remote.counters().deferred_by_stack < 100 && start.elapsed().as_secs() < 60 {
        route_mail(&remote).post_for_handler(Level::new(1));
        crate::signal::send(thread, libc::SIGUSR1).unwrap();
        std::thread::sleep(Duration::from_micros(50));
    }
    let counters = remote.counters();
    GO_ON.store(true, Release);
    assert_eq!(
        worker.join().unwrap(),
        0,
        "bytes below the general registers"
    );
    assert!(counters.deferred_by_stack >= 100, "{counters:?}");
    assert_eq!(counters.taken, 0, "{counters:?}");
}

#[test]
fn the_area_has_room_for_what_is_saved() {
    prepare();
    let mask = STATE_MASK.load(Relaxed);
    assert_eq!(mask & 3, 3, "x87 and SSE: {mask:#x}");
    assert_eq!(TILES_MASK.load(Relaxed) & !TILES, 0);
    // What this CPU says of all that is enabled, and of what only the kernel saves.
    let all = std::arch::x86_64::__cpuid_count(0xd, 1).ebx.into();
    let (bytes, with_tiles) = (STATE_BYTES.load(Relaxed), TILES_BYTES.load(Relaxed));
    assert!(576 <= bytes && bytes <= with_tiles, "{bytes}");
    assert!(with_tiles <= all, "{with_tiles}, {all}");
}

#[test]
fn the_area_is_as_large_as_the_mask_asks_for() {
    // Sapphire Rapids: AVX, AVX-512, keys, tiles.
    let part = |number| match number {
        2 => (256, false),
        5 => (64, false),
        6 => (512, false),
        7 => (1024, false),
        9 => (8, false),
        17 => (64, true),
        18 => (8192, true),
        _ => panic!("no part {number}"),
    };
    let enabled = 0x602e7;
    assert_eq!(area(enabled & !TILES, part), 2440);
    assert_eq!(area(enabled, part), 2496 + 64 + 8192);
    assert_eq!(area(3, part), 576);
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
