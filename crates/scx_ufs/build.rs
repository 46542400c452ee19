//! Compiles the BPF program and generates its skeleton and the Rust mirror of
//! `src/bpf/intf.h`; and the one with which `ufs-probe` breaks it.

use std::path::Path;

use scx_cargo::BpfBuilder;

fn main() {
    // Asked for when it runs: a build directory may be shared by checkouts.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let hints = Path::new(&here).join("../hints/include");
    println!("cargo:rerun-if-changed={}", hints.display());
    println!("cargo:rerun-if-changed=src/bpf");
    builder()
        .add_include_path(hints.to_str().expect("the checkout's path is not UTF-8"))
        .enable_intf("src/bpf/intf.h", "bpf_intf.rs")
        .enable_skel("src/bpf/main.bpf.c", "bpf")
        .build()
        .expect("the BPF program did not compile");
    builder()
        .enable_skel("src/bin/ufs-probe/faults/error.bpf.c", "error")
        .build()
        .expect("the BPF program of ufs-probe did not compile");
}

fn builder() -> BpfBuilder {
    BpfBuilder::new()
        .expect("a clang that can compile BPF: install clang-19 or name one in BPF_CLANG")
}
