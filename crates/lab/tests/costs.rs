//! Cost models: the emulator charges what `qemu/costs.patch` says, and what holds for the
//! lockstep clock holds with them.
//!
//! Each rule has a case of the program `bare/costs.c`, on a machine whose prices are so far
//! apart that the time of one access tells which of them were paid. Taken out of the
//! emulator, each rule made its case fail: `docs/design/clock.md` lists them.

mod bare;
mod said;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use bare::Bench;
use giveway_lab::{Clock, Costs, Job, Lab, LabSpec, Machine, Silent};

/// As `bare/costs.c` has them.
const PRICES: &str = "instruction=1\nload_use=3\nl2=20\nllc=100\nmemory=400\nstream=7\nl2_stream=2\n\
    walk=1000\ntransfer=5000\nfar_transfer=9000\ninvalidate=2000\nlocked=50\n\
    string_byte=0.25\nsyscall=300\nexception=700\nipi=0\nhalt=0\npause=10\n\
    l1_kib=16\nl1_ways=4\nl2_kib=256\nl2_ways=8\nllc_kib=2048\nllc_ways=16\n\
    tlb_pages=64\ntlb_ways=4\n";

fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(|| Bench::of(&["costs"]))
}

/// Runs a case with these prices, in sockets of so many CPUs; answers with what it says.
fn say(case: &str, prices: &str, socket_cpus: u32) -> String {
    let file = bench().file();
    std::fs::write(file.path(), format!("{prices}socket_cpus={socket_cpus}\n")).unwrap();
    let icount = format!(
        "shift=0,sleep=off,lockstep=on,quantum=10000,causal=on,costs={}",
        file.path().display()
    );
    let execution = ["-accel", "tcg,thread=single", "-icount", &icount];
    bench().run("costs", case, &execution, "")
}

/// Tests of the names of cases, which run them.
macro_rules! cases {
    ($($case:ident,)*) => {$(
        #[test]
        fn $case() {
            let said = say(stringify!($case), PRICES, 64);
            assert!(said.ends_with("passed\n"), "{said}");
        }
    )*};
}

cases! {
    a_chase_costs_what_the_cache_costs_that_holds_it,
    the_first_touch_of_a_line_pays_for_memory_and_the_next_nothing,
    a_line_after_one_that_missed_is_of_a_stream,
    a_page_that_the_tlb_lacks_pays_for_a_walk,
    a_load_by_what_was_loaded_waits_for_it,
    a_line_that_another_cpu_has_written_is_transferred,
    a_line_in_turn_costs_each_turn_a_transfer,
    an_atomic_instruction_has_a_price,
    string_instructions_cost_bytes_and_not_steps,
    an_exception_has_a_price,
}

/// With a CPU in each socket the same case pays the other price.
#[test]
fn a_transfer_from_another_socket_has_its_own_price() {
    let case = "a_line_that_another_cpu_has_written_is_transferred";
    let said = say(case, PRICES, 1);
    assert!(said.contains("is 0x23"), "not some 9000 ns: {said}");
    let equal = PRICES.replace("far_transfer=9000", "far_transfer=5000");
    assert!(say(case, &equal, 1).ends_with("passed\n"));
}

fn machine(cpus: u32, seed: u64) -> Machine {
    Machine {
        cpus,
        clock: Clock::LOCKSTEP.with_costs(Costs::find("sapphire-rapids-vm").unwrap()),
        seed,
        timeout: Duration::from_secs(1800),
        ..Machine::default()
    }
}

fn lab() -> Lab {
    Lab::open(&LabSpec::default(), &Silent).unwrap()
}

#[test]
fn the_same_seed_repeats_a_run_exactly_and_another_seed_does_not() {
    let job = Job::script(
        "hackbench -g 2 -l 40
         cat /proc/uptime /proc/interrupts /proc/schedstat
         dmesg
         head -c 16 /dev/urandom | od -x",
    );
    let lab = lab();
    let first = said::repeated(&lab, &machine(4, 1), &job);
    let other = said::lines(&lab, &machine(4, 2), &job);
    assert_ne!(first, other, "another seed made no difference");
}

/// Compiles a program of `qemu`.
fn compile(name: &str, to: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("qemu/{name}.c"));
    let compiled = Command::new("cc")
        .args(["-O2", "-static", "-pthread", "-o"])
        .args([to, &source])
        .status()
        .unwrap();
    assert!(compiled.success());
}

/// Sections of locks do not overlap in time, whatever what they touch costs.
#[test]
fn locks_exclude_with_prices_too() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("clock_probe");
    compile("clock_probe", &program);
    let script = "for kind in ticket mcs futex kernel; do ./clock_probe lock $kind 4; done";
    let job = Job::script(script).file(program, "clock_probe");
    let locks = said::lines(&lab(), &machine(4, 1), &job);
    println!("{locks:#?}");
    assert_eq!(locks.len(), 4);
    for lock in &locks {
        assert!(lock.contains(" early=0 "), "{lock}");
        let held = lock.split_once(" held=").unwrap().1;
        let held: f64 = held.split(' ').next().unwrap().parse().unwrap();
        assert!(held <= 1.0, "held longer than time passed: {lock}");
    }
}
