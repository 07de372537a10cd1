//! What a drive is asked while it is in use: how it is, and how much of the namespace is allocated.
//!
//! Nothing of a host's command goes to the drive but that it was asked: pages are read whole, from their start, and
//! with Retain Asynchronous Event, as the events are those of whoever has the drive, the kernel first of all.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nvme::identify::{Cns, IdentifyNamespace, NSID_ALL};
use nvme::limits::IDENTIFY_BYTES;
use nvme::log::{GetLogPage, Smart, lid};
use nvme::opcode::admin;
use nvme::status::Status;
use reactor::Nanos;
use reactor::passthrough::{Command, Completion};
use stdx::num::u64_of;
use zerocopy::FromBytes;

use super::link::Link;
use super::{Answer, Described, Failure, Outcome, Passthrough, Span, outcome};
use crate::error::{Error, Kind, Operation};
use crate::limits::{HEALTH_EVERY, HEALTH_LOOK, HEALTH_PATIENCE, USED_EVERY, USED_PATIENCE};

/// Bytes of SMART / Health Information.
const HEALTH_BYTES: usize = size_of::<Smart>();

/// What the drive said last of how it is.
#[derive(Debug, Default)]
pub(super) struct Health {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    /// When it was asked last.
    asked: Option<Nanos>,
    told: Option<Told>,
}

/// An answer, to be given again.
#[derive(Clone, Debug)]
enum Told {
    Page(Vec<u8>),
    Drive(Status),
    Media(Kind),
}

/// What becomes of who wants to know how the drive is.
enum Next {
    /// It is to be asked.
    Ask,
    /// It was asked just now.
    Told(Told),
    /// Likewise, and nothing was heard yet.
    Wait,
}

impl Health {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, now: Nanos) -> Next {
        let mut book = self.book();
        let is_late =
            |asked: Nanos| u128::from(now.saturating_sub(asked)) >= HEALTH_EVERY.as_nanos();
        if book.asked.is_none_or(is_late) {
            book.asked = Some(now);
            // Of a drive that hangs since, an answer of hours ago says nothing.
            book.told = None;
            return Next::Ask;
        }
        book.told.clone().map_or(Next::Wait, Next::Told)
    }

    fn learn(&self, answer: &Answer<Vec<u8>>) {
        self.book().told = Some(match answer {
            Ok(page) => Told::Page(page.clone()),
            Err(Failure::Drive(status)) => Told::Drive(*status),
            Err(Failure::Media(error)) => Told::Media(error.kind),
        });
    }
}

/// What an operation is called that asks for a page.
const fn page_of(bytes: usize) -> Span {
    Span { operation: Operation::Read, offset: 0, len: bytes as u64 }
}

/// Get Log Page of SMART / Health Information, and the namespace that it names: its own where the drive tells
/// namespaces apart, else all of the drive's.
fn health_command(link: &Link, described: &Described) -> (Command, u32) {
    let nsid = if described.has_health_of_namespaces() { link.nsid() } else { NSID_ALL };
    let page = GetLogPage::new(lid::SMART, nsid, u64_of(HEALTH_BYTES));
    let sqe = GetLogPage { retain_event: true, ..page }.to_sqe(0);
    let cdw10 = [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, 0.into()];
    (Command { opcode: sqe.opcode, cdw10: cdw10.map(u32::from), ..Command::default() }, nsid)
}

/// Identify of `cns`, of the NVM Command Set.
pub(super) fn identify_command(cns: Cns) -> Command {
    let cdw10 = [u32::from(cns.raw()), 0, 0, 0, 0, 0];
    Command { opcode: admin::IDENTIFY, cdw10, ..Command::default() }
}

/// Why the drive cannot be asked how it is, if it refuses that, or the kernel does. What passes is no reason. Blocks: for
/// set-up.
pub(super) fn silence(link: &Link, described: &Described) -> Option<Error> {
    let (command, nsid) = health_command(link, described);
    let source = match link.ask_now(&command, nsid, HEALTH_BYTES) {
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied => source,
        Ok(Err(completion)) => match outcome(completion) {
            Outcome::Drive(status) => {
                let words = format!("the drive answers {status}");
                io::Error::new(io::ErrorKind::Unsupported, words)
            }
            Outcome::Success | Outcome::Kernel => return None,
        },
        Ok(Ok(_)) | Err(_) => return None,
    };
    Some(Error::from_io(source, Operation::Open, 0, 0))
}

