use super::*;
use crate::rdma::staging::Staging;
use nvme::fabrics::{Connect, ConnectAttributes, PropertyGet, PropertySize};
use nvme::opcode::io;
use nvme::sqe::Sgl;
use std::collections::HashSet;
use std::rc::Rc;

fn command(opcode: u8, cid: u16, length: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, cid, 1);
    sqe.dptr = Sgl::transport(length);
    sqe
}

fn ok(cid: u16) -> Cqe {
    Cqe::new(cid, Status::SUCCESS)
}

/// Sends the first in line, its data in a place of `staging`.
fn start(commands: &mut Commands, staging: &Rc<Staging>) -> verbs::Place {
    let length = commands.front().unwrap().staged();
    let place = staging.try_take(length).unwrap();
    let at = place.at();
    commands.start(Some(place));
    at
}

#[test]
fn data_is_told_before_its_response_and_its_place_is_kept_until_then() {
    let staging = Staging::new(8192);
    let mut commands = Commands::new(2, 2);
    assert_eq!(commands.push(&command(io::READ, 1, 8192), 0), None);
    let place = start(&mut commands, &staging);
    commands.sent(1);
    assert!(!commands.has_done());
    commands.respond(ok(1)).unwrap();
    assert_eq!(commands.next(), Some(Next::Data { cid: 1, place }));
    assert!(staging.try_take(1).is_none());
    assert_eq!(commands.next(), Some(Next::DataEnd { cid: 1 }));
    assert!(staging.try_take(1).is_some());
    assert_eq!(commands.next(), Some(Next::Response(ok(1))));
    assert_eq!(commands.next(), None);
    // The identifier is free.
    commands.push(&command(io::READ, 1, 512), 0);
}

#[test]
fn a_command_that_failed_has_no_data() {
    let staging = Staging::new(4096);
    let mut commands = Commands::new(1, 1);
    commands.push(&command(io::READ, 0, 4096), 0);
    start(&mut commands, &staging);
    commands.sent(0);
    let failed = Cqe::new(0, Status::DATA_TRANSFER_ERROR);
    commands.respond(failed).unwrap();
    assert_eq!((commands.next(), commands.next()), (Some(Next::Response(failed)), None));
    assert!(staging.try_take(4096).is_some());
}

/// A response may be here before the card has heard that its command is there, and may have to send that again.
#[test]
fn a_capsule_that_is_still_the_cards_is_not_written_to() {
    let mut commands = Commands::new(1, 1);
    commands.push(&command(io::FLUSH, 0, 0), 0);
    commands.start(None);
    commands.respond(ok(0)).unwrap();
    assert_eq!((commands.has_done(), commands.next()), (false, None));
    commands.sent(0);
    assert_eq!(commands.next(), Some(Next::Response(ok(0))));
}

#[test]
fn what_a_controller_makes_up_is_told_from_what_it_answers() {
    let mut commands = Commands::new(2, 2);
    assert!(commands.respond(ok(0)).is_err(), "never sent");
    assert!(commands.respond(ok(2)).is_err(), "no such identifier");
    commands.push(&command(io::FLUSH, 0, 0), 0);
    assert!(commands.respond(ok(0)).is_err(), "not sent yet");
    commands.start(None);
    commands.respond(ok(0)).unwrap();
    assert!(commands.respond(ok(0)).is_err(), "answered, and its capsule is the card's");
    commands.sent(0);
    assert!(commands.respond(ok(0)).is_err(), "answered, and not told of yet");
    assert_eq!(commands.next(), Some(Next::Response(ok(0))));
    assert!(commands.respond(ok(0)).is_err(), "over");
}

#[test]
fn the_controller_gets_no_more_than_it_has_room_for() {
    let mut commands = Commands::new(4, 2);
    for cid in 0..4 {
        commands.push(&command(io::FLUSH, cid, 0), 0);
    }
    for cid in 0..2 {
        assert_eq!(commands.front().map(Unsent::cid), Some(cid));
        commands.start(None);
    }
    assert!(commands.front().is_none() && !commands.is_flushed());
    commands.sent(1);
    commands.respond(ok(1)).unwrap();
    assert!(commands.front().is_none(), "it is not told of yet");
    assert_eq!(commands.next(), Some(Next::Response(ok(1))));
    assert_eq!(commands.front().map(Unsent::cid), Some(2));
}

