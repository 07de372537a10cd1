//! A ring as its host has it, at the other end of a connection.
//!
//! A record is staged in registered memory, and goes by writes that the card carries out in the order in which they are
//! posted; a read behind them tells that they have arrived, and brings what the state page says since. So one turn
//! through the network is what a write takes; two where it is durable only when it was flushed: the data is before the header
//! is written.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reactor::now_exact;
use stdx::num::{u32_of, u64_of};
use verbs::{Answer, Completion, Dial, Domain, Endpoint, Memory, Place, Reach, Remote, Sizes};
use window::dial::{Ask, COPIES_MAX, Give, KeyedCopy};
use window::page::{CREDIT_AT, PHASE_AT, TAKEN_AT};
use window::record::HEADER;
use window::{DATA_BYTES_MAX, Phase, Token};

use super::super::dial::{self, Way};
use super::super::hear::Used;
use crate::limits::{RING_LOOK, RING_PATIENCE, RING_SPIN};

/// Where in the staging memory a record's header, padding's, its data, and what is read of the state pages lie.
const HEADER_AT: usize = 0;
const PAD_AT: usize = HEADER;
const DATA_AT: usize = 2 * HEADER;
const WORDS_AT: usize = DATA_AT + DATA_BYTES_MAX;
const STAGING: usize = (WORDS_AT + COPIES_MAX * LINE).next_multiple_of(4096);

/// Work requests under way: of each copy padding, data, header and a look, and a flush of each of the first three; and a bell
/// before them.
const SENDS: u32 = 7 * u32_of(COPIES_MAX) + 8;

const REFUSED: &str =
    "the target has no such ring, or cannot have its memory be reached: it says why";

const CANNOT_FLUSH: &str =
    "the ring is on persistent memory, and this network card has no RDMA FLUSH";

const READS_WRONG: &str = "the target's network card, or its driver, reads other bytes of persistent memory than it is asked for";

/// Reads under way at once.
const READS: u8 = 4;

/// Words of a state page that change: phase, taken, credit.
const WORDS: usize = 3;
const WORD: usize = size_of::<u64>();
const _: () = assert!(TAKEN_AT == PHASE_AT + 8 && CREDIT_AT == PHASE_AT + 16);

/// Bytes between what is read of one page and of the next.
const LINE: usize = 64;

/// Where the second half of what is read of one lies.
const HALF: u64 = 32;
const _: () = assert!(LINE == 64);

/// Numbers of work requests.
const READ_ID: u64 = 1 << 32;
const BELL_ID: u64 = 1 << 33;
const FLUSH_ID: u64 = 1 << 34;
const WRITE_ID: u64 = 0;

/// What a state page said when it was read last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    pub phase: u64,
    pub taken: u64,
    pub credit: u64,
}

/// A ring that is written by RDMA.
pub struct RemoteRing {
    endpoint: Endpoint,
    /// What the endpoint sends from.
    staging: Arc<Memory>,
    copies: Vec<KeyedCopy>,
    ring_bytes: u64,
    /// As read last, of each copy.
    words: Vec<Words>,
    /// What was written and not flushed: where in the ring, and how much. The same in all copies.
    unflushed: Vec<(u64, usize)>,
    ended: Vec<Completion>,
    /// The connection is over: nothing is known of what was posted last.
    failed: bool,
    _used: Used,
}

impl core::fmt::Debug for RemoteRing {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("RemoteRing").field("words", &self.words).finish_non_exhaustive()
    }
}

/// Which ring.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// What shows that the window was granted.
    pub token: Token,
    /// Of the window's rings.
    pub ring: usize,
    pub ring_bytes: u64,
}

/// Whether this end can have what it wrote be flushed, on the way to a controller there.
///
/// # Errors
/// When that cannot be told now.
pub async fn can_flush(address: SocketAddr) -> io::Result<bool> {
    let Way { dial, .. } = Way::to(address, RING_PATIENCE).await?;
    reactor::blocking(move || made_for(dial).map(|(made, _)| made.can_flush())).await
}

/// An end of a connection for a ring, and what it sends from.
fn made_for(dial: Dial) -> io::Result<(Endpoint, Arc<Memory>)> {
    let local = dial.local().ok_or(io::ErrorKind::NotConnected)?;
    let domain = Arc::new(Domain::open(local.ip())?);
    let staging = Arc::new(Memory::register(&domain, STAGING, Reach::Ours)?);
    let sizes = Sizes { sends: SENDS, receives: 1, memory: LINE };
    Ok((Endpoint::to_connect(dial, &domain, &staging, sizes, READS, true)?, staging))
}

/// Says whether a look that has taken so long may take longer.
pub type MayWait<'a> = &'a dyn Fn(Duration) -> bool;

