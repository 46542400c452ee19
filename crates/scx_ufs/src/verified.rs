//! How many instructions the kernel's verifier processed for the program, and what to
//! try where they were too many.

use std::collections::BTreeMap;

use anyhow::Error;
use libbpf_rs::ErrorKind;
use libbpf_rs::query::ProgInfoIter;

/// Instructions that the verifier went through, by callback; the kernel cuts their names.
/// There is one UFS at a time, so all programs with its prefix are this one's.
pub(crate) fn instructions() -> BTreeMap<String, u32> {
    let mut sums = BTreeMap::new();
    for program in ProgInfoIter::default() {
        let name = program.name.to_string_lossy();
        if let Some(callback) = name.strip_prefix("ufs_") {
            *sums.entry(callback.to_owned()).or_default() += program.verified_insns;
        }
    }
    sums
}

/// Beyond the verifier's limits the kernel returns E2BIG, "argument list too long", which
/// says nothing of the verifier. This adds what to try.
pub(crate) fn with_remedy(error: Error, cpus: usize) -> Error {
    if !is_too_large(&error) {
        return error;
    }
    error.context(format!(
        "this kernel's verifier gives up on UFS for {cpus} CPUs, since there is too much to \
         verify: try --flat, which leaves out placement by topology, then also --no-hints and \
         --no-cpu-max; --verbose shows where it gave up. Please report it"
    ))
}

fn is_too_large(error: &Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref());
    causes.any(|cause: &libbpf_rs::Error| cause.kind() == ErrorKind::TooBig)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use nix::errno::Errno;

    use super::*;

    fn failed_with(errno: Errno) -> Error {
        let load: Result<(), _> = Err(libbpf_rs::Error::from_raw_os_error(errno as i32));
        let load = load.context("Failed to load BPF program");
        with_remedy(load.unwrap_err(), 96)
    }

    #[test]
    fn error_beyond_the_verifiers_limits_names_the_remedy() {
        let text = format!("{:#}", failed_with(Errno::E2BIG));
        assert!(
            text.contains("96 CPUs") && text.contains("--flat"),
            "{text}"
        );
    }

    #[test]
    fn other_errors_stay_unchanged() {
        let text = format!("{:#}", failed_with(Errno::EPERM));
        assert!(!text.contains("--flat"), "{text}");
    }
}
