use std::io::Error;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use media::memory::{Region, RegionOptions};
use nvme::nqn::Nqn;
use nvme::opcode::io;
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::yield_now;

use super::double::*;
use super::io::{range, read, read_sqe, write, write_sqe};
use crate::command::Attached;
use crate::namespace::{Backend, Namespace, NamespaceSpec};
use crate::reservation::{HostId, Keeper, Keeping, Notice, NoticeKind, Saved, keep};

fn keys(first: u64, second: u64) -> Vec<u8> {
    [first.to_le_bytes(), second.to_le_bytes()].concat()
}

async fn send(at: &Attached, opcode: u8, cdw10: u32, first: u64, second: u64) -> Status {
    send_by(at, opcode, cdw10, &Double::with(&keys(first, second), By::Capsule)).await
}

async fn send_by(at: &Attached, opcode: u8, cdw10: u32, host: &Double) -> Status {
    let mut sqe = Sqe::new(opcode, 1, 1);
    sqe.cdw10 = cdw10.into();
    host.describe(&mut sqe, if opcode == io::RESERVATION_RELEASE { 8 } else { 16 });
    host.run(at, &sqe).await.status
}

const ACQUIRE: u8 = io::RESERVATION_ACQUIRE;
const REGISTER: u8 = io::RESERVATION_REGISTER;
const RELEASE: u8 = io::RESERVATION_RELEASE;
const CONFLICT: Status = Status::RESERVATION_CONFLICT;

#[test]
fn a_reservation_keeps_another_hosts_commands_out_until_it_is_released() {
    on_reactor(async {
        for on in EVERYWHERE {
            let place = Place::new(on, 1, 16, 512).await;
            let (mine, theirs) = (place.attach(HOST), place.attach(OTHER));
            assert_eq!(write(&theirs, 0, &[1; 512], By::R2t).await, Status::SUCCESS);
            assert_eq!(send(&mine, REGISTER, 0, 0, 7).await, Status::SUCCESS);
            assert_eq!(send(&mine, ACQUIRE, 1 << 8, 7, 0).await, Status::SUCCESS);
            assert!(write(&theirs, 0, &[2; 512], By::Capsule).await.is(CONFLICT));
            assert_eq!(read(&theirs, range(0, 1)).await, [1; 512], "Write Exclusive: reads pass");
            assert_eq!(write(&mine, 0, &[3; 512], By::Capsule).await, Status::SUCCESS);
            let flush = Double::none().run(&theirs, &Sqe::new(io::FLUSH, 1, 1)).await;
            assert!(flush.status.is(CONFLICT));
            assert!(send(&theirs, ACQUIRE, 1 << 8, 0, 0).await.is(CONFLICT));
            assert_eq!(send(&mine, RELEASE, 1 << 8, 7, 0).await, Status::SUCCESS);
            assert_eq!(write(&theirs, 0, &[4; 512], By::Capsule).await, Status::SUCCESS);
        }
    });
}

/// Two hosts without a Host Identifier were one registrant: the one was let in by what the other had reserved.
#[test]
fn hosts_without_an_identifier_cannot_use_reservations_and_are_kept_out_by_them() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, 16, 512).await;
        let (named, nameless) = (place.attach(HOST), place.attach(HostId([0; 16])));
        for (opcode, cdw10) in [(REGISTER, 0), (ACQUIRE, 1 << 8), (RELEASE, 1 << 8)] {
            let status = send(&nameless, opcode, cdw10, 0, 7).await;
            assert!(status.is(Status::HOST_IDENTIFIER_NOT_INITIALIZED), "{opcode:#x} {status:?}");
        }
        assert_eq!(send(&named, REGISTER, 0, 0, 7).await, Status::SUCCESS);
        assert_eq!(send(&named, ACQUIRE, 1 << 8, 7, 0).await, Status::SUCCESS);
        assert!(write(&nameless, 0, &[2; 512], By::Capsule).await.is(CONFLICT));
    });
}

#[test]
fn exclusive_access_keeps_readers_out_too() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, 16, 512).await;
        let (mine, theirs) = (place.attach(HOST), place.attach(OTHER));
        send(&mine, REGISTER, 0, 0, 7).await;
        send(&mine, ACQUIRE, 2 << 8, 7, 0).await;
        let host = Double::none();
        let mut sqe = read_sqe(range(0, 1));
        host.describe(&mut sqe, 512);
        assert!(host.run(&theirs, &sqe).await.status.is(CONFLICT));
    });
}

