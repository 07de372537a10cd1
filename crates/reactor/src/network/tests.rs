use super::*;
use crate::net::{ListenOptions, TcpListener, TcpStream};
use crate::{Order, now, simulate, simulate_in, simulate_on, sleep, spawn, timeout, yield_now};
use std::io::IoSlice;
use std::net::Shutdown;

const PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 4420);
const SECOND: Duration = Duration::from_secs(1);

fn listen() -> TcpListener {
    TcpListener::bind(PORT, ListenOptions::default()).unwrap()
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = listen();
    let dialled = spawn(async { TcpStream::connect(PORT).await.unwrap() });
    let (accepted, _) = listener.accept().await.unwrap();
    (dialled.await.unwrap(), accepted)
}

fn only() -> ConnectionId {
    connections()[0].id
}

fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().unwrap().kind()
}

/// Bytes through an echo; when each came back.
fn echo(seed: u64) -> Vec<(usize, Nanos)> {
    simulate_in(seed, Order::Shuffled, async {
        set_conditions(Conditions { buffer: 1..=5000, piece: 3000, ..Conditions::default() });
        let (here, there) = pair().await;
        let here = std::rc::Rc::new(here);
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n * 7 / 3).to_le_bytes()[0]).collect();
        let (back, sent) = (std::rc::Rc::clone(&here), bytes.clone());
        drop(spawn(async move {
            let mut buf = [0; 700];
            while let Ok(n @ 1..) = there.recv(&mut buf).await {
                there.send_all(&buf[..n]).await.unwrap();
            }
        }));
        drop(spawn(async move {
            back.send_all(&sent).await.unwrap();
            back.shutdown(Shutdown::Write).unwrap();
        }));
        let (mut got, mut times) = (Vec::new(), Vec::new());
        let mut buf = vec![0; 4096];
        while let n @ 1.. = here.recv(&mut buf).await.unwrap() {
            got.extend_from_slice(&buf[..n]);
            times.push((n, now()));
        }
        assert!(got == bytes, "the bytes come in their order, each once");
        times
    })
}

#[test]
fn bytes_come_whole_in_order_and_late_as_the_seed_says() {
    let first = echo(5);
    assert_eq!(first, echo(5));
    assert_ne!(first, echo(6));
    assert!(first.len() > 20, "in pieces: {}", first.len());
}

/// Of two messages sent one after the other on two connections, either may come first.
#[test]
fn connections_overtake_each_other_and_bytes_of_one_do_not() {
    let overtakes = |seed| {
        simulate(seed, async {
            let ((one, a), (two, b)) = (pair().await, pair().await);
            one.send_all(b"1").await.unwrap();
            two.send_all(b"2").await.unwrap();
            let arrival = |stream: TcpStream| async move {
                stream.recv_exact(&mut [0]).await.unwrap();
                now()
            };
            let (a, b) = (spawn(arrival(a)), spawn(arrival(b)));
            b.await.unwrap() < a.await.unwrap()
        })
    };
    let overtaken = (0..50).filter(|&seed| overtakes(seed)).count();
    assert!((5..45).contains(&overtaken), "{overtaken} of 50");
}

#[test]
fn a_reader_that_does_not_read_stops_the_sender() {
    simulate(1, async {
        set_conditions(Conditions { buffer: 1000..=1000, ..Conditions::default() });
        let (one, other) = pair().await;
        let mut sent = 0;
        while let Ok(n) = one.try_send_vectored(&[IoSlice::new(&[7; 300])]) {
            sent += n;
        }
        assert_eq!(sent, 2000, "what both ends have room for");
        assert!(timeout(SECOND, one.writable()).await.is_err());
        let mut buf = [0; 10];
        other.recv_exact(&mut buf).await.unwrap();
        timeout(SECOND, one.writable()).await.unwrap().unwrap();
        assert_eq!(one.try_send_vectored(&[IoSlice::new(&[7; 300])]).unwrap(), 10);
    });
}

