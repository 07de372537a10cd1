//! House checks and generators.
fn main() {}
