//! The commit log of one shard: where a write becomes durable.
//!
//! A ring of records in the persistence domain. [`Log::append`] stores a record and returns when it
//! is durable; from then on [`Log::lookup`] finds its blocks, until destage, which takes them with
//! [`Log::next_batch`], has made them durable elsewhere and says so with [`Log::trim`]. After a crash
//! [`Log::open`] finds every record that was acknowledged and not trimmed: they are looked up and
//! handed to destage as if they had just been appended.
//!
//! On memory (`pmem`, `bbu`) an append is a copy and a fence. On drives the ring is in memory too,
//! and a task of the log's writes what has gathered there to the zones, one write at a time.

mod append;
mod change;
mod commit;
mod control;
mod device;
mod expected;
mod identify;
mod index;
mod inspect;
mod join;
pub mod limits;
mod loss;
mod members;
mod newest;
mod place;
mod rebuild;
mod record;
mod recover;
mod refer;
mod reserve;
mod ring;
mod tenancy;
mod trim;
mod types;
mod versions;

pub use identify::{Identity, identify};
pub(crate) use inspect::{Inspection, SlotSeen, inspect};
pub use inspect::{RecordSeen, RecordWhat, is_of_pool_alone, pool_of, records_left};
pub use limits::{LOG_BYTES_MAX, LOG_BYTES_MIN, RECORD_BLOCKS_MAX};
pub use members::{MemberId, Members, Owner, Tenant};
pub use newest::Newest;
pub use place::{Area, Device, Joining, LogDevice, Place, RemoteLog, Seat, Site, Zone};
pub use rebuild::Rebuilt;
pub use refer::Holding;
pub use reserve::{Reserved, Stored};
pub use types::{Append, Data, Found, Item, Opened, Reference, Status, What};

use crate::address::{BLOCK, Key, Version, View};
use crate::error::{Error, Kind, Result};
use commit::Commits;
use control::Control;
use device::Store;
use limits::{CONTROL_BYTES, PAGE, PREFETCH_BYTES};
use media::Pmem;
use reactor::sync::{Notify, Semaphore};
use reactor::{Nanos, spawn_late, yield_now};
use recover::Recovered;
use ring::Ring;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use stdx::num::u64_of;

/// One shard's commit log. Belongs to one reactor.
pub struct Log {
    shared: Rc<Shared>,
}

/// On what grounds something is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    New,
    /// It was acknowledged already.
    Acknowledged,
}

struct Shared {
    store: Store,
    ring: RefCell<Ring>,
    /// Appends pass one by one when there is no room.
    gate: Semaphore,
    waiting: Cell<usize>,
    /// One when the first of them waits for room, not only for time to pass.
    full: Cell<usize>,
    /// Room was made.
    room: Notify,
    /// Something became durable.
    work: Notify,
    /// Something became durable some time after it was appended, or an append waits for room.
    more: Notify,
    /// One trim at a time.
    trimming: Semaphore,
    commits: Commits,
    /// Every device failed, or the log was closed.
    ended: Cell<Option<Kind>>,
    /// What records are about that were stored and not durable yet when the devices failed, once somebody has asked.
    in_doubt: OnceCell<Vec<(Key, u64)>>,
    /// No record is taken any more: what there is goes to the drives.
    refusing: Cell<bool>,
    /// No write is taken for now, for want of space behind the log.
    refusing_writes: Cell<bool>,
    /// Since when one that is not refused at once finds no room while writes are refused.
    no_room_since: Cell<Option<Nanos>>,
    /// Records up to this one may have damaged blocks.
    lost_through: Cell<u64>,
    /// What came last as of the last look.
    seen_head: Cell<u64>,
    /// Nothing is reserved for now.
    paused: Cell<bool>,
    /// It is again.
    resumed: Notify,
}

/// A log that was looked at, to be opened.
pub struct Looked {
    store: Store,
    recovered: Recovered,
    is_rebuilt: bool,
}

impl Looked {
    /// Whether its control block is made anew.
    #[must_use]
    pub const fn is_rebuilt(&self) -> bool {
        self.is_rebuilt
    }

    /// What was found.
    #[must_use]
    pub const fn opened(&self) -> Opened {
        self.recovered.opened
    }

