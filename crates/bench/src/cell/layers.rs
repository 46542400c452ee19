//! The two tiers, said to scx_layered.
//!
//! scx_layered sorts tasks into layers, here by their cgroup, and each layer has
//! a policy. A cell has a layer for each of its cgroups ([`super::cgroup`]):
//!
//! | cgroup | policy |
//! | --- | --- |
//! | `time_sensitive.*` | any CPU; takes one from any layer that does not do the same |
//! | `background.*` | any CPU |
//! | everything else | any CPU: the last layer, which scx_layered wants |
//!
//! * A layer for each cgroup and not for each tier, since scx_layered weighs
//!   layers against each other and tasks of a layer by their nice value: weights
//!   of cgroups inside a layer would not count.
//! * Open layers, not grouped ones: a grouped layer owns as many CPUs as it has
//!   used of late, and here both tiers are to share the same ones.
//! * Slices are scx_layered's own default; it has none for a layer that says
//!   nothing.
//!
//! Known weakness: others would tune this further. It is what its documentation
//! suggests for work that must not wait for other work.

use giveway_tier::{Tier, Weight};
use serde_json::{Value, json};

use super::cgroup::{NAME, Share};

/// scx_layered's own default.
const SLICE_US: u64 = 20_000;

/// The layers of these cgroups and of the clients', as scx_layered takes them on its command line.
pub(super) fn layers(shares: &[Share]) -> String {
    let clients = Share::clients();
    let of_share = |share: &Share| {
        let preempts = share.name.starts_with(Tier::TimeSensitive.name());
        let cgroup = json!([[{ "CgroupPrefix": format!("{NAME}/{}/", share.name) }]]);
        layer(&share.name, cgroup, preempts, share.weight)
    };
    let mut layers: Vec<Value> = shares.iter().chain([&clients]).map(of_share).collect();
    layers.push(layer("rest", json!([[]]), false, Weight::DEFAULT));
    Value::from(layers).to_string()
}

fn layer(name: &str, matches: Value, preempts: bool, weight: Weight) -> Value {
    json!({
        "name": name,
        "matches": matches,
        "kind": { "Open": {
            "preempt": preempts,
            "slice_us": SLICE_US,
            "weight": weight.get(),
        } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::config::{CellConfig, Mix};
    use crate::harness::scheduler::Scheduler;

    #[test]
    fn the_background_s_cgroup_is_idle_under_cpu_idle_alone() {
        let idle = |scheduler| {
            let config = CellConfig {
                mix: Mix::MinMax,
                scheduler,
                ..CellConfig::default()
            };
            let shares = Share::all(&config, &config.classes());
            Vec::from_iter(shares.iter().map(|share| share.is_idle))
        };
        assert_eq!(idle(Scheduler::CpuIdle), [false, true]);
        assert_eq!(idle(Scheduler::Idle), [false, false]);
    }

    #[test]
    fn every_class_has_its_layer_and_only_urgent_ones_preempt() {
        let config = CellConfig {
            mix: Mix::TwoThree,
            ..CellConfig::default()
        };
        let shares = Share::all(&config, &config.classes());
        let layers: Vec<Value> = serde_json::from_str(&layers(&shares)).unwrap();
        let seen: Vec<(&str, &Value, bool, u64)> = layers
            .iter()
            .map(|layer| {
                let policy = &layer["kind"]["Open"];
                (
                    layer["name"].as_str().unwrap(),
                    &layer["matches"][0],
                    policy["preempt"].as_bool().unwrap(),
                    policy["weight"].as_u64().unwrap(),
                )
            })
            .collect();
        let of = |name: &str| json!([{ "CgroupPrefix": format!("giveway-bench/{name}/") }]);
        let names = [
            "time_sensitive.three",
            "time_sensitive.two",
            "background.three",
            "background.two",
            "time_sensitive.clients",
        ];
        let matches = names.map(of);
        let everything = json!([]);
        assert_eq!(
            seen,
            [
                (names[0], &matches[0], true, 10_000),
                (names[1], &matches[1], true, 6_667),
                (names[2], &matches[2], false, 3),
                (names[3], &matches[3], false, 2),
                (names[4], &matches[4], true, 100),
                ("rest", &everything, false, 100),
            ]
        );
        assert!(
            layers
                .iter()
                .all(|layer| layer["kind"]["Open"]["slice_us"] == SLICE_US)
        );
    }
}
