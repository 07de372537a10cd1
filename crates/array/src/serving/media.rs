//! What the bytes of a namespace are kept in, opened for this process alone.

use std::path::Path;
use std::sync::Arc;

use api::v1::Kind;
use api::value::{Backend as Kept, Size};
use engine::Volume;
use hardware::{Generic, Machine};
use media::Passthrough;
use media::drive::OpenDrive;
use media::memory::{Region, RegionOptions};
use target::namespace::Backend;
use uuid::Uuid;

use crate::desired::NamespaceDef;
use crate::generic;
use crate::lock::{Lock, Patience, await_alone, lock, lock_drive};
use crate::pools::Pools;
use crate::{Error, Result};

/// What to do about a drive that is not there.
const CREATE: &str = "create it, or name its size as in drive:/srv/a.img,size=10GiB";

/// What to do about one that was served before.
const WAITED_FOR: &str = "mount its file system, or put the drive back; what is new is served when the namespace is \
                          removed and added again";

/// What to do about one under whose name there is another.
const BY_NAME: &str = "names of drives change from start to start: put the drive back, or remove the namespace and add it by \
                       the drive's name under /dev/disk/by-id; so, too, to serve the other one";

/// Whether it is in the folder of devices, where a file would be in the way of the drive, and gone with the machine.
fn is_of_devices(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// How a drive is opened: with such blocks, in place of what, and what hears that it answers.
type How<'a> = (u32, Option<&'a Media>, &'a dyn Fn());

/// What is to be said of a drive of which this kernel does not tell what it was known by.
fn unidentified(path: &Path, found: &str, known: &str) -> String {
    format!("{} was known by {known}, of which the system says {found} now", path.display())
}

/// Opened media, and how much of it is served.
#[derive(Clone, Debug)]
pub struct Media {
    backend: Backend,
    bytes: u64,
    /// Held against other processes that would write to the same drive.
    lock: Option<Arc<Lock>>,
    /// Of a drive that gets commands as they are, what the machine says of it.
    generic: Option<Generic>,
    /// What identifies its drive, whatever that's name.
    wwid: Option<String>,
}

/// What was known of a drive when hosts saw it last.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// What identified it.
    pub wwid: Option<String>,
    /// Bytes of it that were served: then nothing is made, and what has fewer is another.
    pub bytes: Option<u64>,
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
        Self { backend: Backend::Absent { bytes }, bytes, lock: None, generic: None, wwid: None }
    }

    /// Whether it is not there yet.
    pub const fn is_absent(&self) -> bool {
        self.backend.is_absent()
    }

    /// Opens what `def` names, which is [no drive](Self::open_drive_of): nothing is waited for. `shared`: more than one
    /// reactor will use it.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub fn open(def: &NamespaceDef, shared: bool, pools: &Pools) -> Result<Self> {
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
                Ok(Self { backend, bytes: size.bytes(), lock: None, generic: None, wwid: None })
            }
            Kept::Drive { .. } | Kept::Passthrough { .. } => {
                Err(Error::new(Kind::Failed, format!("{} is opened beside it", def.backend)))
            }
            Kept::Volume(path) => Self::of_volume(def, pools.volume(path)?),
            Kept::Snapshot(path) => Self::of_volume(def, pools.snapshot(path)?.volume),
        }
    }

    fn of_volume(def: &NamespaceDef, volume: Volume) -> Result<Self> {
        let has = volume.block_size();
        if has != def.block_size {
            let what = format!("{} has blocks of {has} bytes", def.backend);
            return Err(Error::new(Kind::Invalid, what)
                .help("leave the block size out: a volume has its own"));
        }
        let id = Uuid::from_bytes(volume.id());
        if let Some(meant) = def.uuid.filter(|meant| *meant != id) {
            return Err(not_meant(&def.backend, id, meant));
        }
        let bytes = volume.len();
        Ok(Self { backend: Backend::Volume(volume), bytes, lock: None, generic: None, wwid: None })
    }

    /// Opens the drive of a namespace, of which so many bytes were served before, if it ever was: then nothing is made, and
    /// nothing made longer. `in_use` is what the same place is served from now: its lock is ours already. Says `answers`
    /// once it is open, and before others are waited for that can write to it. Gives what is to be said of it, too.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub fn open_drive_of(
        def: &NamespaceDef,
        (before, in_use): (&Before, Option<&Self>),
        machine: &Machine,
        answers: &dyn Fn(),
    ) -> Result<(Self, Option<String>)> {
        let how: How<'_> = (def.block_size, in_use, answers);
        match &def.backend {
            Kept::Drive { path, size } => {
                let asked = size.map(|size| size.bytes());
                Self::open_drive((machine, path), (asked, before), how)
            }
            Kept::Passthrough { path } => {
                Ok((Self::open_generic(path, before.wwid.as_deref(), how)?, None))
            }
            other => Err(Error::new(Kind::Failed, format!("{other} is no drive"))),
        }
    }

    fn open_drive(
        (machine, path): (&Machine, &Path),
        (asked, before): (Option<u64>, &Before),
        (block_size, in_use, answers): How<'_>,
    ) -> Result<(Self, Option<String>)> {
        let had = before.bytes;
        let failed = |error| {
            let error = Error::cannot_open(path, error, CREATE);
            match had {
                Some(_) if error.kind == Kind::Invalid => error.help(WAITED_FOR),
                _ => error,
            }
        };
        // What was served before is not made again, empty, where its file system is not mounted.
        let create = asked.filter(|_| had.is_none() && !is_of_devices(path));
        let options = OpenDrive { create, block_size, ..OpenDrive::default() };
        let drive = media::Drive::open(path, options).map_err(failed)?;
        // Names of block devices are given as they come: another may have the one that this had. A hypervisor may be asked.
        let found = machine.identity(path, drive.device_number());
        answers();
        let own = in_use.and_then(|media| media.lock.as_ref());
        let lock = lock_drive(path, &drive, own, Patience::begin())?;
        let (wwid, doubt) = match (found, before.wwid.as_deref()) {
            (Some(found), Some(known)) if hardware::is_another(&found, known) => {
                return Err(generic::is_another(path, Some(&found), known).help(BY_NAME));
            }
            (Some(found), Some(known)) if found != known => {
                let doubt = unidentified(path, &found, known);
                // What tells more stays known.
                let known = if hardware::is_weak(&found) { known.to_owned() } else { found };
                (Some(known), Some(doubt))
            }
            // Should it be asked for where there is more to be found, it is known by that.
            (None, Some(known)) => {
                (Some(known.to_owned()), Some(unidentified(path, "nothing", known)))
            }
            (found, _) => (found, None),
        };
        let capacity = drive.capacity();
        // Of what is asked for by a size it is not known how large the drive was.
        let whole = capacity - capacity % u64::from(block_size);
        if let Some(doubt) = doubt.as_ref().filter(|_| asked.is_some() || had != Some(whole)) {
            let what = format!("{doubt}, nor is it of the same size for sure");
            return Err(Error::new(Kind::Invalid, what).help(BY_NAME));
        }
        if let Some(had) = had.filter(|&had| had > capacity) {
            let (path, now, had) = (path.display(), Size::new(capacity), Size::new(had));
            let what = format!("{path} has {now}, and its namespace has {had}");
            return Err(Error::new(Kind::Invalid, what).help(WAITED_FOR));
        }
        if let Some(asked) = asked
            && asked > capacity
        {
            drive.resize(asked).map_err(|error| {
                let what = format!("{} holds {capacity} bytes, not {asked}", path.display());
                Error::failed(what, error).help("leave size out to serve all of it")
            })?;
        }
        let bytes = asked.unwrap_or(whole);
        let backend = Backend::Drive(Arc::new(drive));
        let tell = |what| format!("{what}: its size is all that tells it from another");
        Ok((Self { backend, bytes, lock: Some(lock), generic: None, wwid }, doubt.map(tell)))
    }

    /// Opens an NVMe namespace by its generic character device, and holds its block device: what the kernel has mounted,
    /// and what is a drive of a pool, is not served.
    ///
    /// `known` is what the kernel said of the drive before: names of NVMe drives are given as they come, and go to
    /// others. It is found by any.
    fn open_generic(
        path: &Path,
        known: Option<&str>,
        (block_size, in_use, answers): How<'_>,
    ) -> Result<Self> {
        let (path, found) = generic::find(path, known)?;
        let path = path.as_path();
        let own = in_use.and_then(|media| media.lock.as_ref());
        let lock =
            lock(&found.block_node, own).map_err(|error| generic::cannot_hold(path, error))?;
        let drive = Passthrough::open(path, found.transfer_bytes)
            .map_err(|error| generic::cannot_open(path, error))?;
        answers();
        await_alone(path, &lock, own, Patience::begin(), || drive.is_alone())?;
        let own = drive.block_size();
        if own != block_size {
            let what = format!("{} has blocks of {own} bytes, not {block_size}", path.display());
            let right =
                format!("write `block-size = {own}` in a file, --block-size {own} in a command");
            return Err(Error::new(Kind::Invalid, what).help(right));
        }
        let bytes = drive.capacity();
        let backend = Backend::Passthrough(Arc::new(drive));
        let wwid = found.wwid.clone();
        Ok(Self { backend, bytes, lock: Some(lock), generic: Some(found), wwid })
    }

    /// Why a drive that gets commands as they are is not what it was: it went away, or it has another size. `None` while
    /// it is. Waits for nothing.
    pub fn change(&self) -> Option<String> {
        let Backend::Passthrough(drive) = &self.backend else { return None };
        let generic = self.generic.as_ref()?;
        match generic.bytes_now() {
            Some(bytes) if bytes == drive.capacity() && !drive.is_gone() => None,
            Some(bytes) if bytes > 0 && bytes != drive.capacity() => {
                let (now, was) = (Size::new(bytes), Size::new(drive.capacity()));
                Some(format!("{} has {now} now, and had {was}", generic.kernel_name))
            }
            _ => Some(format!("{} went away", generic.kernel_name)),
        }
    }

    /// Why hosts are not told how a drive is that gets commands as they are: for the first who asks.
    pub fn tell_silence(&self) -> Option<String> {
        let Backend::Passthrough(drive) = &self.backend else { return None };
        let source = drive.tell_silence()?.source.as_ref()?;
        let name = &self.generic.as_ref()?.kernel_name;
        let right = match source.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "; it takes CAP_SYS_ADMIN (docs/security.md, \"Health of drives\")"
            }
            _ => "",
        };
        Some(format!(
            "{name} cannot be asked for its SMART log on behalf of hosts: {source}{right}"
        ))
    }

    /// Whether it is a drive that gets commands as they are.
    pub const fn is_passthrough(&self) -> bool {
        matches!(self.backend, Backend::Passthrough(_))
    }

    /// Whether both are the same opened drive that gets commands as they are.
    pub fn is(&self, other: &Self) -> bool {
        match (&self.backend, &other.backend) {
            (Backend::Passthrough(one), Backend::Passthrough(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Has nothing be begun of it any more.
    pub fn give_up(&self) {
        if let Backend::Passthrough(drive) = &self.backend {
            drive.give_up();
        }
    }

    /// What identifies the drive, whatever its name, where anything does.
    pub fn wwid(&self) -> Option<&str> {
        self.wwid.as_deref()
    }

    /// The volume or the snapshot that it is.
    pub fn kept_in(&self) -> Option<Uuid> {
        match &self.backend {
            Backend::Volume(volume) => Some(Uuid::from_bytes(volume.id())),
            _ => None,
        }
    }

    /// What the target is given.
    pub fn backend(&self) -> Backend {
        self.backend.clone()
    }

    /// The drive that is served as it is.
    pub const fn drive(&self) -> Option<&Arc<media::Drive>> {
        match &self.backend {
            Backend::Drive(drive) => Some(drive),
            _ => None,
        }
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
            Kept::Passthrough { .. } | Kept::Volume(_) | Kept::Snapshot(_) => None,
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
            Backend::Passthrough(drive) if drive.capacity() == bytes => Ok(()),
            Backend::Passthrough(_) => {
                return Err(Error::new(Kind::Invalid, "the drive has its own size"));
            }
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

/// The refusal of another volume or snapshot than is meant. Hosts know it by its UUID: other contents under the same
/// identity are worse than none.
pub fn not_meant(backend: &Kept, id: Uuid, meant: Uuid) -> Error {
    let what = format!("{backend} has UUID {id}: it is not the one meant, {meant}");
    Error::new(Kind::Conflict, what).help(
        "if it was made anew under that name, unmap the old one and map it; leave the UUID out in a configuration",
    )
}
