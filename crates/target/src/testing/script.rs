//! A host that does what a script says: it sends commands, whole and cut, and what is none, reads its answers or does
//! not, brings its data or does not, goes away and comes again. What the target holds for it stays bounded, each command
//! is answered once, a neighbour is served meanwhile, and in the end everything is given back. Time and the network are
//! simulated, so that deadlines pass and the same choices come to the same.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test says what it met by failing there"
)]

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fabric::TransportAddress;
use fabric::controller::Listener;
use nvme::admin::Abort;
use nvme::fabrics::disconnect_sqe;
use nvme::opcode::{admin, io};
use nvme::sqe::{Fused, Sgl, Sqe};
use stdx::num::{u32_of, usize32, usize64};
use stdx::prng::Prng;
use zerocopy::IntoBytes;

use super::peer::{Guest, PLAIN, Peer, Seen, read, write};
use crate::budget::{Share, usage};
use crate::limits::{CAPSULES_HELD_BYTES, DATA_HELD_BYTES};
use crate::rig::{HOST, Rig};
use crate::{Target, serve_connection};

const QUEUES: u16 = 3;
const ENTRIES: u16 = 64;
/// Blocks of the largest transfer, and where they all begin: behind what the neighbour writes.
const BLOCKS: u16 = 1024;
const FROM: u64 = 128;
/// What a host may hold beyond its share: what it was given for reads and has yet to take, one of each queue.
const BEYOND_BYTES: usize = 6 << 20;
/// Turns in which each step of a neighbour's command has to be done, whatever the others do.
const NEIGHBOUR_TURNS: u32 = 1000;
/// Seconds that go by in one step, and from how many on a queue may be given up that owes something or takes nothing.
const PASSES: [u64; 4] = [1, 4, 12, 40];
const GIVEN_UP: u64 = 4;
/// How long a host that has begun to read may wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where decisions come from.
pub enum Choices {
    /// Chance, so many steps.
    Chance(Prng, usize),
    Bytes(std::vec::IntoIter<u8>),
}

impl Choices {
    /// Whether there is another step.
    fn goes_on(&mut self) -> bool {
        match self {
            Self::Chance(_, steps) => {
                *steps = steps.saturating_sub(1);
                *steps > 0
            }
            Self::Bytes(bytes) => bytes.len() > 0,
        }
    }

    /// A number below `bound`, which is small.
    fn below(&mut self, bound: u64) -> u64 {
        match self {
            Self::Chance(prng, _) => prng.below(bound),
            Self::Bytes(bytes) => bytes.next().map_or(0, |byte| u64::from(byte) % bound),
        }
    }

    fn fill(&mut self, out: &mut [u8]) {
        match self {
            Self::Chance(prng, _) => prng.fill(out),
            Self::Bytes(_) => out.iter_mut().for_each(|byte| {
                *byte = self.below(256).to_le_bytes()[0];
            }),
        }
    }
}

/// A queue of the host.
struct Queue {
    peer: Peer,
    qid: u16,
    /// Commands without an answer, and whether that has to be a success.
    open: BTreeMap<u16, bool>,
    /// R2Ts that the data was not sent for.
    asked: Vec<(u16, u16, u32)>,
    /// Bytes that the target has not taken yet: it does not listen to a host that does not read.
    outbox: Vec<u8>,
    /// Of the outbox, what is kept back although it would be taken.
    kept_back: usize,
    next: u16,
    /// It keeps to the protocol so far, so that each of its commands is to be answered.
    honest: bool,
}

impl Queue {
    async fn connect(address: SocketAddr, cntlid: u16, qid: u16) -> Self {
        let peer = Guest::default().io_when_free(address, cntlid, qid, PLAIN, ENTRIES).await;
        Self {
            peer,
            qid,
            open: BTreeMap::new(),
            asked: Vec::new(),
            outbox: Vec::new(),
            kept_back: 0,
            next: 0,
            honest: true,
        }
    }

    fn command(&mut self, choices: &mut Choices) {
        // A pair may come.
        if self.open.len() + 2 >= usize::from(ENTRIES) {
            return;
        }
        let cid = self.next;
        self.next = self.next.wrapping_add(1);
        let blocks = [1, 8, 256, BLOCKS][usize64(choices.below(4))];
        let kind = choices.below(12);
        let (sqe, data) = match kind {
            0 | 1 => (read(cid, FROM, blocks), Vec::new()),
            2 => (write(cid, FROM, 8, true), vec![7; 4096]),
            3 | 4 => (write(cid, FROM, blocks, false), Vec::new()),
            5 => (Sqe::new(io::FLUSH, cid, 1), Vec::new()),
            6 => (long(cid, blocks, choices), Vec::new()),
            7 => deallocate(cid, blocks),
            8 => copy(cid),
            9 => return self.fused(cid),
            _ => anything(cid, choices),
        };
        self.submit(&sqe, &data, kind < 9);
        self.pump();
    }

