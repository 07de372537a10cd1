//! The journal of acknowledgements: which write of each block the target acknowledged, kept by the client in
//! an append-only file, so that it can be checked after any end of the target, or of the client.
//!
//! The file is a [`Head`], then frames: a [`Frame`] header and `count` [`Ack`]s. A frame that does not check
//! is a torn tail: it and what follows is not read, and cut off when the journal is continued. Frames are
//! written with one call each and synced at the end of a run: the kernel keeps them when the client is killed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use stdx::crc32c_append;
use stdx::num::{low32, u16_of, u64_of, usize64};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::{JOURNAL_FRAME_ACKS, JOURNAL_RESERVE, JOURNAL_SEQUENCE_MAX, VERIFY_BLOCKS_MAX};

/// What the file begins with.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    magic: U64,
    version: U32,
    logical: U32,
    blocks: U32,
    reserved: U32,
    first_lba: U64,
    count: U64,
    run: U64,
    padding: [u8; 12],
    /// CRC32C of the head with this field 0.
    checksum: U32,
}
const HEAD_BYTES: usize = 64;
const _: () = assert!(size_of::<Head>() == HEAD_BYTES);
const _: () = assert!(std::mem::offset_of!(Head, first_lba) == 24);
const _: () = assert!(std::mem::offset_of!(Head, checksum) == HEAD_BYTES - 4);

const MAGIC: u64 = u64::from_le_bytes(*b"flashjnl");
const VERSION: u32 = 1;

/// What stands before the acknowledgements of a frame.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Frame {
    magic: U16,
    /// Acknowledgements that follow.
    count: U16,
    /// No write of a higher sequence has been sent by whoever writes the journal.
    upto: U32,
    /// CRC32C of this header with this field 0, and of the acknowledgements.
    checksum: U32,
}
const FRAME_BYTES: usize = 12;
const _: () = assert!(size_of::<Frame>() == FRAME_BYTES);
const _: () = assert!(std::mem::offset_of!(Frame, checksum) == FRAME_BYTES - 4);

const FRAME_MAGIC: u16 = u16::from_le_bytes(*b"ak");

/// One acknowledged write.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ack {
    /// Commands' worth of blocks from the start of the region.
    block: U32,
    sequence: U32,
}
const ACK_BYTES: usize = 8;
const _: () = assert!(size_of::<Ack>() == ACK_BYTES);

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read or written.
    #[error("journal {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// Another process writes it.
    #[error("journal {}: another bench writes it", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// It is not a journal, or not one of this load.
    #[error("journal {}: {what}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// Why not.
        what: String,
    },
}

/// The region that a journal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Logical block size, bytes.
    pub logical: u32,
    /// Logical blocks of one command.
    pub blocks: u32,
    /// First logical block.
    pub first_lba: u64,
    /// Commands' worth of blocks.
    pub count: u64,
}

/// What a journal says.
#[derive(Debug)]
pub struct History {
    /// What it is about.
    pub region: Region,
    /// Mark of the run in the data.
    pub run: u64,
    /// By block: sequence of the last acknowledged write, 0 for none.
    pub acked: Vec<u32>,
    /// No write of a higher sequence has been sent.
    pub upto: u32,
    /// Length of what checks, bytes.
    length: u64,
    /// Bytes after that: a torn tail.
    pub torn: u64,
}

/// A journal open for appending, shared by the workers of a job.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

