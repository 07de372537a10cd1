//! Writing by a direct write window, where there is one.

use std::str::FromStr;
use std::sync::Arc;

use initiator::{Namespace, SharedWindow, Written};
use stdx::num::usize32;

use crate::Error;

/// Whether writes go by a direct write window (`docs/anof.md`): memory of the target, on this machine, to which this
/// process appends them by itself. They are durable when they have ended, and what the window does not take goes as a
/// command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowUse {
    /// All writes are commands.
    #[default]
    Off,
    /// By a window of whatever kind can be had.
    Auto,
    /// By one in memory that this machine shares with the target.
    Shm,
    /// As [`WindowUse::Auto`], and without a window to begin with there is no namespace.
    Require,
}

impl FromStr for WindowUse {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            "shm" => Ok(Self::Shm),
            "require" => Ok(Self::Require),
            "rdma" => Err("windows by RDMA are not there yet; shm is".to_owned()),
            _ => Err("off, auto, shm or require".to_owned()),
        }
    }
}

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
pub async fn open(namespace: &Namespace, used: WindowUse) -> Result<Option<Window>, Error> {
    if used == WindowUse::Off {
        return Ok(None);
    }
    let shared = Arc::<SharedWindow>::default();
    match namespace.window(0).await {
        Ok(window) => shared.put(window).await,
        Err(why) if used == WindowUse::Require => return Err(Error::NoWindow(Arc::new(why))),
        // There may be one later.
        Err(_) => {}
    }
    let (kept, at) = (namespace.clone(), Arc::clone(&shared));
    reactor::spawn(async move { kept.keep_window(&at, 0).await });
    Ok(Some(Window::new(shared, namespace.geometry().block_bytes)))
}
