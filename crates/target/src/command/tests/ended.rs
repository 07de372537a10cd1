//! Commands that wait for blocks, and end where they wait: they were aborted, or their queue ends.
//!
//! They waited on, for as long as whoever held the blocks: a queue that had lost its host did not end before, and with it
//! its controller, and an Abort was answered with "not aborted".

use std::pin::Pin;
use std::rc::Rc;

use nvme::identify::bits;
use nvme::nvm::CopyFormat;
use nvme::opcode::io as nvm;
use nvme::sqe::Sqe;
use nvme::status::Status;

use super::by_drive::{Says, Scripted};
use super::double::*;
use super::io::{copy_sqe, dsm, range, sources0, write_sqe};
use crate::command::{Attached, Reply, compare_and_write};

type Waits = Pin<Box<dyn Future<Output = Vec<Status>>>>;

/// Commands for the blocks 0 to 7, each with the hosts that may end it, one for each of its entries.
fn all(at: &Rc<Attached>) -> Vec<(&'static str, Vec<Rc<Double>>, Waits)> {
    let ranged = |opcode| {
        let mut sqe = Sqe::new(opcode, 1, 1);
        sqe.cdw12 = 7.into();
        (sqe, Vec::new())
    };
    let block = pattern(1, 4096);
    let list = sources0(&[(32, 8)]);
    let single = [
        ("write", (write_sqe(range(0, 1)), block.clone())),
        ("write zeroes", ranged(nvm::WRITE_ZEROES)),
        ("write uncorrectable", ranged(nvm::WRITE_UNCORRECTABLE)),
        ("deallocate", dsm(true, &[(0, 8), (100, 8)])),
        ("copy", (copy_sqe(0, 1, CopyFormat::Format0), list)),
    ];
    let mut all: Vec<(_, _, Waits)> = Vec::new();
    for (name, (mut sqe, data)) in single {
        let host = Rc::new(Double::with(&data, By::Capsule));
        if !data.is_empty() {
            host.describe(&mut sqe, data.len());
        }
        let (at, its) = (Rc::clone(at), Rc::clone(&host));
        all.push((
            name,
            vec![host],
            Box::pin(async move { vec![its.run(&at, &sqe).await.status] }),
        ));
    }
    let mut halves = Vec::new();
    for opcode in [nvm::COMPARE, nvm::WRITE] {
        let host = Rc::new(Double::with(&block, By::Capsule));
        let mut sqe = Sqe::new(opcode, 1, 1);
        sqe.flags |= if opcode == nvm::COMPARE { 1 } else { 2 };
        host.describe(&mut sqe, block.len());
        halves.push((sqe, host));
    }
    let hosts = halves.iter().map(|(_, host)| Rc::clone(host)).collect();
    let at = Rc::clone(at);
    let pair = async move {
        let [(compare, first), (write, second)] = &halves[..] else { unreachable!() };
        let pair = compare_and_write(&at, (compare, &**first), (write, &**second));
        let (one, other): (Reply, Reply) = first.guard(second.guard(pair)).await;
        vec![one.status, other.status]
    };
    all.push(("compare and write", hosts, Box::pin(pair)));
    all
}

fn drive() -> Scripted {
    let mut says = Says::new();
    let can = bits::ONCS_WRITE_ZEROES | bits::ONCS_WRITE_UNCORRECTABLE;
    says.controller.oncs = (says.controller.oncs.get() | can).into();
    Scripted::new(says, |_| None)
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
enum For {
    Hold,
    LostQueue,
}

#[test]
fn what_waits_for_blocks_ends_with_its_queue_and_leaves_nothing() {
    on_reactor(async {
        let drive = drive();
        let place = drive.place();
        let at = place.attach(HOST);
        let ranges = at.ranges();
        for wait in [For::Hold, For::LostQueue] {
            for (n, ends) in [0, 0, 0, 0, 0, 0, 1].into_iter().enumerate() {
                let (name, hosts, mut waits) = all(&at).swap_remove(n.min(5));
                let held = match wait {
                    For::Hold => Some(at_once(ranges.hold(range(0, 1))).unwrap()),
                    For::LostQueue => None,
                };
                let lost = held.is_none().then(|| ranges.try_enter(2, range(0, 1)).unwrap());
                ranges.lose(2);
                assert!(at_once(waits.as_mut()).is_none(), "{name} waits for {wait:?}");
                hosts[ends].ended.set(true);
                let done = at_once(waits.as_mut()).unwrap_or_else(|| panic!("{name}: {wait:?}"));
                let mut expected = vec![Status::ABORTED_FAILED_FUSED; hosts.len()];
                expected[ends] = Status::ABORTED_SQ_DELETION;
                assert_eq!(done, expected, "{name}");
                drop((held, lost));
                assert!(ranges.is_idle(), "{name} left something behind");
                assert_eq!(drive.got().len(), 0, "{name} went to the drive");
            }
        }
    });
}

/// It has claimed the block already, and waits for what is under way there.
#[test]
fn a_compare_and_write_that_waits_for_others_to_leave_ends_and_lets_them_in() {
    on_reactor(async {
        let drive = drive();
        let place = drive.place();
        let at = place.attach(HOST);
        for ends in [0, 1] {
            let under_way = at.ranges().try_enter(2, range(0, 8)).unwrap();
            let (_, hosts, mut pair) = all(&at).pop().unwrap();
            assert!(at_once(pair.as_mut()).is_none());
            assert!(!at.ranges().may_enter(range(0, 1)));
            hosts[ends].ended.set(true);
            assert!(at_once(pair.as_mut()).is_some());
            assert!(at.ranges().may_enter(range(0, 1)));
            drop(under_way);
            assert!(at.ranges().is_idle());
        }
    });
}
