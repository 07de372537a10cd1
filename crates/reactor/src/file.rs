//! Files and block devices through the ring. The buffer belongs to the operation until it
//! completes: a future dropped early leaves it there.
#![allow(unsafe_code, reason = "operations carry pointers, and ioctl has no safe wrapper")]

mod changes;
mod closing;
mod marks;

use crate::budget::{Account, Grant, Ledger};
use crate::buffer::Buffer;
use crate::core;
use crate::driver::require_real;
use crate::limits::{BUFFER_ALIGN, DEADLINE_STEPS, FILE_OP_BYTES, FILE_OPS_OF_ONE};
use crate::ring::{Hold, OpFuture};
use crate::timer::{Elapsed, sleep, timeout, timeout_attended};
pub use changes::Change;
use changes::Changes;
pub(crate) use changes::Unawaited;
use closing::Closing;
use io_uring::{opcode, squeue, types};
use std::cell::RefCell;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use stdx::num::{u32_of, usize32};

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    pub write: bool,
    /// Creates the file when it is missing, for its owner alone; none where a link leads to.
    pub create: bool,
    /// Past the page cache (`O_DIRECT`). Where the file system refuses that, the file is opened
    /// without, and [`File::is_direct`] says so.
    pub direct: bool,
    /// Holds it as [`hold`] does, until it is closed.
    pub exclusive: bool,
    /// How long the kernel may take for an operation, and for one that changes what is allocated, and how long one
    /// may wait for others of the file before. After that it ends with `TimedOut`, and what the kernel was given, buffer
    /// and descriptor, stays in the operation's slot until that is done with it: it may write there still.
    pub deadline: Option<Deadline>,
}

/// How long operations may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Reads, writes and flushes.
    pub transfer: Duration,
    /// Allocating, freeing and zeroing space.
    pub space: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { write: true, create: false, direct: true, exclusive: false, deadline: None }
    }
}

/// What kind of thing is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Regular,
    /// A block device, by its device number.
    Block {
        major: u32,
        minor: u32,
    },
    /// A character device: for commands only.
    Character,
}

#[derive(Debug)]
struct Inner {
    fd: OwnedFd,
    path: PathBuf,
    kind: Kind,
    direct: bool,
    align: u32,
    deadline: Option<Deadline>,
    changes: Arc<Changes>,
    /// A helper thread discards.
    discarding: AtomicBool,
    /// Behind the descriptor: fields are dropped in their order.
    closing: Closing,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.closing.begin(&self.fd);
    }
}

const RUNNING: u8 = 0;
const LATE: u8 = 1;
const LEFT: u8 = 2;
const DONE: u8 = 3;

/// A change made by a helper thread.
struct Call {
    file: Arc<Inner>,
    stage: AtomicU8,
}

impl Call {
    fn begin(file: &Arc<Inner>) -> Arc<Self> {
        file.changes.begin_call();
        Arc::new(Self { file: Arc::clone(file), stage: AtomicU8::new(RUNNING) })
    }

    /// Nobody waits for it any more; nothing, where the thread is done with it, or that was so before.
    fn leave(&self, why: Unawaited) {
        let stage = match why {
            Unawaited::Late => LATE,
            Unawaited::Left => LEFT,
        };
        // Counted first: the thread may be done with it at once.
        self.file.changes.leave(why);
        let left = self.stage.compare_exchange(RUNNING, stage, Ordering::AcqRel, Ordering::Acquire);
        if left.is_err() {
            self.file.changes.end(why);
        }
    }
}

/// That somebody waits for a call. Dropped before its end, it is known that nobody does.
struct Awaited(Arc<Call>);

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.leave(Unawaited::Left);
    }
}

/// A call on its way to a helper thread, or there: done when dropped.
struct Running(Arc<Call>);

impl Drop for Running {
    fn drop(&mut self) {
        let changes = &self.0.file.changes;
        match self.0.stage.swap(DONE, Ordering::AcqRel) {
            LATE => changes.end(Unawaited::Late),
            LEFT => changes.end(Unawaited::Left),
            _ => {}
        }
        changes.end_call();
    }
}

/// Leave to discard. One at a time for each file: a device that hangs keeps one of the helper threads.
struct Discarding(Arc<Inner>);