#[test]
fn more_than_there_is_room_for_is_refused_and_nothing_waits_for_it() {
    let mut commands = Commands::new(2, 2);
    assert_eq!(commands.push(&command(io::WRITE, 0, TRANSFER_BYTES + 1), 0), None);
    assert!(commands.is_flushed() && commands.has_done());
    let Some(Next::Response(cqe)) = commands.next() else { panic!("it is answered") };
    assert!(cqe.status().is(Status::DATA_SGL_LENGTH_INVALID), "{}", cqe.status());
    assert!(commands.push(&command(io::WRITE, 0, TRANSFER_BYTES), 0).is_some());
}

#[test]
fn data_goes_in_the_capsule_or_beside_it_by_its_direction() {
    let connect =
        Connect { recfmt: 0, qid: 1, sqsize: 7, attributes: ConnectAttributes(0), kato: 0 };
    let mut connect = connect.to_sqe(3);
    connect.dptr = Sgl::transport(1024);
    let mut get = PropertyGet { offset: 0, size: PropertySize::Eight }.to_sqe(4);
    get.dptr = Sgl::transport(0);
    let piece = |cid, length| Some(Piece { cid, at: 0, length });
    for (sqe, in_capsule, staged, sent) in [
        (command(io::WRITE, 1, 4096), 4096, 0, piece(1, 4096)),
        (command(io::WRITE, 1, 4096), 0, 4096, piece(1, 4096)),
        (command(io::WRITE, 1, 8192), 4096, 8192, piece(1, 8192)),
        (command(io::READ, 2, 512), 0, 512, None),
        (connect, 0, 1024, piece(3, 1024)),
        (connect, 1024, 0, piece(3, 1024)),
        (get, 0, 0, None),
        // The opcodes of direct write windows: they are others' for other vendors, and say their direction the same way.
        (command(0xc2, 5, 512), 0, 512, None),
        (command(0xc1, 5, 512), 0, 512, piece(5, 512)),
    ] {
        let unsent = Unsent::new(&sqe, in_capsule);
        assert_eq!((unsent.staged(), unsent.to_send()), (staged, sent), "{sqe:?}");
    }
}

/// Whatever the order in which cards and controllers are done, each command is told of once, and all places come back.
#[test]
fn every_command_is_told_of_once_whatever_the_order() {
    const COUNT: u16 = 8;
    let mut random = stdx::Prng::new(31);
    let staging = Staging::new(usize32(TRANSFER_BYTES));
    let mut commands = Commands::new(COUNT, 5);
    let (mut used, mut sending, mut asked) = (HashSet::new(), Vec::new(), Vec::new());
    let (mut begun, mut told) = (0, 0);
    while told < 3000 {
        let cid = stdx::num::low16(random.below(u64::from(COUNT)));
        if begun < 3000 && used.insert(cid) {
            let opcode = [io::READ, io::WRITE, io::FLUSH][stdx::num::usize64(random.below(3))];
            let length = [0, 512, TRANSFER_BYTES][stdx::num::usize64(random.below(3))];
            commands.push(&command(opcode, cid, length), 0);
            begun += 1;
        }
        while let Some(first) = commands.front() {
            let (cid, staged) = (first.cid(), first.staged());
            let place = if staged == 0 { None } else { staging.try_take(staged) };
            if staged > 0 && place.is_none() {
                break;
            }
            commands.start(place);
            sending.push(cid);
            asked.push(cid);
        }
        for (list, is_send) in [(&mut sending, true), (&mut asked, false)] {
            if !list.is_empty() && random.below(2) == 0 {
                let at = stdx::num::usize64(random.below(stdx::num::u64_of(list.len())));
                let cid = list.swap_remove(at);
                if is_send { commands.sent(cid) } else { commands.respond(ok(cid)).unwrap() }
            }
        }
        while let Some(next) = commands.next() {
            if let Next::Response(cqe) = next {
                assert!(used.remove(&cqe.cid.get()));
                assert!(!sending.contains(&cqe.cid.get()));
                told += 1;
            }
        }
    }
    assert!(commands.is_flushed() && staging.try_take(usize32(TRANSFER_BYTES)).is_some());
}