#[test]
fn the_reservation_is_looked_at_again_when_the_data_has_come() {
    on_reactor(async {
        for on in EVERYWHERE {
            let place = Place::new(on, 1, 16, 512).await;
            let (mine, theirs) = (place.attach(HOST), place.attach(OTHER));
            send(&mine, REGISTER, 0, 0, 7).await;
            let late = reactor::spawn(async move {
                let host = Double::with(&[9; 512], By::R2t);
                host.delay.set(10);
                let mut sqe = write_sqe(range(0, 1));
                host.describe(&mut sqe, 512);
                host.run(&theirs, &sqe).await.status
            });
            yield_now().await;
            assert_eq!(send(&mine, ACQUIRE, 1 << 8, 7, 0).await, Status::SUCCESS);
            assert!(late.await.unwrap().is(CONFLICT));
            assert_eq!(read(&mine, range(0, 1)).await, [0; 512]);
        }
    });
}

#[test]
fn preempt_and_abort_ends_after_the_preempted_hosts_writes_and_tells_it() {
    on_reactor(async {
        let place = Place::new(On::File, 1, 16, 512).await;
        let (mine, theirs) = (place.attach(HOST), place.attach(OTHER));
        send(&mine, REGISTER, 0, 0, 7).await;
        send(&theirs, REGISTER, 0, 0, 8).await;
        send(&theirs, ACQUIRE, 1 << 8, 8, 0).await;
        let writer = theirs.clone();
        let write = reactor::spawn(async move { write(&writer, 0, &[9; 512], By::Capsule).await });
        yield_now().await;
        let host = Double::with(&keys(7, 8), By::Capsule);
        assert_eq!(send_by(&mine, ACQUIRE, 2 | 1 << 8, &host).await, Status::SUCCESS);
        assert!(write.is_finished(), "no command of the preempted host is left");
        let kind = NoticeKind::RegistrationPreempted;
        assert_eq!(*host.notices.borrow(), [Notice { host: OTHER, kind }]);
        assert!(send(&theirs, ACQUIRE, 1 << 8, 8, 0).await.is(CONFLICT));
    });
}

#[test]
fn report_is_as_long_as_asked_for() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, 16, 512).await;
        let at = place.attach(HOST);
        send(&at, REGISTER, 0, 0, 7).await;
        let report = async |dwords: u32, eds: u32, described: usize| {
            let mut host = Double::with(&[], By::R2t);
            host.controllers = vec![(HOST, 3), (HOST, 4)];
            let mut sqe = Sqe::new(io::RESERVATION_REPORT, 1, 1);
            sqe.cdw10 = dwords.into();
            sqe.cdw11 = eds.into();
            host.describe(&mut sqe, described);
            host.run(&at, &sqe).await
        };
        let short = report(15, 0, 64).await.status;
        assert!(short.is(Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT));
        let page = bytes_of(&report(63, 1, 256).await.data);
        assert_eq!((page.len(), page[5], page[64], page[128]), (256, 2, 3, 4));
        assert_eq!(bytes_of(&report(0, 1, 4).await.data).len(), 4);
        assert!(report(1, 1, 4).await.status.is(Status::DATA_SGL_LENGTH_INVALID));
        assert!(report(u32::MAX, 1, 4).await.status.is(Status::INVALID_FIELD));
        let reserved = report(0, 2, 4).await.status;
        assert!(reserved.is(Status::INVALID_FIELD));
    });
}

#[test]
fn keys_that_are_cut_short_are_refused() {
    on_reactor(async {
        let place = Place::new(On::Memory, 1, 16, 512).await;
        let at = place.attach(HOST);
        for (opcode, length) in [(REGISTER, 15), (ACQUIRE, 8), (RELEASE, 7)] {
            let host = Double::with(&keys(0, 0), By::Capsule);
            let mut sqe = Sqe::new(opcode, 1, 1);
            sqe.cdw10 = (1u32 << 8).into();
            if opcode == REGISTER {
                sqe.cdw10 = 0.into();
            }
            host.describe(&mut sqe, length);
            let status = host.run(&at, &sqe).await.status;
            assert!(status.is(Status::DATA_SGL_LENGTH_INVALID), "{status}");
        }
    });
}

/// Keeps what it is told to, unless it is to fail, and not while it is held up.
#[derive(Debug, Default)]
struct Store {
    kept: Mutex<Option<Saved>>,
    fails: Mutex<bool>,
    held_up: AtomicBool,
    attempts: AtomicUsize,
}

impl Store {
    fn kept(&self) -> Option<Saved> {
        self.kept.lock().unwrap().clone()
    }
}

