use std::net::Ipv4Addr;

use proptest::prelude::*;

use nvme::reservation::{Acquire, AcquireData, Register, RegisterData, Release, ReleaseData};
use nvme::sqe::Sqe;

use super::*;
use crate::limits::MAX_RESERVATION_NOTICES;

const REGISTER: u8 = 0x0d;
const ACQUIRE: u8 = 0x11;
const RELEASE: u8 = 0x15;

const A: HostId = HostId([0xa; 16]);
const B: HostId = HostId([0xb; 16]);
const C: HostId = HostId([0xc; 16]);

/// An entry with this CDW10, read as the opcode's command with its two keys as data.
fn decode(opcode: u8, cdw10: u32, first: u64, second: u64) -> Result<Command, Refusal> {
    let mut sqe = Sqe::new(opcode, 0, 1);
    sqe.cdw10 = cdw10.into();
    let invalid = |_| Refusal::InvalidField;
    match opcode {
        REGISTER => {
            let data = RegisterData { crkey: first.into(), nrkey: second.into() };
            Ok(Command::register(Register::parse(&sqe).map_err(invalid)?, &data))
        }
        ACQUIRE => {
            let data = AcquireData { crkey: first.into(), prkey: second.into() };
            Command::acquire(Acquire::parse(&sqe).map_err(invalid)?, &data)
        }
        _ => {
            let data = ReleaseData { crkey: first.into() };
            Command::release(Release::parse(&sqe).map_err(invalid)?, &data)
        }
    }
}

fn registering(cdw10: u32, current: u64, new: u64) -> Result<Command, Refusal> {
    decode(REGISTER, cdw10, current, new)
}

fn acquiring(cdw10: u32, current: u64, preempt: u64) -> Result<Command, Refusal> {
    decode(ACQUIRE, cdw10, current, preempt)
}

fn releasing(cdw10: u32, current: u64) -> Result<Command, Refusal> {
    decode(RELEASE, cdw10, current, 0)
}

fn register(state: &mut State, host: HostId, key: u64) {
    let command = registering(0, 0, key).unwrap();
    assert_eq!(state.execute(host, &command), Ok(Effects::default()));
}

fn acquire(kind: Type, key: u64) -> Command {
    Command::Acquire { current_key: key, kind }
}

fn preempt(kind: Type, key: u64, prkey: u64) -> Command {
    Command::Preempt { current_key: key, preempt_key: prkey, kind, abort: false }
}

fn three() -> State {
    let mut state = State::new(PowerLoss::Forgets);
    register(&mut state, A, 1);
    register(&mut state, B, 2);
    register(&mut state, C, 3);
    state
}

fn all_kinds() -> impl Iterator<Item = Type> {
    (1..=6).map(|raw| Type::from_raw(raw).unwrap())
}

#[test]
fn types_round_trip_and_reserved_values_are_refused() {
    for raw in 0..=u8::MAX {
        assert_eq!(Type::from_raw(raw).map(Type::raw), (1..=6).contains(&raw).then_some(raw));
    }
}

#[test]
fn access_matrix_is_the_specifications() {
    use CommandGroup::{Read, Write};
    // Rows: type; columns: holder, registrant, other host; each (read, write).
    let matrix = [
        (1, (true, true), (true, false), (true, false)),
        (2, (true, true), (false, false), (false, false)),
        (3, (true, true), (true, true), (true, false)),
        (4, (true, true), (true, true), (false, false)),
        (5, (true, true), (true, true), (true, false)),
        (6, (true, true), (true, true), (false, false)),
    ];
    for (raw, holder, registrant, other) in matrix {
        let kind = Type::from_raw(raw).unwrap();
        let mut state = State::new(PowerLoss::Forgets);
        register(&mut state, A, 1);
        register(&mut state, B, 2);
        assert_eq!(state.access(C), Access::FULL, "no reservation yet");
        state.execute(A, &acquire(kind, 1)).unwrap();
        for (host, expected) in [(A, holder), (B, registrant), (C, other)] {
            let access = state.access(host);
            assert_eq!((access.allows(Read), access.allows(Write)), expected, "{kind:?} {host:?}");
        }
    }
}

