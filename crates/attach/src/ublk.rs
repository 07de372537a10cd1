//! A block device of this machine's kernel (ublk), with a remote namespace behind it.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use hostraid::Volume;
use reactor::Task;
use reactor::ublk::{Descriptor, Device, Order, Parameters};
use stdx::num::{low8, low32};

use crate::disk::{Disk, Refusal, Span};
use crate::limits::{REQUESTS_MAX, UBLK_REQUEST_BYTES, ZEROES_BLOCKS};

/// Bytes of a sector, whatever the device's blocks are.
const SECTOR: u64 = 512;

/// Linux' `EIO` and `EOPNOTSUPP`.
const EIO: i32 = 5;
const EOPNOTSUPP: i32 = 95;

/// A device and who serves it.
pub struct Server {
    device: Rc<Device>,
    parameters: Parameters,
    tags: RefCell<Vec<Task<()>>>,
}

impl Server {
    /// Makes a device of `namespace`, and serves it.
    ///
    /// # Errors
    /// As [`Device::create`] and [`Device::start`].
    pub async fn start(namespace: impl Into<Volume>, read_only: bool) -> io::Result<Self> {
        let disk = Rc::new(Disk::new(namespace));
        let parameters = parameters(&disk, read_only);
        let depth = stdx::num::u16_of(REQUESTS_MAX);
        let device = Rc::new(Device::create(parameters, depth).await?);
        let serve = |tag| reactor::spawn(serve(Rc::clone(&device), Rc::clone(&disk), tag));
        let tags = RefCell::new((0..depth).map(serve).collect());
        let server = Self { device, parameters, tags };
        if let Err(error) = server.device.start().await {
            // Why it did not start says more than why it does not vanish.
            let _ = server.stop().await;
            return Err(error);
        }
        Ok(server)
    }

    /// The block device.
    #[must_use]
    pub fn path(&self) -> String {
        self.device.path()
    }

    /// Bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.parameters.sectors * SECTOR
    }

    /// Whether it refuses to be written.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.parameters.read_only
    }

    /// Has the device vanish, when the requests in flight have ended.
    ///
    /// # Errors
    /// As the driver; [`io::ErrorKind::ResourceBusy`] when something of it is still in use.
    pub async fn stop(self) -> io::Result<()> {
        self.device.stop().await?;
        for tag in self.tags.take() {
            tag.await;
        }
        match Rc::try_unwrap(self.device) {
            Ok(device) => device.delete().await,
            Err(_) => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }
}

/// What the device is.
fn parameters(disk: &Disk, read_only: bool) -> Parameters {
    let geometry = disk.geometry();
    let block = u64::from(geometry.block_bytes);
    let optimal = block.saturating_mul(geometry.optimal_write_blocks.into()).clamp(4096, 1 << 20);
    let most = low32(ZEROES_BLOCKS * (block / SECTOR));
    let writable = !(read_only || geometry.read_only);
    let fast_zeroes = writable && geometry.supports.write_zeroes;
    Parameters {
        sectors: geometry.blocks.saturating_mul(block) / SECTOR,
        block_shift: low8(block.ilog2().into()),
        optimal_shift: low8(optimal.ilog2().into()),
        request_bytes: UBLK_REQUEST_BYTES,
        read_only: !writable,
        // What was answered without FUA may be in a cache, as far as this is told.
        volatile_cache: true,
        discard_sectors: if writable && geometry.supports.deallocate { most } else { 0 },
        zeroes_sectors: if fast_zeroes { most } else { 0 },
    }
}

/// Serves a tag's requests, one after the other, until the device vanishes.
async fn serve(device: Rc<Device>, disk: Rc<Disk>, tag: u16) {
    let mut next = device.fetch(tag).await;
    loop {
        match next {
            Ok(request) => {
                let result = execute(&device, &disk, tag, request).await;
                next = device.commit(tag, result).await;
            }
            Err(error) => {
                tracing::trace!("tag {tag} ended: {error}");
                return;
            }
        }
    }
}

async fn execute(device: &Device, disk: &Disk, tag: u16, request: Descriptor) -> Result<u32, i32> {
    if request.order == Order::Flush {
        // It has no place: its first sector is no number of one.
        return disk.flush().await.map(|()| 0).map_err(errno);
    }
    let bytes = u64::from(request.sectors) * SECTOR;
    let offset = request.first.checked_mul(SECTOR).ok_or(EIO)?;
    let span = Span { offset, length: bytes };
    let copied = |result: io::Result<()>| result.map_err(|e| e.raw_os_error().unwrap_or(EIO));
    match request.order {
        Order::Read => {
            for part in disk.parts(span) {
                let mut data = disk.room(part).await;
                disk.read(part, &mut data).await.map_err(errno)?;
                copied(device.write(tag, low32(part.offset - offset), data.data()))?;
            }
        }
        Order::Write => {
            for part in disk.parts(span) {
                let mut data = disk.room(part).await;
                copied(device.read(tag, low32(part.offset - offset), data.data_mut()))?;
                disk.write(part, &mut data, request.fua).await.map_err(errno)?;
            }
        }
        Order::Discard => disk.trim(span, false).await.map_err(errno)?,
        Order::WriteZeroes => {
            disk.zero(span, request.fua, request.no_unmap, false).await.map_err(errno)?;
        }
        Order::Flush | Order::Other(_) => return Err(EOPNOTSUPP),
    }
    Ok(low32(bytes))
}

fn errno(refusal: Refusal) -> i32 {
    i32::try_from(refusal.errno as u32).unwrap_or(EIO)
}
