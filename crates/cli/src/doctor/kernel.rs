//! The features that UFS lacks on this kernel, as `scx_ufs --kernel-lacks` lists them.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::{Finding, Way, note, ok};

const NAME: &str = "features";

/// What scx_ufs says of one feature.
#[derive(Deserialize)]
struct Lacking {
    without: String,
    since: String,
}

/// One finding for each feature that the kernel lacks, or one that it lacks none.
/// Each of them leaves the way open.
pub(super) fn features(scheduler: &Path) -> Vec<Finding> {
    let said = Command::new(scheduler).arg("--kernel-lacks").output();
    let said = match said {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => return vec![untold(&String::from_utf8_lossy(&output.stderr))],
        Err(error) => return vec![untold(&error.to_string())],
    };
    findings(&said)
}

fn findings(said: &[u8]) -> Vec<Finding> {
    let lacking: Vec<Lacking> = match serde_json::from_slice(said) {
        Ok(lacking) => lacking,
        Err(error) => return vec![untold(&error.to_string())],
    };
    if lacking.is_empty() {
        return vec![ok(Way::Native, NAME, "the kernel has all that UFS uses")];
    }
    let words = |of: Lacking| format!("{} (before Linux {})", of.without, of.since);
    let lacking = lacking.into_iter().map(words);
    lacking
        .map(|words| note(Way::Native, NAME, words))
        .collect()
}

fn untold(why: &str) -> Finding {
    let why = why.lines().next().unwrap_or_default();
    let detail = format!("scx_ufs does not say what it does without here: {why}");
    note(Way::Native, NAME, detail)
}

#[cfg(test)]
mod tests {
    use super::super::Health;
    use super::*;

    #[test]
    fn each_feature_that_is_lacking_is_a_note() {
        let said = r#"[{"name":"cpu.max","without":"cpu.max is not enforced","since":"6.17"},
                       {"name":"new","without":"nothing new","since":"9.0"}]"#;
        let found = findings(said.as_bytes());
        let words: Vec<&str> = found.iter().map(|f| f.detail.as_str()).collect();
        let expected = [
            "cpu.max is not enforced (before Linux 6.17)",
            "nothing new (before Linux 9.0)",
        ];
        assert_eq!(words, expected);
        assert!(found.iter().all(|f| f.health == Health::Note));
        assert_eq!(findings(b"[]\n")[0].health, Health::Ok);
    }

    #[test]
    fn a_scheduler_that_does_not_say_closes_no_way() {
        let one = |found: Vec<Finding>| {
            assert_eq!((found.len(), found[0].health), (1, Health::Note));
            found[0].detail.clone()
        };
        assert!(one(findings(b"usage: ...")).contains("does not say"));
        // No such option, as an older scx_ufs would have it.
        assert!(one(features(Path::new("/bin/false"))).contains("does not say"));
        assert!(one(features(Path::new("/no/such"))).contains("No such file"));
    }
}