impl Discarding {
    async fn begin(file: Arc<Inner>) -> Self {
        while file.discarding.swap(true, Ordering::Acquire) {
            sleep(Duration::from_millis(1)).await;
        }
        Self(file)
    }
}

impl Drop for Discarding {
    fn drop(&mut self) {
        self.0.discarding.store(false, Ordering::Release);
    }
}

/// An open file or block device. May be used on every reactor; cloning shares it.
#[derive(Clone, Debug)]
pub struct File {
    inner: Arc<Inner>,
    /// Shared by its handles, of whatever reactor, and by nobody else.
    handle: Arc<()>,
}

/// A file as one reactor holds it: operations count references here, without atomics.
pub(crate) struct Local {
    inner: Arc<Inner>,
    /// Gone with the last handle.
    handles: Weak<()>,
    /// Of the reactor's operations, those of this file.
    operations: Rc<Account>,
    /// Changes of it that this reactor has.
    changing: Arc<AtomicUsize>,
}

impl Local {
    /// Waits for the place of an operation that moves `bytes`, for `within` at most: those before it may be with a
    /// drive that does not answer, and whoever waits holds what is to be moved.
    pub async fn place(&self, bytes: usize, within: Option<Duration>) -> io::Result<Place> {
        let operations = Rc::clone(&self.operations);
        let amount = bytes.div_ceil(FILE_OP_BYTES).max(1);
        if let Some(grant) = operations.at_once(amount) {
            return Ok(Place(grant));
        }
        let turn = operations.take(amount);
        let grant = match within {
            None => turn.await,
            Some(within) => timeout_attended(within, DEADLINE_STEPS, std::pin::pin!(turn))
                .await
                .map_err(|Elapsed| timed_out())?,
        };
        Ok(Place(grant))
    }
}

/// The files used on one reactor. A file closes everywhere once its last handle is gone and each
/// reactor has looked through this list, which it does before it sleeps and about once a
/// millisecond.
#[derive(Default)]
pub(crate) struct Files {
    list: RefCell<Vec<Rc<Local>>>,
}

impl Files {
    fn local(&self, file: &File, operations: &Rc<Ledger>) -> Rc<Local> {
        let mut list = self.list.borrow_mut();
        if let Some(local) = list.iter().find(|l| Arc::ptr_eq(&l.inner, &file.inner)) {
            return Rc::clone(local);
        }
        let local = Rc::new(Local {
            inner: Arc::clone(&file.inner),
            handles: Arc::downgrade(&file.handle),
            operations: Account::of_at_most(operations, FILE_OPS_OF_ONE),
            changing: file.inner.changes.on_core(),
        });
        list.push(Rc::clone(&local));
        local
    }

    /// Lets go of files nobody else holds.
    pub fn sweep(&self) {
        let unused = |l: &Rc<Local>| Rc::strong_count(l) == 1 && l.handles.strong_count() == 0;
        if self.list.borrow().iter().any(unused) {
            self.list.borrow_mut().retain(|l| !unused(l));
        }
    }
}

fn result(res: i32) -> io::Result<usize> {
    usize::try_from(res).map_err(|_| io::Error::from_raw_os_error(-res))
}

fn unit(res: i32) -> io::Result<()> {
    result(res).map(|_| ())
}

/// For `custom_flags` of what is opened by name: refuses a symbolic link in place of the thing itself (`O_NOFOLLOW`).
pub const NO_LINK: i32 = libc::O_NOFOLLOW;

/// As [`NO_LINK`]: a pipe that nobody writes to is not waited for (`O_NONBLOCK`).
pub const NO_WAIT: i32 = libc::O_NONBLOCK;

/// Opens `path` only to hold it, until what is returned is dropped: against everybody else who does so on this
/// machine, and a block device against the kernel's own uses, too. What is mounted, swapped to or a part of
/// another device (LVM, md) cannot be held, and becomes none of that while it is.
///
/// # Errors
/// `ResourceBusy` while another has it; else as open(2).
pub fn hold(path: &Path) -> io::Result<std::fs::File> {
    let file = std::fs::OpenOptions::new().read(true).custom_flags(claim_flag(path)).open(path)?;
    lock(&file)?;
    Ok(file)
}

/// Opens `path` only to hold it beside others who do so in this way, and against everybody who [holds](hold) it alone.
///
/// # Errors
/// As [`hold`].
pub fn hold_with_others(path: &Path) -> io::Result<std::fs::File> {
    let file = std::fs::File::open(path)?;
    file.try_lock_shared().map_err(not_locked)?;
    Ok(file)
}

