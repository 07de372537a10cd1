//! Hosts of bad will, by RDMA: `hostile ADDRESS NQN`. Each does something that no host may, and is refused, answered with
//! an error, or loses its connection; those that are none of these are told of.
#![allow(
    clippy::disallowed_methods,
    reason = "time is the machine's, and the library's calls return at once: they are made again"
)]
use nvme::cqe::Cqe;
use nvme::fabrics::{
    CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, PropertySet, PropertySize,
};
use nvme::nqn::Nqn;
use nvme::opcode;
use nvme::rdma::{Keyed, RejectData, Request};
use nvme::sqe::{Sgl, Sqe};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use verbs::{Answer, Cause, Completion, Dial, Domain, Endpoint, Memory, Place, Reach, Sizes, Step};
use zerocopy::{FromBytes, IntoBytes};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How long a target may take for anything: it gives up a peer that takes nothing after some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Receives, and bytes of each.
const RECEIVES: u16 = 8;
const RECEIVE: usize = 64;
/// Where capsules are sent from, behind the receives, and how long one can be: longer than any target's are.
const SEND_AT: usize = RECEIVES as usize * RECEIVE;
const SEND: usize = 32 << 10;
/// Memory that the target reaches.
const SHARED: usize = 64 << 10;

/// Makes a call again until it has something.
fn until<T>(what: &str, mut call: impl FnMut() -> io::Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(there) = call()? {
            return Ok(there);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("{what}: nothing in {PATIENCE:?}").into())
}

/// A host's end of a connection.
struct Peer {
    endpoint: Endpoint,
    memory: Arc<Memory>,
}

/// What a connection came to.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    /// The target has ended it, or the card has for what was sent.
    Ended,
    /// An answer, by its status.
    Answered(Cqe),
}

impl Peer {
    /// Asks for a connection; what is said to that.
    fn ask(to: SocketAddr, private: &[u8], receives: u16) -> Result<(Self, Answer)> {
        let dial = Dial::start(to, PATIENCE)?;
        until("the way", || Ok(dial.next()?.filter(|step| *step == Step::Route)))?;
        let local = dial.local().ok_or("no way")?;
        let domain = Arc::new(Domain::open(local.ip())?);
        let memory = Arc::new(Memory::register(&domain, SHARED, Reach::Peers)?);
        let sizes = Sizes { sends: 8, receives: RECEIVES.into(), memory: SEND_AT + SEND };
        let endpoint = Endpoint::to_connect(dial, &domain, &memory, sizes, 0, false)?;
        for slot in 0..receives {
            let place = Place { offset: usize::from(slot) * RECEIVE, length: RECEIVE };
            endpoint.post_receive(slot.into(), place)?;
        }
        endpoint.connect(private)?;
        let answer = until("an answer", || endpoint.next_answer())?;
        Ok((Self { endpoint, memory }, answer))
    }

    /// A queue that the target takes.
    fn queue(to: SocketAddr, request: Request, cntlid: u16, receives: u16) -> Result<Self> {
        let (peer, answer) = Self::ask(to, request.data(cntlid).as_bytes(), receives)?;
        match answer {
            Answer::Taken(_) => Ok(peer),
            other => Err(format!("a queue like others was not taken: {other:?}").into()),
        }
    }

    fn admin(to: SocketAddr) -> Result<Self> {
        Self::queue(to, ADMIN, 0, RECEIVES)
    }

    fn send(&self, capsule: &[u8]) -> io::Result<()> {
        self.endpoint.own().copy_in(SEND_AT, capsule);
        self.endpoint.post_send(SENT, Place { offset: SEND_AT, length: capsule.len() }, None)
    }

    /// Sends a command with this data, which it names by its key.
    fn send_keyed(
        &self,
        mut sqe: Sqe,
        data: &[u8],
        change: impl FnOnce(&mut Keyed),
    ) -> io::Result<()> {
        self.memory.copy_in(0, data);
        let verbs::Remote { address, key } =
            self.memory.remote(Place { offset: 0, length: SHARED });
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let mut keyed = Keyed { address, length, key, invalidate: false };
        change(&mut keyed);
        sqe.dptr = keyed.sgl();
        self.send(sqe.as_bytes())
    }

    /// Waits for what comes of what was sent.
    fn wait(&self) -> Result<Came> {
        let mut ended: Vec<Completion> = Vec::new();
        until("an answer, or an end", || {
            if let Some(Cause::Disconnected | Cause::Failed) = self.endpoint.next_event()? {
                return Ok(Some(Came::Ended));
            }
            self.endpoint.poll(&mut ended)?;
            for Completion { id, outcome } in ended.drain(..) {
                if outcome.is_err() {
                    return Ok(Some(Came::Ended));
                }
                if id != SENT {
                    let mut cqe = [0; size_of::<Cqe>()];
                    let slot = usize::try_from(id).unwrap_or(0);
                    self.endpoint.own().copy_out(slot * RECEIVE, &mut cqe);
                    let cqe = Cqe::read_from_bytes(&cqe).map_err(|_| io::ErrorKind::InvalidData)?;
                    return Ok(Some(Came::Answered(cqe)));
                }
            }
            Ok(None)
        })
    }

