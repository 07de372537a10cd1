//! A connection of the simulated network, and what is under way on it.

use super::Cut;
use crate::time::Nanos;
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::task::Waker;

/// Something on its way to an end.
enum Piece {
    Bytes {
        arrives: Nanos,
        bytes: VecDeque<u8>,
    },
    /// The other end sends nothing any more.
    Fin {
        arrives: Nanos,
    },
}

impl Piece {
    const fn arrives(&self) -> Nanos {
        match self {
            Self::Bytes { arrives, .. } | Self::Fin { arrives } => *arrives,
        }
    }
}

/// One end of a connection.
pub(super) struct End {
    addr: SocketAddr,
    /// On its way here, in order, and how many bytes of that there are.
    inbound: VecDeque<Piece>,
    unread: usize,
    /// Room in its buffers.
    pub send_room: usize,
    pub receive_room: usize,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// It sends nothing any more.
    shut: bool,
    /// It receives nothing any more.
    deaf: bool,
    /// Nobody has it any more.
    closed: bool,
    /// When it hears that the connection is gone, and of what.
    broken: Option<(Nanos, io::ErrorKind)>,
    /// Some that was sent was lost with that: nothing comes that is behind it.
    misses: bool,
    /// After how long without an answer it gives the connection up.
    patience: Option<Nanos>,
}

impl End {
    pub const fn new(addr: SocketAddr, send_room: usize, receive_room: usize) -> Self {
        Self {
            addr,
            inbound: VecDeque::new(),
            unread: 0,
            send_room,
            receive_room,
            reader: None,
            writer: None,
            shut: false,
            deaf: false,
            closed: false,
            broken: None,
            misses: false,
            patience: None,
        }
    }

    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    /// What it has heard of by `now`.
    fn failure(&self, now: Nanos) -> io::Result<()> {
        match self.broken {
            Some((at, kind)) if at <= now => Err(kind.into()),
            _ => Ok(()),
        }
    }

    /// The connection is gone at `at`: what would come later does not.
    fn break_at(&mut self, at: Nanos, kind: io::ErrorKind) {
        if self.broken.is_some_and(|(before, _)| before <= at) {
            return;
        }
        self.broken = Some((at, kind));
        while self.inbound.back().is_some_and(|piece| piece.arrives() > at) {
            self.misses = true;
            if let Some(Piece::Bytes { bytes, .. }) = self.inbound.pop_back() {
                self.unread -= bytes.len();
            }
        }
        self.wake();
    }
}

pub(super) struct Link {
    /// Who connected, and who accepted.
    ends: [End; 2],
    /// Since when nothing comes any more.
    silent: Option<Nanos>,
}

impl Link {
    pub const fn new(ends: [End; 2]) -> Self {
        Self { ends, silent: None }
    }

    pub const fn address(&self, side: usize) -> SocketAddr {
        self.ends[side].addr
    }

    pub const fn machines(&self) -> [IpAddr; 2] {
        [self.ends[0].addr.ip(), self.ends[1].addr.ip()]
    }

    pub const fn end(&mut self, side: usize) -> &mut End {
        &mut self.ends[side]
    }

    pub fn is_whole(&self) -> bool {
        self.silent.is_none() && self.ends.iter().all(|end| !end.closed && end.broken.is_none())
    }

    /// Nobody has either end.
    pub fn is_over(&self) -> bool {
        self.ends.iter().all(|end| end.closed)
    }

    /// How many bytes an end can send now.
    ///
    /// # Errors
    /// What it has heard of the connection; `BrokenPipe` when it has said that it sends nothing any more.
    pub fn room(&self, side: usize, now: Nanos) -> io::Result<usize> {
        let (from, to) = (&self.ends[side], &self.ends[1 - side]);
        from.failure(now)?;
        if from.shut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok((from.send_room + to.receive_room).saturating_sub(to.unread))
    }

    /// Sends a piece that arrives then, or after what was sent before.
    pub fn send(&mut self, side: usize, bytes: VecDeque<u8>, arrives: Nanos) {
        let to = &mut self.ends[1 - side];
        if to.closed || to.deaf || to.misses {
            return;
        }
        to.unread += bytes.len();
        if self.silent.is_some() {
            // It stays in the sender's buffer.
            return;
        }
        let arrives = arrives.max(to.inbound.back().map_or(0, Piece::arrives));
        if to.broken.is_some_and(|(at, _)| at < arrives) {
            to.misses = true;
            return;
        }
        to.inbound.push_back(Piece::Bytes { arrives, bytes });
        to.reader.take().into_iter().for_each(Waker::wake);
    }