/// `O_EXCL` claims a block device (open(2)); for files it means something else.
fn claim_flag(path: &Path) -> i32 {
    let is_device = std::fs::metadata(path).is_ok_and(|of| of.file_type().is_block_device());
    if is_device { libc::O_EXCL } else { 0 }
}

fn lock(file: &std::fs::File) -> io::Result<()> {
    file.try_lock().map_err(not_locked)
}

fn not_locked(error: std::fs::TryLockError) -> io::Error {
    match error {
        std::fs::TryLockError::WouldBlock => {
            io::Error::new(io::ErrorKind::ResourceBusy, "in use by another")
        }
        std::fs::TryLockError::Error(error) => error,
    }
}

impl File {
    /// Opens `path`. Blocks: for set-up, not for the I/O path.
    ///
    /// # Errors
    /// As open(2); `Unsupported` for what is neither a regular file nor a block device, and in
    /// simulation.
    pub fn open(path: &Path, options: OpenOptions) -> io::Result<Self> {
        require_real()?;
        if options.create && path.is_symlink() && !path.exists() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "a link that leads to nothing"));
        }
        let claim = if options.exclusive { claim_flag(path) } else { 0 };
        let open = |direct: bool| {
            std::fs::OpenOptions::new()
                .read(true)
                .write(options.write)
                .create(options.create && options.write)
                .mode(0o600)
                .custom_flags(claim | if direct { libc::O_DIRECT } else { 0 })
                .open(path)
        };
        let (file, direct) = match open(options.direct) {
            Err(e) if options.direct && e.raw_os_error() == Some(libc::EINVAL) => {
                (open(false)?, false)
            }
            other => (other?, options.direct),
        };
        if options.exclusive {
            lock(&file)?;
        }
        if options.write {
            marks::set(file.as_raw_fd(), marks::own());
        }
        let meta = file.metadata()?;
        let fd = OwnedFd::from(file);
        let kind = if meta.file_type().is_file() {
            Kind::Regular
        } else if meta.file_type().is_block_device() {
            Kind::Block { major: libc::major(meta.rdev()), minor: libc::minor(meta.rdev()) }
        } else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "neither a regular file nor a block device",
            ));
        };
        let align = if direct { direct_align(&fd, path, kind) } else { 1 };
        let (path, deadline) = (path.to_path_buf(), options.deadline);
        let (changes, discarding) = (Changes::of(&meta), AtomicBool::new(false));
        // One that is used alone is closed where it is dropped, so that it can be opened again at once. Others are only
        // looked at, as a rule.
        let closing = match kind {
            Kind::Block { .. } if !options.exclusive => Closing::Elsewhere(None),
            _ => Closing::Here,
        };
        let inner = Inner { fd, path, kind, direct, align, deadline, changes, discarding, closing };
        Ok(Self::of(inner))
    }

    fn of(inner: Inner) -> Self {
        Self { inner: Arc::new(inner), handle: Arc::default() }
    }

    /// Has a change be known as under way, from now on and until what is returned is dropped: one that is tried again, or
    /// begins with something else, is so all the while.
    #[must_use]
    pub fn begin_change(&self) -> Change {
        Change::begin(&self.local())
    }

    /// A character device that is open: for [commands](crate::passthrough), and for nothing else here.
    ///
    /// # Errors
    /// As fstat(2).
    pub(crate) fn of_character(
        file: std::fs::File,
        path: &Path,
        deadline: Deadline,
    ) -> io::Result<Self> {
        marks::set(file.as_raw_fd(), marks::own());
        let changes = Changes::of(&file.metadata()?);
        let inner = Inner {
            fd: file.into(),
            path: path.to_path_buf(),
            kind: Kind::Character,
            direct: true,
            align: 1,
            deadline: Some(deadline),
            changes,
            discarding: AtomicBool::new(false),
            closing: Closing::Here,
        };
        Ok(Self::of(inner))
    }

    /// The file as this reactor holds it.
    pub(crate) fn local(&self) -> Rc<Local> {
        core::with(|core| core.files.local(self, &core.file_ops))
    }

    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.fd()
    }

    /// Whether nothing can still be written that this one was not asked for: neither by another process, of those that open
    /// files here and have it open for that, nor by the kernel, which may have writes of one that was killed, nor by what
    /// this one was asked for by another handle, by whichever name. Whatever held it against others was let go of by then.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        !marks::has_others(self.fd(), marks::own()) && !self.inner.changes.are_some_of_others()
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    #[must_use]
    pub fn kind(&self) -> Kind {
        self.inner.kind
    }

    /// Whether I/O goes past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.inner.direct
    }

    /// What offsets and lengths must be multiples of, in bytes. Buffers are always aligned enough.
    #[must_use]
    pub fn align(&self) -> u32 {
        self.inner.align
    }

    /// The size in bytes now. Does not block for long, but is a system call.
    ///
    /// # Errors
    /// As fstat(2) or the device's ioctl.
    pub fn size(&self) -> io::Result<u64> {
        if self.inner.kind != Kind::Regular {
            let mut bytes = 0u64;
            // SAFETY: BLKGETSIZE64 writes one u64, and `bytes` is one.
            unit(unsafe { libc::ioctl(self.fd(), BLKGETSIZE64, &raw mut bytes) })
                .map_err(|_| io::Error::last_os_error())?;
            return Ok(bytes);
        }
        let mut stat = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: `stat` is a valid place for the answer.
        unit(unsafe { libc::fstat(self.fd(), stat.as_mut_ptr()) })
            .map_err(|_| io::Error::last_os_error())?;
        // SAFETY: all zeroes is a valid stat, and the kernel filled it in.
        Ok(u64::try_from(unsafe { stat.assume_init() }.st_size).unwrap_or(0))
    }

    /// The device's logical block, or what direct I/O on the file needs; at least 512 bytes.
    #[must_use]
    pub fn logical_block(&self) -> u32 {
        match self.inner.kind {
            Kind::Block { .. } => sector_size(&self.inner.fd).unwrap_or(512),
            Kind::Regular | Kind::Character => self.inner.align.max(512),
        }
    }

    /// Sets the size. Blocks: for set-up.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn set_size(&self, bytes: u64) -> io::Result<()> {
        let bytes = i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the call takes no pointers.
        unit(unsafe { libc::ftruncate64(self.fd(), bytes) }).map_err(|_| io::Error::last_os_error())
    }

    /// Changes that did not end in time, and that the kernel may still make, however they were asked for here: until there
    /// are none, what is written may be undone by them.
    #[must_use]
    pub fn late_changes(&self) -> usize {
        self.inner.changes.late()
    }

    /// Whether the kernel may still make changes that nobody waits for, be it that they are late or that whoever
    /// waited is gone.
    #[must_use]
    pub fn has_unawaited_changes(&self) -> bool {
        self.inner.changes.are_unawaited()
    }

    /// Whether changes are under way that this one was asked for, be it that somebody waits for them or not.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.inner.changes.are_some()
    }

    /// Tells other processes that nothing is written through this one any more, though it stays open: whoever calls this
    /// sees to it that nothing is, and that [nothing is under way](Self::has_changes).
    pub fn unmark(&self) {
        marks::clear(self.fd(), marks::own());
    }

    fn transfer_time(&self) -> Option<Duration> {
        self.inner.deadline.map(|deadline| deadline.transfer)
    }

    fn space_time(&self) -> Option<Duration> {
        self.inner.deadline.map(|deadline| deadline.space)
    }

    fn fd(&self) -> RawFd {
        self.inner.fd.as_raw_fd()
    }

    /// Reads into all the bytes `buffer` shows, from `offset`. Gives the buffer back, and how many
    /// bytes were there: fewer at the end of the file.
    ///
    /// # Errors
    /// As pread(2).
    pub async fn read_at(
        &self,
        mut buffer: Buffer,
        offset: u64,
    ) -> (io::Result<usize>, Option<Buffer>) {
        let file = self.local();
        let place = match file.place(buffer.len(), self.transfer_time()).await {
            Ok(place) => place,
            Err(e) => return (Err(e), Some(buffer)),
        };
        let (address, len) = (buffer.as_mut_ptr(), u32_of(buffer.len()));
        let entry = opcode::Read::new(types::Fd(self.fd()), address, len).offset(offset).build();
        // SAFETY: the entry points into `buffer`, whose memory does not move with it.
        let started = unsafe { start(file, entry, Some(buffer), place, None) };
        finish(started, self.transfer_time()).await
    }

    /// Writes all the bytes `buffer` shows at `offset`; with `dsync` they are durable when it
    /// completes (`RWF_DSYNC`). Gives the buffer back, and how many bytes were written.
    ///
    /// # Errors
    /// As pwritev2(2).
    pub async fn write_at(
        &self,
        buffer: Buffer,
        offset: u64,
        dsync: bool,
    ) -> (io::Result<usize>, Option<Buffer>) {
        let file = self.local();
        let change = Change::begin(&file);
        let place = match file.place(buffer.len(), self.transfer_time()).await {
            Ok(place) => place,
            Err(e) => return (Err(e), Some(buffer)),
        };
        let entry = opcode::Write::new(types::Fd(self.fd()), buffer.as_ptr(), u32_of(buffer.len()))
            .offset(offset)
            .rw_flags(if dsync { libc::RWF_DSYNC } else { 0 })
            .build();
        // SAFETY: the entry points into `buffer`, whose memory does not move with it.
        let started = unsafe { start(file, entry, Some(buffer), place, Some(change)) };
        finish(started, self.transfer_time()).await
    }

    /// Makes completed writes durable; with `data_only` without times and the like (fdatasync).
    ///
    /// # Errors
    /// As fsync(2). After one, what was not durable before may be lost for good.
    pub async fn sync(&self, data_only: bool) -> io::Result<()> {
        let flags =
            if data_only { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
        let entry = opcode::Fsync::new(types::Fd(self.fd())).flags(flags).build();
        let file = self.local();
        let place = file.place(0, self.transfer_time()).await?;
        // SAFETY: the entry points to nothing but the file.
        let started = unsafe { start(file, entry, None, place, None) };
        finish(started, self.transfer_time()).await.0.map(|_| ())
    }

    async fn fallocate(&self, mode: i32, offset: u64, len: u64) -> io::Result<()> {
        let file = self.local();
        let change = Change::begin(&file);
        let place = file.place(0, self.space_time()).await?;
        let entry =
            opcode::Fallocate::new(types::Fd(self.fd()), len).offset(offset).mode(mode).build();
        // SAFETY: the entry points to nothing but the file.
        let started = unsafe { start(file, entry, None, place, Some(change)) };
        finish(started, self.space_time()).await.0.map(|_| ())
    }

    /// Frees the space of a range, which then reads as zeroes. Works on files, and on block devices
    /// that can unmap with zeroes.
    ///
    /// # Errors
    /// As fallocate(2): `Unsupported` where it cannot be done.
    pub async fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, len).await
    }

    /// Has the file system set space aside for a range of a file, whose contents stay.
    ///
    /// # Errors
    /// As fallocate(2): `Unsupported` where it cannot be done.
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(libc::FALLOC_FL_KEEP_SIZE, offset, len).await
    }

    /// Makes a range read as zeroes and keeps its space, without sending the zeroes where the file
    /// system or device knows how.
    ///
    /// # Errors
    /// As fallocate(2): `Unsupported` where it cannot be done.
    pub async fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE, offset, len).await
    }

    /// Tells a block device that a range is no longer needed (`BLKDISCARD`); what it reads after is
    /// undefined. Runs on a helper thread, because the ioctl blocks.
    ///
    /// # Errors
    /// As the ioctl: `Unsupported` where the device has no such command.
    pub async fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let call = Call::begin(&self.inner);
        let (running, _awaited) = (Running(Arc::clone(&call)), Awaited(Arc::clone(&call)));
        let answer = async move {
            let discarding = Discarding::begin(Arc::clone(&running.0.file)).await;
            let ioctl = move || {
                let (range, _running) = ([offset, len], running);
                let fd = discarding.0.fd.as_raw_fd();
                // SAFETY: BLKDISCARD reads two u64, and `range` holds two.
                let rc = unsafe { libc::ioctl(fd, BLKDISCARD, range.as_ptr()) };
                if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
            };
            crate::blocking::run(ioctl).await
        };
        let Some(within) = self.space_time() else { return answer.await };
        timeout(within, answer).await.unwrap_or_else(|Elapsed| {
            call.leave(Unawaited::Late);
            Err(timed_out())
        })
    }

    /// Whether acknowledged writes can be lost with power until a flush: always for a file (its
    /// metadata alone has volatile state), and what the kernel says for a block device.
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        !self.inner.direct || self.queue("write_cache").is_none_or(|v| v != "write through")
    }

    /// Whether a block device can free space so that it is sure to read as zeroes after.
    #[must_use]
    pub fn unmaps_with_zeroes(&self) -> bool {
        let max = |name| self.queue(name).and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
        max("write_zeroes_max_bytes") > 0 && max("discard_max_bytes") > 0
    }

    /// What the kernel says about a block device's queue.
    fn queue(&self, name: &str) -> Option<String> {
        let Kind::Block { major, minor } = self.inner.kind else { return None };
        let device = format!("/sys/dev/block/{major}:{minor}");
        // A partition has no queue of its own; its disk is one folder up.
        ["queue", "../queue"]
            .iter()
            .find_map(|queue| std::fs::read_to_string(format!("{device}/{queue}/{name}")).ok())
            .map(|text| text.trim().to_owned())
    }
}

