//! Which of the scheduler's variables share a cache line.
//!
//! The compiler decides where a variable lies, so this reads the result: the type
//! information (BTF) of the compiled program, as libbpf has it after opening the program.
//! It takes no kernel that has sched_ext. Lines are declared by `__begins_line` in
//! `src/bpf/ctx.bpf.h`.

use std::collections::BTreeMap;
use std::ops::Range;

use libbpf_rs::btf::types::{DataSec, Var};
use libbpf_rs::btf::{Btf, BtfType};

const LINE: usize = 64;

/// Words that many CPUs write at every switch or wake-up, and words that they read as
/// often: those of a row share a line with each other, and with nothing else.
const LINES: [&[&str]; 23] = [
    &["nought"],
    &["tier_moves"],
    &["bg_hint"],
    &["nr_limits", "nr_throttled_groups"],
    &["narrow_part", "wide_competes"],
    &["ts_waiting", "ts_enq_seq"],
    &["ts_queues"],
    &["bg_waiting"],
    &["floor_waiting", "floor_seq"],
    &["boost_waiting"],
    &["nr_throttled_tasks"],
    &["ts_clock"],
    &["bg_clock"],
    &["bg_cpus"],
    &["idle_cpus"],
    &["missed_cpus"],
    &["ts_cores"],
    &["narrow"],
    &["narrow_words"],
    &["narrow_cpus"],
    &["waiters"],
    &["holders"],
    &["to_fetch"],
];

/// The bytes of each variable without an initial value other than 0.
fn variables() -> BTreeMap<String, Range<usize>> {
    let program = include_bytes!(concat!(env!("OUT_DIR"), "/bpf.bpf.o"));
    let btf = Btf::from_raw("bpf", program)
        .expect("libbpf opens the program")
        .expect("the program has type information");
    let bss: DataSec<'_> = btf.type_by_name(".bss").expect("the program has a .bss");
    let variables = bss.iter().map(|place| {
        let variable: BtfType<'_> = btf.type_by_id(place.ty).expect("a variable has a type");
        let variable = Var::try_from(variable).expect("a section has variables");
        let name = variable.name().expect("a variable has a name");
        let begin = place.offset as usize;
        (
            name.to_string_lossy().into_owned(),
            begin..begin + place.size,
        )
    });
    variables.collect()
}

fn lines_of(bytes: &Range<usize>) -> Range<usize> {
    bytes.start / LINE..bytes.end.div_ceil(LINE)
}

#[test]
fn words_written_at_every_switch_have_lines_of_their_own() {
    let variables = variables();
    for row in LINES {
        let find = |name: &str| {
            let bytes = variables.get(name);
            lines_of(
                bytes.unwrap_or_else(|| panic!("no variable is called {name}: rename it here")),
            )
        };
        let lines = find(row[0]);
        for other in &row[1..] {
            assert_eq!(
                find(other),
                lines,
                "{other} is not in the line of {}: define it next, with an initial value",
                row[0]
            );
        }
        for (other, bytes) in &variables {
            let its = lines_of(bytes);
            assert!(
                row.contains(&other.as_str()) || its.end <= lines.start || lines.end <= its.start,
                "{other} shares a line with {}: declare it with __begins_line and an initial \
                 value",
                row[0]
            );
        }
    }
}