impl Passthrough {
    /// Why the drive cannot be asked how it is, as found when it was opened: as a rule a right that this process lacks
    /// (`CAP_SYS_ADMIN`). `None` where it can.
    #[must_use]
    pub const fn silence(&self) -> Option<&Error> {
        self.silence.as_ref()
    }

    /// As [`silence`](Self::silence), for the first who asks, who tells of it.
    pub fn tell_silence(&self) -> Option<&Error> {
        let silence = self.silence.as_ref()?;
        (!self.silence_told.swap(true, Ordering::Relaxed)).then_some(silence)
    }

    /// Bytes that were allocated when the drive was asked last (NUSE).
    #[must_use]
    pub fn used(&self) -> u64 {
        let blocks = self.used.load(Ordering::Relaxed);
        blocks.min(self.described.namespace.nsze.get()) * u64::from(self.block_size())
    }

    /// SMART / Health Information as the drive tells it now, or told a moment ago: whoever asks, it is asked once a second.
    ///
    /// # Errors
    /// As [`read`](Self::read); `Timeout` for a drive that does not answer soon.
    pub async fn health(&self) -> Answer<Vec<u8>> {
        let span = page_of(HEALTH_BYTES);
        let wait = async {
            loop {
                match self.health.next(reactor::now()) {
                    Next::Ask => return None,
                    Next::Told(told) => return Some(told),
                    Next::Wait => reactor::sleep(HEALTH_LOOK).await,
                }
            }
        };
        let told = match reactor::timeout(HEALTH_PATIENCE, wait).await {
            _ if self.is_gone() => return Err(span.error(Kind::Gone).into()),
            Ok(told) => told,
            Err(reactor::Elapsed) => return Err(span.error(Kind::Timeout).into()),
        };
        match told {
            Some(Told::Page(page)) => Ok(page),
            Some(Told::Drive(status)) => Err(Failure::Drive(status)),
            Some(Told::Media(kind)) => Err(span.error(kind).into()),
            None => {
                let (command, nsid) = health_command(&self.link, &self.described);
                let answer = self.ask(&command, nsid, HEALTH_BYTES, HEALTH_PATIENCE).await;
                self.health.learn(&answer);
                answer
            }
        }
    }

    /// Whether it is a while ago that the drive was asked how much is allocated.
    #[must_use]
    pub fn is_used_stale(&self) -> bool {
        let asked = self.used_asked.load(Ordering::Relaxed);
        u128::from(reactor::now().saturating_sub(asked)) >= USED_EVERY.as_nanos()
    }

    /// Asks the drive how much is allocated, unless it was asked just now; what is not answered soon stays as it was. A
    /// drive that has been formatted otherwise meanwhile is given up: what it had is gone, and blocks are not where
    /// they were.
    pub async fn refresh_used(&self) {
        if !self.is_used_stale() || self.is_gone() {
            return;
        }
        self.used_asked.store(reactor::now(), Ordering::Relaxed);
        let command = identify_command(Cns::Namespace);
        let asked = self.ask(&command, self.link.nsid(), IDENTIFY_BYTES, USED_PATIENCE).await;
        let Ok(page) = asked else { return };
        let Ok(now) = IdentifyNamespace::read_from_bytes(&page) else { return };
        let has_metadata = now.format().is_some_and(|format| format.ms.get() != 0);
        // One that was deleted meanwhile has zeroes: the kernel has more to say of that.
        match now.block_bytes() {
            Some(block) if block == self.block_size() && !has_metadata => {
                self.used.store(now.nuse.get(), Ordering::Relaxed);
            }
            Some(_) if now.nsze.get() > 0 => self.give_up(),
            _ => {}
        }
    }

    async fn ask(
        &self,
        command: &Command,
        nsid: u32,
        bytes: usize,
        within: Duration,
    ) -> Answer<Vec<u8>> {
        let span = page_of(bytes);
        if self.is_gone() {
            return Err(span.error(Kind::Gone).into());
        }
        match self.link.ask(command, nsid, bytes, within).await {
            Ok(Ok(page)) => Ok(page),
            Ok(Err(completion)) => Err(refused(completion, span)),
            Err(source) => Err(self.failed(source, span).into()),
        }
    }
}

/// What a completion that is none of success means.
fn refused(completion: Completion, span: Span) -> Failure {
    match outcome(completion) {
        Outcome::Drive(status) => Failure::Drive(status),
        Outcome::Success | Outcome::Kernel => span.error(Kind::Passing).into(),
    }
}
