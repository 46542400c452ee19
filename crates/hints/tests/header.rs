//! The C header and its Rust mirror say the same.

use std::process::Command;

use giveway_hints::{INCLUDE_DIR, Tier, Weight};

/// Prints every constant of the header from a C program built with it.
const PROGRAM: &str = r#"
#include <giveway/tier.h>
#include <stdio.h>
int main(void) {
    printf("%d %d %d %d %d\n", GIVEWAY_TIER_BACKGROUND, GIVEWAY_TIER_TIME_SENSITIVE,
           GIVEWAY_WEIGHT_MIN, GIVEWAY_WEIGHT_DEFAULT, GIVEWAY_WEIGHT_MAX);
    return 0;
}
"#;

#[test]
fn c_header_has_the_constants_of_the_rust_mirror() {
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (dir.join("tier.c"), dir.join("tier"));
    std::fs::write(&source, PROGRAM).unwrap();
    let compiler = cc::Build::new()
        .opt_level(0)
        .target("x86_64-unknown-linux-gnu")
        .host("x86_64-unknown-linux-gnu")
        .get_compiler();
    let built = Command::new(compiler.path())
        .args(["-Wall", "-Werror", "-I", INCLUDE_DIR, "-o"])
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(built.success());
    let output = Command::new(&program).output().unwrap();
    let c: Vec<u32> = String::from_utf8(output.stdout)
        .unwrap()
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    let rust = [
        Tier::Background as u32,
        Tier::TimeSensitive as u32,
        Weight::MIN.get(),
        Weight::DEFAULT.get(),
        Weight::MAX.get(),
    ];
    assert_eq!(c, rust);
}
