//! Quotas: what a volume and all its snapshots may hold together (decision 0028).

use std::sync::Arc;

use stdx::size::show;

use super::Pool;
use super::volumes::{check_quota, find};
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{Catalog, Object, Record};
use crate::limits::QUOTA_MAX;
use crate::volume::state::{BLOCK_BYTES, State};

impl Pool {
    /// Gives a volume a quota, another one, or none: so many bytes it and all its snapshots may hold together, what is
    /// replaced and a snapshot sees included, what it began with as a clone not. A write of what is new beyond that is
    /// refused (`Full`); what replaces contents that no snapshot sees goes on, and so does giving back.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for what is not a multiple of 1 MiB, or too large; `Full` where the volume and its snapshots
    /// hold more already; `Busy` where that cannot be found out, as nothing leaves the log; `Failed` when too many drives
    /// failed. Then all is as it was.
    pub async fn set_quota(&self, name: &str, bytes: Option<u64>) -> Result<()> {
        bytes.map_or(Ok(()), check_quota)?;
        let _turn = self.turn().await?;
        self.end_windows_of(&[name]).await?;
        let (common, state) = (&self.0.common, self.volume(name)?.state);
        let before = common.superblock.catalog(|catalog| find(catalog, name).map(|of| of.quota))?;
        let before = Some(before).filter(|bytes| *bytes > 0);
        // Nobody is refused before it is known to hold less, and lasts.
        let unbounded = before.or(bytes.map(|_| QUOTA_MAX));
        common.quotas.set(&state, unbounded, common.shards);
        let done = self.change_quota(name, bytes).await;
        common.quotas.set(&state, if done.is_ok() { bytes } else { before }, common.shards);
        done
    }

    async fn change_quota(&self, name: &str, bytes: Option<u64>) -> Result<()> {
        let common = &self.0.common;
        if let Some(bytes) = bytes {
            let view = self.volume(name)?.state.view;
            let counted = common.quotas.recount(view).await;
            let quota = common.quotas.get(view);
            let held = quota.and_then(|quota| quota.held()).filter(|_| counted);
            let Some(held) = held else {
                let what = format!(
                    "what volume {name} holds cannot be counted now: nothing leaves the log, or a drive failed"
                );
                return Err(Error::new(Kind::Busy, what));
            };
            let held = held * BLOCK_BYTES;
            if held > bytes {
                let (held, bytes) = (show(held), show(bytes));
                let what = format!(
                    "volume {name} and its snapshots hold {held} already, more than {bytes}: delete snapshots, or trim"
                );
                return Err(Error::new(Kind::Full, what));
            }
        }
        let change = |catalog: &Catalog| {
            let quota = bytes.unwrap_or(0);
            let volume = Object { quota, ..find(catalog, name)?.clone() };
            Ok((catalog.edit(vec![Record::Put(volume)]), ()))
        };
        common.superblock.change_catalog(change).await
    }

    /// A volume is there, and has its quota from now on, if it has one. Nothing [is there](Self::note_empty) of it yet, or
    /// it is to be counted.
    pub(super) fn adopt_quota(&self, volume: &Object, state: &Arc<State>) {
        if volume.quota > 0 {
            let common = &self.0.common;
            common.quotas.set(state, Some(volume.quota), common.shards);
        }
    }

    /// Nothing is there of a volume yet.
    pub(super) fn note_empty(&self, state: &State) {
        if let Some(quota) = self.0.common.quotas.get(state.view) {
            quota.note_empty();
        }
    }
}
