//! Bounds that the specifications fix, each with its place.

/// Longest NVMe Qualified Name in bytes, the terminating NUL not counted (section 4.7).
pub const NQN_BYTES_MAX: usize = 223;
/// Width in bytes of an NQN field in every wire structure; the rest is NUL.
pub const NQN_FIELD_BYTES: usize = 256;
/// Bytes of a submission queue entry.
pub const SQE_BYTES: usize = 64;
/// Bytes of a completion queue entry.
pub const CQE_BYTES: usize = 16;
/// Bytes of every Identify data structure (section 5.1.13).
pub const IDENTIFY_BYTES: usize = 4096;
/// Namespace identifiers in one namespace list (section 4.4.2).
pub const NAMESPACE_LIST_MAX: usize = 1024;
/// Controller identifiers in one controller list (section 4.4.1).
pub const CONTROLLER_LIST_MAX: usize = 2047;
/// LBA formats a namespace can list (NVM Command Set, Identify Namespace).
pub const LBA_FORMATS_MAX: usize = 64;
/// Power state descriptors of a controller.
pub const POWER_STATES_MAX: usize = 32;
/// Ranges of one Dataset Management command: its NR field is 8 bits, 0's based.
pub const DSM_RANGES_MAX: usize = 256;
/// Source ranges of one Copy command: its NR field is 8 bits, 0's based.
pub const COPY_RANGES_MAX: usize = 256;

const _: () = assert!(NQN_BYTES_MAX < NQN_FIELD_BYTES);
const _: () = assert!(NAMESPACE_LIST_MAX * 4 == IDENTIFY_BYTES);
const _: () = assert!((CONTROLLER_LIST_MAX + 1) * 2 == IDENTIFY_BYTES);
