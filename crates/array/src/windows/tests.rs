//! The way of rings from a grant to whoever shows its token.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nvme::window::Fabric;
use reactor::net::TcpStream;
use reactor::{Config, Handle, Reactor};
use uuid::Uuid;
use window::Token;

use super::offers::{Of, Offers, Ring, RingFiles};
use super::reach;
use super::socket::Socket;
use crate::limits::{TOKEN_LIFE, WINDOW_CALLERS, WINDOW_PATIENCE};

/// A file that says what it is.
fn file(what: &str) -> OwnedFd {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(what.as_bytes()).unwrap();
    file.into()
}

fn said(fd: &OwnedFd) -> String {
    let mut file = File::from(fd.try_clone().unwrap());
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

/// Rings of so many copies each.
fn rings(copies: &[usize]) -> Vec<Ring> {
    let copy = |ring: usize, copy: usize| RingFiles {
        state: file(&format!("state {ring} {copy}")),
        ring: file(&format!("ring {ring} {copy}")),
        flushed: false,
    };
    let ring = |(ring, &count): (usize, &usize)| Ring {
        copies: (0..count).map(|at| copy(ring, at)).collect(),
        bell: file(&format!("bell {ring}")),
    };
    copies.iter().enumerate().map(ring).collect()
}

const fn of(volume: [u8; 16], number: u32, fabric: Fabric) -> Of {
    Of { pool: Uuid::from_bytes([9; 16]), volume, number, fabric, ring_bytes: 1 << 20 }
}

struct Place {
    dir: tempfile::TempDir,
    offers: Arc<Offers>,
    on: Handle,
    socket: Option<Socket>,
}

impl Place {
    fn new() -> Self {
        let (dir, offers) = (tempfile::tempdir().unwrap(), Arc::<Offers>::default());
        let on = Reactor::start(Config::default()).unwrap();
        let mut place = Self { dir, offers, on, socket: None };
        place.serve();
        place
    }

    fn path(&self) -> std::path::PathBuf {
        super::socket_path(self.dir.path())
    }

    fn serve(&mut self) {
        self.socket = Some(Socket::serve(&self.on, &self.path(), &self.offers).unwrap());
    }

    fn offer(&self, copies: &[usize]) -> Token {
        let until = reactor::now_exact() + 60_000_000_000;
        self.offers.offer(until, of([1; 16], 3, Fabric::Shm), rings(copies))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.socket.take());
        self.on.stop();
        let _ = self.on.join();
    }
}

/// All messages that are answered, each with what its descriptors say.
async fn ask(path: &Path, message: &[u8]) -> Vec<([u8; 8], Vec<String>)> {
    let caller = TcpStream::connect_packets(path).unwrap();
    // A socket that is closed already has nothing to say.
    let _ = caller.send_all(message).await;
    answers(&caller).await
}

async fn answers(caller: &TcpStream) -> Vec<([u8; 8], Vec<String>)> {
    let mut all = Vec::new();
    loop {
        let (mut bytes, mut fds) = ([0; 64], Vec::new());
        match caller.recv_fds(&mut bytes, &mut fds).await {
            Ok(8) => {
                all.push((bytes[..8].try_into().unwrap(), fds.iter().map(said).collect()));
            }
            Ok(0) | Err(_) => return all,
            Ok(length) => panic!("a message of {length} bytes"),
        }
    }
}

fn run<T: 'static>(test: impl Future<Output = T> + 'static) -> T {
    reactor::run(Config::default(), async {
        reactor::timeout(Duration::from_secs(60), test).await.expect("an answer")
    })
    .unwrap()
}

#[test]
fn rings_are_handed_out_in_order_with_their_descriptors_once() {
    let place = Place::new();
    let token = place.offer(&[2, 1]);
    let path = place.path();
    let told = run(async move { (ask(&path, &token).await, ask(&path, &token).await) });
    let first = [
        (
            [0, 0, 0, 0, 2, 0, 0, 0],
            vec!["bell 0", "state 0 0", "ring 0 0", "state 0 1", "ring 0 1"],
        ),
        ([1, 0, 0, 0, 1, 0, 0, 0], vec!["bell 1", "state 1 0", "ring 1 0"]),
    ];
    let first = first.map(|(head, fds)| (head, fds.into_iter().map(str::to_owned).collect()));
    assert_eq!(told, (first.to_vec(), Vec::new()), "the second time nothing");
}

#[test]
fn another_token_and_what_is_none_get_nothing_and_leave_the_rings() {
    let place = Place::new();
    let token = place.offer(&[1]);
    let path = place.path();
    run(async move {
        let mut other = token;
        other[15] ^= 1;
        let long = [&token[..], &[0]].concat();
        for message in [&other[..], &token[..15], &long, &[0; 16]] {
            assert_eq!(ask(&path, message).await, Vec::new());
        }
        assert_eq!(ask(&path, &token).await.len(), 1);
    });
}

