//! A namespace or a set: whoever uses one uses the other in the same way.

use initiator::{Buffer, Deallocate, Error, Fua, Geometry, Namespace};

use crate::set::Set;

/// What keeps blocks.
#[derive(Clone)]
pub enum Volume {
    /// A namespace of a target.
    Namespace(Namespace),
    /// Several of them.
    Set(Set),
}

impl From<Namespace> for Volume {
    fn from(namespace: Namespace) -> Self {
        Self::Namespace(namespace)
    }
}

impl From<Set> for Volume {
    fn from(set: Set) -> Self {
        Self::Set(set)
    }
}

/// Each as [`Namespace`] has it.
impl Volume {
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        match self {
            Self::Namespace(namespace) => namespace.geometry(),
            Self::Set(set) => set.geometry(),
        }
    }

    /// # Errors
    /// Why there will be no change any more.
    pub async fn changed(&self, seen: &Geometry) -> Result<Geometry, Error> {
        match self {
            Self::Namespace(namespace) => namespace.changed(seen).await,
            Self::Set(set) => set.ended().await.map(|()| set.geometry()),
        }
    }

    /// Says that this program goes on for one that was killed with commands in flight.
    pub fn succeed(&self) {
        match self {
            Self::Namespace(namespace) => namespace.succeed(),
            // It has waited for that before it was put together.
            Self::Set(_) => {}
        }
    }

    /// # Panics
    /// When `bytes` exceeds the largest buffer.
    pub async fn buffer(&self, bytes: usize) -> Buffer {
        Buffer::new(bytes).await
    }

    /// # Errors
    /// See [`Namespace`] and [`Set`].
    pub async fn read(&self, lba: u64, blocks: u32, buffer: &mut Buffer) -> Result<(), Error> {
        match self {
            Self::Namespace(namespace) => namespace.read(lba, blocks, buffer).await,
            Self::Set(set) => set.read(lba, blocks, buffer).await,
        }
    }

    /// # Errors
    /// See [`Namespace`] and [`Set`].
    pub async fn write(
        &self,
        lba: u64,
        blocks: u32,
        buffer: &mut Buffer,
        fua: Fua,
    ) -> Result<(), Error> {
        match self {
            Self::Namespace(namespace) => namespace.write(lba, blocks, buffer, fua).await,
            Self::Set(set) => set.write(lba, blocks, buffer, fua).await,
        }
    }

    /// # Errors
    /// See [`Namespace`] and [`Set`].
    pub async fn flush(&self) -> Result<(), Error> {
        match self {
            Self::Namespace(namespace) => namespace.flush().await,
            Self::Set(set) => set.flush().await,
        }
    }

    /// # Errors
    /// See [`Namespace`] and [`Set`].
    pub async fn write_zeroes(
        &self,
        lba: u64,
        blocks: u32,
        deallocate: Deallocate,
        fua: Fua,
    ) -> Result<(), Error> {
        match self {
            Self::Namespace(namespace) => {
                namespace.write_zeroes(lba, blocks, deallocate, fua).await
            }
            Self::Set(set) => set.write_zeroes(lba, blocks, deallocate, fua).await,
        }
    }

    /// # Errors
    /// See [`Namespace`] and [`Set`].
    pub async fn deallocate(&self, ranges: &[(u64, u32)]) -> Result<(), Error> {
        match self {
            Self::Namespace(namespace) => namespace.deallocate(ranges).await,
            Self::Set(set) => set.deallocate(ranges).await,
        }
    }

    /// # Errors
    /// See [`Namespace`] and [`Set`].
    pub async fn shut_down(&self) -> Result<(), Error> {
        match self {
            Self::Namespace(namespace) => namespace.shut_down().await,
            Self::Set(set) => set.shut_down().await,
        }
    }
}
