//! The exposition against the grammar of OpenMetrics, read by a parser that is
//! not ours, and the Grafana dashboard in `dist/` against the exposition.

use std::collections::{BTreeSet, HashMap};

use giveway_watch::metrics::exposition;
use giveway_watch::sample::Sample;
use openmetrics_parser::OpenMetricsValue;
use openmetrics_parser::openmetrics::parse_openmetrics;
use serde_json::Value;

const DASHBOARD: &str = include_str!("../../../dist/grafana-giveway.json");

/// An answer of UFS, with what a label must escape in it.
fn sample() -> Sample {
    let mut wakes = [0; 32];
    (wakes[3], wakes[11], wakes[31]) = (5, 7, 1);
    serde_json::from_value(serde_json::json!({
        "nr_cpus": 2,
        "nr_cgroups": 1,
        "tiers": {
            "background": {"run_ns": 1, "preempted": 2, "wake_to_run_log2_ns": wakes},
            "time_sensitive": {
                "run_ns": 1_500_000_000, "wake_to_run_ns": 2_000_000,
                "wake_to_run_log2_ns": wakes,
            },
        },
        "cpus": {"0": {"time_sensitive_ns": 3}, "1": {"background_ns": 4}},
        "cgroups": {"77": {"path": "/a\"b\\c\n", "weight": 100, "background_ns": 4}},
        "hints": {"boosts_lock": 6},
    }))
    .unwrap()
}

#[test]
fn the_exposition_is_openmetrics() {
    let text = exposition(Some(&sample()));
    let parsed = parse_openmetrics(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let run = &parsed.families["giveway_tier_run_seconds"];
    assert_eq!(run.unit, "seconds");
    let wake = &parsed.families["giveway_tier_wake_seconds"];
    for sample in wake.iter_samples() {
        let OpenMetricsValue::Histogram(histogram) = &sample.value else {
            panic!("{sample:?}");
        };
        assert_eq!(histogram.count, Some(13));
        let last = histogram.buckets.last().unwrap();
        assert_eq!(
            (last.count.as_f64(), last.upper_bound),
            (13.0, f64::INFINITY)
        );
    }
    assert!(text.contains(r#"cgroup="/a\"b\\c\n""#), "{text}");
    parse_openmetrics(&exposition(None)).unwrap();
}

/// Names of samples, with the labels of each.
fn exposed() -> HashMap<String, BTreeSet<String>> {
    let text = exposition(Some(&sample()));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut names: HashMap<String, BTreeSet<String>> = HashMap::new();
    for line in lines {
        let (name, rest) = line.split_once(['{', ' ']).unwrap();
        let labels = rest.split_once('}').map_or("", |(labels, _)| labels);
        let labels = labels
            .split("\",")
            .filter_map(|label| label.split_once('='));
        let known = names.entry(name.to_owned()).or_default();
        known.extend(labels.map(|(label, _)| label.to_owned()));
    }
    names
}

/// Every query in the dashboard.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("expr", Value::String(query)) => found.push(query.clone()),
                    _ => queries(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

/// The words of a query that can be names.
fn words(query: &str) -> impl Iterator<Item = &str> {
    query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

#[test]
fn what_the_dashboard_asks_for_exists() {
    let exposed = exposed();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut all = Vec::new();
    queries(&dashboard, &mut all);
    assert!(all.len() >= 8, "{all:?}");
    for query in &all {
        let metrics: Vec<&str> = words(query).filter(|w| w.starts_with("giveway_")).collect();
        assert!(!metrics.is_empty(), "{query} asks for nothing");
        let mut labels = BTreeSet::new();
        for metric in metrics {
            let known = exposed.get(metric);
            labels.extend(known.unwrap_or_else(|| panic!("no {metric}, in {query}")));
        }
        let grouped = query
            .split("by (")
            .nth(1)
            .and_then(|rest| rest.split(')').next());
        for label in words(grouped.unwrap_or_default()).filter(|word| !word.is_empty()) {
            assert!(labels.contains(&label.to_owned()), "no {label}, in {query}");
        }
    }
}

#[test]
fn a_panel_s_legend_has_labels_that_its_query_leaves() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let legend = target["legendFormat"].as_str().unwrap();
            for label in legend
                .split("{{")
                .skip(1)
                .filter_map(|l| l.split("}}").next())
            {
                assert!(words(query).any(|word| word == label), "{label}: {query}");
            }
        }
    }
}
