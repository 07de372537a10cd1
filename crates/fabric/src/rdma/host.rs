//! The host's end of one NVMe/RDMA connection.
//!
//! A capsule is copied to its command's place in registered memory, and sent from there. Data beside it is named by a
//! keyed descriptor of a place in memory that the controller reads and writes, from which it is copied when the response
//! is here. A command for whose data there is no place waits, and those behind it: places are free again with the
//! responses of others, and the largest command fits when all are. Above this nobody knows of keys.

mod commands;
mod layout;
mod link;
mod open;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use nvme::cqe::Cqe;
use nvme::rdma::Keyed;
use nvme::sqe::Sqe;
use reactor::event::Descriptor;
use stdx::num::u32_of;
use verbs::Completion;
use zerocopy::IntoBytes;

use self::commands::{Commands, Next, Unsent};
use self::link::Link;
use super::staging::{Place, Staging};
use crate::TransportAddress;
use crate::capsule::{Event, Flushed, Memory, Placed};
use crate::error::Error;
use crate::limits::SEND_BUDGET_BYTES;
use crate::options::Options;

/// A connection over RDMA, seen from the host.
pub struct Connection {
    link: Rc<Link>,
    /// What the controller reads and writes.
    shared: Arc<verbs::Memory>,
    /// The response that was told last.
    told: Cqe,
    ended: Vec<Completion>,
    /// Capsules that the card was given.
    sends: u64,
}

