//! A node of Kubernetes in a guest, but for its kubelet: containerd as Debian has it, under
//! systemd, with the DaemonSet's containers and pods that are theirs to serve.
//!
//! `kubelet.py` calls containerd. Its messages are made from Kubernetes' own definition,
//! which Debian has as the source of a library.

use std::sync::OnceLock;

use giveway_lab::{Layer, Lines};

use crate::build::built;
use crate::guest;
use crate::transcript::{hold, tests};

/// Where the package of the definition has it.
const DEFINITION: &str = "usr/share/gocode/src/k8s.io/cri-api/pkg/apis/runtime/v1/api.proto";
/// Compiles it, without the options for Go.
const COMPILE: &str = "sed -i /gogo/d /layer/api.proto && \
     protoc -I/layer --python_out=/usr/lib/python3/dist-packages /layer/api.proto";

fn layer() -> Layer {
    let packages = [
        "containerd",
        "protobuf-compiler",
        "python3-grpcio",
        "python3-yaml",
    ];
    let package = "golang-github-kubernetes-cri-api-dev";
    let unpacked = giveway_lab::unpacked("trixie", &[package], &Lines).unwrap();
    let systemd = guest::systemd();
    let version = unpacked.file_name().unwrap_or_default().to_string_lossy();
    Layer {
        key: format!("{version} {COMPILE}"),
        packages: [systemd.packages, packages.map(str::to_owned).to_vec()].concat(),
        files: vec![unpacked.join(DEFINITION)],
        command: ["sh", "-c", COMPILE].map(str::to_owned).to_vec(),
        ..systemd
    }
}

/// These claims of `pods.sh` held in the guest.
fn held(claims: &[&str]) {
    static SAID: OnceLock<String> = OnceLock::new();
    let said = SAID.get_or_init(|| {
        let kubelet = tests().join("pods/kubelet.py");
        let daemons = tests().join("../../../dist/kubernetes/daemonset.yaml");
        guest::said_by(built(), "pods.sh", &[&kubelet, &daemons], layer())
    });
    hold(said, claims);
}

#[test]
fn daemon_set_loads_ufs_in_containerd_and_unloads_it() {
    held(&[
        "recipe_is_in",
        "daemon_loads_ufs",
        "daemon_warns_of_nothing",
    ]);
    held(&["node_sees_it", "daemon_serves_metrics"]);
    held(&["removed_daemon_unloads_ufs", "pods_run_on"]);
}

#[test]
fn annotated_pods_of_containerd_are_in_their_tier() {
    held(&["lowered", "raised", "not_annotated", "weights"]);
    held(&["background_gives_way", "class_gives_way"]);
    held(&["annotation_overrides_class", "without_ufs_they_share"]);
}

#[test]
fn pods_of_containerd_get_no_tier_without_the_right() {
    held(&["without_the_right", "refused_gives_way"]);
    held(&["no_such_tier", "unknown_gives_way"]);
    held(&["container_annotation_counts_for_nothing"]);
}

#[test]
fn marks_survive_a_restart_of_containerd() {
    held(&["restart_leaves_pods", "restart_leaves_marks"]);
    held(&["absence_leaves_marks", "absence_is_told"]);
    held(&["marks_after_a_restart"]);
}

#[test]
fn marks_survive_restarts_of_the_daemon_set_s_containers() {
    held(&["marks_outlive_tiers", "tiers_continue"]);
    held(&["dead_ufs_is_out", "restarted_ufs_heeds_marks"]);
}

#[test]
fn containers_of_a_pod_come_and_go_in_its_tier() {
    held(&["restarted_container_gives_way"]);
    held(&["no_way_up_without_sandbox"]);
    held(&["nothing_is_left", "mark_is_not_inherited"]);
}

#[test]
fn pods_of_containerd_do_not_raise_themselves() {
    held(&[
        "root_in_a_pod_sets_no_mark",
        "root_in_a_pod_removes_no_mark",
    ]);
    held(&["root_in_a_pod_joins_no_other"]);
    held(&["root_in_a_pod_chooses_a_name", "chosen_name_gives_way"]);
    held(&["user_in_a_pod_tries", "user_in_a_pod_changes_no_state"]);
    held(&["pretended_pod_gets_no_mark"]);
}
