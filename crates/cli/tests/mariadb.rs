//! MariaDB's sessions under UFS, in a guest of the lab: sysbench beside mysqldump
//! (`mariadb/guest.sh`), one test per claim. For `make test-mariadb`.
//!
//! The plugin is compiled here for the server's headers of this machine, and loaded by the
//! newer server of the guest's image, as plugins may be.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use assert_cmd::cargo::cargo_bin;
use giveway_lab::{Clock, Job, LabSpec, Layer, Machine};

#[path = "guest/programs.rs"]
mod programs;
#[path = "guest/transcript.rs"]
mod transcript;

use transcript::{hold, tests, transcript};

/// The scripts.
fn scripts() -> PathBuf {
    tests().join("mariadb")
}

const IMAGE: &str = include_str!("mariadb/image.sh");

/// The top of the source tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The server, its clients and sysbench, with its tables filled.
fn layer() -> Layer {
    let packages = ["mariadb-server-core", "mariadb-client", "sysbench"];
    Layer {
        key: format!("mariadb {IMAGE}"),
        packages: packages.map(str::to_owned).to_vec(),
        files: vec![scripts().join("image.sh")],
        command: ["sh", "/layer/image.sh"].map(str::to_owned).to_vec(),
        ..Layer::default()
    }
}

/// The plugin; made in a directory of the tests' own.
fn plugin() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mariadb");
    let mut make = Command::new("make");
    make.args(["-s", "-C"]).arg(root().join("mariadb/giveway"));
    make.arg("install")
        .arg(format!("PLUGIN_DIR={}", dir.display()));
    assert!(
        make.status().unwrap().success(),
        "the plugin does not build"
    );
    dir.join("giveway.so")
}

/// These claims of `guest.sh` held in the guest.
fn held(claims: &[&str]) {
    static SAID: OnceLock<String> = OnceLock::new();
    let said = SAID.get_or_init(|| {
        let spec = LabSpec {
            layer: Some(layer()),
            ..LabSpec::default()
        };
        let machine = Machine {
            cpus: 4,
            clock: Clock::LOCKSTEP,
            timeout: Duration::from_secs(5400),
            ..transcript::machine()
        };
        let job = Job::new(["bash", "guest.sh"])
            .file(cargo_bin!("giveway"), "giveway")
            .file(programs::with(&["scx_ufs"]).join("scx_ufs"), "scx_ufs")
            .file(plugin(), "giveway.so")
            .file(scripts().join("guest.sh"), "guest.sh");
        let said = transcript(&spec, &machine, &job);
        // For its figures.
        print!("{said}");
        said
    });
    hold(said, claims);
}

#[test]
fn a_newer_server_loads_the_plugin_and_has_its_table() {
    held(&["plugin_loads", "says_what_is_missing"]);
    held(&["table_is_had", "no_slot_is_left"]);
}

#[test]
fn dumps_of_a_background_user_give_way() {
    held(&["without_ufs_dumps_cost", "without_the_setting_dumps_cost"]);
    held(&["dumps_give_way_by_sql"]);
}
