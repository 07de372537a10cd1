use super::*;
use crate::limits::SEND_BUDGET_BYTES;
use crate::options::RdmaOptions;
use nvme::pdu::IcResp;
use reactor::{run, spawn, yield_now};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Initializes one connection, then sends as much as is taken and takes all that is sent.
fn restless_peer() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 128]).unwrap();
        stream.write_all(IcResp::new(0, 0, 1 << 20).as_bytes()).unwrap();
        let mut sender = stream.try_clone().unwrap();
        thread::spawn(move || while sender.write_all(&[0; 4096]).is_ok() {});
        let mut taken = vec![0; 1 << 20];
        while stream.read(&mut taken).is_ok_and(|bytes| bytes > 0) {}
    });
    addr
}

struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn bytes(&self, piece: &Piece) -> &[u8] {
        &self.0[usize32(piece.at)..][..usize32(piece.length)]
    }

    fn hold(&self, _: &Piece) {}

    fn release(&self, _: &Piece) {}
}

#[test]
fn others_have_their_turn_after_each_share_whatever_comes() {
    const LENGTH: u32 = 16 << 20;
    let addr = restless_peer();
    let options = Options {
        commands: 1,
        timeout: Duration::from_secs(10),
        tcp: TcpOptions::default(),
        rdma: RdmaOptions::default(),
    };
    let turns = run(reactor::Config::default(), async move {
        let mut connection = Connection::open(addr, &options).await.unwrap();
        let turns = Rc::new(Cell::new(0));
        let count = Rc::clone(&turns);
        spawn(async move {
            loop {
                count.set(count.get() + 1);
                yield_now().await;
            }
        });
        let memory = Bytes(vec![0; usize32(LENGTH)]);
        connection.push_data(&memory, Piece { cid: 0, at: 0, length: LENGTH });
        while !connection.is_flushed() {
            connection.ready(&memory).await.unwrap();
            connection.unread = 0..0;
        }
        turns.get()
    });
    // Between a socket that blocks and one that takes a share there may be no turn.
    assert!(turns.unwrap() >= usize32(LENGTH) / SEND_BUDGET_BYTES / 2);
}