    /// A Compare and a Write that belong together: neither is done where the first finds something else.
    fn fused(&mut self, cid: u16) {
        let second = self.next;
        self.next = self.next.wrapping_add(1);
        for (cid, fused) in [(cid, Fused::First), (second, Fused::Second)] {
            let mut sqe = write(cid, FROM, 8, true);
            if fused == Fused::First {
                sqe.opcode = io::COMPARE;
            }
            sqe.set_fused(fused);
            self.submit(&sqe, &[7; 4096], false);
        }
        self.pump();
    }

    /// A command is to be sent, and to be answered, with success or not.
    fn submit(&mut self, sqe: &Sqe, data: &[u8], success: bool) {
        self.open.insert(sqe.cid.get(), success);
        let capsule = self.peer.capsule(sqe, data);
        self.outbox.extend(capsule);
    }

    /// The queue's last command.
    fn disconnect(&mut self) {
        let capsule = self.peer.capsule(&disconnect_sqe(self.next), &[]);
        self.next = self.next.wrapping_add(1);
        self.honest = false;
        self.outbox.extend(capsule);
        self.pump();
    }

    /// So many seconds went by.
    fn aged(&mut self, seconds: u64) {
        let owes = !self.outbox.is_empty() || !self.asked.is_empty() || !self.open.is_empty();
        if seconds >= GIVEN_UP && owes {
            self.honest = false;
        }
    }

    /// Sends what the target takes.
    fn pump(&mut self) -> bool {
        let most = self.outbox.len() - self.kept_back.min(self.outbox.len());
        let sent = self.peer.send_some(&self.outbox[..most]);
        self.outbox.drain(..sent);
        sent > 0
    }

    /// Sends what is no PDU, or one that nothing asked for.
    fn break_rules(&mut self, choices: &mut Choices) {
        let mut bytes = vec![0; usize64(choices.below(100)) + 1];
        choices.fill(&mut bytes);
        self.honest = false;
        self.outbox.extend(bytes);
        self.pump();
    }

    fn note(&mut self, seen: &Seen) {
        match *seen {
            Seen::Ready { cid, ttag, length } => self.asked.push((cid, ttag, length)),
            Seen::Response(cqe) => self.answered(cqe.cid.get(), cqe.status().is_success()),
            Seen::Data { cid, success: true, .. } => self.answered(cid, true),
            Seen::Data { success: false, .. } => {}
            Seen::Closed | Seen::Terminated(..) => {
                assert!(!self.honest, "an honest host was given up");
            }
        }
    }

    fn answered(&mut self, cid: u16, success: bool) {
        let Some(expected) = self.open.remove(&cid) else {
            assert!(!self.honest, "{cid} is answered twice");
            return;
        };
        assert!(success || !expected || !self.honest, "{cid} failed");
    }

    /// Takes what there is, if there is something; whether there was.
    async fn look(&mut self) -> bool {
        let seen = {
            let mut next = pin!(self.peer.next());
            poll_fn(|cx| match next.as_mut().poll(cx) {
                Poll::Ready(seen) => Poll::Ready(Some(seen)),
                Poll::Pending => Poll::Ready(None),
            })
            .await
        };
        seen.inspect(|seen| self.note(seen)).is_some()
    }

    fn bring(&mut self, which: u64) {
        if self.asked.is_empty() {
            return;
        }
        let at = usize64(which) % self.asked.len();
        let (cid, ttag, length) = self.asked.swap_remove(at);
        let pdu = self.peer.data(cid, ttag, 0, &vec![9; usize32(length)], true);
        self.outbox.extend(pdu);
        self.pump();
    }

    /// Does what it owes until every command is answered.
    async fn settle(&mut self) {
        self.kept_back = 0;
        while !self.open.is_empty() && self.honest {
            self.bring(0);
            let sent = self.pump();
            if !self.look().await && !sent {
                reactor::sleep(Duration::from_micros(100)).await;
            }
        }
    }
}

