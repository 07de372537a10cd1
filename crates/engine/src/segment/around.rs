//! Reading around drives that are slow or do not answer: blocks are made of the others' while the
//! slow one is still out, and whichever is there first is taken.

use super::recover::Target;
use super::{SegmentInfo, Segments};
use crate::error::Result;
use reactor::buffer::{Buffer, Pool};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// How blocks were come by.
pub(super) enum Got {
    /// As their drive has them: to be verified.
    Read(Buffer),
    /// Made of the others, and verified.
    Made,
}

impl Segments {
    /// Whether the others of a segment's drives can stand in for one of them that is slow: too many that are
    /// slow at once are not the drives' doing.
    fn can_go_around(&self, info: &SegmentInfo, drive: u16) -> bool {
        let others = info.members.iter().map(|member| member.drive).filter(|&d| d != drive);
        let away = |&drive: &u16| !self.drives.is_online(drive) || self.drives.is_avoided(drive);
        others.filter(away).count() < info.geometry.parity()
    }

    /// Reads blocks that lie in one piece; `make` makes them of the others' where their drive keeps the reader
    /// waiting.
    pub(super) async fn read_or_make(
        &self,
        target: Target<'_>,
        len: usize,
        pool: &Pool,
        make: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<Got> {
        let (member, at) = self.locate(target);
        let around = self.can_go_around(target.info, member.drive);
        if around && self.drives.goes_around(member.drive, at) {
            let mut make = Box::pin(make());
            return match make.as_mut().await {
                Ok(()) => Ok(Got::Made),
                Err(_) => {
                    self.drives.read(member.drive, at, len, pool.clone()).await.map(Got::Read)
                }
            };
        }
        self.drives.check_usable(member.drive)?;
        let buffer = self.drives.buffer(member.drive, at, len, pool).await;
        let mut read = pin!(self.drives.fill(member.drive, at, len, buffer));
        if !around {
            return read.await.map(Got::Read);
        }
        if let Some(read) = self.drives.unless_late(member.drive, read.as_mut()).await {
            return read.map(Got::Read);
        }
        if !self.can_go_around(target.info, member.drive) {
            return read.await.map(Got::Read);
        }
        either(read, Box::pin(make())).await
    }
}

/// Whichever succeeds first; the reader's own error if neither does.
async fn either(
    mut read: Pin<&mut impl Future<Output = Result<Buffer>>>,
    mut make: Pin<Box<impl Future<Output = Result<()>>>>,
) -> Result<Got> {
    let (mut failed, mut unmade) = (None, false);
    poll_fn(|cx| {
        if failed.is_none()
            && let Poll::Ready(done) = read.as_mut().poll(cx)
        {
            match done {
                Ok(data) => return Poll::Ready(Ok(Got::Read(data))),
                Err(error) => failed = Some(error),
            }
        }
        if !unmade && let Poll::Ready(done) = make.as_mut().poll(cx) {
            match done {
                Ok(()) => return Poll::Ready(Ok(Got::Made)),
                Err(_) => unmade = true,
            }
        }
        match failed.take() {
            Some(error) if unmade => Poll::Ready(Err(error)),
            still => {
                failed = still;
                Poll::Pending
            }
        }
    })
    .await
}
