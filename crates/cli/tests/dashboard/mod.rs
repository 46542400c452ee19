//! The Grafana dashboard of `dist/` before a real Prometheus, Debian's, in a guest under UFS:
//! each expression is taken, and has an answer that is not only zeros where there is work of
//! every kind.
//!
//! Grafana itself is not run: Debian has no package of it. What it puts in for its variables
//! is put in here.

use std::fs;
use std::sync::OnceLock;

use assert_cmd::cargo::cargo_bin;
use giveway_lab::{Job, LabSpec, Layer};
use serde_json::Value;

use crate::build::{built, tmp};
use crate::perfetto::convoy;
use crate::transcript::{hold, machine, tests, transcript};

/// Boosts that took too long: 0 where locks are held for less.
const ZERO: &str = "giveway_boosts_expired_total";

/// The dashboard's expressions, by claims named after panel and letter.
fn queries() -> Vec<(String, String)> {
    let dashboard = include_str!("../../../../dist/grafana-giveway.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let letter = target["refId"].as_str().unwrap();
            let asked = target["expr"].as_str().unwrap();
            // "All" is any instance. The guest is busy for longer than the interval.
            let mut query = asked
                .replace("$instance", ".*")
                .replace("$__rate_interval", "20s");
            assert!(!query.contains('$'), "{query}");
            // An answer of zeros is one, too.
            if asked.contains(ZERO) {
                query += " + 1";
            }
            queries.push((format!("panel_{}_{letter}", panel["id"]), query));
        }
    }
    queries
}

/// What the guest says.
fn said() -> &'static str {
    static SAID: OnceLock<String> = OnceLock::new();
    SAID.get_or_init(|| {
        let dir = tmp("dashboard");
        fs::create_dir_all(&dir).unwrap();
        let lines = queries().into_iter();
        let lines: String = lines
            .map(|(name, query)| format!("{name}\t{query}\n"))
            .collect();
        fs::write(dir.join("queries.tsv"), lines).unwrap();
        built();
        let giveway = cargo_bin!("giveway");
        let job = Job::new(["sh", "dashboard.sh"])
            .file(giveway, "giveway")
            .file(giveway.with_file_name("scx_ufs"), "scx_ufs")
            .file(convoy(&dir), "convoy")
            .file(dir.join("queries.tsv"), "queries.tsv")
            .file(tests().join("dashboard.sh"), "dashboard.sh");
        let spec = LabSpec {
            layer: Some(Layer {
                key: "prometheus".into(),
                packages: vec!["prometheus".into()],
                ..Layer::default()
            }),
            ..LabSpec::default()
        };
        transcript(&spec, &machine(), &job)
    })
}

#[test]
fn prometheus_scrapes_ufs_and_sees_that_it_is_away() {
    hold(said(), &["prometheus_takes_its_configuration"]);
    hold(said(), &["prometheus_scrapes_giveway"]);
    hold(said(), &["instances_are_listed"]);
    hold(said(), &["alarm_sees_that_ufs_is_away"]);
}

#[test]
fn every_panel_of_the_dashboard_has_an_answer() {
    let queries = queries();
    assert!(queries.len() >= 15, "{queries:?}");
    for (name, _) in &queries {
        hold(said(), &[name]);
    }
}
