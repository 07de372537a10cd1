//! Things that keep bytes, and fail: file, block device, memory.
