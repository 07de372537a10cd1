//! From a grant to its rings: they are fetched from a socket of this machine, mapped and looked at.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use media::Pmem;
use reactor::{Bell, Packets};
use stdx::num::u64_of;
use window::page::{IDENTITY, PAGE};
use window::{Grant, Identity};

use super::copies::{Copies, Copy};
use super::direct::DirectWindow;
use super::ring::Ring;
use super::standing::Standing;
use crate::limits::WINDOW_PATIENCE;

/// Bytes of the message that brings a ring: its index, and how many copies it has.
const MESSAGE: usize = 8;
/// Files that mirror each other.
const COPIES_MAX: u32 = 2;

/// What brings a ring: its bell, then a state page and a ring for each copy.
#[derive(Debug)]
pub struct Descriptors {
    /// An eventfd.
    pub bell: OwnedFd,
    /// State page, to be read, and ring, to be read and written.
    pub copies: Vec<[OwnedFd; 2]>,
}

pub(super) fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Fetches the rings of a grant, and maps them. Blocks, for [`WINDOW_PATIENCE`] at each step.
pub(crate) fn receive(grant: Grant, standing: Arc<Standing>) -> io::Result<DirectWindow> {
    let socket = Packets::connect(Path::new(&grant.path), WINDOW_PATIENCE)?;
    let target = socket.peer_user()?;
    if target != 0 && target != reactor::user() {
        // Memory of theirs could be cut short under us, and what is written to it read.
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the target is another user's",
        ));
    }
    socket.send(&grant.token, &[])?;
    let each = (0..grant.rings).map(|index| fetch(&socket, index));
    let rings = each.collect::<io::Result<Vec<_>>>()?;
    DirectWindow::map(grant, rings, standing)
}

/// The next ring, which is to be this one.
fn fetch(socket: &Packets, index: usize) -> io::Result<Descriptors> {
    let (mut message, mut fds) = ([0; MESSAGE], Vec::new());
    let received = socket.recv(&mut message, &mut fds)?;
    if received == 0 {
        return Err(wrong("the target does not know the token of a direct write window any more"));
    }
    let [ring, copies] = [0, 4].map(|at| {
        let word = message.get(at..at + 4).and_then(|word| word.try_into().ok());
        word.map_or(u32::MAX, u32::from_le_bytes)
    });
    let fits = (1..=COPIES_MAX).contains(&copies)
        && u64_of(fds.len()) == 1 + 2 * u64::from(copies)
        && u64::from(ring) == u64_of(index);
    if received != MESSAGE || !fits {
        return Err(wrong("the target sent no ring of a direct write window"));
    }
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or_else(|| wrong("a ring without its files"));
    let bell = next()?;
    let copies = (0..copies).map(|_| Ok([next()?, next()?])).collect::<io::Result<_>>()?;
    Ok(Descriptors { bell, copies })
}

impl DirectWindow {
    /// Maps the rings of a grant, and checks that they are its.
    ///
    /// # Errors
    /// When they are not, or cannot be mapped.
    pub fn map(grant: Grant, rings: Vec<Descriptors>, standing: Arc<Standing>) -> io::Result<Self> {
        let mut first = None;
        let mut mapped = Vec::with_capacity(rings.len());
        for (index, ring) in rings.into_iter().enumerate() {
            let copies = ring.copies.iter().map(|copy| map(&grant, index, copy, &mut first));
            let copies = copies.collect::<io::Result<_>>()?;
            mapped.push(Ring::new(&grant, Copies::mapped(&grant, copies, Bell::from(ring.bell))));
        }
        if mapped.len() != grant.rings {
            return Err(wrong("rings of a direct write window are missing"));
        }
        Ok(Self::new(grant, mapped.into(), standing))
    }
}

/// Maps a copy of a ring. `first` is what the first ring's first copy said it is.
fn map(
    grant: &Grant,
    index: usize,
    [state, memory]: &[OwnedFd; 2],
    first: &mut Option<Identity>,
) -> io::Result<Copy> {
    let state = Pmem::of_fd_to_read(state, u64_of(PAGE)).map_err(io::Error::other)?;
    let memory = Pmem::of_fd(memory, grant.ring_bytes).map_err(io::Error::other)?;
    let mut bytes = [0; IDENTITY];
    for (at, word) in bytes.chunks_exact_mut(size_of::<u64>()).enumerate() {
        let loaded = state.load(u64_of(at * size_of::<u64>())).map_err(io::Error::other)?;
        word.copy_from_slice(&loaded.to_ne_bytes());
    }
    let is = Identity::decode(&bytes);
    if is.is_none() {
        return Err(wrong("a state page that is none"));
    }
    match is_of(grant, index, is, first) {
        true => Ok(Copy { state, memory }),
        false => Err(wrong("a ring of another direct write window")),
    }
}

/// Whether a state page is that of a ring of the grant. `first` is what the first ring's first copy said it is.
pub(super) fn is_of(
    grant: &Grant,
    index: usize,
    is: Option<Identity>,
    first: &mut Option<Identity>,
) -> bool {
    let Some(is) = is else { return false };
    let first = first.get_or_insert(is);
    is.epoch == grant.epoch
        && is.ring_bytes == grant.ring_bytes
        && is.number == grant.number
        && u64::from(is.shard) == u64_of(index)
        && (is.pool, is.view) == (first.pool, first.view)
}
