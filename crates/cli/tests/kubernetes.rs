//! The manifests in `dist/kubernetes`: parsed, held against each other, against the
//! programs whose options they write, and against the systemd unit, which says the
//! same for machines without a cluster. No cluster is asked.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use assert_cmd::cargo::cargo_bin;
use serde_json::Value;

#[path = "guest/programs.rs"]
mod programs;

fn dist() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist")
}

fn manifest(name: &str) -> Value {
    let text = fs::read_to_string(dist().join("kubernetes").join(name)).unwrap();
    serde_yaml_ng::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.unwrap_or_else(|| panic!("no list at {pointer}"))
}

fn words(value: &Value, pointer: &str) -> BTreeSet<String> {
    let words = list(value, pointer).iter();
    words
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}

fn names(of: &[Value]) -> BTreeSet<&str> {
    of.iter()
        .map(|each| each["name"].as_str().unwrap())
        .collect()
}

const POD: &str = "/spec/template/spec";

fn container(name: &str) -> Value {
    let daemons = manifest("daemonset.yaml");
    let containers = list(&daemons, "/spec/template/spec/containers");
    let found = containers.iter().find(|each| each["name"] == name);
    found
        .unwrap_or_else(|| panic!("no container {name}"))
        .clone()
}

#[test]
fn every_manifest_says_what_it_is_and_the_kustomization_names_those_to_apply() {
    let mut applied = BTreeSet::new();
    for entry in fs::read_dir(dist().join("kubernetes")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let found = manifest(&name);
        assert!(
            found["apiVersion"].is_string() && found["kind"].is_string(),
            "{name}"
        );
        if !["kustomization.yaml", "example.yaml"].contains(&name.as_str()) {
            assert!(found["metadata"]["name"].is_string(), "{name}");
            applied.insert(name);
        }
    }
    let kustomization = manifest("kustomization.yaml");
    assert_eq!(words(&kustomization, "/resources"), applied);
    let namespace = manifest("namespace.yaml");
    assert_eq!(kustomization["namespace"], namespace["metadata"]["name"]);
    assert_eq!(
        kustomization["images"][0]["newTag"],
        env!("CARGO_PKG_VERSION")
    );
}

#[test]
fn the_daemon_set_fits_together() {
    let daemons = manifest("daemonset.yaml");
    let labels = &daemons["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&daemons["spec"]["selector"]["matchLabels"], labels);
    let pod = daemons.pointer(POD).unwrap();
    let mut mounted = BTreeSet::new();
    for each in list(pod, "/containers") {
        mounted.extend(names(list(each, "/volumeMounts")));
        assert_eq!(each["image"], "giveway");
    }
    assert_eq!(mounted, names(list(pod, "/volumes")));
    assert_eq!(pod["automountServiceAccountToken"], false);
    // scx_ufs tells itself from others by its number (see BPF, loader_tgid).
    assert_eq!(pod["hostPID"], true);
}

#[test]
fn capabilities_are_those_of_the_unit_and_nobody_has_more_than_it_takes() {
    let unit = fs::read_to_string(dist().join("giveway.service")).unwrap();
    let set = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let set = set.unwrap().split(' ');
    let unit: BTreeSet<String> = set.map(|name| name["CAP_".len()..].to_owned()).collect();
    let added = |name| words(&container(name), "/securityContext/capabilities/add");
    assert_eq!(added("ufs"), unit);
    assert_eq!(added("tiers"), BTreeSet::from(["SYS_ADMIN".to_owned()]));
    assert!(
        container("metrics")
            .pointer("/securityContext/capabilities/add")
            .is_none()
    );
    for name in ["ufs", "tiers", "metrics"] {
        let context = &container(name)["securityContext"];
        assert_eq!(
            words(context, "/capabilities/drop"),
            BTreeSet::from(["ALL".to_owned()])
        );
        assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
        // The API server refuses the two together.
        if context.pointer("/capabilities/add").is_some() {
            assert!(context.get("allowPrivilegeEscalation").is_none(), "{name}");
        }
    }
}

/// The command line of a container, for a program built here.
fn command_line(name: &str) -> Vec<String> {
    let container = container(name);
    let part = |pointer| list(&container, pointer).to_vec();
    let all = [part("/command"), part("/args")].concat();
    all.iter()
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_programs_take_the_options() {
    let giveway = cargo_bin!("giveway");
    // Wrong options end with 2; with right ones what it asks is not there.
    let tiers = command_line("tiers");
    assert_eq!(tiers[0], "giveway");
    let output = Command::new(giveway)
        .args(&tiers[1..])
        .args(["--once", "--interval=1"])
        .env_remove("CONTAINER_RUNTIME_ENDPOINT")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");

    let metrics = command_line("metrics");
    let mut line: Vec<&str> = metrics.iter().map(String::as_str).collect();
    let listen = line.pop().unwrap();
    assert!(listen.starts_with("--listen=0.0.0.0:"), "{listen}");
    let ports = container("metrics");
    let port = ports["ports"][0]["containerPort"].to_string();
    assert!(listen.ends_with(&format!(":{port}")), "{listen}");
    let daemons = manifest("daemonset.yaml");
    let annotations = &daemons["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["prometheus.io/port"], port);

    let ufs = command_line("ufs");
    let output = Command::new(programs::with(&["scx_ufs"]).join("scx_ufs"))
        .args(&ufs[1..])
        .arg("--version")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_example_is_annotated_as_the_agent_reads_it() {
    let example = manifest("example.yaml");
    let annotations = "/spec/jobTemplate/spec/template/metadata/annotations";
    let annotations = example.pointer(annotations).unwrap().as_object().unwrap();
    assert_eq!(annotations[giveway_pods::ANNOTATION], "background");
}