    /// Opens it: what was found is made the same on all devices.
    ///
    /// # Errors
    /// `Failed` when no device takes writes.
    pub async fn begin(self) -> Result<Log> {
        let Self { store, recovered, .. } = self;
        let lost_through = recovered.opened.lost_through;
        let ring = recovered.begin(&store).await?;
        let log = Log::start(store, ring);
        log.shared.lost_through.set(lost_through);
        Ok(log)
    }
}

/// Checks the length and gives that of the ring.
fn ring_of(bytes: u64) -> Result<u64> {
    if !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&bytes) || !bytes.is_multiple_of(PAGE) {
        let context = format!("a shard's commit log has {LOG_BYTES_MIN} to {LOG_BYTES_MAX} bytes");
        return Err(Error::new(Kind::Invalid, context));
    }
    Ok(bytes - CONTROL_BYTES)
}

impl Log {
    /// Makes an empty log of `bytes` bytes (a multiple of 4 KiB, control block included) on each
    /// place of `device`. `ring` is a number drawn at random: it tells this log's records from
    /// whatever else lies there. Runs on a reactor.
    ///
    /// # Errors
    /// `Invalid` for a device that does not fit, `Failed` when it takes no writes.
    pub async fn create(site: impl Into<Site>, bytes: u64, ring: u64) -> Result<Self> {
        let control = Control::of_empty(ring, ring_of(bytes)?);
        Self::create_as(site.into(), bytes, control).await
    }

    async fn create_as(site: Site, bytes: u64, mut control: Control) -> Result<Self> {
        let store = Store::new(site, bytes)?;
        // Both slots, so that none of an older log is left.
        store.write_control(&control).await?;
        control.generation += 1;
        store.write_control(&control).await?;
        Ok(Self::start(store, Ring::new(control)))
    }

    /// Opens the log created with this number and finds what it holds. A torn tail, which nobody was told of, is cut off.
    ///
    /// # Errors
    /// `Missing` when there is no log or another pool's, `Invalid` when it has another length, `Loss`
    /// when records that were acknowledged are damaged on every device so that nothing tells which
    /// blocks they were of, or the control block is and it has to be made [anew](Self::lacks_control),
    /// `Failed` when no device takes writes.
    pub async fn open(site: impl Into<Site>, bytes: u64, ring: u64) -> Result<(Self, Opened)> {
        let looked = Self::look(site, bytes, ring, false, None).await?;
        let opened = looked.opened();
        Ok((looked.begin().await?, opened))
    }

