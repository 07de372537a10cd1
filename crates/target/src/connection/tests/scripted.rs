//! A host that does at random what hosts do, reads its answers or does not, brings its data or does not: what the
//! target holds for it stays bounded, each command is answered once, and a neighbour is served meanwhile.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use nvme::opcode::io as io_opcode;
use nvme::sqe::Sqe;
use stdx::num::{usize32, usize64};
use stdx::prng::Prng;

use super::super::peer::{Guest, PLAIN, Peer, Seen, read, write};
use super::hoarding::{neighbour_works, until_gone};
use super::with_target;
use crate::budget::Share;
use crate::limits::{CAPSULES_HELD_BYTES, DATA_HELD_BYTES};
use crate::rig::HOST;

const ENTRIES: u16 = 64;
const STEPS: usize = 400;
/// Blocks of the largest transfer, and where they all begin: behind what the neighbour writes.
const BLOCKS: u16 = 1024;
const FROM: u64 = 128;

struct Queue {
    peer: Peer,
    /// Commands without an answer, and how much data each has to bring.
    open: BTreeMap<u16, usize>,
    /// R2Ts that the data was not sent for.
    asked: Vec<(u16, u16, u32)>,
    /// Bytes that the target has not taken yet: it does not listen to a host that does not read.
    outbox: Vec<u8>,
    next: u16,
}

impl Queue {
    fn command(&mut self, prng: &mut Prng) {
        if self.open.len() + 1 >= usize::from(ENTRIES) {
            return;
        }
        let cid = self.next;
        self.next += 1;
        let blocks = [1, 8, 256, BLOCKS][usize64(prng.below(4))];
        let (sqe, data, owed) = match prng.next_u64() % 6 {
            0 | 1 => (read(cid, FROM, blocks), Vec::new(), 0),
            2 => (write(cid, FROM, 8, true), vec![7; 4096], 0),
            3 | 4 => (write(cid, FROM, blocks, false), Vec::new(), usize::from(blocks) * 512),
            _ => (Sqe::new(io_opcode::FLUSH, cid, 1), Vec::new(), 0),
        };
        self.open.insert(cid, owed);
        let capsule = self.peer.capsule(&sqe, &data);
        self.outbox.extend(capsule);
        self.pump();
    }

    /// Sends what the target takes.
    fn pump(&mut self) -> bool {
        let sent = self.peer.send_some(&self.outbox);
        self.outbox.drain(..sent);
        sent > 0
    }

    fn note(&mut self, seen: &Seen) {
        match *seen {
            Seen::Ready { cid, ttag, length } => self.asked.push((cid, ttag, length)),
            Seen::Response(cqe) => {
                assert!(cqe.status().is_success(), "{:?}", cqe.status());
                assert!(self.open.remove(&cqe.cid.get()).is_some(), "answered twice");
            }
            Seen::Data { cid, success, .. } => {
                assert!(success);
                assert!(self.open.remove(&cid).is_some(), "answered twice");
            }
            ref other => panic!("{other:?}"),
        }
    }

    /// Takes what there is, if there is something.
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
        while !self.open.is_empty() {
            self.bring(0);
            let sent = self.pump();
            if !self.look().await && !sent {
                reactor::sleep(Duration::from_micros(100)).await;
            }
        }
    }
}

async fn play(address: SocketAddr, seed: u64) -> Rc<Share> {
    let guest = Guest::default();
    let mut prng = Prng::new(seed);
    let (_admin, cntlid) = guest.admin(address).await;
    let mut queues = Vec::new();
    for qid in 1..=3 {
        let peer = guest.io(address, cntlid, qid, PLAIN, ENTRIES).await;
        queues.push(Queue {
            peer,
            open: BTreeMap::new(),
            asked: Vec::new(),
            outbox: Vec::new(),
            next: 0,
        });
    }
    let share = Share::of_host(HOST, address.ip());
    for _ in 0..STEPS {
        let queue = &mut queues[usize64(prng.below(3))];
        match prng.next_u64() % 16 {
            0..8 => queue.command(&mut prng),
            8..11 => {
                queue.look().await;
            }
            11 => queue.bring(prng.next_u64()),
            12..15 => reactor::yield_now().await,
            _ => neighbour_works(address, 1, 1).await,
        }
        // Beyond its share by what it was given for reads and has yet to take: one of each queue.
        assert!(share.data.held() <= DATA_HELD_BYTES / 3 * 2 + (6 << 20), "{}", share.data.held());
        assert!(share.capsules.held() <= CAPSULES_HELD_BYTES);
    }
    // It is one task for each queue that reads from now on, as hosts do.
    let settled = queues.into_iter().map(|mut queue| {
        reactor::spawn(async move {
            let settled = reactor::timeout(Duration::from_secs(60), queue.settle()).await;
            settled.expect("a command is not answered");
            queue
        })
    });
    let settled: Vec<_> = settled.collect();
    for queue in settled {
        drop(queue.await.unwrap());
    }
    assert_eq!((share.capsules.held(), share.work.held()), (0, 0));
    share
}

#[test]
fn whatever_a_host_does_is_bounded_and_answered_once() {
    for seed in 0..6 {
        with_target(move |address, target| async move {
            let all = reactor::buffer::pool().available();
            let share = play(address, seed).await;
            until_gone(&target).await;
            assert_eq!(share.data.held(), 0, "seed {seed}");
            assert_eq!(reactor::buffer::pool().available(), all, "seed {seed}");
        });
    }
}
