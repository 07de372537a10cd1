//! The one program users see: daemon and command line.
fn main() {}