    /// Finds what the log holds, and changes nothing. With `accept_loss` records that say nothing any more are
    /// skipped: what they were about is as it was before them. With `rebuilt` its control block is made anew.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn look(
        site: impl Into<Site>,
        bytes: u64,
        ring: u64,
        accept_loss: bool,
        rebuilt: Option<Rebuilt>,
    ) -> Result<Looked> {
        let (ring_bytes, store) = (ring_of(bytes)?, Store::new(site.into(), bytes)?);
        let recovered =
            recover::recover_surely(&store, ring_bytes, ring, accept_loss, rebuilt).await?;
        Ok(Looked { store, recovered, is_rebuilt: rebuilt.is_some() })
    }

    /// Whether a log has records of this ring, and no control block on any device.
    ///
    /// # Errors
    /// `Invalid` for a device that does not fit, and those of reading it.
    pub async fn lacks_control(site: impl Into<Site>, bytes: u64, ring: u64) -> Result<bool> {
        let (ring_bytes, store) = (ring_of(bytes)?, Store::new(site.into(), bytes)?);
        rebuild::lacks_control(&store, ring_bytes, ring).await
    }

    fn start(store: Store, ring: Ring) -> Self {
        let is_memory = store.is_memory();
        let shared = Rc::new(Shared {
            store,
            ring: RefCell::new(ring),
            gate: Semaphore::new(1),
            waiting: Cell::new(0),
            full: Cell::new(0),
            room: Notify::new(),
            work: Notify::new(),
            more: Notify::new(),
            trimming: Semaphore::new(1),
            commits: Commits::new(),
            ended: Cell::new(None),
            in_doubt: OnceCell::new(),
            refusing: Cell::new(false),
            refusing_writes: Cell::new(false),
            no_room_since: Cell::new(None),
            lost_through: Cell::new(0),
            seen_head: Cell::new(0),
            paused: Cell::new(false),
            resumed: Notify::new(),
        });
        if !is_memory {
            spawn_late(commit::run(Rc::clone(&shared)));
        }
        Self { shared }
    }

    /// Appends a record; when this returns it is durable and can be looked up. Waits its turn while
    /// the log is full, and longer the fuller it is. On memory that is not nearly full it never
    /// waits. Gives the record's sequence.
    ///
    /// # Errors
    /// `Invalid` for no blocks, too many, or half ones; `Failed` when the log's devices failed; `Gone`
    /// when it was closed.
    pub fn append<'a>(&'a self, record: Append<'a>) -> impl Future<Output = Result<u64>> + 'a {
        self.shared.append(record)
    }

    /// Reserves a range of the ring for the contents of 1 to 256 blocks from `key` on. Waits for its turn, and
    /// for room, as [`append`](Self::append) does, which is to reserve, to fill and to commit.
    ///
    /// # Errors
    /// As [`append`](Self::append); `Full` while there is no space behind the log.
    pub async fn reserve(&self, key: Key, blocks: usize) -> Result<Reserved<'_>> {
        self.shared.reserve(append::kind_of_write(key, blocks)?, Claim::New).await
    }

    /// As [`reserve`](Self::reserve), if it need not wait: while the log is not nearly full, and nobody else waits or
    /// has reserved. `None` when it would have to.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn try_reserve(&self, key: Key, blocks: usize) -> Result<Option<Reserved<'_>>> {
        self.shared.try_reserve(append::kind_of_write(key, blocks)?, Claim::New)
    }

    /// Waits until what was appended may be acknowledged to a host: as many devices have it as are to. What the pool itself
    /// waits for is only durable: there may be no other device before that.
    ///
    /// # Errors
    /// `Busy` when the pool is closed first; as [`append`](Self::append).
    pub fn until_enough(&self) -> impl Future<Output = Result<()>> + '_ {
        self.shared.until_enough()
    }

    /// Waits until a record that was [committed](Reserved::commit) is durable and can be looked up.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn make_durable(&self, sequence: u64) -> impl Future<Output = Result<()>> + '_ {
        self.shared.make_durable(sequence)
    }

    /// Waits until everything appended so far is durable and can be looked up, also what was appended
    /// by somebody who did not stay to see it.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn settle(&self) -> Result<()> {
        let (settled, head) = {
            let ring = self.shared.ring.borrow();
            (ring.settled.sequence, ring.head.sequence)
        };
        let is_owed = settled < head || self.is_troubled();
        if is_owed { self.shared.make_durable(head - 1).await } else { Ok(()) }
    }

    /// As [`settle`](Self::settle), and whatever is damaged of it from then on is known as lost, also of the last record.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn settle_surely(&self) -> Result<()> {
        self.settle().await?;
        self.shared.note_durable().await
    }

    /// Has each of its devices say once more whose it is, whatever became of what said so.
    ///
    /// # Errors
    /// When none takes that.
    pub async fn sign(&self) -> Result<()> {
        self.shared.sign().await
    }

    /// Looks whether its memory is there, and has it told if not. As [`settle_surely`](Self::settle_surely), once
    /// nothing was appended from one look to the next.
    ///
    /// # Errors
    /// As there.
    pub async fn look_for_loss(&self) -> Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        let (head, ring_bytes) = {
            let ring = self.shared.ring.borrow();
            (ring.head.sequence, ring.control.ring_bytes)
        };
        self.shared.store.look_at_memory(ring_bytes);
        let is_idle = self.shared.seen_head.replace(head) == head;
        if is_idle { self.settle_surely().await } else { Ok(()) }
    }

    /// Has the processor fetch what looking up a block will touch.
    pub fn look_ahead(&self, key: Key) {
        self.shared.ring.borrow().blocks.prefetch(key, 1);
    }

    /// What is newest at a block, and for how many of `count` blocks (1 at least) the same holds:
    /// for data that is 1.
    #[must_use]
    pub fn lookup(&self, key: Key, count: u64) -> (Found, u64) {
        self.shared.ring.borrow().lookup(key, count)
    }

    /// What was found at a block, and at those that go on after it.
    ///
    /// # Errors
    /// `Corrupt` when the log's memory was damaged.
    pub fn reference(&self, position: u64, index: usize) -> Result<Reference> {
        self.shared.ring.borrow().reference(position, index, &self.shared.store)
    }

    /// Copies a block's contents out.
    ///
    /// # Errors
    /// `Corrupt` when no device has them as they were written.
    ///
    /// # Panics
    /// When `data` was trimmed, or `out` is not a block.
    pub fn copy_out(&self, data: Data, out: &mut [u8]) -> Result<()> {
        let at = self.at(data);
        self.shared.repair_block(at, data)?;
        self.shared.store.with(at, BLOCK, |block| out.copy_from_slice(block))
    }

    /// How many of the first items are blocks that lie one behind another, in the log and in their volume, and none
    /// of them lost: they can be [used](Self::with_run) together. 1 for anything else.
    #[must_use]
    pub fn run_of(&self, items: &[Item]) -> usize {
        let lost_through = self.shared.lost_through.get();
        let goes_on =
            |pair: &&[Item]| pair[1].goes_on_after(&pair[0]) && pair[0].sequence > lost_through;
        1 + items.windows(2).take_while(goes_on).count()
    }

    /// Calls `look` with the contents of a [run](Self::run_of) of blocks for destage, whose checksums go where they go:
    /// whoever reads them verifies it, and is told. So it is verified here only where a mirror could put
    /// right what is damaged; a block that nothing can is no reason to end the log.
    ///
    /// # Errors
    /// Those of reading the log's memory.
    ///
    /// # Panics
    /// When they were trimmed, or are no blocks.
    pub fn with_run<R>(&self, run: &[Item], look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let blocks = || run.iter().filter_map(Item::data);
        let Some(first) = blocks().next() else { panic!("only blocks have contents") };
        let end = run.last().and_then(Item::data).map(|data| data.position + u64_of(BLOCK));
        let whole = first.position + u64_of(run.len() * BLOCK);
        assert_eq!(end, Some(whole), "blocks of a run lie one behind another");
        if self.shared.store.devices() > 1 {
            for data in blocks() {
                match self.shared.repair_block(self.at(data), data) {
                    Err(error) if error.kind != Kind::Corrupt => return Err(error),
                    _ => {}
                }
            }
        }
        self.shared.store.with(self.at(first), run.len() * BLOCK, look)
    }

    /// Whether a block that destage was given was found damaged when the log was opened.
    ///
    /// # Errors
    /// Those of reading the log's memory.
    pub fn was_lost(&self, item: &Item) -> Result<bool> {
        match item.what {
            What::Lost => Ok(true),
            What::Data(data) if item.sequence <= self.shared.lost_through.get() => {
                let is_damaged = |block: &[u8]| stdx::crc32c(block) != data.crc;
                self.shared.store.with(self.at(data), BLOCK, is_damaged)
            }
            What::Data(_) | What::Hole { .. } | What::Refers(_) => Ok(false),
        }
    }

    /// Has the processor fetch the beginning of what is destaged soon.
    pub fn prefetch(&self, item: &Item) {
        let Some(data) = item.data() else { return };
        // A hint: that it cannot be read is told when it is.
        let _ = self.shared.store.with(self.at(data), PREFETCH_BYTES, media::memory::prefetch);
    }

    /// Where a block lies in the ring.
    fn at(&self, data: Data) -> u64 {
        let ring = self.shared.ring.borrow();
        assert!(ring.holds(data.position), "a position is used before its record is trimmed");
        ring.at(data.position)
    }

    /// Adds to `out` what destage has to make durable next: whole records in order, `max` blocks of
    /// data at most (256 at least), without the blocks that were overwritten since. Gives the
    /// sequence up to which it was given everything: once that is durable elsewhere, it is
    /// [trimmed](Self::trim). Without anything new it is that of the last call.
    ///
    /// # Errors
    /// `Corrupt` when the log's memory was damaged.
    ///
    /// # Panics
    /// When `max` is less than a record may have.
    pub fn next_batch(&self, max: usize, out: &mut Vec<Item>) -> Result<u64> {
        assert!(max >= RECORD_BLOCKS_MAX, "a batch has room for a record");
        self.shared.ring.borrow_mut().hand_out(max, out, &self.shared.store)
    }

    /// Waits until [`next_batch`](Self::next_batch) has something. One task at a time.
    pub async fn wait_for_work(&self) {
        while self.pending() == 0 {
            self.shared.work.notified().await;
        }
    }

    /// Waits until more became durable than the append said that brought it, an append waits for
    /// room, or the log takes no more or fails: then destage should look, and nobody else may tell it.
    /// One task at a time.
    pub async fn wait_for_more(&self) {
        self.shared.more.notified().await;
    }

    /// Whether nothing is in the log that was not trimmed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.ring.borrow().used() == 0
    }

    /// Blocks, and stretches of holes and references, that can be looked up.
    #[must_use]
    pub fn indexed(&self) -> usize {
        self.shared.ring.borrow().indexed()
    }

    /// Appends that wait for room.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.waiting.get()
    }

    /// Records destage was not given yet.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.shared.ring.borrow().pending()
    }

    /// Whether an append waits for room: then destage should not wait for fuller stripes.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.shared.full.get() > 0
    }

    /// Drops the records up to `through`, which destage was given and has made durable elsewhere.
    /// Remembers that stripes up to `durable_stripe` are.
    ///
    /// # Errors
    /// `Failed` when no device takes the control block: then nothing was dropped.
    ///
    /// # Panics
    /// When destage was not given all of those records.
    pub async fn trim(&self, through: u64, durable_stripe: u64) -> Result<()> {
        self.shared.trim(through, durable_stripe).await
    }

    /// The share of the ring in use, in parts of 1024.
    #[must_use]
    pub fn fill(&self) -> u64 {
        self.shared.ring.borrow().fill()
    }

    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// What is reserved of this view from now on is of this version: known to the log's user, who tells of it again
    /// when the log was opened.
    pub fn set_version(&self, view: View, version: Version) {
        self.shared.ring.borrow_mut().versions.set(view, version);
    }

    /// The record before which the log, as it was opened, had all that this view has up to a version; 0 where it had
    /// nothing of that.
    #[must_use]
    pub fn opened_before(&self, view: View, version: Version) -> u64 {
        self.shared.ring.borrow().recovered_before(view, version)
    }

    /// Lets nothing be reserved until it [is resumed](Self::resume). What was reserved goes on.
    pub fn pause(&self) {
        self.shared.paused.set(true);
    }

    /// Ends a [pause](Self::pause).
    pub fn resume(&self) {
        self.shared.paused.set(false);
        self.shared.resumed.notify();
    }

    /// Waits until all that was reserved so far is committed, or was given up.
    pub async fn between_records(&self) {
        // Whoever reserved something holds the gate.
        self.shared.gate.acquire(1).await;
        drop(Turn(&self.shared.gate));
    }

    /// From now on appends are answered with `Gone`, those that wait included: once the log is
    /// [empty](Self::is_empty) after this, it stays so. What was appended is handed out and trimmed
    /// as ever.
    pub fn refuse(&self) {
        self.shared.refusing.set(true);
        self.shared.room.notify();
        self.shared.work.notify();
        self.shared.more.notify();
    }

    /// Whether writes are answered with `Full` from now on, those that wait included.
    pub fn refuse_writes(&self, refuse: bool) {
        self.shared.refusing_writes.set(refuse);
        self.shared.room.notify();
        if refuse {
            self.shared.gate.look();
        }
    }

    /// As [`reserve`](Self::reserve), for what was acknowledged already, and space set aside for: it is not slowed down, and
    /// waits for room only.
    ///
    /// # Errors
    /// As there, but `Busy` where there is no room and nothing makes any for now: others are not to wait behind it.
    pub async fn reserve_acknowledged(&self, key: Key, blocks: usize) -> Result<Reserved<'_>> {
        let kind = append::kind_of_write(key, blocks)?;
        self.shared.reserve(kind, Claim::Acknowledged).await
    }

    /// As [`reserve_acknowledged`](Self::reserve_acknowledged), if it need not wait.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn try_reserve_acknowledged(
        &self,
        key: Key,
        blocks: usize,
    ) -> Result<Option<Reserved<'_>>> {
        self.shared.try_reserve(append::kind_of_write(key, blocks)?, Claim::Acknowledged)
    }

    /// Whether who appends is slowed down, for the log fills faster than it is carried to the drives.
    #[must_use]
    pub fn is_slowed(&self) -> bool {
        append::delay(self.shared.ring.borrow().fill()).is_some()
    }

    /// The devices of memory that records go straight to; none where the log is, or is about to be, on drives.
    #[must_use]
    pub fn memory(&self) -> Vec<Arc<Pmem>> {
        self.shared.store.memory()
    }

    /// The sequence after the last record there is to destage. Records that a log had not made durable when it
    /// failed are none: nobody was told of them.
    #[must_use]
    pub fn head(&self) -> u64 {
        let ring = self.shared.ring.borrow();
        if self.has_ended() { ring.settled.sequence } else { ring.head.sequence }
    }

    /// The sequence of the first record that lookups do not find yet.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.shared.ring.borrow().settled.sequence
    }

    /// Whether a device of memory failed, and the labels may call it current: what was stored since cannot be looked up
    /// before it [is settled](Self::settle).
    #[must_use]
    pub fn is_troubled(&self) -> bool {
        self.shared.store.is_troubled() && !self.has_ended()
    }

    /// Whether it failed or was closed: nothing becomes durable in it any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shared.ended.get().is_some()
    }

    /// Whether one of these blocks is of a record that was on its way when the log failed: it may be on a device, and
    /// the next opening finds it then. What was there before is not to be read as if that record were not.
    #[must_use]
    #[inline]
    pub fn is_in_doubt(&self, key: Key, count: u64) -> bool {
        let has_failed = self.shared.ended.get().is_some_and(|why| why != Kind::Gone);
        has_failed && self.shared.is_in_doubt(key, count)
    }

    /// The sequence of the first record that was not trimmed.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.shared.ring.borrow().tail.sequence
    }

    /// Ends the log: what was appended stays, and waits for the next opening.
    pub async fn close(&self) {
        self.shared.end(Kind::Gone);
        while self.shared.commits.is_writing() {
            yield_now().await;
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.end(Kind::Gone);
    }
}