impl Connection {
    /// Connects to `addr`.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn open(addr: SocketAddr, options: &Options) -> Result<Self, Error> {
        let after = options.timeout;
        match reactor::timeout(after, open::open(addr, options)).await {
            Ok(opened) => Self::new(opened?, options.commands),
            Err(reactor::Elapsed) => {
                Err(Error::Silent { address: TransportAddress::Rdma(addr), after })
            }
        }
    }

    fn new(opened: open::Opened, commands: u16) -> Result<Self, Error> {
        let open::Opened { endpoint, events, layout, most } = opened;
        let completions = Descriptor::of(endpoint.completions_fd())?;
        let shared = Arc::clone(endpoint.shared());
        let staging = Staging::new(shared.len());
        let link = Link::new(endpoint, layout, Commands::new(commands, most), staging);
        reactor::spawn(link::drive(Rc::clone(&link), completions));
        reactor::spawn(link::listen(Rc::clone(&link), events));
        Ok(Self { link, shared, told: Cqe::default(), ended: Vec::new(), sends: 0 })
    }

    /// Queues a command capsule, with the command's data in it where `in_capsule` is all of that.
    ///
    /// # Panics
    /// When the command identifier is in use.
    #[inline]
    pub fn push_capsule<M: Memory + ?Sized>(&mut self, sqe: &Sqe, memory: &M, in_capsule: u32) {
        if let Some(piece) = self.link.commands.borrow_mut().push(sqe, in_capsule) {
            memory.hold(&piece);
        }
    }

    /// Gives the card what is queued, as far as there are places for its data and up to a turn's share.
    ///
    /// # Errors
    /// Why the connection ended.
    pub fn flush<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<Flushed, Error> {
        let mut moved = 0;
        loop {
            if self.link.commands.borrow().is_flushed() {
                return Ok(Flushed::All);
            }
            if let Some(why) = self.link.ended() {
                return Err(why);
            }
            if moved >= SEND_BUDGET_BYTES {
                return Ok(Flushed::Shared);
            }
            let Some(bytes) = self.send_first(memory) else { return Ok(Flushed::Blocked) };
            moved += bytes;
        }
    }

    /// Gives the card the first command in line; how many bytes of data that moved. `None` when it has to wait.
    fn send_first<M: Memory + ?Sized>(&mut self, memory: &M) -> Option<usize> {
        let link = &*self.link;
        let mut commands = link.commands.borrow_mut();
        let unsent = commands.front()?;
        let place = match unsent.staged() {
            0 => None,
            length => Some(link.staging.try_take(length)?),
        };
        let cid = unsent.cid();
        let piece = unsent.to_send();
        let data = piece.map_or(&[][..], |piece| memory.bytes(&piece));
        let length = data.len();
        if let Some(place) = &place
            && !data.is_empty()
        {
            self.shared.copy_in(place.at().offset, data);
        }
        let in_capsule = if place.is_none() { data } else { &[] };
        let capsule = link.layout.capsule(cid, u32_of(in_capsule.len()));
        let entry = self.entry(unsent, place.as_ref());
        let posted = link.with(|endpoint| {
            endpoint.own().copy_in(capsule.offset, entry.as_bytes());
            endpoint.own().copy_in(capsule.offset + size_of::<Sqe>(), in_capsule);
            Ok(())
        });
        let posted = posted.and_then(|()| link.send(cid, u32_of(in_capsule.len())));
        commands.start(place);
        drop(commands);
        self.sends += 1;
        if let Some(piece) = piece {
            memory.release(&piece);
        }
        if let Err(error) = posted {
            self.link.fail(error.to_string());
        }
        Some(length)
    }

    /// The entry as the controller gets it: data beside the capsule is where it is, with the key that it takes.
    fn entry(&self, unsent: &Unsent, place: Option<&Place>) -> Sqe {
        let mut sqe = unsent.sqe;
        let (address, length, key) = match place {
            Some(place) => {
                let remote = self.shared.remote(place.at());
                (remote.address, u32_of(place.at().length), remote.key)
            }
            None if unsent.to_send().is_some() => return sqe,
            None => (0, 0, 0),
        };
        sqe.dptr = Keyed { address, length, key, invalidate: false }.sgl();
        sqe
    }

    /// The next event in what has been received; `None` when more has to be received first.
    ///
    /// # Errors
    /// None: what breaks the protocol ends the connection.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        let next = self.link.commands.borrow_mut().next();
        Ok(match next {
            None => None,
            Some(Next::Data { cid, place }) => {
                Some(Event::Placed { cid, data: Placed { memory: &self.shared, place } })
            }
            Some(Next::DataEnd { cid }) => {
                Some(Event::DataEnd { cid, success: false, complete: true, digest_ok: true })
            }
            Some(Next::Response(cqe)) => {
                self.link.room.notify();
                self.told = cqe;
                Some(Event::Response { cqe: &self.told })
            }
        })
    }

    /// Sends what is queued, and waits until something has been received.
    ///
    /// # Errors
    /// Why the connection ended.
    pub async fn ready<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), Error> {
        while self.flush(memory)? == Flushed::Shared {
            reactor::yield_now().await;
        }
        // What has to wait waits for what comes.
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// Sends all that is queued; what has to wait for the response of others stays, once there is one.
    ///
    /// # Errors
    /// Why the connection ended.
    pub async fn send_all<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), Error> {
        loop {
            match self.flush(memory)? {
                Flushed::All => return Ok(()),
                Flushed::Blocked => return poll_fn(|cx| self.poll_receive(cx)).await,
                Flushed::Shared => reactor::yield_now().await,
            }
        }
    }

    /// Whether nothing is left to send.
    #[must_use]
    #[inline]
    pub fn is_flushed(&self) -> bool {
        self.link.commands.borrow().is_flushed()
    }

    /// Waits until places may have become free. Borrows nothing.
    pub fn writable(&self) -> impl Future<Output = Result<(), Error>> + 'static {
        let link = Rc::clone(&self.link);
        async move {
            link.room.wait().await;
            Ok(())
        }
    }

    /// Ready when there is something that [`Connection::next_event`] tells.
    ///
    /// # Errors
    /// Why the connection ended.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.link.commands.borrow().has_done() {
            return Poll::Ready(Ok(()));
        }
        if let Some(why) = self.link.ended() {
            return Poll::Ready(Err(why));
        }
        self.link.listen(cx.waker());
        Poll::Pending
    }

    /// Looks at the card itself, beside a task that waits in [`Connection::poll_receive`]; whether there was anything.
    ///
    /// # Errors
    /// Why the connection ended.
    pub fn look(&mut self) -> Result<bool, Error> {
        if self.link.ended().is_none() {
            self.link.reap(&mut self.ended);
        }
        match self.link.commands.borrow().has_done() {
            true => Ok(true),
            false => self.link.ended().map_or(Ok(false), Err),
        }
    }

    /// Capsules that the card was given.
    #[must_use]
    pub fn sends(&self) -> u64 {
        self.sends
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.link.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{RdmaOptions, TcpOptions};
    use core::time::Duration;

    /// Whatever a machine lacks: the libraries, a device, or somebody who listens there.
    #[test]
    fn where_there_is_no_rdma_that_is_an_error_of_the_connection() {
        let options = Options {
            commands: 32,
            timeout: Duration::from_secs(10),
            tcp: TcpOptions::default(),
            rdma: RdmaOptions::default(),
        };
        let address = "127.0.0.1:1".parse().unwrap();
        let opened = async move { Connection::open(address, &options).await.err() };
        let error = reactor::run(reactor::Config::default(), opened).unwrap();
        assert!(matches!(error, Some(Error::Connect { .. } | Error::Silent { .. })), "{error:?}");
    }
}