    /// An end says that it sends nothing any more.
    pub fn shut(&mut self, side: usize, arrives: Nanos) {
        if std::mem::replace(&mut self.ends[side].shut, true) || self.silent.is_some() {
            return;
        }
        let to = &mut self.ends[1 - side];
        let arrives = arrives.max(to.inbound.back().map_or(0, Piece::arrives));
        if !to.misses && to.broken.is_none_or(|(at, _)| at >= arrives) {
            to.inbound.push_back(Piece::Fin { arrives });
        }
        to.reader.take().into_iter().for_each(Waker::wake);
    }

    /// An end wants nothing any more: what has come and what comes is nothing but its end.
    pub fn stop_receiving(&mut self, side: usize) {
        let end = &mut self.ends[side];
        end.deaf = true;
        end.inbound.clear();
        end.unread = 0;
        end.wake();
        self.ends[1 - side].wake();
    }

    /// Receives what is there; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock`; what the end has heard of the connection.
    pub fn receive(
        &mut self,
        side: usize,
        bufs: &mut [IoSliceMut<'_>],
        now: Nanos,
        still_until: Nanos,
    ) -> io::Result<usize> {
        let to = &mut self.ends[side];
        if to.deaf {
            return Ok(0);
        }
        let mut received = 0;
        let mut place = bufs.iter_mut().flat_map(|buf| buf.iter_mut()).peekable();
        while still_until <= now && place.peek().is_some() {
            match to.inbound.front_mut() {
                Some(Piece::Bytes { arrives, bytes }) if *arrives <= now => {
                    while place.peek().is_some()
                        && let Some(byte) = bytes.pop_front()
                    {
                        place.next().into_iter().for_each(|to| *to = byte);
                        received += 1;
                    }
                    if bytes.is_empty() {
                        to.inbound.pop_front();
                    }
                }
                Some(Piece::Fin { arrives }) if *arrives <= now && received == 0 => return Ok(0),
                _ => break,
            }
        }
        if received == 0 {
            to.failure(now)?;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        to.unread -= received;
        self.ends[1 - side].writer.take().into_iter().for_each(Waker::wake);
        Ok(received)
    }

    /// When an end that waits finds something, if nobody does anything meanwhile.
    pub fn due(&self, side: usize, still_until: Nanos) -> Option<Nanos> {
        let end = &self.ends[side];
        let next = end.inbound.front().map(|piece| piece.arrives().max(still_until));
        next.into_iter().chain(end.broken.map(|(at, _)| at)).min()
    }

    /// When an end hears that the connection is gone, if it does.
    pub fn broken_at(&self, side: usize) -> Option<Nanos> {
        self.ends[side].broken.map(|(at, _)| at)
    }

    pub fn wait(&mut self, side: usize, to_receive: bool, waker: Waker) {
        let end = &mut self.ends[side];
        *(if to_receive { &mut end.reader } else { &mut end.writer }) = Some(waker);
    }

    /// After how long without an answer an end gives the connection up.
    pub fn set_patience(&mut self, side: usize, patience: Nanos) {
        let end = &mut self.ends[side];
        end.patience = Some(end.patience.map_or(patience, |before| before.min(patience)));
        self.lose_patience();
    }

    fn lose_patience(&mut self) {
        let Some(since) = self.silent else { return };
        for end in &mut self.ends {
            if let Some(patience) = end.patience {
                end.break_at(since.saturating_add(patience), io::ErrorKind::TimedOut);
            }
        }
    }

    /// Nobody has this end any more: the other one hears that, and that what it sends is not wanted.
    pub fn close(&mut self, side: usize, arrives: Nanos) {
        let end = &mut self.ends[side];
        end.closed = true;
        let is_unread = end.unread > 0;
        end.inbound.clear();
        end.unread = 0;
        if is_unread && self.silent.is_none() {
            self.ends[1 - side].break_at(arrives, io::ErrorKind::ConnectionReset);
        } else {
            self.shut(side, arrives);
        }
        self.ends[1 - side].wake();
    }

    pub fn cut(&mut self, how: Cut, heard: [Nanos; 2], now: Nanos) {
        let [from, to] = &mut self.ends;
        if how != Cut::Silent {
            from.break_at(heard[0], io::ErrorKind::ConnectionReset);
        }
        match how {
            Cut::Reset => to.break_at(heard[1], io::ErrorKind::ConnectionReset),
            Cut::HalfOpen | Cut::Silent => {
                self.silent.get_or_insert(now);
                for end in &mut self.ends {
                    // What has not arrived is lost, and not heard of.
                    end.inbound.retain(|piece| piece.arrives() <= now);
                }
                self.lose_patience();
            }
        }
    }
}
