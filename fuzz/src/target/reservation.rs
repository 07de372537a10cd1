//! Reservation commands of several hosts, from the entry to the state of a namespace.

use nvme::nvm::Command as Parsed;
use nvme::opcode::io;
use nvme::reservation::{AcquireData, RegisterData, ReleaseData};
use nvme::sqe::Sqe;
use target::reservation::{Access, Command, Effects, HostId, PowerLoss, Refusal, State};

/// One command of an input: host, opcode, CDW10 (action and IEKEY, type, CPTPL), two keys.
const RECORD: usize = 6;
const HOSTS: u8 = 4;
/// Few keys, so that they meet.
const KEYS: u8 = 4;
/// Bytes of the extended status header, and of an entry of it.
const REPORT_ENTRY: usize = 64;

/// The command of a record, through the parsers of entry and data; `None` when they refuse it.
fn command(record: [u8; RECORD]) -> Option<Result<Command, Refusal>> {
    let [_, opcode, action, rtype, key, other] = record;
    let opcode = match opcode % 3 {
        0 => io::RESERVATION_REGISTER,
        1 => io::RESERVATION_ACQUIRE,
        _ => io::RESERVATION_RELEASE,
    };
    let mut sqe = Sqe::new(opcode, 1, 1);
    sqe.cdw10 = u32::from_le_bytes([action & 0x0f, rtype & 0x0f, 0, rtype & 0xc0]).into();
    let mut data = [0; 16];
    data[0] = key % KEYS;
    data[8] = other % KEYS;
    Some(match Parsed::parse(&sqe).ok()? {
        Parsed::ReservationRegister(fields) => {
            Ok(Command::register(fields, &RegisterData::read(&data).ok()?))
        }
        Parsed::ReservationAcquire(fields) => {
            Command::acquire(fields, &AcquireData::read(&data).ok()?)
        }
        Parsed::ReservationRelease(fields) => {
            Command::release(fields, &ReleaseData::read(&data).ok()?)
        }
        other => panic!("{other:?} is no reservation command"),
    })
}

/// Applies what an input's records say; a refusal changes nothing, and what is left holds together.
pub fn reservation_state(input: &[u8]) {
    let mut state = State::new(PowerLoss::Keeps);
    for record in input.as_chunks::<RECORD>().0 {
        let host = HostId([record[0] % HOSTS; 16]);
        let Some(Ok(command)) = command(*record) else { continue };
        let before = state.clone();
        match state.execute(host, &command) {
            Ok(effects) => allowed(&effects, host, &command, &before),
            Err(_) => assert_eq!(state, before, "a refusal changed something"),
        }
        holds_together(&state);
    }
}

fn allowed(effects: &Effects, host: HostId, command: &Command, before: &State) {
    let aborts = matches!(command, Command::Preempt { abort: true, .. });
    assert!(aborts || effects.abort.is_empty(), "{command:?} aborts nothing");
    for victim in &effects.abort {
        assert!(before.is_registrant(*victim) || before.is_holder(*victim));
    }
    assert!(effects.notices.iter().all(|notice| notice.host != host), "a host tells itself");
}

fn holds_together(state: &State) {
    let hosts = (0..HOSTS).map(|id| HostId([id; 16]));
    let registrations = state.registrations();
    for host in hosts {
        let own = registrations.iter().filter(|registration| registration.host == host).count();
        assert_eq!(own, usize::from(state.is_registrant(host)));
        assert!(!state.is_holder(host) || state.is_registrant(host), "a holder without a key");
        if state.held().is_none() || state.is_holder(host) {
            assert_eq!(state.access(host), Access::FULL);
        }
    }
    if let Some(saved) = state.saved() {
        assert_eq!(State::power_on(PowerLoss::Keeps, Some(saved)).as_ref(), Some(state));
    }
    let mut page = Vec::new();
    state.report(&[(HostId([0; 16]), 1), (HostId([0; 16]), 2)], &mut page);
    let twice = usize::from(state.is_registrant(HostId([0; 16])));
    assert_eq!(page.len(), REPORT_ENTRY * (1 + registrations.len() + twice));
}
