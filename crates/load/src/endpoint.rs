//! Where a worker's commands go: a namespace, or a file on this machine.

use std::rc::Rc;
use std::sync::Arc;

use initiator::{Error, Fua, Namespace, SharedWindow, Written};
use reactor::buffer::{self, Buffer};
use reactor::file::File;
use stdx::num::usize32;

use crate::set::Open;

/// Runs commands; what differs is behind it.
#[derive(Clone)]
pub enum Endpoint {
    /// A namespace in use, as every program uses one.
    Namespace {
        /// The namespace.
        namespace: Namespace,
        /// What its writes go by, as far as that takes them.
        window: Option<Arc<SharedWindow>>,
    },
    /// Namespaces of several targets as one.
    Set(Open),
    /// A file or block device, through the ring of the same reactor.
    File {
        /// The file.
        file: File,
        /// Bytes of the blocks in which addresses are given.
        logical: u32,
    },
}

/// A command, in logical blocks.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    pub lba: u64,
    pub blocks: u32,
    pub write: bool,
    /// Whether what is read is looked at.
    pub keep: bool,
}

/// The memory of one command at a time.
pub enum Room {
    /// What a namespace sends from and receives into.
    Namespace(initiator::Buffer),
    /// The ring wants memory that is aligned and its own; none after a failure that kept it.
    File(Option<Buffer>),
}

impl Room {
    /// The bytes, from the start of a command's data on.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Namespace(buffer) => buffer,
            Self::File(buffer) => buffer.as_deref_mut().unwrap_or_default(),
        }
    }
}

/// What became of a command that failed.
pub enum Failed {
    /// It did, and others need not.
    Command(String),
    /// There is nothing to send others to.
    Endpoint(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match error {
            Error::Command { status, .. } => Self::Command(status.to_string()),
            error => Self::Endpoint(error),
        }
    }
}

impl Endpoint {
    /// The endpoint of the nth worker on this reactor: it has a queue of its own.
    pub fn of_worker(&self, nth: usize) -> Self {
        match self {
            Self::Namespace { namespace, window } => {
                Self::Namespace { namespace: namespace.at_home(nth), window: window.clone() }
            }
            Self::Set(_) | Self::File { .. } => self.clone(),
        }
    }

    /// Whether commands may end without a wait of the task that runs them.
    pub const fn is_direct(&self) -> bool {
        matches!(self, Self::Namespace { window: Some(_), .. })
    }

    const fn is_set(&self) -> bool {
        matches!(self, Self::Set(_))
    }

    /// Writes that a window took.
    pub fn direct_writes(&self) -> u64 {
        match self {
            Self::Namespace { window: Some(window), .. } => window.writes(),
            Self::Set(open) => open.direct_writes(),
            Self::Namespace { .. } | Self::File { .. } => 0,
        }
    }

    /// Memory for commands of `largest` bytes at most: of their own where `own` data goes through it, else what all
    /// send is `payload`.
    pub async fn room(&self, largest: u32, own: bool, payload: &Rc<[u8]>) -> Room {
        match self {
            // A set reads into it whether anybody looks or not.
            Self::Namespace { .. } | Self::Set(_) if own || self.is_set() => {
                Room::Namespace(vec![0; usize32(largest)].into_boxed_slice().into())
            }
            Self::Namespace { .. } | Self::Set(_) => Room::Namespace(Rc::clone(payload).into()),
            Self::File { .. } => {
                let mut buffer = buffer::alloc(usize32(largest)).await;
                if payload.len() == buffer.len() {
                    buffer.copy_from_slice(payload);
                }
                Room::File(Some(buffer))
            }
        }
    }

    /// Runs a command to its end.
    pub async fn run(&self, command: Move, room: &mut Room) -> Result<(), Failed> {
        match (self, room) {
            (Self::Namespace { namespace, window }, Room::Namespace(buffer)) => {
                let Move { lba, blocks, .. } = command;
                let done = if command.write {
                    if let Some(window) = window {
                        let block = namespace.geometry().block_bytes;
                        let data = &buffer[..usize32(blocks * block)];
                        if window.write(lba * u64::from(block), data) == Written::Done {
                            return Ok(());
                        }
                    }
                    namespace.write(lba, blocks, buffer, Fua::No).await
                } else if command.keep {
                    namespace.read(lba, blocks, buffer).await
                } else {
                    namespace.read_past(lba, blocks).await
                };
                Ok(done?)
            }
            (Self::Set(Open { set, .. }), Room::Namespace(buffer)) => {
                let Move { lba, blocks, .. } = command;
                let done = if command.write {
                    set.write(lba, blocks, buffer, Fua::No).await
                } else {
                    set.read(lba, blocks, buffer).await
                };
                Ok(done?)
            }
            (Self::File { file, logical }, Room::File(place)) => {
                transfer(file, *logical, command, place).await.map_err(Failed::Command)
            }
            _ => unreachable!("an endpoint's room is its own"),
        }
    }
}

async fn transfer(
    file: &File,
    logical: u32,
    command: Move,
    place: &mut Option<Buffer>,
) -> Result<(), String> {
    let Some(mut buffer) = place.take() else {
        return Err("its memory went with a command before".to_owned());
    };
    let length = usize32(command.blocks * logical);
    let offset = command.lba * u64::from(logical);
    let whole = buffer.len();
    buffer.show(0, length);
    let (result, mut buffer) = if command.write {
        file.write_at(buffer, offset, false).await
    } else {
        file.read_at(buffer, offset).await
    };
    if let Some(buffer) = &mut buffer {
        buffer.show(0, whole);
    }
    *place = buffer;
    match result {
        Ok(moved) if moved == length => Ok(()),
        Ok(moved) => Err(format!("only {moved} bytes were moved")),
        Err(error) => Err(error.to_string()),
    }
}
