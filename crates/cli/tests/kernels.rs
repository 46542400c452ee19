//! What `giveway` says on the oldest kernel that UFS is for: `make test-kernels`.
//!
//! Not among the tests that cargo runs unasked (`test = false` in Cargo.toml).

use giveway_lab::LabSpec;

mod guest;

#[test]
fn doctor_and_the_journal_say_what_ufs_does_without_on_linux_6_12() {
    let spec = LabSpec {
        series: Some("6.12".to_owned()),
        ..LabSpec::default()
    };
    let claims = [
        "cpu_max",
        "real_time",
        "no_other_claim",
        "native",
        "json",
        "start",
        "journal",
    ];
    guest::held(&spec, "kernels.sh", &claims);
}