#[test]
fn register_again_with_the_same_key_succeeds_and_with_another_conflicts() {
    let mut state = three();
    register(&mut state, A, 1);
    let other = Command::Register { new_key: 9, persistence: ChangePersistence::NoChange };
    assert_eq!(state.execute(A, &other), Err(Refusal::Conflict));
    assert_eq!(state.generation(), 4);
}

#[test]
fn replace_with_iekey_registers_a_new_host_and_ignores_the_key() {
    let mut state = State::new(PowerLoss::Forgets);
    let keyless = registering(2 | 1 << 3, 77, 5).unwrap();
    state.execute(A, &keyless).unwrap();
    assert_eq!(state.registrations(), [Registration { host: A, key: 5 }]);
    let keyed = registering(2, 77, 6).unwrap();
    assert_eq!(state.execute(A, &keyed), Err(Refusal::Conflict));
    assert_eq!(state.execute(B, &keyed), Err(Refusal::Conflict));
    state.execute(A, &registering(2, 5, 6).unwrap()).unwrap();
    assert_eq!(state.registrations(), [Registration { host: A, key: 6 }]);
}

#[test]
fn reserved_fields_are_refused() {
    let refused = Err(Refusal::InvalidField);
    for action in 3..8 {
        assert_eq!(registering(action, 0, 0), refused);
        assert_eq!(acquiring(action | 1 << 8, 0, 0), refused);
        assert_eq!(releasing(action | 1 << 8, 0), refused);
    }
    assert_eq!(releasing(2 | 1 << 8, 0), refused);
    assert_eq!(registering(1 << 30, 0, 0), refused, "CPTPL 01b");
    assert_eq!(acquiring(1 << 3 | 1 << 8, 0, 0), refused, "IEKEY");
    assert_eq!(releasing(1 << 3 | 1 << 8, 0), refused, "IEKEY");
    for rtype in [0, 7, 255] {
        assert_eq!(acquiring(rtype << 8, 0, 0), refused);
        assert_eq!(releasing(rtype << 8, 0), refused);
    }
    assert_eq!(releasing(1, 0), Ok(Command::Clear { current_key: 0 }));
}

#[test]
fn a_second_acquire_conflicts_unless_it_asks_for_what_the_host_holds() {
    for kind in all_kinds() {
        let mut state = three();
        state.execute(A, &acquire(kind, 1)).unwrap();
        assert_eq!(state.execute(A, &acquire(kind, 1)), Ok(Effects::default()));
        let all = is_all_registrants(kind);
        assert_eq!(state.execute(B, &acquire(kind, 2)).is_ok(), all);
        for other in all_kinds().filter(|&other| other != kind) {
            assert_eq!(state.execute(A, &acquire(other, 1)), Err(Refusal::Conflict));
        }
        assert_eq!(state.execute(B, &acquire(kind, 7)), Err(Refusal::Conflict), "wrong key");
        assert_eq!(state.generation(), 3, "acquiring does not count");
    }
}

#[test]
fn preempting_the_holder_moves_the_reservation_and_tells_both_sides() {
    let mut state = three();
    state.execute(A, &acquire(Type::WriteExclusive, 1)).unwrap();
    let effects = state.execute(B, &preempt(Type::ExclusiveAccess, 2, 1)).unwrap();
    let expected = [
        Notice { host: A, kind: NoticeKind::RegistrationPreempted },
        Notice { host: C, kind: NoticeKind::ReservationReleased },
    ];
    assert_eq!(effects.notices, expected);
    assert!(effects.abort.is_empty());
    assert!(!state.is_registrant(A));
    assert_eq!(state.held(), Some(Held::By { kind: Type::ExclusiveAccess, holder: B }));
    // The same type again: nobody is told that it was released.
    let effects = state.execute(C, &preempt(Type::ExclusiveAccess, 3, 2)).unwrap();
    assert_eq!(effects.notices, [Notice { host: B, kind: NoticeKind::RegistrationPreempted }]);
}

