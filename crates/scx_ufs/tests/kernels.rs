//! UFS on the kernels that it is for, 6.12 to the newest: `make test-kernels`.
//!
//! Linux 6.12 is built once, from Debian's source, since Debian's own build of it
//! takes no scheduler. Of the series between it and the newest each is tried that
//! Debian's archive has a usable build of; the others are named. `GIVEWAY_KERNELS`
//! names the series to try instead, as in `GIVEWAY_KERNELS="6.18 7.0"`.
//!
//! Not among the tests that cargo runs unasked (`test = false` in Cargo.toml).

use giveway_lab::{Lab, LabError, LabSpec, Lines, Machine};

mod guest;

/// A selection of what UFS promises: something of each part that kernels can break.
const CLAIMS: &[&str] = &[
    "tier_comes_from_cgroup_name_and_is_inherited",
    "wakeup_preempts_background",
    "no_background_runs_while_time_sensitive_waits",
    "background_weights_2_3_within_a_restricted_set_of_cpus",
    "time_sensitive_weights_6667_10000",
    "nested_weights_compound",
    "mark_moves_a_cgroup_that_runs",
    "slot_lowers_a_thread",
    "slot_applies_to_tasks_of_its_user_only",
    "threads_and_children_follow_their_process",
    "sched_idle_is_background_while_it_lasts",
    "boosted_holder_of_a_mutex",
    "read_holder_of_a_lightweight_lock",
    "floor_keeps_ufs_loaded",
    "storm_loses_no_wakeup",
    "hotplug_restarts_ufs",
    "a_killed_loader_leaves_the_machine_to_eevdf",
    "an_error_in_bpf_leaves_the_machine_to_eevdf",
    "sigterm_leaves_cleanly",
];

/// What older kernels lack, the first version that does not, and a claim that needs it.
const FEATURES: &[(&str, (u32, u32), Option<&str>)] = &[
    (
        "cpu.max",
        (6, 17),
        Some("cpu_max_change_takes_effect_at_once"),
    ),
    (
        "cpu.idle",
        (6, 19),
        Some("cpu_idle_is_background_while_it_lasts"),
    ),
    (
        "real-time tasks",
        (7, 0),
        Some("real_time_hogs_starve_no_task_for_long"),
    ),
    ("time", (6, 14), None),
    ("queues", (7, 1), None),
];

fn spec(series: Option<&str>) -> LabSpec {
    LabSpec {
        series: series.map(str::to_owned),
        ..LabSpec::default()
    }
}

/// The version of the kernel that such a lab boots.
fn version(spec: &LabSpec) -> Result<(u32, u32), LabError> {
    let lab = Lab::open(spec, &Lines)?;
    Ok(numbers(&lab.kernel().release()))
}

/// The first two numbers of a version.
fn numbers(version: &str) -> (u32, u32) {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok());
    next().zip(next()).expect("a version of Linux")
}

/// Has the claims tried, and sees that UFS knows what this kernel lacks.
fn hold(spec: &LabSpec, kernel: (u32, u32)) {
    let (there, lacking): (Vec<_>, Vec<_>) =
        FEATURES.iter().partition(|(_, since, _)| kernel >= *since);
    let more = there.iter().filter_map(|(_, _, claim)| *claim);
    let claims: Vec<&str> = CLAIMS.iter().copied().chain(more).collect();
    let shape = Machine {
        cpus: 2,
        ..Machine::default()
    };
    let printed = guest::ask(spec, shape, guest::PATIENCE, &[], &claims);
    let printed = printed.unwrap_or_else(|error| panic!("{error}"));
    let said = printed.lines().find(|line| line.starts_with('['));
    let said: Vec<serde_json::Value> =
        serde_json::from_str(said.unwrap_or_default()).unwrap_or_else(|_| panic!("{printed}"));
    let said: Vec<&str> = said
        .iter()
        .filter_map(|feature| feature["name"].as_str())
        .collect();
    let lacking: Vec<&str> = lacking.iter().map(|(name, _, _)| *name).collect();
    assert_eq!(said, lacking, "what Linux {kernel:?} lacks");
    for claim in claims {
        guest::shown(claim, &printed);
    }
}

/// The same on a kernel that has to be there.
fn hold_on(series: Option<&str>) {
    let spec = spec(series);
    let kernel = version(&spec).unwrap_or_else(|error| panic!("{error}"));
    hold(&spec, kernel);
}

#[test]
fn ufs_holds_on_linux_6_12() {
    hold_on(Some("6.12"));
}

#[test]
fn ufs_holds_on_the_newest_kernel() {
    hold_on(None);
}

#[test]
fn ufs_holds_on_the_kernels_between() {
    let newest = version(&spec(None)).unwrap_or_else(|error| panic!("{error}"));
    let series: Vec<String> = match std::env::var("GIVEWAY_KERNELS") {
        Ok(named) => named.split_whitespace().map(str::to_owned).collect(),
        Err(_) => {
            let all = giveway_lab::series(&Lines).unwrap_or_else(|error| panic!("{error}"));
            let between = |name: &String| (6, 12) < numbers(name) && numbers(name) < newest;
            all.into_iter().filter(between).collect()
        }
    };
    for series in series {
        let spec = spec(Some(&series));
        match version(&spec) {
            Ok(kernel) => hold(&spec, kernel),
            Err(missing @ (LabError::NoKernel { .. } | LabError::NoSeries { .. })) => {
                println!("not tried on Linux {series}: {missing}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