#[test]
fn a_token_is_good_for_its_time_and_for_the_last_window_of_its_volume() {
    let offers = Offers::default();
    let (volume, now) = ([1; 16], 1000);
    let first = offers.offer(now + 10, of(volume, 3, Fabric::Shm), rings(&[1]));
    assert!(offers.take(now + 10, &first).is_none(), "too late");
    assert_eq!(offers.expire(now + 10), [(volume, 3)], "and gone");
    let first = offers.offer(now + 10, of(volume, 3, Fabric::Shm), rings(&[1]));
    let other = offers.offer(now + 20, of([2; 16], 3, Fabric::Shm), rings(&[1]));
    let second = offers.offer(now + 30, of(volume, 4, Fabric::Shm), rings(&[1]));
    assert!(first != second && second != other);
    assert!(offers.take(now, &first).is_none(), "there is another in its place");
    offers.withdraw(volume, 3);
    assert_eq!(offers.take(now + 29, &second).unwrap().len(), 1, "of another number");
    let third = offers.offer(now + 30, of(volume, 5, Fabric::Shm), rings(&[1]));
    offers.withdraw(volume, 5);
    assert!(offers.take(now, &third).is_none(), "it has ended");
    assert_eq!(offers.expire(now + 19), []);
    assert!(!offers.is_empty());
    assert!(offers.take(now + 20, &other).is_none(), "too late");
    assert_eq!(offers.expire(now + 20), [([2; 16], 3)], "whose window nobody writes by");
    assert!(offers.is_empty());
    assert_eq!(TOKEN_LIFE, Duration::from_secs(10), "as docs/anof.md says");
}

/// Each ring of a window is asked for by itself, and the window is ended where one never is.
#[test]
fn by_rdma_each_ring_is_handed_out_once_and_none_by_another_fabric() {
    let offers = Offers::default();
    let (volume, now) = ([1; 16], 1000);
    let token = offers.offer(now + 10, of(volume, 3, Fabric::Rdma), rings(&[2, 1]));
    assert!(offers.take(now, &token).is_none(), "not by the socket");
    let none = offers.take_one(now, (&token, 1), |_| None::<()>);
    assert!(none.is_none(), "beyond reach, and left");
    let enter = |place: reach::Place| Some((place.volume, place.rings, place.bytes));
    let (one, entered) = offers.take_one(now, (&token, 1), enter).unwrap();
    assert_eq!((entered, one.ring_bytes), ((volume, 2, 1 << 20), 1 << 20));
    assert_eq!((one.ring.copies.len(), said(&one.ring.bell)), (1, "bell 1".to_owned()));
    assert!(offers.take_one(now, (&token, 1), enter).is_none(), "once");
    assert!(offers.take_one(now, (&token, 2), enter).is_none(), "there is none");
    assert!(offers.take_one(now + 10, (&token, 0), enter).is_none(), "too late");
    assert_eq!(offers.expire(now + 10), [(volume, 3)]);
    let token = offers.offer(now + 10, of(volume, 4, Fabric::Rdma), rings(&[1]));
    assert!(offers.take_one(now, (&token, 0), enter).is_some());
    assert_eq!(offers.expire(now + 10), [], "all of it is its host's");
    let token = offers.offer(now + 10, of(volume, 5, Fabric::Shm), rings(&[1]));
    assert!(offers.take_one(now, (&token, 0), enter).is_none(), "not by RDMA");
}

#[test]
fn the_socket_is_its_owners_and_there_while_it_is_served() {
    let mut place = Place::new();
    let path = place.path();
    let is_there =
        |path: &Path| std::fs::symlink_metadata(path).map(|at| (at.file_type(), at.mode()));
    let (kind, mode) = is_there(&path).unwrap();
    assert!(kind.is_socket());
    assert_eq!(mode & 0o777, 0o600);
    drop(place.socket.take());
    assert!(is_there(&path).is_err());
    // One that a daemon left behind is replaced; what is no socket is nobody's to remove.
    drop(std::os::unix::net::UnixDatagram::bind(&path).unwrap());
    place.serve();
    drop(place.socket.take());
    std::fs::write(&path, "mine").unwrap();
    assert!(Socket::serve(&place.on, &path, &place.offers).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}

/// Whoever connects and says nothing is shown out.
#[test]
fn callers_that_say_nothing_keep_nobody_out() {
    let place = Place::new();
    let token = place.offer(&[1]);
    let path = place.path();
    run(async move {
        let silent: Vec<_> =
            (0..WINDOW_CALLERS).map(|_| TcpStream::connect_packets(&path).unwrap()).collect();
        let begun = reactor::now_exact();
        assert_eq!(ask(&path, &token).await.len(), 1);
        let waited = Duration::from_nanos(reactor::now_exact() - begun);
        assert!(waited < 10 * WINDOW_PATIENCE, "{waited:?}");
        for caller in &silent {
            assert_eq!(answers(caller).await, Vec::new());
        }
    });
}
