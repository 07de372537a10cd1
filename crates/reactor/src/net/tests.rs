use super::*;
use crate::core::with;
use crate::{Config, PollPolicy, run, sleep, spawn, yield_now};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

fn config(poll: PollPolicy) -> Config {
    Config { poll, ..Config::default() }
}

const POLICIES: [PollPolicy; 3] = [
    PollPolicy::Adaptive { spin: Duration::from_micros(20) },
    PollPolicy::Busy,
    PollPolicy::Interrupt,
];

fn localhost() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(localhost(), ListenOptions::default()).unwrap();
    let addr = listener.local_addr().unwrap();
    let client = spawn(async move { TcpStream::connect(addr).await.unwrap() });
    let (server, peer) = listener.accept().await.unwrap();
    let client = client.await.unwrap();
    assert_eq!(client.local_addr().unwrap(), peer);
    assert_eq!(server.local_addr().unwrap(), addr);
    (client, server)
}

/// Echoes until the peer ends its direction, with answers through a turn-end task's way of sending.
async fn echo(stream: TcpStream) {
    let mut buf = vec![0; 4096];
    loop {
        match stream.recv(&mut buf).await.unwrap() {
            0 => return,
            n => stream.send_all(&buf[..n]).await.unwrap(),
        }
    }
}

#[test]
fn ping_pong_under_every_policy() {
    for poll in POLICIES {
        run(config(poll), async {
            let (client, server) = pair().await;
            let server = spawn(echo(server));
            client.set_nodelay(true).unwrap();
            let mut answer = [0; 72];
            for i in 0..200u8 {
                client.send_all(&[i; 72]).await.unwrap();
                client.recv_exact(&mut answer).await.unwrap();
                assert_eq!(answer, [i; 72]);
            }
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.recv(&mut answer).await.unwrap(), 0);
            server.await.unwrap();
        })
        .unwrap();
    }
}

