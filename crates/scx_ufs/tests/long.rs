//! What takes longer than a change can wait for: `make test-long`.
//!
//! Not among the tests that cargo runs unasked (`test = false` in Cargo.toml).

use std::time::Duration;

use giveway_lab::{LabSpec, Machine};

mod guest;

/// Half an hour of the guest's time, unless `GIVEWAY_STRESS_SECONDS` says
/// otherwise. With another seed (`GIVEWAY_STRESS_SEED`) it takes another course.
#[test]
fn invariants_hold_under_half_an_hour_of_random_stress() {
    let number = |name, default| match std::env::var(name) {
        Ok(text) => text.parse::<u64>().expect("a whole number"),
        Err(_) => default,
    };
    let seconds = number("GIVEWAY_STRESS_SECONDS", 1800);
    let env = [
        ("GIVEWAY_STRESS_SECONDS", seconds.to_string()),
        (
            "GIVEWAY_STRESS_SEED",
            number("GIVEWAY_STRESS_SEED", 1).to_string(),
        ),
    ];
    // A guest's second takes some seconds of a host that is not ours alone.
    let patience = guest::PATIENCE + Duration::from_secs(20 * seconds);
    let claim = "invariants_hold_under_random_stress";
    let shape = Machine {
        cpus: 2,
        ..Machine::default()
    };
    let printed = guest::ask(&LabSpec::default(), shape, patience, &env, &[claim]);
    let printed = printed.unwrap_or_else(|error| panic!("{error}"));
    guest::shown(claim, &printed);
}