#[test]
fn preempt_and_abort_names_the_hosts_whose_commands_end() {
    let mut state = three();
    let command = acquiring(2 | 3 << 8, 2, 1).unwrap();
    let effects = state.execute(B, &command).unwrap();
    assert_eq!(effects.abort, [A]);
    assert_eq!(state.held(), None, "registrations only: nothing was held");
}

#[test]
fn a_holder_preempting_itself_changes_the_type_and_keeps_its_registration() {
    let mut state = three();
    state.execute(A, &acquire(Type::WriteExclusive, 1)).unwrap();
    let effects = state.execute(A, &preempt(Type::ExclusiveAccessAllRegistrants, 1, 1)).unwrap();
    assert_eq!(state.held(), Some(Held::ByAll { kind: Type::ExclusiveAccessAllRegistrants }));
    assert_eq!(state.registrations().len(), 3);
    assert_eq!(effects.notices.len(), 2);
}

#[test]
fn zero_prkey_takes_everything_of_all_registrants_and_nothing_of_a_single_holder() {
    let mut state = three();
    state.execute(A, &acquire(Type::WriteExclusive, 1)).unwrap();
    let zero = preempt(Type::WriteExclusive, 2, 0);
    assert_eq!(state.execute(B, &zero), Err(Refusal::InvalidField));
    let mut state = three();
    state.execute(A, &acquire(Type::WriteExclusiveAllRegistrants, 1)).unwrap();
    let effects = state.execute(B, &zero).unwrap();
    assert_eq!(state.held(), Some(Held::By { kind: Type::WriteExclusive, holder: B }));
    assert_eq!(state.registrations(), [Registration { host: B, key: 2 }]);
    assert!(effects.notices.iter().all(|n| n.kind == NoticeKind::RegistrationPreempted));
}

/// SPDK 26.05 ends in a segmentation fault on this family of commands: a preempt-and-abort by a
/// host that unregisters itself, the last registrant, or everyone at once.
#[test]
fn preempt_and_abort_of_oneself_ends_the_last_registration_and_the_reservation() {
    for kind in all_kinds() {
        let mut state = State::new(PowerLoss::Forgets);
        register(&mut state, A, 0);
        state.execute(A, &acquire(kind, 0)).unwrap();
        let abort = Command::Preempt { current_key: 0, preempt_key: 0, kind, abort: true };
        let effects = state.execute(A, &abort).unwrap();
        assert!(effects.notices.is_empty());
        assert_eq!(state.held().map(Held::kind), Some(kind));
        assert_eq!(state.execute(B, &abort), Err(Refusal::Conflict));
    }
    let mut state = State::new(PowerLoss::Forgets);
    register(&mut state, A, 4);
    state.execute(A, &acquire(Type::WriteExclusiveAllRegistrants, 4)).unwrap();
    let command = acquiring(2 | 1 << 8, 4, 4).unwrap();
    let effects = state.execute(A, &command).unwrap();
    assert_eq!(effects, Effects { notices: vec![], abort: vec![A] });
    assert_eq!((state.held(), state.registrations().len()), (None, 0));
}

#[test]
fn unregistering_the_holder_releases_and_tells_registrants_where_they_had_a_share() {
    for kind in all_kinds() {
        let mut state = three();
        state.execute(A, &acquire(kind, 1)).unwrap();
        let effects = state.execute(A, &registering(1, 1, 0).unwrap()).unwrap();
        let released = !is_all_registrants(kind);
        assert_eq!(state.held().is_none(), released);
        let told = released && concerns_registrants(kind);
        assert_eq!(effects.notices.len(), if told { 2 } else { 0 }, "{kind:?}");
    }
}

