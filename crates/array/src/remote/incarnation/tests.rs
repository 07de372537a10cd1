use std::time::Duration;

use initiator::Supports;

use super::*;

fn core() -> Core {
    let place = "tcp://192.0.2.1/nqn.2026-11.io.flashloom:logs/1".parse().unwrap();
    Core::new(place, Uuid::from_u128(1), Takes::Nodes)
}

fn geometry(blocks: u64) -> Geometry {
    let supports = Supports {
        write_zeroes: true,
        zeroes_deallocate: true,
        deallocate: true,
        deallocated_reads_zeroes: true,
        compare: true,
        verify: true,
        reservations: true,
        reservations_persist: false,
    };
    Geometry {
        block_bytes: 512,
        blocks,
        transfer_max_bytes: 1 << 20,
        atomic_blocks: 1,
        atomic_power_fail_blocks: 1,
        optimal_write_blocks: 1,
        supports,
        copy: None,
        volatile_cache: false,
        read_only: false,
        identity: Default::default(),
    }
}

async fn claimed(core: &Core) -> Arc<Incarnation> {
    match core.next().await.unwrap() {
        Next::Claim(incarnation) => incarnation,
        Next::Use(incarnation) => panic!("{incarnation:?} is held"),
    }
}

#[test]
fn each_incarnation_is_another_host_of_the_same_node() {
    reactor::simulate(1, async {
        let core = core();
        assert_eq!((core.current(), core.capacity(), core.block()), (None, 0, 4096));
        let first = claimed(&core).await;
        assert!(core.hold(first.number, &geometry(16)));
        assert_eq!((core.current(), core.capacity()), (Some(first.number), 8192));
        assert_eq!((core.block(), core.has_volatile_cache()), (512, false));
        let Next::Use(used) = core.next().await.unwrap() else { panic!("it is held") };
        assert_eq!(used, first);

        core.end(first.number, Why::gone("cut"));
        assert_eq!(core.current(), None);
        assert_eq!(core.next().await.unwrap_err(), Why::gone("cut"), "no attempt so soon");
        reactor::sleep(REMOTE_ATTEMPTS).await;
        let second = claimed(&core).await;
        assert_eq!(first.host.nqn, second.host.nqn);
        assert_ne!(first.host.id, second.host.id);
        assert_ne!(first.key, second.key);
        assert!(first.key.is_of_drive(second.key.settled()));
        assert_eq!((first.takes, second.takes), (Takes::Nodes, Takes::Own));
        // What is told late of the first is nothing to the second.
        core.end(first.number, Why::gone("late"));
        assert!(!core.hold(first.number, &geometry(16)));
        assert!(core.hold(second.number, &geometry(16)));
    });
}

#[test]
fn after_a_failed_attempt_the_next_one_waits() {
    reactor::simulate(1, async {
        let core = core();
        for failure in ["one", "two"] {
            let incarnation = claimed(&core).await;
            assert_eq!(incarnation.takes, Takes::Nodes, "none was held");
            reactor::sleep(Duration::from_secs(2)).await;
            core.end(incarnation.number, Why::gone(failure));
            reactor::sleep(REMOTE_ATTEMPTS - Duration::from_millis(10)).await;
            assert_eq!(core.next().await.unwrap_err(), Why::gone(failure));
            reactor::sleep(Duration::from_millis(10)).await;
        }
        // One that was in use for long is taken again at once.
        let incarnation = claimed(&core).await;
        assert!(core.hold(incarnation.number, &geometry(16)));
        reactor::sleep(REMOTE_ATTEMPTS).await;
        core.end(incarnation.number, Why::gone("cut"));
        assert_eq!(claimed(&core).await.number, incarnation.number + 1);
    });
}

#[test]
fn a_claim_that_takes_long_is_not_waited_for() {
    reactor::simulate(1, async {
        let core = Arc::new(core());
        let incarnation = claimed(&core).await;
        let waits = Arc::clone(&core);
        let waiting = reactor::spawn(async move { waits.next().await });
        reactor::sleep(REMOTE_OPERATION).await;
        assert!(!waiting.is_finished());
        assert!(core.next().await.unwrap_err().words.contains("in flight"));
        assert!(core.hold(incarnation.number, &geometry(16)));
        assert!(matches!(waiting.await.unwrap(), Ok(Next::Use(_))));
    });
}

#[test]
fn only_what_was_in_use_to_the_last_is_left_in_order() {
    reactor::simulate(1, async {
        for (fails, over) in [(false, Over::Left), (true, Over::Failed)] {
            let core = core();
            let incarnation = claimed(&core).await;
            assert!(core.hold(incarnation.number, &geometry(16)));
            if fails {
                core.end(incarnation.number, Why::gone("given up"));
            }
            core.close();
            assert_eq!(core.over(incarnation.number).await, over);
            assert!(core.next().await.unwrap_err().words.contains("closed"));
            core.closed().await;
        }
    });
}

#[test]
fn an_end_that_was_cut_off_is_an_error() {
    reactor::simulate(1, async {
        let core = core();
        core.look(&geometry(8)).unwrap();
        assert_eq!(core.capacity(), 0, "it is not held yet");
        let incarnation = claimed(&core).await;
        assert!(core.hold(incarnation.number, &geometry(16)));
        assert!(core.look(&geometry(8)).unwrap_err().words.contains("cut off"));
        core.look(&geometry(32)).unwrap();
        assert_eq!(core.capacity(), 16384);
    });
}
