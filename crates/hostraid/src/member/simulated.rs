//! A member of the simulator: a drive behind a link, which breaks.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use initiator::{Buffer, Error, Fua};
use media::{Kind, Operation, Simulated};
use nvme::status::Status;
use reactor::sync::Signal;
use stdx::num::usize32;

/// What is between the host and a drive.
#[derive(Default)]
pub struct Link {
    down: Cell<bool>,
    cuts: Cell<u64>,
    cut: Signal,
}

impl Link {
    pub fn new(down: bool) -> Self {
        Self { down: Cell::new(down), ..Self::default() }
    }

    /// Everything under way ends with an error, and may have been done or not, or partly. Nothing passes any more.
    pub fn cut(&self) {
        self.down.set(true);
        self.cuts.set(self.cuts.get() + 1);
        self.cut.raise();
    }

    pub fn mend(&self) {
        self.down.set(false);
    }

    async fn pass<T>(&self, what: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        const GONE: Error = Error::Lost("the simulated member is gone");
        let before = self.cuts.get();
        if self.down.get() {
            return Err(GONE);
        }
        let mut what = pin!(what);
        let mut cut = pin!(self.cut.until(|| self.cuts.get() != before));
        poll_fn(|cx| match cut.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(GONE)),
            Poll::Pending => what.as_mut().poll(cx),
        })
        .await
    }
}

/// A drive and the link to it.
#[derive(Clone)]
pub struct Drive {
    drive: Rc<media::Drive>,
    link: Rc<Link>,
}

/// As a target would tell it.
fn error(error: &media::Error) -> Error {
    match error.kind {
        Kind::Medium if error.operation == Operation::Read => {
            Error::Command { command: "Read", status: Status::UNRECOVERED_READ_ERROR }
        }
        Kind::Medium => Error::Command { command: "Write", status: Status::WRITE_FAULT },
        _ => Error::Lost("the simulated member is gone"),
    }
}

impl Drive {
    pub fn new(drive: &Arc<Simulated>, link: Rc<Link>) -> Self {
        Self { drive: Rc::new(media::Drive::Simulated(Arc::clone(drive))), link }
    }

    pub fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.drive, &other.drive)
    }

    pub fn capacity(&self) -> u64 {
        self.drive.capacity()
    }

    pub async fn read(&self, offset: u64, len: u32, to: &mut Buffer) -> Result<(), Error> {
        let read = async { self.drive.read(offset, usize32(len)).await.map_err(|e| error(&e)) };
        to[..usize32(len)].copy_from_slice(&self.link.pass(read).await?);
        Ok(())
    }

    pub async fn write(&self, at: u64, len: u32, from: &Buffer, fua: Fua) -> Result<(), Error> {
        let mut data = reactor::buffer::alloc(usize32(len)).await;
        data.copy_from_slice(&from[..usize32(len)]);
        let fua = fua == Fua::Yes;
        let write = async { self.drive.write(at, data, fua).await.map_err(|e| error(&e)) };
        self.link.pass(write).await
    }

    pub async fn zero(&self, offset: u64, len: u64, fua: Fua) -> Result<(), Error> {
        let zero =
            async { self.drive.write_zeroes(offset, len, true).await.map_err(|e| error(&e)) };
        self.link.pass(zero).await?;
        if fua == Fua::Yes { self.flush().await } else { Ok(()) }
    }

    pub async fn flush(&self) -> Result<(), Error> {
        self.link.pass(async { self.drive.flush().await.map_err(|e| error(&e)) }).await
    }
}
