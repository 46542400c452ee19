//! The skeleton of the BPF program, made by the build script.
#![allow(missing_docs, non_snake_case, unreachable_pub, clippy::all)]
#![allow(clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

include!(concat!(env!("OUT_DIR"), "/bpf_skel.rs"));