const BLKGETSIZE64: libc::Ioctl = 0x8008_1272;
const BLKSSZGET: libc::Ioctl = 0x1268;
const BLKDISCARD: libc::Ioctl = 0x1277;

fn sector_size(fd: &OwnedFd) -> io::Result<u32> {
    let mut bytes = 0i32;
    // SAFETY: BLKSSZGET writes one int, and `bytes` is one.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), BLKSSZGET, &raw mut bytes) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// What direct I/O on an open file must be aligned to: the device's sector, or what statx(2) says
/// (`STATX_DIOALIGN`), or the largest there is.
fn direct_align(fd: &OwnedFd, path: &Path, kind: Kind) -> u32 {
    let most = u32_of(BUFFER_ALIGN);
    if kind != Kind::Regular {
        return sector_size(fd).unwrap_or(most).min(most);
    }
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return most };
    let mut answer = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path ends in a zero byte, and `answer` is a valid place for the answer.
    let rc = unsafe {
        libc::statx(libc::AT_FDCWD, path.as_ptr(), 0, libc::STATX_DIOALIGN, answer.as_mut_ptr())
    };
    // SAFETY: all zeroes is a valid statx, and the kernel fills it in when it succeeds.
    let answer = unsafe { answer.assume_init() };
    let known = rc == 0 && answer.stx_mask & libc::STATX_DIOALIGN != 0;
    match answer.stx_dio_offset_align {
        align if known && align.is_power_of_two() && align <= most => align.max(512),
        _ => most,
    }
}

