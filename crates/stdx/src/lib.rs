//! What std lacks, and nothing of ours: ids, byte sizes, slab, prng, latency histogram, checksum, counts, ports.

pub mod aligned;
pub mod counted;
pub mod crc32c;
pub mod histogram;
pub mod id;
pub mod num;
pub mod port;
pub mod prng;
pub mod size;
pub mod slab;

pub use aligned::Aligned;
pub use counted::Counted;
pub use crc32c::{crc32c, crc32c_append};
pub use histogram::Histogram;
pub use id::{Cid, Cntlid, CoreId, Lba, Nsid, Qid};
pub use prng::Prng;
pub use slab::Slab;
