//! Whether the lab can be used, as `giveway-bench lab lacks` says. That program need not
//! be installed: an operator does without.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::{BENCH, Finding, Health, Way, missing, note};

const NAME: &str = "lab";

/// What giveway-bench says of one part.
#[derive(Deserialize)]
struct Said {
    name: String,
    health: Health,
    detail: String,
    remedy: Option<String>,
}

/// What the lab has and lacks, by its program.
pub(super) fn findings(program: Option<&Path>) -> Vec<Finding> {
    match program {
        Some(program) => asked(program),
        None => {
            let detail = format!("not installed (package {BENCH}); only experiments need it");
            vec![note(Way::Lab, NAME, detail)]
        }
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
    let detail = format!("{BENCH} does not say whether the lab can be used: {why}");
    missing(
        Way::Lab,
        NAME,
        detail,
        format!("install {BENCH} of this version"),
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
    fn a_program_that_is_not_installed_is_no_fault() {
        let found = findings(None);
        assert_eq!((found.len(), found[0].health), (1, Health::Note));
        assert!(found[0].detail.contains("package giveway-bench"));
    }

    #[test]
    fn a_program_that_does_not_say_closes_the_lab() {
        for found in [read(b"usage: ..."), asked(Path::new("/bin/false"))] {
            assert_eq!((found.len(), found[0].health), (1, Health::Missing));
            assert!(found[0].detail.contains("does not say"));
        }
    }
}
