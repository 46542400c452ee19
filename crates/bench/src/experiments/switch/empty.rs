//! An empty BPF program that runs at every context switch: what the kernel counts for it
//! is what its timing adds to every program.

use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use libbpf_rs::libbpf_sys::{
    BPF_PROG_TYPE_RAW_TRACEPOINT, bpf_insn, bpf_prog_load, bpf_raw_tracepoint_open,
};

use crate::cell::ufs::Callback;
use crate::harness::error::{Error, Result};

/// `r0 = 0; exit`.
const CODE: [u8; 2] = [0xb7, 0x95];
const NAME: &CStr = c"empty";
const WHERE: &CStr = c"sched_switch";

/// The program, attached while this lives.
pub(super) struct Empty {
    program: OwnedFd,
    _link: OwnedFd,
}

impl Empty {
    /// # Errors
    /// A kernel that loads no BPF programs.
    pub(super) fn attach() -> Result<Self> {
        let instructions = CODE.map(|code| bpf_insn {
            code,
            ..bpf_insn::default()
        });
        // SAFETY: the names end with 0, the instructions are as many as is said, and none
        // of the pointers is kept; without options their pointer is null.
        let program = unsafe {
            bpf_prog_load(
                BPF_PROG_TYPE_RAW_TRACEPOINT,
                NAME.as_ptr(),
                c"GPL".as_ptr(),
                instructions.as_ptr(),
                instructions.len() as u64,
                std::ptr::null_mut(),
            )
        };
        let program = owned("load an empty program", program)?;
        // SAFETY: the name ends with 0 and is not kept.
        let link = unsafe { bpf_raw_tracepoint_open(WHERE.as_ptr(), program.as_raw_fd()) };
        Ok(Empty {
            _link: owned("attach an empty program", link)?,
            program,
        })
    }

    /// What the kernel has counted for it.
    ///
    /// # Errors
    /// A kernel that does not say.
    pub(super) fn counted(&self) -> Result<Callback> {
        let path = PathBuf::from(format!("/proc/self/fdinfo/{}", self.program.as_raw_fd()));
        let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        let found = number(&text, "run_cnt").zip(number(&text, "run_time_ns"));
        let (calls, run_ns) = found
            .ok_or_else(|| Error::Config("the kernel does not time BPF programs".to_owned()))?;
        Ok(Callback { calls, run_ns })
    }
}

/// A descriptor that libbpf has returned, or the negative error number.
fn owned(what: &'static str, fd: RawFd) -> Result<OwnedFd> {
    if fd < 0 {
        let error = std::io::Error::from_raw_os_error(-fd);
        return Err(Error::file(what, "BPF".as_ref())(error));
    }
    // SAFETY: it was just opened, for this caller only.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number on the line `NAME:\tN`.
fn number(text: &str, name: &str) -> Option<u64> {
    let rest = |line: &str| {
        line.strip_prefix(name)?
            .strip_prefix(':')?
            .trim()
            .parse()
            .ok()
    };
    text.lines().find_map(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_found_by_its_whole_name() {
        let text = "prog_id:\t7\nrun_time_ns:\t900\nrun_cnt:\t3\n";
        assert_eq!(number(text, "run_cnt"), Some(3));
        assert_eq!(number(text, "run_time_ns"), Some(900));
        assert_eq!(number(text, "run_time"), None);
    }
}
