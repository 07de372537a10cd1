//! Namespaces: what they are, what identifies them, what keeps their bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::Volume;
use nvme::nqn::Nqn;
use uuid::Uuid;

use crate::reservation::Keeping;

/// What the bytes of a namespace are kept in. A closed set: the target modes.
#[derive(Clone)]
pub enum Backend {
    /// Memory of this process: gone when it ends.
    Memory(Arc<media::memory::Region>),
    /// A file or a block device.
    Drive(Arc<media::Drive>),
    /// A namespace of an NVMe drive, which gets commands as they are.
    Passthrough(Arc<media::Passthrough>),
    /// A volume of a pool.
    Volume(Volume),
    /// None yet: what keeps the bytes is not there, and is expected to come. The namespace is listed with the
    /// identity and the size that it had, in an ANA group of its own that is inaccessible, so that hosts hold
    /// their commands back until [`crate::Target::provide_namespace`].
    Absent {
        /// Capacity in bytes.
        bytes: u64,
    },
}

impl Backend {
    /// Whether what keeps the bytes is not there yet.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }

    /// Whether hosts are to hold back what they have for it: it is absent or went away. A volume whose pool lost more than
    /// its redundancy bears is there: some of it can be read.
    #[must_use]
    pub fn is_inaccessible(&self) -> bool {
        match self {
            Self::Absent { .. } => true,
            Self::Passthrough(drive) => drive.is_gone(),
            Self::Memory(_) | Self::Drive(_) | Self::Volume(_) => false,
        }
    }

    /// Capacity in bytes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self {
            Self::Memory(region) => region.len(),
            Self::Drive(drive) => drive.capacity(),
            Self::Passthrough(drive) => drive.capacity(),
            Self::Volume(volume) => volume.len(),
            Self::Absent { bytes } => *bytes,
        }
    }

    /// Bytes that are allocated, at most its capacity: all of them where blocks take space whatever is in them, and
    /// where nobody knows (yet).
    #[must_use]
    pub fn used(&self) -> u64 {
        match self {
            Self::Volume(volume) => volume.used().unwrap_or_else(|| volume.len()),
            Self::Passthrough(drive) => drive.used(),
            Self::Memory(_) | Self::Drive(_) | Self::Absent { .. } => self.capacity(),
        }
    }

    /// Whether an acknowledged write may still be lost with power until a Flush. Memory keeps nothing over a power loss,
    /// flushed or not, so it has no cache to flush; a volume acknowledges what is durable in its pool's log. What is not
    /// there may have one.
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        match self {
            Self::Memory(_) | Self::Volume(_) => false,
            Self::Absent { .. } => true,
            Self::Drive(drive) => drive.has_volatile_cache(),
            Self::Passthrough(drive) => drive.described().has_volatile_cache(),
        }
    }

    /// Whether deallocated blocks are sure to read as zeroes (DLFEAT).
    #[must_use]
    pub fn zeroes_when_deallocated(&self) -> bool {
        match self {
            Self::Memory(_) | Self::Volume(_) => true,
            Self::Drive(drive) => drive.zeroes_when_deallocated(),
            Self::Passthrough(drive) => drive.described().zeroes_when_deallocated(),
            Self::Absent { .. } => false,
        }
    }

    /// Whether the backend failed and takes no more writes.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        match self {
            Self::Memory(_) | Self::Absent { .. } => false,
            Self::Drive(drive) => drive.failure().is_some(),
            Self::Passthrough(drive) => drive.is_gone(),
            Self::Volume(volume) => volume.has_failed(),
        }
    }

    /// The NVMe drive that gets commands as they are.
    #[must_use]
    pub fn passthrough(&self) -> Option<&Arc<media::Passthrough>> {
        match self {
            Self::Passthrough(drive) => Some(drive),
            Self::Memory(_) | Self::Drive(_) | Self::Volume(_) | Self::Absent { .. } => None,
        }
    }

    /// The NVMe drive that gets commands as they are, if it tells how it is.
    #[must_use]
    pub fn drive_with_health(&self) -> Option<&Arc<media::Passthrough>> {
        self.passthrough().filter(|drive| drive.silence().is_none())
    }

    /// The smallest unit the backend writes without reading first, in bytes. Smaller logical
    /// blocks work, and cost more.
    #[must_use]
    pub fn physical_block(&self) -> u32 {
        match self {
            Self::Memory(_) => 512,
            Self::Drive(drive) => drive.logical_block(),
            Self::Passthrough(drive) => drive.block_size(),
            Self::Volume(_) | Self::Absent { .. } => stdx::num::u32_of(engine::address::BLOCK),
        }
    }
}

