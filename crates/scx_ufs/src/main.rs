//! UFS loader.
fn main() {}
