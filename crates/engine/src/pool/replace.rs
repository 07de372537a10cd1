//! What an operator does with a drive of an open pool: takes it out, lets it come back, puts another in its place.

use std::sync::Arc;

use media::Drive;

use super::Pool;
use super::create::set_aside;
use crate::area;
use crate::canary::{self, Canary};
use crate::error::{Error, Kind, Result};
use crate::format::label::StaysOut;

impl Pool {
    /// Takes a drive out of use, for good when this returns: it is not [taken back](Self::rejoin) before an operator
    /// [wants it](Self::let_return). One that is being made whole is given up.
    ///
    /// # Errors
    /// `NotFound` without such a drive, `Invalid` when the others do not have all that it has, `Gone` when the pool is
    /// closed, `Failed` when the labels cannot say so.
    pub async fn fail_drive(&self, index: u16) -> Result<()> {
        self.check_index(index)?;
        // A drive that is just being put there is there first.
        let _turn = self.0.taking_back.hold(1).await;
        if self.0.closed.get() {
            return Err(Error::new(Kind::Gone, "the pool was closed"));
        }
        self.0.common.superblock.retire(index).await?;
        self.0.common.follow_drives();
        self.0.common.superblock.members.wake();
        Ok(())
    }

    /// A drive that was kept out may be [taken back](Self::rejoin) from now on.
    ///
    /// # Errors
    /// `NotFound` without such a drive, `Gone` when the pool is closed, `Failed` when the labels cannot say so.
    pub async fn let_return(&self, index: u16) -> Result<()> {
        self.check_index(index)?;
        let _turn = self.0.taking_back.hold(1).await;
        if self.0.closed.get() {
            return Err(Error::new(Kind::Gone, "the pool was closed"));
        }
        // That it stays out may not have been told yet.
        self.0.common.superblock.tell_failures().await?;
        self.0.common.superblock.unretire(index).await
    }

    /// A drive that is out is not [taken back](Self::rejoin) from now on, before somebody [wants it](Self::let_return).
    ///
    /// # Errors
    /// `NotFound` without such a drive, `Exists` when it is in use, `Gone` when the pool is closed, `Failed` when the
    /// labels cannot say so.
    pub async fn keep_out(&self, index: u16, why: StaysOut) -> Result<()> {
        self.check_index(index)?;
        let _turn = self.0.taking_back.hold(1).await;
        if self.0.closed.get() {
            return Err(Error::new(Kind::Gone, "the pool was closed"));
        }
        self.0.common.superblock.keep_out(index, why).await
    }

    /// Puts another drive in the place of one that is out, or that works and can be spared, and begins to make it whole.
    /// What the new one holds is lost. It has the identity `id`, drawn at random, once the labels of the others say so;
    /// from then on the old one is not of the pool any more. [`status`](Self::status) tells how it goes on.
    ///
    /// # Errors
    /// `NotFound` without such a drive, `Invalid` when the new one is too small or the old one cannot be spared, `Busy`
    /// when it may be done later, `Full` when drives came and went there too often or the new one lacks space behind
    /// it, `Gone` when the pool is closed, `Failed` when the new drive takes no writes or fails at once.
    pub async fn replace_drive(&self, index: u16, drive: Arc<Drive>, id: [u8; 16]) -> Result<()> {
        self.check_index(index)?;
        let _turn = self.0.taking_back.hold(1).await;
        self.check_at_rest(index)?;
        let superblock = &self.0.common.superblock;
        // The old one is spared once this one is known to take writes.
        superblock.drives.check_size(index, &drive)?;
        area::wipe_front(&drive, superblock.drives.units_at(index)).await?;
        set_aside(usize::from(index), &drive, &superblock.label()).await?;
        if superblock.drives.state(index).is_written() {
            superblock.retire(index).await?;
            self.0.common.follow_drives();
        }
        superblock.replace(index, drive, id).await?;
        if canary::has(Canary::UsesTwice) {
            self.0.common.allocator.lock().forget(usize::from(index));
        }
        self.stays(index);
        self.begin_to_make_whole(index);
        Ok(())
    }

    pub(super) fn check_index(&self, index: u16) -> Result<()> {
        if usize::from(index) < self.0.common.superblock.drives.len() {
            return Ok(());
        }
        Err(Error::new(Kind::NotFound, format!("the pool has no drive {index}")))
    }
}
