//! Bounds of what is read and followed.

/// Bytes read of a file of sysfs: the kernel's attributes are a page at most.
pub(crate) const ATTRIBUTE_BYTES: u64 = 4096;

/// Block devices looked at on the way from one to the drives below: real stacks have less than ten, wide RAID
/// sets some hundred.
pub(crate) const DEVICES: usize = 1024;

/// Bytes of a page, which is what a segment of a command's data is at least.
pub(crate) const PAGE_BYTES: u64 = 4096;
