//! What cores share is made of: the standard library's. Files that name it by this module alone are tried by `tests/models` with
//! loom's in its place, in every order that threads can take their steps in.

pub use reactor::cross_core::Lock;
pub use std::sync::OnceLock;
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
