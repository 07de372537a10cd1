//! What records gather in where group commit writes them: an image of the ring, in memory that no device is. Records go
//! straight to devices of memory; where any is a drive, and while a log moves from one to the other, they gather here.

use super::Store;
use crate::error::{Error, Kind, Result};
use crate::log::limits::COMMIT_POOL_BYTES;
use media::Pmem;
use reactor::buffer::Pool;
use std::rc::Rc;

/// The ring in memory that no device is, and buffers to write it from.
pub(super) struct Image {
    pub ring: Pmem,
    pub pool: Pool,
}

impl Image {
    pub fn new(ring_bytes: u64) -> Result<Rc<Self>> {
        let pool = Pool::new(COMMIT_POOL_BYTES)
            .map_err(|e| Error::caused(Kind::Failed, "memory for commits", e))?;
        Ok(Rc::new(Self { ring: Pmem::anonymous(ring_bytes)?, pool }))
    }
}

impl Store {
    /// Has what is stored from now on gather in memory apart from the devices, too.
    pub fn begin_image(&self, ring_bytes: u64) -> Result<()> {
        assert!(self.direct.get(), "an image is made while records go straight to the devices");
        *self.image.borrow_mut() = Some(Image::new(ring_bytes)?);
        self.changes.set(self.changes.get() + 1);
        Ok(())
    }

    /// Has records go to the devices by group commit from now on, from the image, which has all there is.
    pub fn go_behind(&self) {
        assert!(self.image.borrow().is_some(), "there is an image to commit from");
        self.direct.set(false);
    }

    /// Has records go straight to the devices from now on, all of them memory, which have all there is.
    pub fn go_direct(&self) {
        self.direct.set(true);
        *self.image.borrow_mut() = None;
    }

    /// Copies bytes of the ring from a device of memory into the image.
    pub fn copy_to_image(&self, at: u64, len: usize) -> Result<()> {
        let Some(image) = self.image() else { return Ok(()) };
        self.with(at, len, |bytes| image.ring.write(at, bytes))??;
        Ok(())
    }

    /// Lets go of devices that take nothing any more.
    pub fn drop_retired(&self) {
        for member in self.members.borrow_mut().iter_mut() {
            if member.as_ref().is_some_and(|member| !self.takes(member)) {
                *member = None;
            }
        }
    }
}
