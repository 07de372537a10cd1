//! Any entry with any data gives one outcome and never a panic.

use nvme::opcode::admin;
use nvme::sqe::Sqe;
use proptest::prelude::*;
use zerocopy::FromBytes;

use crate::admin::Outcome;
use crate::limits::{ASYNC_EVENT_REQUESTS_MAX, TRANSFER_BYTES_MAX};
use crate::rig::{HOST, Rig, SUBSYSTEM};

/// Entries close to real ones: a known opcode and small numbers in most fields.
fn entry() -> impl Strategy<Value = Sqe> {
    let opcodes = prop::sample::select(vec![
        admin::IDENTIFY,
        admin::GET_LOG_PAGE,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::ABORT,
        admin::KEEP_ALIVE,
        admin::FABRICS,
    ]);
    let word =
        || prop_oneof![0..0x100u32, Just(u32::MAX), any::<u32>(), (0..16u32).prop_map(|n| n << 28)];
    let fields = (word(), word(), word(), word(), word(), word());
    let pointer = (prop_oneof![Just(0x5au8), Just(1), any::<u8>()], word());
    (
        opcodes,
        any::<u16>(),
        word(),
        fields,
        pointer,
        prop::sample::select(vec![0x40u8, 0, 0x80, 0xff]),
    )
        .prop_map(|(opcode, cid, nsid, fields, pointer, flags)| {
            let mut sqe = Sqe::new(opcode, cid, nsid);
            sqe.flags = flags;
            sqe.cdw10 = fields.0.into();
            sqe.cdw11 = fields.1.into();
            sqe.cdw12 = fields.2.into();
            sqe.cdw13 = fields.3.into();
            sqe.cdw14 = fields.4.into();
            sqe.cdw15 = fields.5.into();
            sqe.dptr.id = pointer.0;
            sqe.dptr.length = pointer.1.into();
            sqe
        })
}

fn any_entry() -> impl Strategy<Value = Sqe> {
    let raw = prop::array::uniform32(any::<[u8; 2]>())
        .prop_map(|bytes| Sqe::read_from_bytes(bytes.as_flattened()).unwrap());
    prop_oneof![4 => entry(), 1 => raw]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_entry_has_one_outcome(
        entries in prop::collection::vec(any_entry(), 1..40),
        data in prop::collection::vec(any::<u8>(), 0..600),
        discovery in any::<bool>(),
    ) {
        let rig = Rig::new();
        let subsystem = if discovery { nvme::nqn::DISCOVERY } else { SUBSYSTEM };
        let connected = rig.enabled_as(subsystem, HOST);
        let controller = connected.controller();
        let mut parked = 0;
        for sqe in entries {
            let mut out = vec![1, 2, 3];
            match controller.execute_admin(&sqe, &data, &mut out) {
                Outcome::Data => {
                    prop_assert!(!out.is_empty());
                    let room = sqe.dptr.data().map_or(0, |data| data.length());
                    prop_assert!(out.len() <= usize::try_from(room.min(TRANSFER_BYTES_MAX)).unwrap());
                }
                Outcome::Failed(status) => {
                    prop_assert!(!status.is_success() && status.name().is_some() | status.fabrics_name().is_some());
                    prop_assert!(out.is_empty());
                }
                Outcome::AsyncEvent => parked += 1,
                Outcome::Complete { .. }
                | Outcome::Abort { .. }
                | Outcome::KeepReservations { .. }
                | Outcome::GrantWindow(_)
                | Outcome::AskDrive(_)
                | Outcome::EndWindow(_)
                | Outcome::Disconnect => {
                    prop_assert!(out.is_empty());
                }
            }
            while controller.next_event().is_some() {
                parked -= 1;
            }
            prop_assert!((0..=i64::from(ASYNC_EVENT_REQUESTS_MAX)).contains(&parked));
            // Views, counters and the snapshot stay consistent whatever the host did.
            prop_assert_eq!(rig.target.snapshot().subsystems.len(), 1);
        }
        drop(connected);
        prop_assert!(rig.target.controllers().is_empty());
    }

    #[test]
    fn every_connect_is_decided(
        sqe in any_entry(),
        data in prop::collection::vec(any::<u8>(), 1024),
        real in any::<bool>(),
    ) {
        let rig = Rig::new();
        let attempt = rig.attempt(SUBSYSTEM, HOST);
        let random = nvme::fabrics::ConnectData::ref_from_bytes(&data).unwrap();
        let data = if real { &attempt.data } else { random };
        let mut sqe = sqe;
        if real {
            sqe.opcode = admin::FABRICS;
            sqe.nsid = 1.into();
        }
        let params = crate::fabrics::ConnectParams { sqe: &sqe, data, path: rig.path, now: 0 };
        match crate::fabrics::connect(&rig.target, &params) {
            Ok(connected) => prop_assert!(connected.entries >= 2),
            Err(refusal) => prop_assert!(!refusal.status.is_success()),
        }
        prop_assert!(rig.target.controllers().is_empty());
    }
}
