//! Direct write windows of the pool's volumes.

use super::{Array, Media, told};
use crate::contents::BLOCK;
use crate::store::Refusal;
use engine::{GrantedWindow, Kind, OpenOptions, Pool, WindowEnd};
use std::num::NonZeroU32;
use stdx::num::u64_of;

/// Bytes of a ring for each block that is set aside.
const BYTES_A_BLOCK: u64 = 512;

impl Media {
    /// What is beside the log's devices is not there, or is there again.
    pub(super) fn hide_windows(&self, hide: bool) {
        let (pmem, others) = (self.pmem.borrow(), self.others.borrow());
        pmem.iter().chain(&*others).for_each(|pmem| pmem.hide_beside(hide));
    }

    /// Opens the pool while what is beside its log is not there: where a volume has a window, that is refused. `None` where
    /// it is.
    pub(super) async fn open_without_windows(
        &self,
        options: OpenOptions,
    ) -> Result<Option<Pool>, Refusal> {
        self.hide_windows(true);
        let opened =
            Pool::open(self.labelled().await, self.log_anywhere(), options, &self.on()).await;
        self.hide_windows(false);
        match opened {
            Err(error) if error.kind == Kind::Loss => {
                self.note(&format!("refused without windows: {error}"));
                Ok(None)
            }
            // It may have been closed, and has no log; and drives may be away.
            Err(error) if matches!(error.kind, Kind::Invalid | Kind::Failed | Kind::Missing) => {
                Ok(None)
            }
            opened => told(opened).map(Some),
        }
    }
}

impl Array {
    /// As [`Store::grant_window`](crate::store::Store::grant_window).
    pub async fn grant_window(
        &self,
        name: &str,
        ring_bytes: u64,
        epoch: u64,
        number: u32,
    ) -> Result<Option<([u8; 16], GrantedWindow)>, Refusal> {
        let Ok(id) = self.volume(name).map(|volume| volume.id()) else { return Ok(None) };
        let number = NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        match self.pool.grant_window(id, ring_bytes, epoch, number).await {
            Ok(granted) => Ok(Some((id, granted))),
            // It has a quota, there is no room, the log is on its way, or it is gone.
            Err(error)
                if matches!(
                    error.kind,
                    Kind::Unsupported | Kind::Full | Kind::Busy | Kind::NotFound
                ) =>
            {
                Ok(None)
            }
            Err(error) => told(Err(error)),
        }
    }

    /// Ends a window whoever waits for it.
    pub fn window_ender(
        &self,
        volume: [u8; 16],
        number: u32,
    ) -> impl Future<Output = Result<(), Refusal>> + use<> {
        let pool = self.pool.clone();
        async move { told(pool.end_window(volume, Some(number)).await) }
    }

    pub async fn end_bad_windows(&self) -> Result<(), Refusal> {
        told(self.pool.end_bad_windows().await)
    }

    pub fn window_ends(&self) -> Vec<WindowEnd> {
        self.pool.take_window_ends()
    }

    pub fn set_aside_for_windows(&self) -> u64 {
        let rings = u64_of(self.pool.open_windows()) * u64::from(self.shards);
        rings * self.ring_bytes / BYTES_A_BLOCK
    }
}

const _: () = assert!(BYTES_A_BLOCK < u64_of(BLOCK));