#[test]
fn release_by_another_registrant_is_success_without_effect() {
    let mut state = three();
    let kind = Type::WriteExclusiveRegistrantsOnly;
    state.execute(A, &acquire(kind, 1)).unwrap();
    let by = |key, kind| Command::Release { current_key: key, kind };
    assert_eq!(state.execute(B, &by(2, kind)), Ok(Effects::default()));
    assert_eq!(state.held().map(Held::kind), Some(kind));
    let other = by(1, Type::WriteExclusive);
    assert_eq!(state.execute(A, &other), Err(Refusal::InvalidField));
    assert_eq!(state.execute(HostId([9; 16]), &by(1, kind)), Err(Refusal::Conflict));
    let effects = state.execute(A, &by(1, kind)).unwrap();
    assert_eq!(effects.notices.len(), 2);
    assert_eq!(state.execute(A, &by(1, kind)), Ok(Effects::default()), "nothing held: success");
}

#[test]
fn clear_ends_everything_and_tells_the_others() {
    let mut state = three();
    state.execute(A, &acquire(Type::WriteExclusive, 1)).unwrap();
    let effects = state.execute(C, &Command::Clear { current_key: 3 }).unwrap();
    assert_eq!((state.held(), state.registrations().len()), (None, 0));
    let kinds: Vec<_> = effects.notices.iter().map(|n| (n.host, n.kind)).collect();
    let preempted = NoticeKind::ReservationPreempted;
    assert_eq!(kinds, [(A, preempted), (B, preempted)]);
}

#[test]
fn persistence_is_refused_where_nothing_keeps_it_and_survives_where_something_does() {
    let persist = registering(3 << 30, 0, 1).unwrap();
    let mut forgets = State::new(PowerLoss::Forgets);
    assert_eq!(forgets.execute(A, &persist), Err(Refusal::InvalidField));
    assert_eq!(forgets, State::new(PowerLoss::Forgets));
    assert_eq!(forgets.capabilities() & 1, 0);

    let mut keeps = State::new(PowerLoss::Keeps);
    assert_eq!(keeps.capabilities() & 1, 1);
    keeps.execute(A, &persist).unwrap();
    keeps.execute(A, &acquire(Type::ExclusiveAccess, 1)).unwrap();
    let saved = keeps.saved();
    assert_eq!(State::power_on(PowerLoss::Keeps, saved.clone()), Some(keeps.clone()));
    assert_eq!(State::power_on(PowerLoss::Forgets, saved), None);
    // A refused command does not move the persistence state.
    let refused = registering(2 << 30, 0, 9).unwrap();
    assert_eq!(keeps.execute(A, &refused), Err(Refusal::Conflict));
    assert!(keeps.persists());
    keeps.set_persist(false).unwrap();
    assert_eq!(keeps.saved(), None);
}

#[test]
fn a_saved_state_that_contradicts_itself_is_refused() {
    let registration = Registration { host: A, key: 1 };
    for (registrations, held) in [
        (vec![registration, registration], None),
        (vec![registration], Some(Held::By { kind: Type::WriteExclusive, holder: B })),
        (
            vec![registration],
            Some(Held::By { kind: Type::WriteExclusiveAllRegistrants, holder: A }),
        ),
        (vec![registration], Some(Held::ByAll { kind: Type::WriteExclusive })),
        (vec![], Some(Held::ByAll { kind: Type::WriteExclusiveAllRegistrants })),
    ] {
        let saved = Saved { generation: 1, registrations, held };
        assert_eq!(State::power_on(PowerLoss::Keeps, Some(saved)), None);
    }
}

#[test]
fn registrants_are_bounded() {
    let mut state = State::new(PowerLoss::Forgets);
    for n in 0..MAX_REGISTRANTS {
        register(&mut state, HostId(u128::try_from(n).unwrap().to_le_bytes()), 1);
    }
    let command = Command::Register { new_key: 1, persistence: ChangePersistence::NoChange };
    assert_eq!(state.execute(HostId([0xff; 16]), &command), Err(Refusal::Full));
}