/// Starts an operation that holds `file` and `buffer`.
///
/// # Safety
/// `entry` points to nothing but this file and the bytes of `buffer`.
unsafe fn start(
    file: Rc<Local>,
    entry: squeue::Entry,
    buffer: Option<Buffer>,
    place: Place,
    change: Option<Change>,
) -> Started {
    core::with(|core| match core.driver.ring() {
        // SAFETY: the caller's promise.
        Ok(ring) => Ok(unsafe { ring.start_file(entry, file, buffer, place, change) }),
        Err(e) => Err((e, buffer)),
    })
}

type Started = Result<OpFuture, (io::Error, Option<Buffer>)>;

pub(crate) fn timed_out() -> io::Error {
    io::Error::from_raw_os_error(libc::ETIMEDOUT)
}

/// Waits for an operation, for so long at most. Past that it is the kernel's alone, and late where it changes what is
/// there.
async fn finish(started: Started, within: Option<Duration>) -> (io::Result<usize>, Option<Buffer>) {
    let mut op = match started {
        Ok(op) => op,
        Err((e, buffer)) => return (Err(e), buffer),
    };
    let ended = match within {
        None => Ok((&mut op).await),
        Some(within) => timeout_attended(within, DEADLINE_STEPS, &mut op).await,
    };
    match ended {
        Ok((res, Hold::File { buffer, .. })) => (result(res), buffer),
        Ok((res, Hold::Nothing | Hold::Fd(_))) => (result(res), None),
        Err(Elapsed) => {
            op.leave(Unawaited::Late);
            (Err(timed_out()), None)
        }
    }
}

/// What an operation has of the `FILE_OPS_MAX`. Belongs to the operation's slot, and so is given back when the
/// kernel is done, whoever still waits.
pub(crate) struct Place(#[allow(dead_code, reason = "given back when dropped")] Grant);

const _: () = assert!(usize32(u32::MAX) > crate::limits::BUFFER_MAX);

#[cfg(test)]
mod tests;
