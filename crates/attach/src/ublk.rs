//! A block device of this machine's kernel (ublk), with a remote namespace behind it.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use hostraid::Volume;
use initiator::Geometry;
use reactor::ublk::{Descriptor, Device, Order, Parameters, Shape, Slot};
use reactor::{Task, UBLK_QUEUES_MAX};
use stdx::num::{low8, low32};

use crate::disk::{Disk, Refusal, Span};
use crate::limits::{REQUESTS_MAX, UBLK_REQUEST_BYTES, ZEROES_BYTES};

/// Bytes of a sector, whatever the device's blocks are.
const SECTOR: u64 = 512;

/// Linux' `EIO` and `EOPNOTSUPP`.
const EIO: i32 = 5;
const EOPNOTSUPP: i32 = 95;

/// What a device is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub read_only: bool,
    /// Queues, as many of them as the kernel and this make.
    pub queues: u16,
}

/// A device and who serves it.
pub struct Server {
    device: Rc<Device>,
    disk: Rc<Disk>,
    parameters: Cell<Parameters>,
    read_only: bool,
    slots: RefCell<Vec<Task<()>>>,
}

impl Server {
    /// Makes a device of `namespace`, or takes over the one that a process left behind that was killed, and serves it.
    ///
    /// # Errors
    /// As [`Device::create`], [`Device::take_over`] and [`Device::start`].
    pub async fn start(namespace: impl Into<Volume>, options: Options) -> io::Result<Self> {
        let namespace = namespace.into();
        let Options { read_only, queues } = options;
        let owner = owner(&namespace.geometry(), read_only);
        let disk = Rc::new(Disk::new(namespace));
        let parameters = parameters(&disk, read_only);
        let left = if owner == 0 { None } else { Device::take_over(owner).await? };
        let device = match left {
            Some(device) => {
                // What that process had in flight may come after what this one sends.
                disk.succeed();
                device
            }
            None => {
                let queues = queues.clamp(1, UBLK_QUEUES_MAX);
                let depth = stdx::num::u16_of(REQUESTS_MAX);
                Device::create(parameters, Shape { queues, depth, owner }).await?
            }
        };
        let device = Rc::new(device);
        let serve = |slot| reactor::spawn(serve(Rc::clone(&device), Rc::clone(&disk), slot));
        let slots = RefCell::new(device.slots().map(serve).collect());
        let parameters = Cell::new(parameters);
        let server = Self { device, disk, parameters, read_only, slots };
        if let Err(error) = server.device.start().await {
            // Why it did not start says more than why it does not vanish.
            let _ = server.stop().await;
            return Err(error);
        }
        if server.device.is_taken_over() {
            tracing::info!("{} was left behind, and goes on", server.path());
            // It has the size it was left with.
            server.resize(server.parameters.get()).await;
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
        self.parameters.get().sectors * SECTOR
    }

    /// Whether it refuses to be written.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.parameters.get().read_only
    }

    /// Looks at the namespace again, and gives the device its size.
    pub async fn refresh(&self) {
        let now = parameters(&self.disk, self.read_only);
        let was = self.parameters.get();
        if now.sectors != was.sectors {
            self.resize(Parameters { sectors: now.sectors, ..was }).await;
        }
    }

    /// Gives the device the size that `wanted` says.
    async fn resize(&self, wanted: Parameters) {
        let answer = self.device.resize(wanted.sectors).await;
        if is_resized(&self.path(), wanted.sectors * SECTOR, answer) {
            self.parameters.set(wanted);
        }
    }

    /// Has the device vanish, when the requests in flight have ended.
    ///
    /// # Errors
    /// As the driver; [`io::ErrorKind::ResourceBusy`] when something of it is still in use.
    pub async fn stop(self) -> io::Result<()> {
        self.device.stop().await?;
        for slot in self.slots.take() {
            slot.await;
        }
        match Rc::try_unwrap(self.device) {
            Ok(device) => device.delete().await,
            Err(_) => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }
}

/// Whether the driver gave a device that many bytes; the log says so where it did not.
fn is_resized(path: &str, bytes: u64, answer: io::Result<()>) -> bool {
    let Err(error) = answer else { return true };
    tracing::warn!(
        "{path} keeps the size it has, the namespace has {bytes} bytes: {error} (the kernel's ublk driver \
         changes sizes since Linux 6.16)"
    );
    false
}

/// By what another process knows a device of the same namespace, used in the same way: its NGUID and EUI64, folded. 0
/// when the namespace has neither.
fn owner(geometry: &Geometry, read_only: bool) -> u64 {
    let (nguid, eui64) = geometry.identity;
    let (left, right) = nguid.split_at(8);
    let long = |bytes: &[u8]| bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    let folded = long(left).rotate_left(32) ^ long(right) ^ long(&eui64).rotate_left(16);
    if folded == 0 { 0 } else { folded ^ u64::from(read_only) }
}

/// What the device is.
fn parameters(disk: &Disk, read_only: bool) -> Parameters {
    let geometry = disk.geometry();
    let block = u64::from(geometry.block_bytes);
    let optimal = block.saturating_mul(geometry.optimal_write_blocks.into()).clamp(4096, 1 << 20);
    let most = low32(ZEROES_BYTES / SECTOR);
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

/// Serves a slot's requests, one after the other, until the device vanishes.
async fn serve(device: Rc<Device>, disk: Rc<Disk>, slot: Slot) {
    let mut next = device.fetch(slot).await;
    loop {
        match next {
            Ok(request) => {
                let result = execute(&device, &disk, slot, request).await;
                next = device.commit(slot, result).await;
            }
            Err(error) => {
                tracing::trace!("{slot:?} ended: {error}");
                return;
            }
        }
    }
}

async fn execute(
    device: &Device,
    disk: &Disk,
    slot: Slot,
    request: Descriptor,
) -> Result<u32, i32> {
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
                copied(device.write(slot, low32(part.offset - offset), data.data()))?;
            }
        }
        Order::Write => {
            for part in disk.parts(span) {
                let mut data = disk.room(part).await;
                copied(device.read(slot, low32(part.offset - offset), data.data_mut()))?;
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

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;

    /// Keeps the messages that are logged.
    struct Log(Arc<Mutex<Vec<(Level, String)>>>);

    struct Message(String);

    impl Visit for Message {
        fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
            self.0 = format!("{value:?}");
        }
    }

    impl Subscriber for Log {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut message = Message(String::new());
            event.record(&mut message);
            self.0.lock().unwrap().push((*event.metadata().level(), message.0));
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    /// What is logged while `what` runs.
    fn logged(what: impl FnOnce()) -> Vec<(Level, String)> {
        let lines = Arc::default();
        tracing::subscriber::with_default(Log(Arc::clone(&lines)), what);
        lines.lock().unwrap().clone()
    }

    #[test]
    fn a_driver_that_changes_no_sizes_is_told_of() {
        let unsupported = || Err(io::ErrorKind::Unsupported.into());
        let said = logged(|| assert!(!is_resized("/dev/ublkb7", 100 << 20, unsupported())));
        let [(Level::WARN, said)] = &said[..] else { panic!("{said:?}") };
        for words in ["/dev/ublkb7 keeps", "104857600 bytes", "unsupported", "since Linux 6.16"] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert_eq!(logged(|| assert!(is_resized("/dev/ublkb7", 100 << 20, Ok(())))), []);
    }
}