/// A command that moves no data of its host.
fn long(cid: u16, blocks: u16, choices: &mut Choices) -> Sqe {
    let opcode = if choices.below(2) == 0 { io::VERIFY } else { io::WRITE_ZEROES };
    let mut sqe = Sqe::new(opcode, cid, 1);
    sqe.cdw10 = u32::try_from(FROM).unwrap().into();
    sqe.cdw12 = u32::from(blocks - 1).into();
    sqe
}

fn deallocate(cid: u16, blocks: u16) -> (Sqe, Vec<u8>) {
    let mut sqe = Sqe::new(io::DATASET_MANAGEMENT, cid, 1);
    sqe.cdw11 = 4.into();
    let mut range = [0; 16];
    range[4..8].copy_from_slice(&u32::from(blocks).to_le_bytes());
    range[8..].copy_from_slice(&FROM.to_le_bytes());
    sqe.dptr = Sgl::in_capsule(0, 16);
    (sqe, range.to_vec())
}

/// Eight blocks to the eight behind them.
fn copy(cid: u16) -> (Sqe, Vec<u8>) {
    let mut sqe = Sqe::new(io::COPY, cid, 1);
    sqe.cdw10 = u32::try_from(FROM + 8).unwrap().into();
    let mut range = [0; 32];
    range[8..16].copy_from_slice(&FROM.to_le_bytes());
    range[16..18].copy_from_slice(&7_u16.to_le_bytes());
    sqe.dptr = Sgl::in_capsule(0, 32);
    (sqe, range.to_vec())
}

/// An entry of any bytes that does not end its queue, with any data.
fn anything(cid: u16, choices: &mut Choices) -> (Sqe, Vec<u8>) {
    let mut sqe = Sqe::new(0, cid, 1);
    choices.fill(sqe.as_mut_bytes());
    sqe.cid = cid.into();
    // Disconnect is one; the rest of those are answered.
    if sqe.opcode == admin::FABRICS {
        sqe.opcode = io::READ;
    }
    sqe.set_fused(Fused::Normal);
    // The neighbour is left alone: what it wrote, and its right to.
    if sqe.cdw11.get() == 0 && u64::from(sqe.cdw10.get()) < FROM {
        sqe.cdw10 = u32::try_from(FROM).unwrap().into();
    }
    let reservations = [
        io::RESERVATION_REGISTER,
        io::RESERVATION_ACQUIRE,
        io::RESERVATION_RELEASE,
        io::RESERVATION_REPORT,
    ];
    if [io::COPY, io::DATASET_MANAGEMENT].contains(&sqe.opcode)
        || reservations.contains(&sqe.opcode)
    {
        sqe.nsid = 0.into();
    }
    let mut data = vec![0; usize64(choices.below(200)) * 64];
    if !data.is_empty() {
        let start = data.len().min(16);
        choices.fill(&mut data[..start]);
        sqe.dptr = Sgl::in_capsule(0, u32_of(data.len()));
    }
    (sqe, data)
}

/// Another host: one command at a time, each done within some turns.
struct Neighbour {
    peer: Peer,
    _admin: Peer,
    next: u16,
}

impl Neighbour {
    async fn connect(address: SocketAddr) -> Self {
        let guest = Guest { host: "nqn.2026-11.io.flashloom:neighbour", ..Guest::default() };
        let (admin, cntlid) = guest.admin(address).await;
        let peer = guest.io(address, cntlid, 1, PLAIN, 32).await;
        Self { peer, _admin: admin, next: 0 }
    }

    async fn works(&mut self) {
        let (wrote, cid) = (self.next.to_le_bytes()[0] | 1, self.next % 100);
        self.next = self.next.wrapping_add(1);
        self.peer.command(&write(cid, 0, 64, false), &[]).await;
        let Seen::Ready { ttag, .. } = self.soon().await else { panic!("no R2T") };
        let pdu = self.peer.data(cid, ttag, 0, &[wrote; 32_768], true);
        self.peer.send(&pdu).await;
        assert!(matches!(self.soon().await, Seen::Response(cqe) if cqe.status().is_success()));
        self.peer.command(&read(cid, 0, 8), &[]).await;
        let expected = Seen::Data { cid, bytes: vec![wrote; 4096], success: true };
        assert_eq!(self.soon().await, expected, "what a neighbour wrote has changed");
    }

    async fn soon(&mut self) -> Seen {
        let mut next = pin!(self.peer.next());
        let mut turns = 0;
        loop {
            let seen = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await;
            if let Poll::Ready(seen) = seen {
                return seen;
            }
            turns += 1;
            assert!(turns <= NEIGHBOUR_TURNS, "a neighbour waits for {turns} turns");
            reactor::yield_now().await;
        }
    }
}

