//! Whether drives still have what all carry alike: catalogs and roots are read at openings only, and would rot in silence
//! until the one that is asked for is the last. Labels are looked at every few seconds.

use std::sync::Arc;

use media::Drive;
use stdx::num::u64_of;

use super::Superblock;
use crate::area;
use crate::error::Result;
use crate::segment::Scrubbed;

impl Superblock {
    /// Looks at the catalog of each drive in use, and has all of them carry it anew where one of them does not.
    ///
    /// # Errors
    /// As [`change_catalog`](Self::change_catalog), of what has to be taken back before.
    pub async fn scrub_catalog(&self) -> Result<Scrubbed> {
        let generation = self.settled_generation().await?;
        let lacking = self.lacking_catalog(generation).await;
        if lacking.is_empty() {
            return Ok(Scrubbed::default());
        }
        // The newest one is overwritten by the second change from there on: that may have been read half-way.
        let is_sure = self.catalog(|catalog| catalog.generation) == generation;
        let renewed = self.renew_catalog(&lacking).await;
        if !is_sure {
            return Ok(Scrubbed::default());
        }
        let damaged = u64_of(lacking.len());
        let left = match renewed {
            Ok(()) => u64_of(self.lacking_catalog(generation).await.len()),
            Err(_) => damaged,
        };
        Ok(Scrubbed { damaged, repaired: damaged.saturating_sub(left), lost: 0 })
    }

    /// Which drives in use do not have the catalog of this generation, which was written to all of them, or a later one.
    async fn lacking_catalog(&self, generation: u64) -> Vec<u16> {
        let mut lacking = Vec::new();
        for (index, drive) in self.online() {
            let trails = area::catalog::trails(&drive, self.kept.area(), self.pool).await;
            let has = match trails {
                Ok(trails) => {
                    area::catalog::newest(trails).is_ok_and(|of| of.generation >= generation)
                }
                // To an opening it is as good as gone.
                Err(error) if error.is_of_medium() => false,
                Err(_) => continue,
            };
            if !has && self.is_online_still(index, &drive) {
                lacking.push(index);
            }
        }
        lacking
    }

    /// How many drives in use lack a shard's root of this generation, which was written to all of them, or a later one.
    pub async fn lacking_root(&self, shard: u16, generation: u64) -> u64 {
        let mut lacking = 0;
        for (index, drive) in self.online() {
            let has = match area::read_root(&drive, self.pool, shard).await {
                Ok(root) => root.is_ok_and(|root| root.generation >= generation),
                Err(error) if error.is_of_medium() => false,
                Err(_) => continue,
            };
            lacking += u64::from(!has && self.is_online_still(index, &drive));
        }
        lacking
    }

    /// The drives that have everything before any of them is looked at.
    fn online(&self) -> Vec<(u16, Arc<Drive>)> {
        let drive = |index| Some((index, self.drives.drive(index).cloned()?));
        self.drives.indices().filter_map(drive).collect()
    }

    fn is_online_still(&self, index: u16, drive: &Arc<Drive>) -> bool {
        self.drives.drive(index).is_some_and(|now| Arc::ptr_eq(now, drive))
    }
}