/// One address had all the places, under as many names, and the hosts of a cluster none.
#[test]
fn one_address_leaves_others_a_place_among_the_registrants() {
    let [one, other] = [1, 2].map(|n| IpAddr::V4(Ipv4Addr::new(192, 0, 2, n)));
    let mut state = State::new(PowerLoss::Forgets);
    let command = Command::Register { new_key: 1, persistence: ChangePersistence::NoChange };
    let host = |n: u8| HostId([n; 16]);
    let of_one = (1..200).take_while(|n| state.execute_from(host(*n), one, &command).is_ok());
    let of_one = of_one.count();
    assert_eq!(of_one, MAX_REGISTRANTS * 2 / 3);
    let before = state.clone();
    assert_eq!(state.execute_from(host(200), one, &command), Err(Refusal::Full));
    assert_eq!(state, before);
    state.execute_from(host(201), other, &command).unwrap();
    // Who has a place keeps it, and leaves it to others.
    state
        .execute_from(
            host(1),
            one,
            &Command::Register { new_key: 1, persistence: ChangePersistence::NoChange },
        )
        .unwrap();
    let leave =
        Command::Unregister { current_key: Some(1), persistence: ChangePersistence::NoChange };
    for n in [1, 2] {
        state.execute_from(host(n), one, &leave).unwrap();
    }
    state.execute_from(host(200), one, &command).unwrap();
    assert_eq!(state.registrations().len(), of_one);
}

#[test]
fn report_lists_every_controller_of_a_registrant() {
    let mut state = three();
    state.execute(B, &acquire(Type::WriteExclusiveRegistrantsOnly, 2)).unwrap();
    let mut page = Vec::new();
    state.report(&[(B, 7), (A, 3), (B, 8), (HostId([1; 16]), 9)], &mut page);
    assert_eq!(page.len(), 64 * 5);
    assert_eq!(page[0..4], 3u32.to_le_bytes());
    assert_eq!((page[4], page[5], page[6], page[9]), (3, 4, 0, 0));
    let entries: Vec<_> = page[64..]
        .chunks(64)
        .map(|e| (u16::from_le_bytes([e[0], e[1]]), e[2], e[8], e[16]))
        .collect();
    assert_eq!(entries, [(3, 0, 1, 0xa), (7, 1, 2, 0xb), (8, 1, 2, 0xb), (0xffff, 0, 3, 0xc)]);
}

#[test]
fn notification_log_hands_out_pages_oldest_first_and_shows_loss_by_its_count() {
    let mut log = NotificationLog::default();
    let open = NoticeMask::default();
    let masked = NoticeMask::from_cdw11(1 << 2).unwrap();
    assert_eq!(NoticeMask::from_cdw11(1), None);
    assert_eq!(log.take_page(), [0; 64]);
    assert!(!log.push(1, NoticeKind::ReservationReleased, masked));
    for _ in 0..=MAX_RESERVATION_NOTICES {
        assert!(log.push(5, NoticeKind::ReservationPreempted, open));
    }
    let page = log.take_page();
    assert_eq!(page[0..8], 2u64.to_le_bytes(), "the first was lost");
    assert_eq!((page[8], usize::from(page[9])), (3, MAX_RESERVATION_NOTICES - 1));
    assert_eq!(page[12..16], 5u32.to_le_bytes());
}

#[test]
fn cached_access_follows_the_state() {
    let shared = Shared::new(None).unwrap();
    let mut cached = None;
    assert_eq!(shared.access(B, &mut cached), Access::FULL);
    let register = registering(0, 0, 1).unwrap();
    shared.execute(A, Ipv4Addr::LOCALHOST.into(), &register).unwrap();
    shared.execute(A, Ipv4Addr::LOCALHOST.into(), &acquire(Type::ExclusiveAccess, 1)).unwrap();
    assert!(!shared.access(B, &mut cached).allows(CommandGroup::Read));
    assert_eq!(shared.access(A, &mut None), Access::FULL);
}

/// A second opinion, written from the specification's tables over raw fields: hosts are small
/// numbers, registrations an array of optional keys, the reservation a type number and the index
/// of whoever acquired it.
#[derive(Clone, Default)]
struct Model {
    keys: [Option<u64>; 4],
    rtype: u8,
    owner: usize,
    generation: u32,
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Ok,
    Conflict,
    Invalid,
}

#[derive(Clone, Debug)]
struct Raw {
    opcode: u8,
    host: usize,
    cdw10: u32,
    first: u64,
    second: u64,
}

