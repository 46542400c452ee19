//! Compiles the probe scheduler that tells usable kernels from unusable ones.

use std::path::Path;
use std::process::Command;

fn main() {
    let source = "guest/probe.bpf.c";
    println!("cargo::rerun-if-changed={source}");
    println!("cargo::rerun-if-env-changed=BPF_CLANG");
    let clang = std::env::var("BPF_CLANG").unwrap_or_else(|_| "clang".into());
    let out_dir = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let status = Command::new(&clang)
        .args([
            "-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", "-c", source, "-o",
        ])
        .arg(Path::new(&out_dir).join("probe.bpf.o"))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {source}: {status}"),
        Err(error) => panic!(
            "cannot run {clang}: {error}; install clang 16 or newer (apt-get install clang-19) \
             or name it in BPF_CLANG"
        ),
    }
}
