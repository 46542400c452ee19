//! `src/bpf/intf.h` as Rust, made by the build script.
#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals
)]
#![allow(dead_code, unreachable_pub, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));
