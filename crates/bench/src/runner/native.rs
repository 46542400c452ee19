//! Whether this machine itself can measure, by the word of `giveway doctor`, which
//! examines it.

use std::process::Command;

use giveway_command::program;
use serde::Deserialize;

/// What of its answer counts here.
#[derive(Deserialize)]
struct Examination {
    native: bool,
    findings: Vec<Finding>,
}

#[derive(Deserialize)]
struct Finding {
    way: String,
    health: String,
    detail: String,
}

/// Why this machine cannot measure; `None` if it can.
pub(crate) fn obstacle() -> Option<String> {
    let Some(giveway) = program::find("giveway") else {
        return Some(
            "giveway, which examines the machine, is neither beside this program nor in PATH"
                .to_owned(),
        );
    };
    // Its exit status says whether anything can measure, which is another question.
    match Command::new(giveway).args(["doctor", "--json"]).output() {
        Ok(output) => read(&output.stdout),
        Err(error) => Some(format!("giveway doctor cannot be run: {error}")),
    }
}

fn read(said: &[u8]) -> Option<String> {
    let found: Examination = match serde_json::from_slice(said) {
        Ok(found) => found,
        Err(error) => return Some(format!("giveway doctor does not say: {error}")),
    };
    let is_in_the_way = |finding: &Finding| finding.way == "native" && finding.health == "missing";
    let reason = found.findings.into_iter().find(is_in_the_way);
    let reason = reason.map_or_else(|| "giveway doctor says no".to_owned(), |f| f.detail);
    (!found.native).then_some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thing_that_native_cells_lack_is_the_reason() {
        let said = |native, health| {
            let other = r#"{"way":"lab","name":"disk","health":"missing","detail":"full"}"#;
            format!(
                r#"{{"native":{native},"lab":false,"bench":"x","findings":[{other},
                   {{"way":"native","name":"kernel","health":"{health}","detail":"too old"}}]}}"#
            )
        };
        assert_eq!(read(said(true, "ok").as_bytes()), None);
        let reason = read(said(false, "missing").as_bytes());
        assert_eq!(reason.as_deref(), Some("too old"));
        assert!(read(b"usage").unwrap().contains("does not say"));
    }
}