impl Model {
    fn everyone_holds(&self) -> bool {
        self.rtype >= 5
    }

    fn drop_host(&mut self, host: usize) {
        self.keys[host] = None;
        let last = self.keys.iter().all(Option::is_none);
        let owners = self.rtype != 0 && self.rtype < 5 && self.owner == host;
        if owners || (self.everyone_holds() && last) {
            self.rtype = 0;
        }
    }

    /// Returns the verdict and the notices as (host, log page type).
    fn step(&mut self, raw: &Raw) -> (Verdict, Vec<(usize, u8)>) {
        let was = self.clone();
        let mut notices = Vec::new();
        let reserved = if raw.opcode == REGISTER { 0x3fff_fff0 } else { 0xffff_00f0 };
        let verdict = match raw.opcode {
            _ if raw.cdw10 & reserved != 0 => Verdict::Invalid,
            0x0d => self.register(raw),
            0x11 => self.acquire(raw),
            _ => self.release(raw),
        };
        if verdict != Verdict::Ok {
            *self = was;
            return (verdict, notices);
        }
        let action = raw.cdw10 & 7;
        let cleared = raw.opcode == 0x15 && action == 1;
        let preempting = raw.opcode == 0x11 && action != 0;
        for other in (0..4).filter(|&other| other != raw.host && was.keys[other].is_some()) {
            if cleared {
                notices.push((other, 3));
            } else if self.keys[other].is_none() {
                notices.push((other, 1));
            } else if preempting && was.rtype != 0 && self.rtype != was.rtype && self.rtype != 0
                || !preempting && was.rtype >= 3 && self.rtype == 0
            {
                notices.push((other, 2));
            }
        }
        if raw.opcode == 0x0d || cleared || preempting {
            self.generation += 1;
        }
        (Verdict::Ok, notices)
    }

    fn register(&mut self, raw: &Raw) -> Verdict {
        let iekey = raw.cdw10 & 8 != 0;
        let mine = self.keys[raw.host];
        if raw.cdw10 >> 30 == 1 || raw.cdw10 & 7 > 2 || raw.cdw10 >> 30 == 3 {
            return Verdict::Invalid;
        }
        match raw.cdw10 & 7 {
            0 => match mine {
                Some(key) if key != raw.second => return Verdict::Conflict,
                _ => self.keys[raw.host] = Some(raw.second),
            },
            1 => {
                if mine.is_none() || (!iekey && mine != Some(raw.first)) {
                    return Verdict::Conflict;
                }
                self.drop_host(raw.host);
            }
            _ => {
                if !iekey && mine != Some(raw.first) {
                    return Verdict::Conflict;
                }
                self.keys[raw.host] = Some(raw.second);
            }
        }
        Verdict::Ok
    }

    fn acquire(&mut self, raw: &Raw) -> Verdict {
        let action = raw.cdw10 & 7;
        let rtype = u8::try_from(raw.cdw10 / 256 % 256).unwrap();
        if raw.cdw10 & 8 != 0 || action > 2 || !(1..=6).contains(&rtype) {
            return Verdict::Invalid;
        }
        if self.keys[raw.host] != Some(raw.first) {
            return Verdict::Conflict;
        }
        if action == 0 {
            let mine = self.everyone_holds() || self.owner == raw.host;
            if self.rtype != 0 && (!mine || self.rtype != rtype) {
                return Verdict::Conflict;
            }
            if self.rtype == 0 {
                (self.rtype, self.owner) = (rtype, raw.host);
            }
            return Verdict::Ok;
        }
        let victim = |model: &Self, host: usize| model.keys[host] == Some(raw.second);
        let single = self.rtype != 0 && !self.everyone_holds();
        let all_go = self.everyone_holds() && raw.second == 0;
        if all_go || (single && victim(self, self.owner)) {
            self.rtype = 0;
            for host in (0..4).filter(|&host| host != raw.host) {
                if all_go || victim(self, host) {
                    self.keys[host] = None;
                }
            }
            (self.rtype, self.owner) = (rtype, raw.host);
            return Verdict::Ok;
        }
        if single && raw.second == 0 {
            return Verdict::Invalid;
        }
        let victims: Vec<_> = (0..4).filter(|&host| victim(self, host)).collect();
        for &host in &victims {
            self.drop_host(host);
        }
        if victims.is_empty() { Verdict::Conflict } else { Verdict::Ok }
    }