impl Journal {
    /// Opens the journal at `path` for a load of `region`, or creates one with the mark `run`. Gives what it
    /// says already.
    ///
    /// # Errors
    /// Any of [`Error`]; the file is as it was.
    pub fn open(path: &Path, region: Region, run: u64) -> Result<(Self, History), Error> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        let unfit = |what: &str| Error::Unfit { path: path.to_owned(), what: what.to_owned() };
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Busy { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        if file.metadata().map_err(failed)?.len() == 0 {
            let head = head(region, run);
            file.write_all(head.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
            sync_directory(path).map_err(failed)?;
        }
        let history = scan(&mut file, path)?;
        if history.region != region {
            return Err(unfit(
                "it is of another region or block size: give the same --bs and --size, or another file",
            ));
        }
        if history.upto > JOURNAL_SEQUENCE_MAX {
            return Err(unfit("its sequences are used up: begin another file"));
        }
        file.set_len(history.length).map_err(failed)?;
        Ok((Self { path: path.to_owned(), file: Mutex::new(file) }, history))
    }

    /// Reads the journal at `path`, which nobody may write meanwhile.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn read(path: &Path) -> Result<History, Error> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(failed)?;
        match file.try_lock_shared() {
            Ok(()) => scan(&mut file, path),
            Err(TryLockError::WouldBlock) => Err(Error::Busy { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    fn append(&self, frame: &[u8]) -> Result<(), Error> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(frame).map_err(|source| Error::File { path: self.path.clone(), source })
    }

    /// Makes what was appended survive a power cut of the client.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn sync(&self) -> Result<(), Error> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.sync_data().map_err(|source| Error::File { path: self.path.clone(), source })
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

fn checksum(pieces: [&[u8]; 2]) -> u32 {
    pieces.iter().fold(0, |crc, piece| crc32c_append(crc, piece))
}

fn head(region: Region, run: u64) -> Head {
    let mut head = Head {
        magic: MAGIC.into(),
        version: VERSION.into(),
        logical: region.logical.into(),
        blocks: region.blocks.into(),
        reserved: 0.into(),
        first_lba: region.first_lba.into(),
        count: region.count.into(),
        run: run.into(),
        padding: [0; 12],
        checksum: 0.into(),
    };
    head.checksum = checksum([head.as_bytes(), &[]]).into();
    head
}

/// Reads a whole journal: memory is by the region, not by the length of the file.
fn scan(file: &mut File, path: &Path) -> Result<History, Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let unfit = |what: String| Error::Unfit { path: path.to_owned(), what };
    let total = file.metadata().map_err(failed)?.len();
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut input = BufReader::with_capacity(1 << 20, file);
    let mut bytes = [0; HEAD_BYTES];
    if !fill(&mut input, &mut bytes).map_err(failed)? {
        return Err(unfit(
            "its head is not whole, so nothing was written under it: delete it".into(),
        ));
    }
    let found = Head::read_from_bytes(&bytes)
        .map_err(|_| unfit("its head is not whole: delete it".to_owned()))?;
    if found.magic.get() != MAGIC {
        return Err(unfit("it is not a journal of acknowledgements".to_owned()));
    }
    if found.version.get() != VERSION {
        return Err(unfit(format!("its version {} is not {VERSION}", found.version)));
    }
    let region = Region {
        logical: found.logical.get(),
        blocks: found.blocks.get(),
        first_lba: found.first_lba.get(),
        count: found.count.get(),
    };
    let right = head(region, found.run.get());
    let formats = (512..=65_536).contains(&region.logical) && region.logical.is_power_of_two();
    if right.as_bytes() != found.as_bytes() || region.count > VERIFY_BLOCKS_MAX || !formats {
        return Err(unfit("its head is damaged".to_owned()));
    }
    let mut history = History {
        region,
        run: found.run.get(),
        acked: vec![0; usize64(region.count)],
        upto: 0,
        length: u64_of(HEAD_BYTES),
        torn: 0,
    };
    let mut acks = Vec::new();
    while next_frame(&mut input, &mut acks, &mut history).map_err(failed)? {}
    history.torn = total.saturating_sub(history.length);
    Ok(history)
}

/// Takes the next frame into `history`; false when there is none that checks.
fn next_frame(
    input: &mut impl Read,
    acks: &mut Vec<u8>,
    history: &mut History,
) -> io::Result<bool> {
    let mut bytes = [0; FRAME_BYTES];
    if !fill(input, &mut bytes)? {
        return Ok(false);
    }
    let Ok(mut frame) = Frame::read_from_bytes(&bytes) else { return Ok(false) };
    if frame.magic.get() != FRAME_MAGIC {
        return Ok(false);
    }
    acks.resize(usize::from(frame.count.get()) * ACK_BYTES, 0);
    if !fill(input, acks)? {
        return Ok(false);
    }
    let expected = std::mem::replace(&mut frame.checksum, 0.into());
    if checksum([frame.as_bytes(), acks]) != expected.get() {
        return Ok(false);
    }
    for ack in acks.chunks_exact(ACK_BYTES).filter_map(|ack| Ack::read_from_bytes(ack).ok()) {
        // Blocks are of the region: what checks was written by this program for this head.
        if let Some(entry) = history.acked.get_mut(usize64(ack.block.get().into())) {
            *entry = ack.sequence.get();
        }
    }
    history.upto = history.upto.max(frame.upto.get());
    history.length += u64_of(FRAME_BYTES + acks.len());
    Ok(true)
}

/// Fills `bytes`; false when the input ends before.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// One worker's way into the journal.
#[derive(Debug)]
pub struct Acks {
    journal: Arc<Journal>,
    /// The worker's first block, from the start of the region.
    first: u64,
    /// Sequences up to this one may be sent.
    upto: u32,
    /// The frame being made: room for its header, then acknowledgements.
    frame: Vec<u8>,
}

impl Acks {
    /// For a worker whose blocks begin at `first` of the region.
    pub fn new(journal: Arc<Journal>, first: u64) -> Self {
        let mut frame = Vec::with_capacity(FRAME_BYTES + JOURNAL_FRAME_ACKS * ACK_BYTES);
        frame.resize(FRAME_BYTES, 0);
        Self { journal, first, upto: 0, frame }
    }

    /// Notes that write `sequence` of the worker's block `block` was acknowledged.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn push(&mut self, block: u64, sequence: u32) -> Result<(), Error> {
        let ack = Ack { block: low32(self.first + block).into(), sequence: sequence.into() };
        self.frame.extend_from_slice(ack.as_bytes());
        if self.frame.len() == self.frame.capacity() { self.flush() } else { Ok(()) }
    }

    /// Says, before it is sent, that a write of `sequence` may be.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn reserve(&mut self, sequence: u32) -> Result<(), Error> {
        if sequence <= self.upto {
            return Ok(());
        }
        self.upto = sequence.saturating_add(JOURNAL_RESERVE);
        self.write()
    }

    /// Whether something was noted and not appended.
    pub fn has_notes(&self) -> bool {
        self.frame.len() > FRAME_BYTES
    }

    /// Appends what was noted.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.has_notes() { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), Error> {
        let (header, acks) = self.frame.split_at_mut(FRAME_BYTES);
        let mut frame = Frame {
            magic: FRAME_MAGIC.into(),
            count: u16_of(acks.len() / ACK_BYTES).into(),
            upto: self.upto.into(),
            checksum: 0.into(),
        };
        frame.checksum = checksum([frame.as_bytes(), acks]).into();
        header.copy_from_slice(frame.as_bytes());
        self.journal.append(&self.frame)?;
        self.frame.truncate(FRAME_BYTES);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
