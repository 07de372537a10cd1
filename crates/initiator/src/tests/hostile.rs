//! Controllers that send what they must not.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::{SUBNQN, on_reactor};
use crate::scripted::{Fault, Script, Scripted};
use crate::{Error, Fencing, Fua, HostIdentity, Namespace, Options, Remote};

/// Rounds of a hostile controller; `FLASHLOOM_HOSTILE` makes it more.
fn rounds() -> u64 {
    std::env::var("FLASHLOOM_HOSTILE").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

/// Commands in flight while the controller answers by nearly right PDUs end in one of the ways they may: an
/// error with a type, or an answer; memory of others stays as it was; and when the controller behaves again, so
/// does the namespace.
#[test]
fn nearly_right_pdus_end_in_errors_and_harm_nobody() {
    on_reactor(async {
        let peer = Scripted::start(Script { seed: 1, in_capsule: 1024, ..Script::default() });
        let remote = Remote {
            traddr: peer.addr.ip().to_string(),
            trsvcid: peer.addr.port(),
            subnqn: SUBNQN.to_owned(),
            host: HostIdentity::named("nqn.2026-11.io.flashloom:host"),
            options: Options {
                io_timeout: Duration::from_millis(40),
                fast_io_fail: Some(Duration::ZERO),
                reconnect_delay: Duration::from_millis(2),
                fencing: Fencing::Trusted,
                queue_size: 4,
                ..Options::default()
            },
        };
        let namespace = Namespace::attach(&remote, 1).await.unwrap();
        let failed = Rc::new(Cell::new(0));
        for round in 0..rounds() {
            peer.set_fault(Fault::Hostile);
            let tasks: Vec<_> = (0..3)
                .map(|task| {
                    let (namespace, failed) = (namespace.clone(), Rc::clone(&failed));
                    reactor::spawn(async move {
                        let mut buffer = namespace.buffer(8192).await;
                        buffer.fill(0xaa);
                        let result = if (round + task) % 2 == 0 {
                            namespace.read(task * 8, 4, &mut buffer).await
                        } else {
                            namespace.write(task * 8, 4, &mut buffer, Fua::No).await
                        };
                        match result {
                            Ok(()) | Err(Error::Command { .. } | Error::Away { .. }) => {}
                            Err(Error::InDoubt(_)) => {}
                            Err(error) => panic!("round {round}: {error}"),
                        }
                        failed.set(failed.get() + u64::from(result.is_err()));
                        assert!(buffer[2048..].iter().all(|&byte| byte == 0xaa));
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("a command panicked");
            }
            peer.set_fault(Fault::None);
            let mut buffer = namespace.buffer(512).await;
            buffer.fill(7);
            while namespace.write(100, 1, &mut buffer, Fua::No).await.is_err() {
                reactor::sleep(Duration::from_millis(1)).await;
            }
            buffer.fill(0);
            namespace.read(100, 1, &mut buffer).await.unwrap();
            assert!(buffer.iter().all(|&byte| byte == 7), "round {round}");
        }
        assert!(failed.get() > rounds(), "{} of {} commands failed", failed.get(), 3 * rounds());
        assert!(peer.seen().0 > 10, "{:?}", peer.seen());
    });
}
