//! Numbers that tell a pool, its drives and its logs from all others.

use stdx::Prng;

use crate::format::label::Label;

pub(super) fn random_id(prng: &mut Prng) -> [u8; 16] {
    let mut id = [0; 16];
    prng.fill(&mut id);
    id
}

/// The number that tells a shard's log of this pool from all others.
pub(crate) fn ring(label: &Label, shard: u16) -> u64 {
    let (half, _) = label.log_id.split_first_chunk().expect("an id has 16 bytes");
    u64::from_le_bytes(*half).wrapping_add(u64::from(shard))
}