impl Backend {
    /// Whether blocks take space only once they are written.
    #[must_use]
    pub fn is_thin(&self) -> bool {
        match self {
            Self::Volume(_) | Self::Absent { .. } => true,
            Self::Passthrough(drive) => drive.described().is_thin(),
            Self::Memory(_) | Self::Drive(_) => false,
        }
    }

    /// The aligned unit in bytes that is written as a whole or not at all whatever happens; 0 for no such promise
    /// beyond one logical block.
    #[must_use]
    pub fn atomic_bytes(&self) -> u32 {
        match self {
            Self::Volume(_) | Self::Absent { .. } => stdx::num::u32_of(engine::address::BLOCK),
            Self::Memory(_) | Self::Drive(_) | Self::Passthrough(_) => 0,
        }
    }
}

impl core::fmt::Debug for Backend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Memory(_) => "Memory",
            Self::Drive(_) => "Drive",
            Self::Passthrough(_) => "Passthrough",
            Self::Volume(_) => "Volume",
            Self::Absent { .. } => "Absent",
        })
    }
}

/// A namespace to be added to a subsystem.
#[derive(Clone, Debug)]
pub struct NamespaceSpec {
    /// Namespace identifier; `None` takes the lowest free one.
    pub nsid: Option<u32>,
    pub backend: Backend,
    /// Logical block size in bytes: 512 or 4096.
    pub block_size: u32,
    /// Identifiers. One that is `None` (UUID, NGUID) is derived from the subsystem's name and the
    /// namespace identifier, so that it is the same after every restart: a host refuses a
    /// namespace whose identifiers changed. An EUI64 that is `None` is not reported.
    pub uuid: Option<[u8; 16]>,
    pub nguid: Option<[u8; 16]>,
    pub eui64: Option<[u8; 8]>,
    /// Whether commands that change data fail with Namespace is Write Protected (NSATTR bit 0).
    pub write_protected: bool,
    /// Where reservations persist through a loss of power; `None` has them last as long as the
    /// process, and hosts told so.
    pub reservations: Option<Keeping>,
}

impl NamespaceSpec {
    /// A namespace over `backend` with everything else left to the target.
    #[must_use]
    pub fn new(backend: Backend, block_size: u32) -> Self {
        Self {
            nsid: None,
            backend,
            block_size,
            uuid: None,
            nguid: None,
            eui64: None,
            write_protected: false,
            reservations: None,
        }
    }
}

/// What identifies a namespace for ever (Base 2.1 section 4.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceIdentity {
    pub uuid: [u8; 16],
    pub nguid: [u8; 16],
    pub eui64: Option<[u8; 8]>,
}

impl NamespaceIdentity {
    fn derive(subsystem: &Nqn, nsid: u32, spec: &NamespaceSpec) -> Self {
        let derived = |what: &str| {
            let name = format!("{subsystem}/{nsid}/{what}");
            *Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()).as_bytes()
        };
        Self {
            uuid: spec.uuid.unwrap_or_else(|| derived("uuid")),
            nguid: spec.nguid.unwrap_or_else(|| derived("nguid")),
            eui64: spec.eui64,
        }
    }
}

/// A namespace as controllers and queues see it. What changes while hosts use it is atomic.
#[derive(Debug)]
pub struct Namespace {
    pub nsid: u32,
    pub identity: NamespaceIdentity,
    /// Logical block size in bytes: 512 or 4096.
    pub block_size: u32,
    pub backend: Backend,
    pub reservation: Arc<crate::reservation::Shared>,
    /// Its direct write window.
    pub window: Arc<crate::windows::Shared>,
    /// How the cores that serve the namespace hold off each other's commands.
    pub fence: Arc<crate::command::Fence>,
    blocks: AtomicU64,
    write_protected: AtomicBool,
}