impl Keeper for Store {
    fn keep(&self, saved: Option<&Saved>) -> std::io::Result<()> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        while self.held_up.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        if *self.fails.lock().unwrap() {
            return Err(Error::other("no space"));
        }
        *self.kept.lock().unwrap() = saved.cloned();
        Ok(())
    }
}

/// A namespace as it is after power on.
fn kept_by(store: &Arc<Store>) -> Rc<Attached> {
    let region = Arc::new(Region::new(1 << 20, RegionOptions::default()).unwrap());
    let keeping = Keeping { saved: store.kept(), keeper: Arc::clone(store) as Arc<dyn Keeper> };
    let spec = NamespaceSpec {
        reservations: Some(keeping),
        ..NamespaceSpec::new(Backend::Memory(region), 512)
    };
    let subsystem = Nqn::new("nqn.2026-11.io.flashloom:test").unwrap();
    let namespace = Namespace::new(&subsystem, 1, &spec).unwrap();
    Rc::new(Attached::new(Arc::new(namespace), HOST))
}

#[test]
fn what_a_host_asked_to_persist_is_kept_before_its_command_completes() {
    on_reactor(async {
        let store = Arc::new(Store::default());
        let mine = kept_by(&store);
        assert_eq!(send(&mine, REGISTER, 0, 0, 7).await, Status::SUCCESS);
        assert_eq!(store.kept(), None, "nobody asked for it");
        assert_eq!(send(&mine, REGISTER, 3 << 30 | 2, 7, 8).await, Status::SUCCESS);
        assert_eq!(store.kept().unwrap().registrations[0].key, 8);
        assert_eq!(send(&mine, ACQUIRE, 1 << 8, 8, 0).await, Status::SUCCESS);
        let held = store.kept().unwrap().held;
        assert!(held.is_some());

        let again = kept_by(&store);
        let state = |at: &Attached| at.namespace().reservation.with(|state| state.saved());
        assert_eq!(state(&again), store.kept(), "after power on");
        assert_eq!(send(&again, RELEASE, 1 << 8, 8, 0).await, Status::SUCCESS);
        assert_eq!(store.kept().unwrap().held, None);

        // Asked for no more: kept no more.
        again.namespace().reservation.set_persist(false).unwrap();
        assert_eq!(keep(again.namespace()).await, Ok(()));
        assert_eq!(store.kept(), None);
    });
}

#[test]
fn a_change_that_cannot_be_kept_is_an_error_and_another_attempt_keeps_it() {
    on_reactor(async {
        let store = Arc::new(Store::default());
        let mine = kept_by(&store);
        *store.fails.lock().unwrap() = true;
        assert_eq!(send(&mine, REGISTER, 3 << 30, 0, 7).await, Status::INTERNAL_ERROR);
        *store.fails.lock().unwrap() = false;
        // Registering the same key again is no error.
        assert_eq!(send(&mine, REGISTER, 3 << 30, 0, 7).await, Status::SUCCESS);
        assert_eq!(store.kept().unwrap().registrations[0].key, 7);
    });
}

/// Each command took a helper thread, of which there are few, to wait for the one before it: a host's flood of
/// reservations of its own delayed those of everybody else by seconds.
#[test]
fn a_flood_of_commands_to_be_kept_is_kept_at_once_and_delays_no_other_namespace() {
    on_reactor(async {
        let (flooded, other) = (Arc::new(Store::default()), Arc::new(Store::default()));
        let (mine, others) = (kept_by(&flooded), kept_by(&other));
        flooded.held_up.store(true, Ordering::Release);
        let register = |at: &Rc<Attached>, key| {
            let at = Rc::clone(at);
            reactor::spawn(async move { send(&at, REGISTER, 3 << 30, 0, key).await })
        };
        let first = register(&mine, 7);
        while flooded.attempts.load(Ordering::Relaxed) == 0 {
            reactor::yield_now().await;
        }
        // The same key again is no error.
        let flood: Vec<_> = (0..50).map(|_| register(&mine, 7)).collect();
        assert_eq!(register(&others, 9).await, Some(Status::SUCCESS));
        assert_eq!(other.kept().unwrap().registrations[0].key, 9);
        flooded.held_up.store(false, Ordering::Release);
        assert_eq!(first.await, Some(Status::SUCCESS));
        for command in flood {
            assert_eq!(command.await, Some(Status::SUCCESS));
        }
        assert_eq!(flooded.attempts.load(Ordering::Relaxed), 2, "one for all that waited");
        assert_eq!(flooded.kept().unwrap().registrations[0].key, 7);
    });
}
