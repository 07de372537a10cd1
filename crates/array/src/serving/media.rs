//! What the bytes of a namespace are kept in, opened for this process alone.

use std::path::Path;
use std::sync::Arc;

use api::v1::Kind;
use api::value::Backend as Kept;
use media::drive::OpenDrive;
use media::memory::{Region, RegionOptions};
use target::namespace::Backend;

use crate::desired::NamespaceDef;
use crate::lock::{Lock, lock};
use crate::pools::Pools;
use crate::{Error, Result};

/// Opened media, and how much of it is served.
#[derive(Clone, Debug)]
pub struct Media {
    backend: Backend,
    bytes: u64,
    /// Held against other processes that would write to the same drive.
    lock: Option<Arc<Lock>>,
}

impl Media {
    /// Whether what is in it survives a loss of power.
    pub const fn is_durable(&self) -> bool {
        !matches!(self.backend, Backend::Memory(_))
    }

    /// What holds its drive.
    pub const fn lock(&self) -> Option<&Arc<Lock>> {
        self.lock.as_ref()
    }

    /// What is not there yet, of `bytes`.
    pub const fn absent(bytes: u64) -> Self {
        Self { backend: Backend::Absent { bytes }, bytes, lock: None }
    }

    /// Whether it is not there yet.
    pub const fn is_absent(&self) -> bool {
        self.backend.is_absent()
    }

    /// Opens what `def` names. `shared`: more than one reactor will use it. `in_use` is what the
    /// same place is served from now: its lock is ours already.
    pub fn open(
        def: &NamespaceDef,
        shared: bool,
        in_use: Option<&Self>,
        pools: &Pools,
    ) -> Result<Self> {
        match &def.backend {
            Kept::Memory { size } => {
                let options = RegionOptions {
                    block_size: def.block_size,
                    shared,
                    ..RegionOptions::default()
                };
                let region = Region::new(size.bytes(), options).map_err(|error| {
                    Error::failed(format!("cannot have {size} of memory"), error)
                })?;
                let backend = Backend::Memory(Arc::new(region));
                Ok(Self { backend, bytes: size.bytes(), lock: None })
            }
            Kept::Drive { path, size } => {
                let asked = size.map(|size| size.bytes());
                Self::open_drive(path, asked, def.block_size, in_use)
            }
            Kept::Volume(path) => {
                let volume = pools.volume(path)?;
                if volume.block_size() != def.block_size {
                    let what = format!("volume {path} has blocks of {} bytes", volume.block_size());
                    return Err(Error::new(Kind::Invalid, what)
                        .help("leave the block size out: a volume has its own"));
                }
                let bytes = volume.len();
                Ok(Self { backend: Backend::Volume(volume), bytes, lock: None })
            }
        }
    }

    /// Opens the drive of a namespace that waited for it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_late(def: &NamespaceDef) -> Result<Self> {
        match &def.backend {
            Kept::Drive { path, size } => {
                Self::open_drive(path, size.map(|size| size.bytes()), def.block_size, None)
            }
            other => Err(Error::new(Kind::Failed, format!("{other} is no drive"))),
        }
    }

    fn open_drive(
        path: &Path,
        asked: Option<u64>,
        block_size: u32,
        in_use: Option<&Self>,
    ) -> Result<Self> {
        let create = "create it, or name its size as in drive:/srv/a.img,size=10GiB";
        let failed = |error| Error::cannot_open(path, error, create);
        let options = OpenDrive { create: asked, block_size, ..OpenDrive::default() };
        let drive = media::Drive::open(path, options).map_err(failed)?;
        let lock = lock(path, in_use.and_then(|media| media.lock.as_ref()))?;
        let capacity = drive.capacity();
        if let Some(asked) = asked
            && asked > capacity
        {
            drive.resize(asked).map_err(|error| {
                let what = format!("{} holds {capacity} bytes, not {asked}", path.display());
                Error::failed(what, error).help("leave size out to serve all of it")
            })?;
        }
        let block = u64::from(block_size);
        let bytes = asked.unwrap_or(capacity - capacity % block);
        Ok(Self { backend: Backend::Drive(Arc::new(drive)), bytes, lock: Some(lock) })
    }

    /// What the target is given.
    pub fn backend(&self) -> Backend {
        self.backend.clone()
    }

    /// Bytes served.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The size that a definition asks for, if it does.
    pub fn size_asked(def: &NamespaceDef) -> Option<u64> {
        match &def.backend {
            Kept::Memory { size } => Some(size.bytes()),
            Kept::Drive { size, .. } => size.map(|size| size.bytes()),
            Kept::Volume(_) => None,
        }
    }

    /// Has this much of it be served, and leaves it as long as it is.
    pub const fn serve(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// Cuts off what is not served.
    ///
    /// # Errors
    /// What the drive says.
    pub fn cut(&self) -> Result<()> {
        let result = match &self.backend {
            Backend::Memory(region) if region.len() > self.bytes => region.resize(self.bytes),
            Backend::Drive(drive) if drive.capacity() > self.bytes => drive.resize(self.bytes),
            _ => Ok(()),
        };
        let what = || format!("cannot cut off what is behind {} bytes", self.bytes);
        result.map_err(|error| Error::failed(what(), error))
    }

    /// Makes the media larger or smaller. A device keeps its size; less of it is served.
    pub fn resize(&mut self, bytes: u64) -> Result<()> {
        let result = match &self.backend {
            Backend::Memory(region) => region.resize(bytes),
            Backend::Drive(drive) => drive.resize(bytes),
            // Resized by its pool.
            Backend::Volume(_) => Ok(()),
            Backend::Absent { bytes: were } if *were == bytes => Ok(()),
            Backend::Absent { .. } => {
                let what = "its drive is not there: its size can be changed when it is";
                return Err(Error::new(Kind::Failed, what));
            }
        };
        result.map_err(|error| Error::failed(format!("cannot have {bytes} bytes"), error))?;
        self.bytes = bytes;
        Ok(())
    }
}