#[test]
fn whoever_connects_where_nobody_listens_is_refused() {
    simulate(1, async {
        assert_eq!(kind(TcpStream::connect(PORT).await), io::ErrorKind::ConnectionRefused);
        let listener = listen();
        let again = TcpListener::bind(PORT, ListenOptions::default());
        assert_eq!(kind(again), io::ErrorKind::AddrInUse);
        refuse(PORT, true);
        assert_eq!(kind(TcpStream::connect(PORT).await), io::ErrorKind::ConnectionRefused);
        refuse(PORT, false);
        // What waits to be accepted when nobody listens any more is reset.
        let waits = TcpStream::connect(PORT).await.unwrap();
        drop(listener);
        assert_eq!(kind(waits.recv(&mut [0]).await), io::ErrorKind::ConnectionReset);
        assert_eq!(kind(TcpStream::connect(PORT).await), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn each_end_hears_of_a_reset_and_nothing_comes_after_it() {
    simulate(3, async {
        let (one, other) = pair().await;
        cut(only(), Cut::Reset);
        assert_eq!(kind(one.recv(&mut [0]).await), io::ErrorKind::ConnectionReset);
        assert_eq!(kind(other.recv(&mut [0]).await), io::ErrorKind::ConnectionReset);
        assert_eq!(kind(one.send_all(b"late").await), io::ErrorKind::ConnectionReset);
        assert_eq!(connections(), []);
    });
}

#[test]
fn a_silent_cut_is_heard_of_by_who_asks_and_by_nobody_else() {
    simulate(1, async {
        let (one, other) = pair().await;
        other.set_keepalive(15, 5, 3).unwrap();
        one.send_all(b"x").await.unwrap();
        cut(only(), Cut::Silent);
        let begun = now();
        assert!(timeout(20 * SECOND, other.recv(&mut [0])).await.is_err(), "what was late is lost");
        assert_eq!(kind(other.recv(&mut [0]).await), io::ErrorKind::TimedOut);
        assert_eq!((now() - begun) / 1_000_000_000, 30);
        drop(other);
        assert!(timeout(100 * SECOND, one.recv(&mut [0])).await.is_err());
        one.send_all(b"it has room").await.unwrap();
    });
}

#[test]
fn a_half_open_connection_is_known_to_who_connected_only() {
    simulate(1, async {
        let (one, other) = pair().await;
        cut(only(), Cut::HalfOpen);
        assert_eq!(kind(one.recv(&mut [0]).await), io::ErrorKind::ConnectionReset);
        assert!(timeout(SECOND, other.recv(&mut [0])).await.is_err());
    });
}

#[test]
fn an_end_that_sends_nothing_more_still_receives() {
    simulate(1, async {
        let (one, other) = pair().await;
        one.send_all(b"question").await.unwrap();
        one.shutdown(Shutdown::Write).unwrap();
        let mut question = [0; 8];
        other.recv_exact(&mut question).await.unwrap();
        assert_eq!(other.recv(&mut [0]).await.unwrap(), 0);
        other.send_all(b"answer").await.unwrap();
        drop(other);
        let mut answer = [0; 6];
        one.recv_exact(&mut answer).await.unwrap();
        assert_eq!(one.recv(&mut [0]).await.unwrap(), 0);
        assert_eq!(kind(one.send_all(b"more").await), io::ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_machine_that_stops_goes_on_with_all_there_was() {
    simulate(1, async {
        let (one, other) = pair().await;
        stop(address(), SECOND);
        let begun = now();
        one.send_all(b"patience").await.unwrap();
        let mut bytes = [0; 8];
        other.recv_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"patience");
        assert!(now() - begun >= 1_000_000_000);
    });
}

#[test]
fn reactors_reach_each_other_each_from_its_own_address() {
    let story = |seed| {
        simulate_on(seed, Order::Shuffled, 3, |handles| async move {
            let listener = listen();
            for handle in &handles[1..] {
                let ask = || async {
                    let stream = TcpStream::connect(PORT).await.unwrap();
                    stream.send_all(&[1; 100]).await.unwrap();
                    let mut back = [0; 100];
                    stream.recv_exact(&mut back).await.unwrap();
                    assert_eq!(stream.recv(&mut [0]).await.unwrap(), 0);
                };
                handle.spawn(ask).unwrap();
            }
            let mut hosts = Vec::new();
            for _ in &handles[1..] {
                let (stream, host) = listener.accept().await.unwrap();
                let mut bytes = [0; 100];
                stream.recv_exact(&mut bytes).await.unwrap();
                stream.send_all(&bytes).await.unwrap();
                hosts.push(host.ip().to_string());
            }
            while connections().len() > 2 {
                yield_now().await;
            }
            sleep(SECOND).await;
            (hosts, now())
        })
    };
    let first = story(4);
    assert_eq!(first, story(4));
    let mut hosts = first.0;
    hosts.sort();
    assert_eq!(hosts, ["10.0.0.2", "10.0.0.3"]);
}

/// Descriptors would reach out of the simulation.
#[test]
fn a_simulated_socket_has_no_descriptor() {
    simulate(1, async {
        let (one, other) = pair().await;
        one.set_nodelay(true).unwrap();
        assert_eq!(one.napi_id().unwrap(), None);
        assert_eq!(one.peer_addr().unwrap(), PORT);
        assert_eq!(kind(one.into_fd()), io::ErrorKind::Unsupported);
        let nothing = other.recv_fds(&mut [0], &mut Vec::new()).await;
        assert_eq!(kind(nothing), io::ErrorKind::Unsupported);
    });
}

/// What was sent after a cut took a shorter way than what the cut had lost, and came in its place: a host read another
/// command's bytes.
#[test]
fn behind_what_a_cut_lost_nothing_comes() {
    let came = |seed| {
        simulate(seed, async {
            set_conditions(Conditions { piece: 2, ..Conditions::default() });
            let (one, other) = pair().await;
            let sender = spawn(async move {
                for n in 0..=u8::MAX {
                    if one.try_send_vectored(&[IoSlice::new(&[n])]).is_err() {
                        return;
                    }
                    yield_now().await;
                }
            });
            sleep(Duration::from_micros(100)).await;
            cut(only(), Cut::Reset);
            let (mut got, mut buf) = (Vec::new(), [0; 64]);
            while let Ok(n @ 1..) = other.recv(&mut buf).await {
                got.extend_from_slice(&buf[..n]);
            }
            sender.await.unwrap();
            got
        })
    };
    for seed in 0..50 {
        let got = came(seed);
        assert!((0..).zip(&got).all(|(n, byte)| n == *byte), "seed {seed}: {got:?}");
    }
}