    fn release(&mut self, raw: &Raw) -> Verdict {
        let action = raw.cdw10 & 7;
        let rtype = u8::try_from(raw.cdw10 / 256 % 256).unwrap();
        if raw.cdw10 & 8 != 0 || action > 1 || (action == 0 && !(1..=6).contains(&rtype)) {
            return Verdict::Invalid;
        }
        if self.keys[raw.host] != Some(raw.first) {
            return Verdict::Conflict;
        }
        if action == 1 {
            (self.keys, self.rtype) = ([None; 4], 0);
        } else if self.rtype != 0 && self.rtype != rtype {
            return Verdict::Invalid;
        } else if self.everyone_holds() || self.owner == raw.host {
            self.rtype = 0;
        }
        Verdict::Ok
    }
}

fn host(number: usize) -> HostId {
    HostId([u8::try_from(number).unwrap(); 16])
}

/// Mostly sensible fields, now and then any bits at all.
fn raw_command() -> impl Strategy<Value = Raw> {
    let opcode = prop_oneof![Just(REGISTER), Just(ACQUIRE), Just(ACQUIRE), Just(RELEASE)];
    let fields = (0u32..4, 0u32..8, prop::bool::weighted(0.15), 0u32..4);
    let wild = prop_oneof![12 => Just(None), 1 => any::<u32>().prop_map(Some)];
    (opcode, 0usize..4, fields, wild, 0u64..3, 0u64..3).prop_map(
        |(opcode, host, (action, rtype, iekey, cptpl), wild, first, second)| {
            let own = if opcode != REGISTER {
                rtype << 8
            } else if cptpl == 2 {
                2 << 30
            } else {
                0
            };
            let cdw10 = wild.unwrap_or(action | u32::from(iekey) << 3 | own);
            Raw { opcode, host, cdw10, first, second }
        },
    )
}

fn check_step(state: &mut State, model: &mut Model, raw: &Raw) {
    let before = state.clone();
    let result = decode(raw.opcode, raw.cdw10, raw.first, raw.second)
        .and_then(|command| state.execute(host(raw.host), &command));
    let (verdict, mut expected) = model.step(raw);
    match &result {
        Ok(effects) => {
            assert_eq!(verdict, Verdict::Ok, "{raw:?} on {before:?}");
            let mut notices: Vec<_> = effects
                .notices
                .iter()
                .map(|n| (usize::from(n.host.0[0]), n.kind.log_page_type()))
                .collect();
            notices.sort_unstable();
            expected.sort_unstable();
            assert_eq!(notices, expected, "{raw:?} on {before:?}");
            let gone = |h: &HostId| before.is_registrant(*h) && !state.is_registrant(*h);
            assert!(effects.abort.iter().all(gone));
        }
        Err(refusal) => {
            let kind =
                if *refusal == Refusal::Conflict { Verdict::Conflict } else { Verdict::Invalid };
            assert_eq!(kind, verdict, "{raw:?} on {before:?}");
            assert_eq!(*state, before, "a refusal changes nothing");
        }
    }
    assert_eq!(state.held().map_or(0, |held| held.kind().raw()), model.rtype);
    assert_eq!(state.generation(), model.generation);
    for number in 0..4 {
        let key = state.registrations().iter().find(|r| r.host == host(number)).map(|r| r.key);
        assert_eq!(key, model.keys[number]);
        let holder =
            model.rtype != 0 && key.is_some() && (model.everyone_holds() || model.owner == number);
        assert_eq!(state.is_holder(host(number)), holder);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_model(commands in prop::collection::vec(raw_command(), 1..60)) {
        let mut state = State::new(PowerLoss::Forgets);
        let mut model = Model::default();
        for raw in &commands {
            check_step(&mut state, &mut model, raw);
        }
    }
}
