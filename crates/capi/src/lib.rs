//! libflashloom: [`client`] for programs in C and other languages. `include/flashloom.h` documents every function and
//! type; here is how they are made. The test in `tests/c.rs` holds the two together.
#![allow(unsafe_code, reason = "the border to C: pointers come with the header's promises")]
#![allow(clippy::missing_safety_doc, reason = "flashloom.h says what callers promise")]

mod border;
mod discovery;
mod memory;
mod namespace;
mod options;
mod queue;
mod types;

pub use border::{FlError, fl_strerror};
pub use discovery::{
    FlDiscovery, FlDiscoveryEntry, fl_discover, fl_discovery_count, fl_discovery_free,
    fl_discovery_get,
};
pub use memory::{fl_alloc, fl_free};
pub use namespace::{
    FlInfo, FlNamespace, fl_compare, fl_copy, fl_deallocate, fl_flush, fl_namespace_close,
    fl_namespace_info, fl_namespace_open, fl_namespace_shut_down, fl_read, fl_verify, fl_write,
    fl_write_zeroes,
};
pub use options::{FlOptions, fl_options_copy, fl_options_free, fl_options_new, fl_options_set};
pub use queue::{
    FlCommand, FlCompletion, FlQueue, fl_queue_arm, fl_queue_commit, fl_queue_fd, fl_queue_free,
    fl_queue_new, fl_queue_outstanding, fl_queue_poll, fl_queue_submit, fl_queue_wait,
};
pub use types::FlRange;

/// `FL_VERSION_MAJOR`, also in the shared object's name (`build.rs`).
const MAJOR: u32 = 0;
/// `FL_VERSION_MINOR`.
const MINOR: u32 = 1;

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn fl_version() -> u32 {
    MAJOR << 16 | MINOR
}