    /// Waits for an answer that says that it was done.
    fn done(&self, what: &str) -> Result<Cqe> {
        match self.wait()? {
            Came::Answered(cqe) if cqe.status().is_success() => Ok(cqe),
            other => Err(format!("{what}: {other:?}").into()),
        }
    }
}

/// The number of what is sent; receives have those of their places.
const SENT: u64 = 1 << 32;
/// Of the namespace, bytes.
const BLOCK: u32 = 512;
const ADMIN: Request = Request { qid: 0, commands: 32, responses: 32 };
const IO: Request = Request { qid: 1, commands: 32, responses: 32 };
const CONNECT: Connect =
    Connect { recfmt: 0, qid: 0, sqsize: 31, attributes: ConnectAttributes(0), kato: 0 };

/// Something that no host may do, and what must come of it.
type Case = (&'static str, fn(&Hostile) -> Result<()>);

/// Who it is.
struct Hostile {
    to: SocketAddr,
    subsystem: Nqn,
    host: Nqn,
}

impl Hostile {
    fn connect_data(&self, cntlid: u16) -> Vec<u8> {
        let data = ConnectData::new([0x66; 16], cntlid, &self.subsystem, &self.host);
        data.as_bytes().to_vec()
    }

    /// An admin queue and an I/O queue of one controller.
    fn association(&self) -> Result<(Peer, Peer)> {
        let admin = Peer::admin(self.to)?;
        admin.send_keyed(CONNECT.to_sqe(1), &self.connect_data(CNTLID_DYNAMIC), |_| {})?;
        let [low, high, ..] = admin.done("Connect")?.dw0.get().to_le_bytes();
        let cntlid = u16::from_le_bytes([low, high]);
        let enable = PropertySet { offset: 0x14, size: PropertySize::Four, value: 0x0046_0001 };
        admin.send(enable.to_sqe(2).as_bytes())?;
        admin.done("CC.EN")?;
        let queue = Peer::queue(self.to, IO, cntlid, RECEIVES)?;
        let mut connect = Connect { qid: 1, ..CONNECT }.to_sqe(3);
        let data = self.connect_data(cntlid);
        connect.dptr = Sgl::in_capsule(0, u32::try_from(data.len())?);
        queue.send(&[connect.as_bytes(), &data].concat())?;
        queue.done("Connect of an I/O queue, in its capsule")?;
        Ok((admin, queue))
    }

    /// What asks for no queue that there can be is told why.
    fn asks_for_no_queue(&self) -> Result<()> {
        let asked = |change: fn(&mut [u8])| {
            let mut private = ADMIN.data(0).as_bytes().to_vec();
            change(&mut private);
            private
        };
        let cases: [(&str, Vec<u8>, u16); 7] = [
            ("nothing", Vec::new(), 5),
            ("ones", vec![0xff; 56], 2),
            ("another format", asked(|data| data[0] = 1), 2),
            ("no responses", asked(|data| data[4..6].fill(0)), 5),
            ("too many commands", asked(|data| data[6..8].fill(0xff)), 4),
            (
                "a ring that nobody was granted",
                window::dial::Ask { token: [7; 16], ring: 0 }.encode().to_vec(),
                6,
            ),
            ("no ring at all", b"FLWINDRQ\x02\0\0\0".to_vec(), 2),
        ];
        for (what, private, status) in cases {
            let (_, answer) = Peer::ask(self.to, &private, RECEIVES)?;
            let Answer::Refused(said) = &answer else {
                return Err(format!("{what}: {answer:?}").into());
            };
            if RejectData::parse(said) != Some(status) {
                return Err(format!("{what}: refused with {:?}", RejectData::parse(said)).into());
            }
        }
        Ok(())
    }

    /// A queue of its own for something that ends it.
    fn ends(&self, what: &str, of: impl FnOnce(&Peer) -> io::Result<()>) -> Result<()> {
        let peer = Peer::admin(self.to)?;
        of(&peer)?;
        match peer.wait()? {
            Came::Ended => Ok(()),
            Came::Answered(cqe) => Err(format!("{what}: answered: {}", cqe.status()).into()),
        }
    }

    fn sends_what_is_no_capsule(&self) -> Result<()> {
        for length in [1, 63] {
            self.ends("too short", |peer| peer.send(&vec![0; length]))?;
        }
        self.ends("too long", |peer| peer.send(&vec![0; SEND]))
    }

    /// The target's card is told no by this end's, or finds nothing there.
    fn names_memory_that_is_not_its(&self) -> Result<()> {
        let data = self.connect_data(CNTLID_DYNAMIC);
        let connect = CONNECT.to_sqe(1);
        self.ends("a key that is none", |peer| {
            peer.send_keyed(connect, &data, |keyed| keyed.key ^= 0x5a5a_5a00)
        })?;
        self.ends("an address that is none", |peer| {
            peer.send_keyed(connect, &data, |keyed| keyed.address = 8)
        })?;
        self.ends("beyond its end", |peer| {
            peer.send_keyed(connect, &data, |keyed| {
                keyed.address += u64::try_from(SHARED).unwrap_or(0) - 512
            })
        })
    }

    /// The response is to invalidate a key that is none.
    fn has_foreign_keys_invalidated(&self) -> Result<()> {
        let (_admin, queue) = self.association()?;
        let flush = Sqe::new(opcode::io::FLUSH, 4, 1);
        queue.send_keyed(flush, &[0; 512], |keyed| {
            (keyed.key, keyed.invalidate) = (keyed.key ^ 0x5a5a_5a00, true);
        })?;
        // It is for this end's card to say no to that; the target may not look at what a Flush names.
        match queue.wait()? {
            Came::Ended => Ok(()),
            Came::Answered(cqe) => Err(format!("answered: {}", cqe.status()).into()),
        }
    }

    /// Data that is not where the entry says it is: an error, of that command.
    fn points_beyond_its_capsule(&self) -> Result<()> {
        let (_admin, queue) = self.association()?;
        let write = |cid, offset, length: u32| {
            let mut sqe = Sqe::new(opcode::io::WRITE, cid, 1);
            // Beyond what the host like others reads and verifies.
            sqe.cdw10 = 1024.into();
            sqe.cdw12 = (length / BLOCK - 1).into();
            sqe.dptr = Sgl::in_capsule(offset, length);
            sqe
        };
        for (cid, offset, length) in
            [(5, 4096, 512), (6, 1 << 40, 512), (7, u64::MAX, 512), (8, 0, 8192), (9, 8, 512)]
        {
            queue.send(&[write(cid, offset, length).as_bytes(), &[0; 512]].concat())?;
            match queue.wait()? {
                Came::Answered(cqe) if !cqe.status().is_success() && cqe.cid.get() == cid => {}
                other => return Err(format!("offset {offset}, length {length}: {other:?}").into()),
            }
        }
        // Nothing was written, and the queue is as before.
        queue.send(&[write(10, 0, 512).as_bytes(), &[0; 512]].concat())?;
        queue.done("a write that is as it should be")?;
        Ok(())
    }

    /// No receive is ever posted for the answer.
    fn takes_no_answer(&self) -> Result<()> {
        let peer = Peer::queue(self.to, ADMIN, 0, 0)?;
        peer.send_keyed(CONNECT.to_sqe(1), &self.connect_data(CNTLID_DYNAMIC), |_| {})?;
        match peer.wait()? {
            Came::Ended => Ok(()),
            Came::Answered(_) => Err("an answer without a place for it".into()),
        }
    }

    /// Hosts that go while the target reads of their memory, or before they said anything.
    fn leaves(&self, times: usize) -> Result<()> {
        let data = self.connect_data(CNTLID_DYNAMIC);
        for round in 0..times {
            let peer = Peer::admin(self.to)?;
            if round % 2 == 0 {
                peer.send_keyed(CONNECT.to_sqe(1), &data, |_| {})?;
            }
        }
        Ok(())
    }

    /// Hosts that come and say nothing, all at once: taken, or told that there is no room, and nobody else's matter.
    fn stays(&self, many: usize) -> Result<()> {
        let mut there = Vec::new();
        for _ in 0..many {
            match Peer::ask(self.to, ADMIN.data(0).as_bytes(), RECEIVES)? {
                (peer, Answer::Taken(_)) => there.push(peer),
                (_, Answer::Refused(said)) if RejectData::parse(&said) == Some(6) => {}
                (_, other) => return Err(format!("one of many: {other:?}").into()),
            }
        }
        println!("{} of {many} that say nothing were taken", there.len());
        self.association().map(drop)
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [to, subsystem] = &arguments[..] else { return Err("hostile ADDRESS NQN".into()) };
    let host = Nqn::new("nqn.2014-08.org.nvmexpress:uuid:66666666-6666-6666-6666-666666666666")?;
    let hostile = Hostile { to: to.parse()?, subsystem: Nqn::new(subsystem)?, host };
    let cases: [Case; 9] = [
        ("asks for no queue", Hostile::asks_for_no_queue),
        ("sends what is no capsule", Hostile::sends_what_is_no_capsule),
        ("names memory that is not its", Hostile::names_memory_that_is_not_its),
        ("has foreign keys invalidated", Hostile::has_foreign_keys_invalidated),
        ("points beyond its capsule", Hostile::points_beyond_its_capsule),
        ("takes no answer", Hostile::takes_no_answer),
        ("leaves", |hostile| hostile.leaves(200)),
        ("stays", |hostile| hostile.stays(48)),
        ("is a host like others", |hostile| hostile.association().map(drop)),
    ];
    for (what, case) in cases {
        let begun = Instant::now();
        case(&hostile).map_err(|error| format!("who {what}: {error}"))?;
        println!("{what}: {:.1} s", begun.elapsed().as_secs_f32());
    }
    Ok(())
}
