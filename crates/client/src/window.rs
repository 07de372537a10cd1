//! Writing by a direct write window, where there is one.

use std::sync::Arc;

use initiator::{Namespace, SharedWindow, WindowUse, Written};
use stdx::num::usize32;

use crate::Error;

/// The window of a namespace, for all its threads.
pub struct Window {
    shared: Arc<SharedWindow>,
    block_bytes: u32,
}

impl Window {
    pub const fn new(shared: Arc<SharedWindow>, block_bytes: u32) -> Self {
        Self { shared, block_bytes }
    }

    /// Where tests put one.
    #[cfg(test)]
    pub const fn shared(&self) -> &Arc<SharedWindow> {
        &self.shared
    }

    /// Writes done by it.
    pub fn writes(&self) -> u64 {
        self.shared.writes()
    }

    /// Writes `data` to block `lba` and those that follow; false when that is to go as a command.
    #[inline]
    pub fn write(&self, lba: u64, data: &[u8]) -> bool {
        let offset = lba.checked_mul(u64::from(self.block_bytes));
        // What became of one whose outcome is not known is for the command to say.
        offset.is_some_and(|offset| self.shared.write(offset, data) == Written::Done)
    }

    /// The same for the first `blocks` of a buffer.
    #[inline]
    pub fn write_blocks(&self, lba: u64, blocks: u32, buffer: &[u8]) -> bool {
        let length = usize32(blocks).checked_mul(usize32(self.block_bytes));
        let data = length.and_then(|length| buffer.get(..length));
        data.is_some_and(|data| self.write(lba, data))
    }
}

/// Has a window, where that is wanted and can be, and a task of this reactor keep one.
pub async fn open(namespace: &Namespace, wanted: WindowUse) -> Result<Option<Window>, Error> {
    let opened = namespace.open_window(wanted).await.map_err(|why| Error::NoWindow(Arc::new(why)));
    let Some(shared) = opened? else { return Ok(None) };
    let (kept, at) = (namespace.clone(), Arc::clone(&shared));
    reactor::spawn(async move { kept.keep_window(&at, wanted, 0).await });
    Ok(Some(Window::new(shared, namespace.geometry().block_bytes)))
}
