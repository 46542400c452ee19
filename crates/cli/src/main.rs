//! The `giveway` command.
fn main() {}
