//! Compiles `src/cancel.c`.

fn main() {
    println!("cargo:rerun-if-changed=src/cancel.c");
    cc::Build::new()
        .file("src/cancel.c")
        // Right at every instruction, which call-site tables are not: see there.
        .flag("-fno-exceptions")
        .flag("-fasynchronous-unwind-tables")
        .warnings_into_errors(true)
        .compile("giveway_cfl_cancel");
}