impl RemoteRing {
    /// Asks for a ring where a controller is. With it comes what waits until the connection has ended, with nobody writing,
    /// or the ring is dropped: the target ends it soon after the window.
    ///
    /// # Errors
    /// What there is no RDMA for; `ConnectionRefused`, and others of the connection manager's.
    pub async fn dial(
        address: SocketAddr,
        wanted: Wanted,
    ) -> io::Result<(Self, impl Future<Output = ()> + 'static)> {
        let Wanted { token, ring, ring_bytes } = wanted;
        let Way { dial, events } = Way::to(address, RING_PATIENCE).await?;
        let ready = reactor::blocking(move || {
            let (endpoint, staging) = made_for(dial)?;
            endpoint.connect(&Ask { token, ring }.encode())?;
            Ok((endpoint, staging))
        });
        let (endpoint, staging) = ready.await?;
        let private = match dial::answer(&endpoint, &events).await? {
            Answer::Taken(private) => private,
            Answer::Refused(_) => return Err(io::Error::new(io::ErrorKind::ResourceBusy, REFUSED)),
            other => return Err(dial::failure(&other)),
        };
        let give = Give::decode(&private).filter(|give| give.ring == ring);
        let wrong =
            || io::Error::new(io::ErrorKind::InvalidData, "no ring of a direct write window");
        let copies = give.ok_or_else(wrong)?.copies;
        if copies.iter().any(|copy| copy.flushed) && !endpoint.can_flush() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, CANNOT_FLUSH));
        }
        let words = vec![Words::default(); copies.len()];
        let (ended, failed, used) = (Vec::new(), false, Used::default());
        // There is nothing else to be told.
        let over = used.until_over(events);
        let unflushed = Vec::new();
        let ring = Self {
            endpoint,
            staging,
            copies,
            ring_bytes,
            words,
            unflushed,
            ended,
            failed,
            _used: used,
        };
        Ok((ring, over))
    }

    /// How many copies it has, which mirror each other.
    #[must_use]
    pub const fn copies(&self) -> usize {
        self.copies.len()
    }

    /// What a copy's state page said when it was [looked](Self::look) at last; none when the connection is over.
    #[must_use]
    pub fn words(&self, copy: usize) -> Option<Words> {
        self.words.get(copy).copied().filter(|_| !self.failed)
    }

    /// Stages a piece of a record's data, `at` bytes behind its beginning.
    ///
    /// # Panics
    /// When it is longer than records can be.
    pub fn stage(&self, at: usize, piece: &[u8]) {
        assert!(at + piece.len() <= DATA_BYTES_MAX, "longer than a record's data");
        self.staging.copy_in(DATA_AT + at, piece);
    }

    /// Has what is staged be written behind the header of a record at this offset of the ring, and a header of padding
    /// where there is to be one, in all copies; false when the connection is over.
    pub fn write_data(&mut self, at: u64, length: usize, pad: Option<(u64, [u8; HEADER])>) -> bool {
        for copy in 0..self.copies.len() {
            if let Some((at, header)) = pad {
                self.staging.copy_in(PAD_AT, &header);
                self.write(copy, at, Place { offset: PAD_AT, length: HEADER });
            }
            self.write(copy, at + u64_of(HEADER), Place { offset: DATA_AT, length });
        }
        !self.failed
    }

    /// Has a header be written in a copy, behind the data that was; false when the connection is over.
    pub fn write_header(&mut self, copy: usize, at: u64, header: &[u8; HEADER]) -> bool {
        // The same for all copies.
        self.staging.copy_in(HEADER_AT, header);
        self.write(copy, at, Place { offset: HEADER_AT, length: HEADER });
        !self.failed
    }

    fn write(&mut self, copy: usize, at: u64, from: Place) {
        let fits = at + u64_of(from.length) <= self.ring_bytes;
        assert!(fits, "a record goes over its ring's end");
        if !self.unflushed.contains(&(at, from.length)) {
            self.unflushed.push((at, from.length));
        }
        let ring = self.copies[copy].ring;
        let to = Remote { address: ring.address.wrapping_add(at), key: ring.key };
        self.failed = self.failed || self.endpoint.post_write(WRITE_ID, from, to).is_err();
    }

    /// Has what was written be durable before what is written next, where it has to be flushed for that; false when the
    /// connection is over.
    pub fn fence(&mut self, may_wait: MayWait<'_>) -> bool {
        let flushing = self.flush();
        self.await_ends(flushing, may_wait);
        !self.failed
    }

    /// Has what was written be flushed, in the copies that need it; how many ends there are to wait for.
    fn flush(&mut self) -> usize {
        let mut flushing = 0;
        for copy in self.copies.iter().filter(|copy| copy.flushed) {
            for (at, length) in &self.unflushed {
                let address = copy.ring.address.wrapping_add(*at);
                let of = Remote { address, key: copy.ring.key };
                self.failed =
                    self.failed || self.endpoint.post_flush(FLUSH_ID, of, *length).is_err();
                flushing += 1;
            }
        }
        self.unflushed.clear();
        flushing
    }

    /// Has all that was written be durable, and reads the words of all copies' state pages behind it, and waits for both; false when
    /// the connection is over.
    pub fn look(&mut self, may_wait: MayWait<'_>) -> bool {
        let flushing = self.flush();
        let ended = |words: &Words| words.phase == Phase::Ended.word();
        let had_ended = self.words.iter().all(ended);
        self.read_words(flushing, may_wait);
        // The words may have been read in any order: what was taken last is read behind the phase that says so.
        if !had_ended && self.words.iter().any(ended) {
            self.read_words(0, may_wait);
        }
        !self.failed
    }

    /// Waits for so many flushes, too.
    fn read_words(&mut self, flushing: usize, may_wait: MayWait<'_>) {
        let words = (PHASE_AT, WORDS * WORD);
        if self.read(|copy| copy.state, words, flushing, may_wait) {
            for copy in 0..self.copies.len() {
                let mut bytes = [0; WORDS * WORD];
                self.staging.copy_out(WORDS_AT + copy * LINE, &mut bytes);
                let word = |at: usize| {
                    let bytes = bytes.get(at * WORD..(at + 1) * WORD);
                    bytes.and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
                };
                self.words[copy] = Words { phase: word(0), taken: word(1), credit: word(2) };
            }
        }
    }

    /// The beginning of each copy's state page: what it is.
    ///
    /// # Errors
    /// The connection is over; `Unsupported` where the target's card does not read what it is asked for.
    pub fn identities(&mut self, may_wait: MayWait<'_>) -> io::Result<Vec<[u8; LINE]>> {
        if !self.read(|copy| copy.state, (0, LINE), 0, may_wait) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let lines: Vec<_> = (0..self.copies.len()).map(|copy| self.line(copy)).collect();
        // Soft RoCE of Linux 6.15 to 7.3 at least, with memory of which no page is locked, takes the beginning of a page for all
        // that is in it: nothing by such a card is what it says, nor goes where it should.
        if !self.read(|copy| copy.state, (HALF, LINE / 2), 0, may_wait) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let is_half =
            |(copy, line): (usize, &[u8; LINE])| self.line(copy)[..LINE / 2] == line[LINE / 2..];
        match lines.iter().enumerate().all(is_half) {
            true => Ok(lines),
            false => Err(io::Error::new(io::ErrorKind::Unsupported, READS_WRONG)),
        }
    }

    /// What was read of a copy's state page last.
    fn line(&self, copy: usize) -> [u8; LINE] {
        let mut bytes = [0; LINE];
        self.staging.copy_out(WORDS_AT + copy * LINE, &mut bytes);
        bytes
    }

    /// Rings the target, which takes what is there.
    pub fn ring_bell(&mut self) {
        // What it says does not matter: no message at all is something else to some cards.
        let nothing = Place { offset: 0, length: LINE };
        self.failed = self.failed || self.endpoint.post_send(BELL_ID, nothing, None).is_err();
    }

    /// Reads so many bytes from there in each copy, and waits for them, and for so many flushes before them.
    fn read(
        &mut self,
        of: impl Fn(&KeyedCopy) -> window::dial::Keyed,
        (at, length): (u64, usize),
        flushing: usize,
        may_wait: MayWait<'_>,
    ) -> bool {
        for copy in 0..self.copies.len() {
            let from = of(&self.copies[copy]);
            let from = Remote { address: from.address.wrapping_add(at), key: from.key };
            let place = Place { offset: WORDS_AT + copy * LINE, length };
            self.failed = self.failed || self.endpoint.post_read(READ_ID, place, from).is_err();
        }
        self.await_ends(flushing + self.copies.len(), may_wait);
        !self.failed
    }

    /// Waits until so many reads and flushes have ended, and all that was posted before them with them.
    fn await_ends(&mut self, mut under_way: usize, may_wait: MayWait<'_>) {
        let begun = now_exact();
        while under_way > 0 && !self.failed {
            self.failed |= self.endpoint.poll(&mut self.ended).is_err();
            for completion in self.ended.drain(..) {
                self.failed |= completion.outcome.is_err();
                let counts = [READ_ID, FLUSH_ID].contains(&completion.id);
                under_way -= usize::from(counts && !self.failed);
            }
            let waited = Duration::from_nanos(now_exact() - begun);
            if under_way == 0 {
                break;
            }
            if waited < RING_SPIN {
                std::hint::spin_loop();
            } else if may_wait(waited) {
                // It may return early.
                std::thread::park_timeout(RING_LOOK);
            } else {
                self.failed = true;
            }
        }
        if self.failed {
            // The card sends nothing of it again.
            self.endpoint.disconnect();
        }
    }
}