#[test]
fn more_connections_than_the_hot_set_holds() {
    for poll in POLICIES {
        run(config(poll), async {
            let mut tasks = Vec::new();
            for n in 0..40u8 {
                let (client, server) = pair().await;
                drop(spawn(echo(server)));
                tasks.push(spawn(async move {
                    let mut answer = [0; 8];
                    for i in 0..50u8 {
                        client.send_all(&[n, i, 1, 2, 3, 4, 5, 6]).await.unwrap();
                        client.recv_exact(&mut answer).await.unwrap();
                        assert_eq!(answer[..2], [n, i]);
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        })
        .unwrap();
    }
}

/// Sixteen quiet connections cost an adaptive reactor nothing but the time it spins after the last
/// of them fell silent.
#[test]
fn quiet_connections_let_the_reactor_sleep() {
    run(config(PollPolicy::default()), async {
        let mut pairs = Vec::new();
        for _ in 0..16 {
            let (client, server) = pair().await;
            drop(spawn(echo(server)));
            client.send_all(&[1; 8]).await.unwrap();
            client.recv_exact(&mut [0; 8]).await.unwrap();
            pairs.push(client);
        }
        // Sleeps: the connections have to be quiet for so long, and then measured for so long.
        sleep(Duration::from_millis(20)).await;
        let before = crate::metrics::here();
        // Sleeps: as above.
        sleep(Duration::from_millis(200)).await;
        let after = crate::metrics::here();
        let slept = after.sleep_nanos - before.sleep_nanos;
        assert!(after.sleeps - before.sleeps < 5, "woke for nothing");
        assert!(slept > 190_000_000, "slept {slept} ns of 200 ms");
        // And every one of them still works.
        for client in &pairs {
            client.send_all(&[2; 8]).await.unwrap();
            client.recv_exact(&mut [0; 8]).await.unwrap();
        }
    })
    .unwrap();
}

#[test]
fn a_full_socket_waits_until_it_is_writable() {
    run(config(PollPolicy::default()), async {
        let (client, server) = pair().await;
        client.set_buffers(None, Some(16 * 1024)).unwrap();
        let sender = spawn(async move {
            let data: Vec<u8> = (0..4_000_000u32).map(|i| i.to_le_bytes()[1]).collect();
            client.send_all(&data).await.unwrap();
        });
        let (mut total, mut buf) = (0usize, vec![0; 70_000]);
        loop {
            let n = server.recv(&mut buf).await.unwrap();
            if n == 0 {
                break;
            }
            for (i, &b) in buf[..n].iter().enumerate() {
                assert_eq!(b, u32::try_from(total + i).unwrap().to_le_bytes()[1]);
            }
            total += n;
        }
        assert_eq!(total, 4_000_000);
        sender.await.unwrap();
    })
    .unwrap();
}

#[test]
fn a_receive_dropped_early_loses_nothing() {
    for poll in POLICIES {
        run(config(poll), async {
            let (client, server) = pair().await;
            let mut buf = [0; 16];
            for _ in 0..3 {
                let early = crate::timeout(Duration::from_millis(1), server.recv(&mut buf)).await;
                assert!(early.is_err());
            }
            client.send_all(b"hello").await.unwrap();
            assert_eq!(server.recv(&mut buf).await.unwrap(), 5);
            assert_eq!(&buf[..5], b"hello");
        })
        .unwrap();
    }
}

#[test]
fn closing_reaches_the_peer_although_a_poll_was_armed() {
    for poll in POLICIES {
        run(config(poll), async move {
            let (client, server) = pair().await;
            let reader = spawn(async move {
                let mut buf = [0; 16];
                server.recv(&mut buf).await
            });
            // A poll of the ring is armed when the reactor goes to sleep; one that never does has none.
            let before = crate::metrics::here().sleeps;
            while poll != PollPolicy::Busy && crate::metrics::here().sleeps == before {
                sleep(Duration::from_micros(500)).await;
            }
            reader.abort();
            let mut buf = [0; 1];
            assert_eq!(client.recv(&mut buf).await.unwrap(), 0);
        })
        .unwrap();
    }
}

#[test]
fn refused_connections_say_so() {
    run(Config::default(), async {
        let listener = TcpListener::bind(localhost(), ListenOptions::default()).unwrap();
        let addr = listener.local_addr().unwrap();
        drop(listener);
        let error = TcpStream::connect(addr).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    })
    .unwrap();
}

#[test]
fn an_address_in_use_says_so() {
    run(Config::default(), async {
        let first = TcpListener::bind(localhost(), ListenOptions::default()).unwrap();
        let addr = first.local_addr().unwrap();
        let second = TcpListener::bind(addr, ListenOptions::default());
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    })
    .unwrap();
}

#[test]
fn ipv6_where_there_is_any() {
    run(Config::default(), async {
        let addr = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        let options = ListenOptions { v6_only: true, ..ListenOptions::default() };
        let Ok(listener) = TcpListener::bind(addr, options) else { return };
        let addr = listener.local_addr().unwrap();
        let client = spawn(async move { TcpStream::connect(addr).await.unwrap() });
        let (server, _) = listener.accept().await.unwrap();
        assert_eq!(server.peer_addr().unwrap(), client.await.unwrap().local_addr().unwrap());
    })
    .unwrap();
}

#[test]
fn a_connection_moves_to_another_reactor() {
    let other =
        crate::Reactor::start(Config { name: "other".into(), ..Config::default() }).unwrap();
    let handle = other.clone();
    run(Config::default(), async move {
        let (client, server) = pair().await;
        let mut buf = [0; 4];
        client.send_all(b"one!").await.unwrap();
        server.recv_exact(&mut buf).await.unwrap();
        let fd = server.into_fd().unwrap();
        let answered = handle.call(move || async move {
            let server = TcpStream::from_fd(fd).unwrap();
            echo(server).await;
        });
        client.send_all(b"two!").await.unwrap();
        client.recv_exact(&mut buf).await.unwrap();
        assert_eq!(&buf, b"two!");
        drop(client);
        answered.await.unwrap();
    })
    .unwrap();
    other.stop();
    other.join().unwrap();
}

#[test]
fn one_flooding_connection_does_not_starve_another() {
    run(config(PollPolicy::Busy), async {
        let (flood, sink) = pair().await;
        let (client, server) = pair().await;
        drop(spawn(echo(server)));
        drop(spawn(async move {
            let data = vec![0; 1 << 20];
            while flood.send_all(&data).await.is_ok() {
                yield_now().await;
            }
        }));
        drop(spawn(async move {
            let mut buf = vec![0; 1 << 16];
            while sink.recv(&mut buf).await.is_ok_and(|n| n > 0) {}
        }));
        let mut answer = [0; 8];
        let mut worst = 0;
        for _ in 0..200 {
            let turn = crate::metrics::here().turns;
            client.send_all(&[1; 8]).await.unwrap();
            client.recv_exact(&mut answer).await.unwrap();
            worst = worst.max(crate::metrics::here().turns - turn);
        }
        assert!(worst < 100, "{worst} turns for a round trip");
    })
    .unwrap();
}

#[test]
fn somebody_else_looks_while_a_task_waits_and_goes_on_waiting() {
    for policy in POLICIES {
        let waited = run(config(policy), async {
            let (client, server) = pair().await;
            let client = std::rc::Rc::new(client);
            let theirs = std::rc::Rc::clone(&client);
            let waiting = spawn(async move {
                let mut bytes = [0; 8];
                let received = theirs.recv(&mut bytes).await.unwrap();
                bytes[..received].to_vec()
            });
            for _ in 0..8 {
                yield_now().await;
            }
            let mut bytes = [0; 8];
            let nothing = client.look(&mut bytes).unwrap_err();
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
            // Within this machine it is there when the send returns, and nobody else runs between.
            server.send_all(b"one").await.unwrap();
            assert_eq!(client.look(&mut bytes).unwrap(), 3);
            yield_now().await;
            server.send_all(b"two").await.unwrap();
            waiting.await
        });
        assert_eq!(waited.unwrap().unwrap(), b"two", "{policy:?}");
    }
}

#[test]
fn busy_polling_is_asked_for_and_no_card_is_found_within_this_machine() {
    run(config(PollPolicy::Interrupt), async {
        let (client, server) = pair().await;
        if let Err(error) = client.set_busy_poll(Duration::from_micros(50)) {
            // More than the system's own takes a capability.
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
        server.send_all(b"x").await.unwrap();
        client.recv_exact(&mut [0]).await.unwrap();
        assert_eq!(client.napi_id().unwrap(), None);
    })
    .unwrap();
}

/// A host whose socket had to wait for data was thrown out without a word when strangers' sockets had all the ring's
/// slots.
#[test]
fn a_connection_without_a_slot_to_wait_in_goes_on() {
    let config = Config { poll: crate::PollPolicy::Interrupt, ..Config::default() };
    run(config, async {
        let silent = Rc::new(crate::sys::eventfd().unwrap());
        let poll = || with(|core| core.driver.ring().unwrap().start_poll(&silent, libc::POLLIN));
        let waits: Vec<_> = std::iter::from_fn(poll).collect();
        assert!(waits.len() >= 2 * crate::CONNECTIONS_MAX);
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let (here, there) =
            (TcpStream::from_fd(here.into()).unwrap(), TcpStream::from_fd(there.into()).unwrap());
        let echo = spawn(async move {
            let mut bytes = [0; 64 << 10];
            for _ in 0..64 {
                there.recv_exact(&mut bytes).await.unwrap();
                there.send_all(&bytes).await.unwrap();
            }
        });
        let mut bytes = vec![7; 64 << 10];
        for _ in 0..64 {
            here.send_all(&bytes).await.unwrap();
            here.recv_exact(&mut bytes).await.unwrap();
        }
        echo.await.unwrap();
        drop(waits);
    })
    .unwrap();
}

#[test]
fn packets_keep_their_borders_and_bring_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let there = path.clone();
    run(Config::default(), async move {
        // Of one that was killed the kernel may still hold the socket.
        let before = UnixListener::bind_packets(&there).unwrap();
        let listener = UnixListener::bind_packets(&there).unwrap();
        std::mem::forget(before);
        let here = TcpStream::connect_packets(&there).unwrap();
        let other = TcpStream::from_fd(listener.accept_fd().await.unwrap()).unwrap();
        assert_eq!(other.peer_user().unwrap(), crate::user());
        here.send_all(b"one").await.unwrap();
        here.send_all(b"other").await.unwrap();
        let mut bytes = [0; 16];
        assert_eq!(other.recv(&mut bytes).await.unwrap(), 3);
        assert_eq!(other.recv(&mut bytes).await.unwrap(), 5);
        let bells: Vec<_> = (0..5).map(|_| crate::sys::eventfd().unwrap()).collect();
        let sent: Vec<_> = bells.iter().map(AsFd::as_fd).collect();
        other.send_packet(b"five", &sent).await.unwrap();
        let mut received = Vec::new();
        assert_eq!(here.recv_fds(&mut bytes, &mut received).await.unwrap(), 4);
        assert_eq!(received.len(), 5);
        for (bell, copy) in bells.iter().zip(&received) {
            crate::sys::write_count(copy).unwrap();
            crate::sys::read_count(bell).unwrap();
        }
        let refused = other.send_packet(b"many", &[bells[0].as_fd(); 17]).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        drop(other);
        assert_eq!(here.recv(&mut bytes).await.unwrap(), 0, "the end");
    })
    .unwrap();
    assert!(!path.exists());
    let long = dir.path().join("x".repeat(108));
    let refused =
        run(Config::default(), async move { UnixListener::bind_packets(&long).map(drop) });
    assert_eq!(refused.unwrap().unwrap_err().kind(), io::ErrorKind::InvalidInput);
}