/// Where the host's queues are, and what ends its commands.
struct Host {
    address: SocketAddr,
    admin: Peer,
    cntlid: u16,
}

impl Host {
    /// Aborts a command of the queue, which is answered all the same.
    async fn abort(&mut self, queue: &mut Queue, which: u64) {
        let at = usize64(which) % queue.open.len().max(1);
        let Some((&cid, success)) = queue.open.iter_mut().nth(at) else { return };
        *success = false;
        self.admin.command(&Abort { sqid: queue.qid, cid }.to_sqe(0), &[]).await;
        assert!(self.admin.response().await.status().is_success());
    }
}

async fn step(
    queues: &mut Vec<Queue>,
    neighbour: &mut Neighbour,
    host: &mut Host,
    choices: &mut Choices,
) {
    let at = usize64(choices.below(u64::from(QUEUES)));
    let queue = &mut queues[at];
    match choices.below(24) {
        0..8 => queue.command(choices),
        8..11 => {
            queue.look().await;
        }
        11 | 12 => queue.bring(choices.below(256)),
        13..15 => reactor::yield_now().await,
        15 => queue.kept_back = usize64(choices.below(100)),
        16 => {
            queue.pump();
        }
        17 => neighbour.works().await,
        18 if choices.below(4) == 0 => queue.break_rules(choices),
        19 if choices.below(4) == 0 => {
            let qid = queue.qid;
            drop(queues.remove(at));
            queues.insert(at, Queue::connect(host.address, host.cntlid, qid).await);
        }
        20 | 21 => host.abort(queue, choices.below(256)).await,
        22 if choices.below(4) == 0 => queue.disconnect(),
        23 if choices.below(4) == 0 => {
            let seconds = PASSES[usize64(choices.below(4))];
            reactor::sleep(Duration::from_secs(seconds)).await;
            queues.iter_mut().for_each(|queue| queue.aged(seconds));
            neighbour.works().await;
        }
        _ => {}
    }
}

async fn play(address: SocketAddr, mut choices: Choices) -> Rc<Share> {
    let (admin, cntlid) = Guest::default().admin(address).await;
    let mut host = Host { address, admin, cntlid };
    let mut neighbour = Neighbour::connect(address).await;
    let mut queues = Vec::new();
    for qid in 1..=QUEUES {
        queues.push(Queue::connect(address, cntlid, qid).await);
    }
    let share = Share::of_host(HOST, address.ip());
    while choices.goes_on() {
        step(&mut queues, &mut neighbour, &mut host, &mut choices).await;
        let data = share.data.held();
        assert!(data <= DATA_HELD_BYTES / 3 * 2 + BEYOND_BYTES, "{data} bytes are held");
        assert!(share.capsules.held() <= CAPSULES_HELD_BYTES);
    }
    neighbour.works().await;
    // It is one task for each queue that reads from now on, as hosts do.
    let settled = queues.into_iter().map(|mut queue| {
        reactor::spawn(async move {
            let settled = reactor::timeout(PATIENCE, queue.settle()).await;
            settled.expect("a command is not answered");
        })
    });
    for queue in settled.collect::<Vec<_>>() {
        queue.await.unwrap();
    }
    share
}

async fn until_gone(target: &Target) {
    let gone = async {
        while !target.controllers().is_empty() {
            reactor::sleep(Duration::from_millis(1)).await;
        }
    };
    reactor::timeout(PATIENCE, gone).await.expect("a controller is left");
}

/// Serves a target and has a host do what `choices` say.
pub fn run(mut choices: Choices) {
    let seed = choices.below(256);
    reactor::simulate(seed, async move {
        let rig = Rig::new();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::bind(TransportAddress::Tcp(any)).unwrap();
        let address = listener.address().unwrap().socket();
        let (target, id) = (Arc::clone(&rig.target), rig.path.listener);
        let server = reactor::spawn(async move {
            while let Ok(accepted) = listener.accept().await {
                reactor::spawn(serve_connection(Arc::clone(&target), accepted, id, || {}));
            }
        });
        let all = reactor::buffer::pool().available();
        let share = play(address, choices).await;
        until_gone(&rig.target).await;
        drop(share);
        for used in usage() {
            assert_eq!(used.used, 0, "{} are not given back", used.name);
        }
        assert_eq!(reactor::buffer::pool().available(), all, "buffers are not given back");
        server.abort();
    });
}
