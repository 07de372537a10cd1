//! A pool gets wider: drives are added, and new segments use them at once.

use std::sync::Arc;

use media::Drive;
use stdx::num::u64_of;

use super::Pool;
use super::create::{least_shards, units_of};
use crate::address::BLOCK;
use crate::area;
use crate::drives::DriveSet;
use crate::error::{Error, Kind, Result};
use crate::format::label::{DriveMark, DriveRecord};
use crate::limits::DRIVES_MAX;

impl Pool {
    /// Has one drive more, of the identity `id`, drawn at random. What it holds is lost. It counts once it has labels,
    /// roots and catalog; [`status`](Self::status) tells how that goes. Gives its index.
    ///
    /// # Errors
    /// `Invalid` when it is too small, `Full` when the pool has as many as it can have or there is no space behind it,
    /// `Gone` when the pool is closed, `Failed` when it takes no writes, or the labels cannot say that it is there.
    pub async fn add_drive(&self, drive: Arc<Drive>, id: [u8; 16]) -> Result<u16> {
        let _turn = self.0.taking_back.hold(1).await;
        if self.0.closed.get() {
            return Err(Error::new(Kind::Gone, "the pool was closed"));
        }
        let common = &self.0.common;
        let label = common.superblock.label();
        let bears = usize::from(label.layout.parity);
        if bears > 0 && label.lost() >= bears {
            let context = "the pool lacks as many drives as it bears: replace one of those";
            return Err(Error::new(Kind::Invalid, context));
        }
        let place = common.superblock.drives.len();
        if place >= DRIVES_MAX {
            let context = format!("a pool has {DRIVES_MAX} drives at most");
            return Err(Error::new(Kind::Full, context));
        }
        // As on the others: the log may move there.
        let log_bytes = label.drives.iter().map(|record| record.log_bytes).max().unwrap_or(0);
        let begins = label.catalog.end() + log_bytes;
        let au_count = units_of(place, drive.capacity(), begins, label.layout.au_bytes)?;
        let in_use = label.drives.iter().filter(|record| record.mark != DriveMark::Vacant);
        let units = in_use.map(|record| record.au_count).chain([au_count]);
        let layout = &label.layout;
        let (units, shape) = (units.collect::<Vec<_>>(), (layout.data, layout.parity));
        let least = least_shards(&units, shape, layout.au_bytes);
        if least > u64::from(label.shards) {
            let has = label.shards;
            let context = format!(
                "so much space needs {least} shards or more, and the pool was made with {has}: use smaller drives, or make \
                 another pool"
            );
            return Err(Error::new(Kind::Full, context));
        }
        area::wipe_front(&drive, DriveSet::units_from(begins, au_count)).await?;
        let headers = u64::from(au_count) * u64_of(BLOCK);
        drive.preallocate(0, begins + headers).await.map_err(Error::from)?;
        // Whoever looks at all places there are finds it.
        common.allocator.lock().add_drive(place, au_count);
        let record = DriveRecord {
            id,
            mark: DriveMark::Vacant,
            stays_out: None,
            is_leaving: false,
            since: label.epoch,
            log_bytes,
            au_count,
        };
        let index = common.superblock.add(drive, record).await?;
        self.begin_to_make_whole(index);
        Ok(index)
    }
}
