//! Measurements: loopback floor and peers, side by side.
fn main() {}