impl Shared {
    fn status(&self) -> Status {
        let ring = self.ring.borrow();
        Status {
            protection: self.store.protection(),
            bytes: ring.control.ring_bytes,
            used: ring.used(),
            handed: ring.handed.sequence - 1,
            pending: ring.pending(),
            waiting: self.waiting.get(),
            indexed: ring.indexed(),
            devices: self.store.devices(),
            failed_devices: self.store.failed(),
            failed_files: self.store.failed_files(),
        }
    }

    /// Stops taking appends, for good.
    fn end(&self, why: Kind) {
        if self.ended.get().is_none() {
            self.ended.set(Some(why));
        }
        self.room.notify();
        self.more.notify();
        self.resumed.notify();
        self.commits.end();
        // Who waits for another device to have it is told, too.
        self.store.owner().members().wake();
    }

    fn is_in_doubt(&self, key: Key, count: u64) -> bool {
        let end = key.block.saturating_add(count);
        let meets = |&(first, blocks): &(Key, u64)| {
            first.view == key.view && first.block < end && key.block < first.block + blocks
        };
        // Nothing is stored any more.
        let noted = self.in_doubt.get_or_init(|| self.ring.borrow().unsettled(&self.store));
        noted.iter().any(meets)
    }

    /// Whether a record of this kind may be stored now.
    fn check_takes(&self, kind: record::Kind, claim: Claim) -> Result<()> {
        let refusing = self.refusing.get().then_some(Kind::Gone);
        if let Some(kind) = self.ended.get().or(refusing) {
            return Err(Error::new(kind, "the commit log takes no more records"));
        }
        let grows = matches!(kind, record::Kind::Write { .. } | record::Kind::Refer { .. });
        if self.refusing_writes.get() && grows && claim == Claim::New {
            return Err(Error::new(Kind::Full, "there is no space behind the commit log"));
        }
        Ok(())
    }

    /// Makes sure a block in the ring is what was written, from the mirror if need be.
    fn repair_block(&self, at: u64, data: Data) -> Result<()> {
        let is_good = |block: &[u8]| (stdx::crc32c(block) == data.crc).then_some(());
        let found = self.store.find(at, BLOCK, is_good)?;
        found.ok_or_else(|| {
            let context = format!("a block of the commit log at {} is damaged", data.position);
            Error::new(Kind::Corrupt, context)
        })
    }
}

/// Gives a place of a semaphore back.
struct Turn<'a>(&'a Semaphore);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

#[cfg(test)]
mod tests;
