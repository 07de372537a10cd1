//! What the bytes of a pool's drives are for.

use stdx::num::u64_of;

use super::create::plan;
use super::{Pool, PoolSpec, geometry_of};
use crate::address::BLOCK;
use crate::error::Result;
use crate::format::label::{DriveMark, Label, Layout};
use crate::format::stripe::segment_blocks;
use crate::space::Space;

/// What the bytes of a pool's drives are for while none is lost. `raw` is the sum of all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Bytes of all drives.
    pub raw: u64,
    /// Bytes of contents that it can hold.
    pub capacity: u64,
    pub parity: u64,
    /// Zones of the commit log on all drives, or set aside for it.
    pub log: u64,
    /// Labels, catalogs and headers.
    pub labels: u64,
    /// Kept free for the map, for checkpoints, and for reclaim to work with.
    pub reserve: u64,
    /// What no stripe can have: of drives larger than the others, and ends that are no whole unit.
    pub unused: u64,
}

/// A pool that is not made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    pub layout: Layout,
    pub shards: u16,
    /// Bytes of the commit log, all shards together.
    pub log_bytes: u64,
    pub breakdown: Breakdown,
    /// Of each drive, how many bytes are used.
    pub used: Vec<u64>,
}

impl Breakdown {
    /// Of a pool with this label, whose drives have `sizes`, and segments room for so many blocks of contents.
    pub(super) fn of(label: &Label, sizes: &[u64], segment_blocks: u64) -> Self {
        let Layout { data, parity, au_bytes, .. } = label.layout;
        let (data, parity) = (u64::from(data), u64::from(parity));
        let there = || {
            let both = label.drives.iter().zip(sizes);
            both.filter(|(record, _)| record.mark != DriveMark::Vacant)
        };
        let units: Vec<u32> = there().map(|(record, _)| record.au_count).collect();
        let raw: u64 = there().map(|(_, size)| size).sum();
        let log: u64 = there().map(|(record, _)| record.log_bytes).sum();
        let width = usize::try_from(data + parity).unwrap_or(usize::MAX);
        let segments = match units.len() < width {
            true => 0,
            false => raid::placement::segments(&units, width),
        };
        let capacity = Space::capacity_of(segments, segment_blocks, label.shards) * u64_of(BLOCK);
        let contents = segments * segment_blocks * u64_of(BLOCK);
        let headers = segments * data * au_bytes - contents;
        let labels = u64_of(units.len()) * label.catalog.end() + headers;
        let (parity, reserve) = (segments * parity * au_bytes, contents - capacity);
        let unused = raw.saturating_sub(capacity + parity + log + labels + reserve);
        Self { raw, capacity, parity, log, labels, reserve, unused }
    }
}

impl Pool {
    /// What would be made of drives with these `sizes`, served by so many reactors. The drives of `spec` are not looked
    /// at, and nothing is changed.
    ///
    /// # Errors
    /// `Invalid` for what cannot be a pool.
    pub fn plan(spec: &PoolSpec, sizes: &[u64], reactors: usize) -> Result<PoolPlan> {
        let label = plan(spec, sizes, reactors)?;
        let geometry = geometry_of(&label.layout)?;
        let units: Vec<u32> = label.drives.iter().map(|record| record.au_count).collect();
        let segments = raid::placement::segments(&units, geometry.width());
        let used = label.drives.iter().map(|record| {
            // A segment has one unit of a drive at most.
            let units = u64::from(record.au_count).min(segments);
            label.catalog.end() + record.log_bytes + units * label.layout.au_bytes
        });
        Ok(PoolPlan {
            layout: label.layout,
            shards: label.shards,
            log_bytes: label.log_bytes * u64::from(label.shards),
            breakdown: Breakdown::of(&label, sizes, segment_blocks(geometry)),
            used: used.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::LogSpec;

    fn spec(scheme: raid::Scheme) -> PoolSpec {
        PoolSpec {
            name: "fast".to_owned(),
            id: [7; 16],
            drives: Vec::new(),
            scheme,
            log: LogSpec::Drives,
            log_bytes: None,
            shards: None,
            au_bytes: None,
            created: 0,
        }
    }

    /// 212 MiB of a drive were left unused without a word.
    #[test]
    fn every_byte_has_a_purpose() {
        const MIB: u64 = 1 << 20;
        let tib15 = 15_000_000_000_000;
        for sizes in [
            vec![200 * MIB; 4],
            vec![256 * MIB, 512 * MIB, 300 * MIB],
            vec![1_000_000_000; 2],
            vec![tib15; 24],
        ] {
            let scheme = match sizes.len() {
                2 => raid::Scheme::Mirror { copies: 2 },
                3 => raid::Scheme::Raid5,
                _ => raid::Scheme::Raid6,
            };
            let plan = Pool::plan(&spec(scheme), &sizes, 2).unwrap();
            let Breakdown { raw, capacity, parity, log, labels, reserve, unused } = plan.breakdown;
            assert_eq!(raw, sizes.iter().sum::<u64>());
            assert_eq!(raw, capacity + parity + log + labels + reserve + unused, "{plan:?}");
            assert!(plan.used.iter().zip(&sizes).all(|(used, size)| used <= size), "{plan:?}");
            assert!(capacity > 0 && reserve > 0 && labels > 0 && log > 0, "{plan:?}");
        }
        let uneven = [256 * MIB, 512 * MIB, 300 * MIB];
        let plan = Pool::plan(&spec(raid::Scheme::Raid5), &uneven, 1).unwrap();
        assert!(plan.breakdown.unused > 200 * MIB, "{plan:?}");
        assert!(plan.used[1] < 320 * MIB, "{plan:?}");
        // Of a pool of usual size more than four fifths of what parity leaves are for contents.
        let plan = Pool::plan(&spec(raid::Scheme::Raid6), &[tib15; 24], 8).unwrap();
        let left = plan.breakdown.raw - plan.breakdown.parity;
        assert!(plan.breakdown.capacity * 10 > left * 8, "{plan:?}");
        Pool::plan(&spec(raid::Scheme::Raid6), &uneven, 1).unwrap_err();
    }
}
