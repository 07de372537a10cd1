//! What is there of a namespace's blocks for each host, whatever another one has of them.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::rc::Rc;

use nvme::opcode::io as nvm;
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::budget::{Account, Ledger};

use super::by_drive::{Says, Scripted};
use super::double::*;
use super::io::{dsm, range};
use crate::budget::Share;
use crate::command::{Attached, compare_and_write};
use crate::limits::{HOLDS_MAX, MAX_RANGES_IN_FLIGHT, RANGES_TOGETHER_MAX, holds_of_core};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn of(share: &Rc<Share>, data: &[u8]) -> Double {
    let mut host = Double::with(data, By::Capsule);
    host.share = Some(Rc::clone(share));
    host
}

type Waits<T> = Pin<Box<dyn Future<Output = T>>>;

/// A Compare and Write of one block, which is zeroes.
fn exchange(at: &Rc<Attached>, share: &Rc<Share>, block: u64) -> Waits<Status> {
    let (at, share) = (Rc::clone(at), Rc::clone(share));
    Box::pin(async move {
        let data = vec![0; 4096];
        let [compare, write] = [(nvm::COMPARE, 1), (nvm::WRITE, 2)].map(|(opcode, fuse)| {
            let mut sqe = Sqe::new(opcode, 1, 1);
            sqe.flags |= fuse;
            sqe.cdw10 = u32::try_from(block).unwrap().into();
            let host = of(&share, &data);
            host.describe(&mut sqe, data.len());
            (sqe, host)
        });
        let pair = compare_and_write(&at, (&compare.0, &compare.1), (&write.0, &write.1));
        compare.1.guard(write.1.guard(pair)).await.1.status
    })
}

/// One host had all that may be held, and each of its thousands of others a place before everybody else's.
#[test]
fn one_hosts_compares_and_writes_leave_others_a_place() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, 8192, 4096).await;
        let at = place.attach(HOST);
        let greedy = Share::of_host("greedy", HERE);
        let under_way = at.ranges().try_enter(2, range(0, 4000)).unwrap();
        let mut all: Vec<_> = (0..4000).map(|block| exchange(&at, &greedy, block)).collect();
        assert!(all.iter_mut().all(|pair| at_once(pair.as_mut()).is_none()), "it is under way");
        let held = (0..4000).filter(|block| !at.ranges().may_enter(range(*block, 1))).count();
        assert!(held > 0 && held <= HOLDS_MAX / 3 * 2 + 1, "{held}");
        for (name, address) in [("other", THERE), ("also", HERE)] {
            let mut other = exchange(&at, &Share::of_host(name, address), 5000);
            assert_eq!(at_once(other.as_mut()), Some(Status::SUCCESS), "{name}");
        }
        drop(under_way);
        for pair in all {
            assert_eq!(pair.await, Status::SUCCESS, "each has its turn");
        }
        assert!(at.ranges().is_idle());
    });
}

/// Cores that serve a namespace share what may be held of it.
#[test]
fn cores_share_what_may_be_held() {
    assert_eq!([0, 1, 2, 8].map(holds_of_core), [64, 64, 32, 8]);
    on_reactor(async {
        let fence = std::sync::Arc::default();
        let join = || crate::command::ranges::Ranges::join(std::sync::Arc::clone(&fence));
        let here = join();
        let others = [join(), join(), join()];
        reactor::yield_now().await;
        let total = |ranges: &crate::command::ranges::Ranges| ranges.holding().total();
        assert!([&here, &others[0], &others[2]].into_iter().all(|core| total(core) == 16));
        drop(others);
        reactor::yield_now().await;
        assert_eq!(total(&here), HOLDS_MAX);
    });
}

/// One host's Deallocates of many ranges had all there was room for, and nobody else's write could begin.
#[test]
fn one_hosts_commands_of_many_ranges_leave_others_room() {
    on_reactor(async {
        let drive = Scripted::new(Says::new(), |_| None);
        let place = drive.place();
        let at = place.attach(HOST);
        let greedy = Share::of_host("greedy", HERE);
        // Each has entered, and waits for its turn to work.
        let turns = Account::new(&Ledger::new(1));
        let turn = turns.try_take(1).unwrap();
        let many: Vec<_> = (0..256).map(|n| (n * 2, 1)).collect();
        let free = |share: &Rc<Share>, ranges: &[(u64, u32)]| -> Waits<Status> {
            let (mut sqe, list) = dsm(true, ranges);
            let mut host = of(share, &list);
            host.turns = Rc::clone(&turns);
            host.describe(&mut sqe, list.len());
            let at = Rc::clone(&at);
            Box::pin(async move { host.run(&at, &sqe).await.status })
        };
        let mut all: Vec<_> =
            (0..=MAX_RANGES_IN_FLIGHT / 256).map(|_| free(&greedy, &many)).collect();
        assert!(all.iter_mut().all(|one| at_once(one.as_mut()).is_none()));
        let together = at.ranges().together();
        assert!(together.used() <= RANGES_TOGETHER_MAX / 3 * 2 + 256, "{}", together.used());
        assert!(at.ranges().try_enter(3, range(0, 1)).is_some());
        let mut other = free(&Share::of_host("other", THERE), &[(1000, 1), (2000, 1)]);
        assert!(at_once(other.as_mut()).is_none());
        assert_eq!(together.used() % 256, 2, "it has entered, too");
        drop(turn);
        all.push(other);
        let all: Vec<_> = all.into_iter().map(reactor::spawn).collect();
        for one in all {
            assert_eq!(one.await, Some(Status::SUCCESS));
        }
        assert!(at.ranges().is_idle());
    });
}
