//! What cores share is made of: the standard library's. Files that name it by this module alone are tried by `tests/models` with
//! loom's in its place, in every order that threads can take their steps in.

pub use std::sync::atomic::{AtomicU32, Ordering};
pub use std::sync::{Mutex, MutexGuard};