impl Namespace {
    /// `None` when the reservations that were kept do not hold together.
    pub(crate) fn new(subsystem: &Nqn, nsid: u32, spec: &NamespaceSpec) -> Option<Self> {
        Some(Self {
            nsid,
            identity: NamespaceIdentity::derive(subsystem, nsid, spec),
            block_size: spec.block_size,
            backend: spec.backend.clone(),
            reservation: Arc::new(crate::reservation::Shared::new(spec.reservations.clone())?),
            window: Arc::default(),
            fence: Arc::default(),
            blocks: AtomicU64::new(spec.backend.capacity() / u64::from(spec.block_size)),
            write_protected: AtomicBool::new(spec.write_protected),
        })
    }

    /// The same namespace on `backend`, of `bytes`: whoever waited for it may go on.
    pub(crate) fn on(&self, backend: Backend, bytes: u64) -> Self {
        Self {
            nsid: self.nsid,
            identity: self.identity,
            block_size: self.block_size,
            backend,
            reservation: Arc::clone(&self.reservation),
            window: Arc::clone(&self.window),
            fence: Arc::clone(&self.fence),
            blocks: AtomicU64::new(bytes / u64::from(self.block_size)),
            write_protected: AtomicBool::new(self.write_protected()),
        }
    }

    /// Size in logical blocks (NSZE).
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Logical blocks that are allocated (NUSE), at most all of them.
    #[must_use]
    pub fn used_blocks(&self) -> u64 {
        self.backend.used().div_ceil(u64::from(self.block_size)).min(self.blocks())
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks() * u64::from(self.block_size)
    }

    pub(crate) fn set_blocks(&self, blocks: u64) {
        self.blocks.store(blocks, Ordering::Relaxed);
    }

    /// Whether commands that change data fail with Namespace is Write Protected (feature 84h).
    #[must_use]
    pub fn write_protected(&self) -> bool {
        self.write_protected.load(Ordering::Relaxed)
    }

    pub(crate) fn set_write_protected(&self, protected: bool) {
        self.write_protected.store(protected, Ordering::Relaxed);
    }
}

/// The namespaces a controller's queues may address, as of one epoch of the target. Immutable: a
/// queue keeps the `Arc` and fetches another when the epoch moved.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Index: namespace identifier minus one. Shorter than `max` when the tail is empty.
    namespaces: Vec<Option<Arc<Namespace>>>,
    /// Highest namespace identifier that is valid (NN).
    max: u32,
}

impl View {
    pub(crate) fn new<'a>(max: u32, namespaces: impl Iterator<Item = &'a Arc<Namespace>>) -> Self {
        let mut view = Self { namespaces: Vec::new(), max };
        for namespace in namespaces {
            let index = stdx::num::usize32(namespace.nsid - 1);
            if view.namespaces.len() <= index {
                view.namespaces.resize(index + 1, None);
            }
            view.namespaces[index] = Some(Arc::clone(namespace));
        }
        view
    }

    /// The active namespace with this identifier.
    #[must_use]
    pub fn get(&self, nsid: u32) -> Option<&Arc<Namespace>> {
        let index = stdx::num::usize32(nsid.checked_sub(1)?);
        self.namespaces.get(index)?.as_ref()
    }

    /// Whether the identifier is one a namespace may have, active or not (1 to NN).
    #[must_use]
    pub fn is_valid(&self, nsid: u32) -> bool {
        (1..=self.max).contains(&nsid)
    }

    /// Active namespaces, in order of their identifiers.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Namespace>> {
        self.namespaces.iter().flatten()
    }

    /// Highest valid namespace identifier (NN).
    #[must_use]
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Whether any namespace is a drive that tells how it is.
    #[must_use]
    pub fn has_drive_with_health(&self) -> bool {
        self.iter().any(|namespace| namespace.backend.drive_with_health().is_some())
    }
}
