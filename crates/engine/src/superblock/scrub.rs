//! Whether drives still have what all carry alike: catalogs and roots are read at openings only, and would rot in silence
//! until the one that is asked for is the last. Labels are looked at every few seconds.

use std::sync::Arc;

use media::Drive;

use super::Superblock;
use crate::area;
use crate::error::Result;

impl Superblock {
    /// Looks at the catalog of each drive in use, and has all of them carry it anew where one of them does not. That is no
    /// damage for sure: a change may have been under way.
    ///
    /// # Errors
    /// As [`change_catalog`](Self::change_catalog).
    pub async fn scrub_catalog(&self) -> Result<()> {
        self.settle_catalog().await?;
        match self.lacking_catalog().await {
            0 => Ok(()),
            _ => self.renew_catalog().await,
        }
    }

    /// How many drives in use do not have the catalog as it is by now, or as it is to be.
    async fn lacking_catalog(&self) -> u64 {
        // What is acknowledged is on all of them.
        let generation = self.catalog(|catalog| catalog.generation);
        let mut lacking = 0;
        for (index, drive) in self.online() {
            let trails = area::catalog::trails(&drive, self.kept.area(), self.pool).await;
            let Ok(trails) = trails else { continue };
            let has = area::catalog::newest(trails).is_ok_and(|of| of.generation >= generation);
            lacking += u64::from(!has && self.is_online_still(index, &drive));
        }
        lacking
    }

    /// How many drives in use lack a shard's root of this generation, which was written to all of them, or a later one.
    pub async fn lacking_root(&self, shard: u16, generation: u64) -> u64 {
        let mut lacking = 0;
        for (index, drive) in self.online() {
            let Ok(root) = area::read_root(&drive, self.pool, shard).await else { continue };
            let has = root.is_ok_and(|root| root.generation >= generation);
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
