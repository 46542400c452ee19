//! Whether the lab can be used, as `giveway-bench lab lacks` says. That program need not
//! be installed.

use std::path::Path;
use std::process::Command;

use giveway_command::program;
use serde::Deserialize;

use super::{Finding, Health, Way, missing};

const PROGRAM: &str = "giveway-bench";
const NAME: &str = "lab";

/// What giveway-bench says of one part.
#[derive(Deserialize)]
struct Said {
    name: String,
    health: Health,
    detail: String,
    remedy: Option<String>,
}

/// What the lab has and lacks. Without its program the way is closed.
pub(super) fn findings() -> Vec<Finding> {
    match program::find(PROGRAM) {
        Some(program) => asked(&program),
        None => vec![missing(
            Way::Lab,
            NAME,
            format!("{PROGRAM}, which has the lab, is neither beside this program nor in PATH"),
            format!("install the package {PROGRAM}, or make build in Giveway's source"),
        )],
    }
}

fn asked(program: &Path) -> Vec<Finding> {
    let said = Command::new(program).args(["lab", "lacks"]).output();
    match said {
        Ok(output) if output.status.success() => read(&output.stdout),
        Ok(output) => vec![untold(&String::from_utf8_lossy(&output.stderr))],
        Err(error) => vec![untold(&error.to_string())],
    }
}

fn read(said: &[u8]) -> Vec<Finding> {
    match serde_json::from_slice::<Vec<Said>>(said) {
        Ok(parts) => parts.into_iter().map(finding).collect(),
        Err(error) => vec![untold(&error.to_string())],
    }
}

fn finding(said: Said) -> Finding {
    Finding {
        way: Way::Lab,
        name: said.name.into(),
        health: said.health,
        detail: said.detail,
        remedy: said.remedy,
    }
}

fn untold(why: &str) -> Finding {
    let why = why.lines().next().unwrap_or_default();
    let detail = format!("{PROGRAM} does not say whether the lab can be used: {why}");
    missing(
        Way::Lab,
        NAME,
        detail,
        format!("install {PROGRAM} of this version"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lab_s_own_findings_are_passed_on() {
        let said = br#"[{"name":"KVM","health":"note","detail":"not there","remedy":null},
                        {"name":"disk","health":"missing","detail":"full","remedy":"free some"}]"#;
        let found = read(said);
        let parts: Vec<_> = found.iter().map(|f| (f.name.as_ref(), f.health)).collect();
        assert_eq!(parts, [("KVM", Health::Note), ("disk", Health::Missing)]);
        assert_eq!(found[1].remedy.as_deref(), Some("free some"));
        assert!(found.iter().all(|f| f.way == Way::Lab));
    }

    #[test]
    fn a_program_that_does_not_say_closes_the_lab() {
        for found in [read(b"usage: ..."), asked(Path::new("/bin/false"))] {
            assert_eq!((found.len(), found[0].health), (1, Health::Missing));
            assert!(found[0].detail.contains("does not say"));
        }
    }
}
