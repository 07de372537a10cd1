//! A host's commands on its queues, decided by the target: Connect, Fabrics and Admin commands, while
//! namespaces come and go beside it.

use std::sync::Arc;

use fabric::TransportAddress;
use media::memory::{Region, RegionOptions};
use nvme::fabrics::{CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, PropertySet};
use nvme::fabrics::{PropertySize, disconnect_sqe};
use nvme::nqn::Nqn;
use nvme::property::{Cc, CommandSetSelected, offset};
use nvme::sqe::{DataPointer, Sqe};
use target::admin::Outcome;
use target::controller::Path;
use target::fabrics::{ConnectParams, Connected, connect};
use target::listener::ListenerInfo;
use target::namespace::{Backend, NamespaceSpec};
use target::registry::{Identity, Target};
use target::subsystem::SubsystemSpec;
use zerocopy::FromBytes;

const SUBSYSTEM: &str = "nqn.2026-11.io.flashloom:fuzz";
const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
const NAMESPACE_BYTES: u64 = 1 << 20;
const NAMESPACES_MAX: u32 = 4;
const QUEUES_MAX: usize = 6;
/// Data that a host sends with an Admin command: no more than a page.
const HOST_DATA_BYTES: usize = 4096;
const SECOND: u64 = 1_000_000_000;

/// One thing that happens: what, where, an entry, and the start of its data.
#[derive(FromBytes)]
#[repr(C)]
struct Record {
    what: u8,
    queue: u8,
    sqe: Sqe,
    data: [u8; 16],
}
const _: () = assert!(size_of::<Record>() == 82);

fn nqn(name: &str) -> Nqn {
    Nqn::new(name).expect("a valid name")
}

struct Rig {
    target: Arc<Target>,
    path: Path,
    queues: Vec<Connected>,
    now: u64,
}

impl Rig {
    fn new(discovery: bool) -> Self {
        let target = Target::new(Identity::default());
        let local = TransportAddress::Tcp(([10, 1, 2, 3], 4420).into());
        let peer = TransportAddress::Tcp(([10, 9, 9, 9], 50000).into());
        let info = ListenerInfo::new(local);
        let listener = target.add_listener(info).expect("a first listener");
        target.add_subsystem(SubsystemSpec::new(nqn(SUBSYSTEM))).expect("a first subsystem");
        let path = Path { listener, local, peer };
        let mut rig = Self { target, path, queues: Vec::new(), now: SECOND };
        rig.add_namespace();
        let name = nqn(if discovery { DISCOVERY } else { SUBSYSTEM });
        let data = ConnectData::new([7; 16], CNTLID_DYNAMIC, &name, &nqn(HOST));
        let attributes = ConnectAttributes(0);
        let command = Connect { recfmt: 0, qid: 0, sqsize: 31, attributes, kato: 5000 };
        rig.connect(&command.to_sqe(0), &data);
        let value = u64::from(Cc::enable(CommandSetSelected::Nvm).0);
        let enable = PropertySet { offset: offset::CC, size: PropertySize::Four, value };
        rig.execute(0, &enable.to_sqe(1), &[]);
        rig
    }

    fn add_namespace(&self) {
        let options = RegionOptions { block_size: 512, shared: false, committed: false };
        let region = Region::new(NAMESPACE_BYTES, options).expect("a megabyte");
        let spec = NamespaceSpec::new(Backend::Memory(Arc::new(region)), 512);
        // Refused when there are too many.
        let _ = self.target.add_namespace(&nqn(SUBSYSTEM), &spec);
    }

    fn connect(&mut self, sqe: &Sqe, data: &ConnectData) {
        let params = ConnectParams { sqe, data, path: self.path, now: self.now };
        match connect(&self.target, &params) {
            Ok(connected) if self.queues.len() < QUEUES_MAX => self.queues.push(connected),
            Ok(_) => {}
            Err(refusal) => assert!(!refusal.status.is_success()),
        }
    }

    /// Executes a command on the queue with this index, as the queue's loop would.
    fn execute(&mut self, queue: usize, sqe: &Sqe, data: &[u8]) {
        let Some(connected) = self.queues.get(queue) else { return };
        let controller = Arc::clone(connected.controller());
        controller.touch(self.now);
        if connected.lease.qid() != 0 {
            if controller.execute_fabrics(connected.lease.qid(), sqe) == Outcome::Disconnect {
                self.queues.remove(queue);
            }
            return;
        }
        let mut out = vec![0xaa; 3];
        let outcome = controller.execute_admin(sqe, data, &mut out);
        assert_eq!(outcome == Outcome::Data, !out.is_empty(), "{outcome:?}");
        match outcome {
            Outcome::Failed(status) => assert!(!status.is_success()),
            Outcome::Data => match sqe.dptr.data() {
                Some(DataPointer::Transport { length }) => {
                    assert!(out.len() <= length as usize, "more data than the host has room for");
                }
                other => panic!("data for a host that has no room: {other:?}"),
            },
            Outcome::Disconnect => panic!("an admin queue is not disconnected"),
            Outcome::Complete { .. }
            | Outcome::AsyncEvent
            | Outcome::Abort { .. }
            | Outcome::KeepReservations { .. }
            | Outcome::GrantWindow(_)
            | Outcome::AskDrive(_)
            | Outcome::EndWindow(_) => {}
        }
    }

    fn apply(&mut self, record: &Record) {
        let queue = usize::from(record.queue) % QUEUES_MAX;
        let name = nqn(SUBSYSTEM);
        let nsid = u32::from(record.queue) % NAMESPACES_MAX + 1;
        match record.what % 8 {
            0 => self.add_namespace(),
            1 => drop(self.target.remove_namespace(&name, nsid)),
            2 => {
                let bytes = NAMESPACE_BYTES * u64::from(record.data[0]);
                let _ = self.target.resize_namespace(&name, nsid, bytes);
            }
            3 => {
                // An I/O queue of the controller, more or less.
                let Some(first) = self.queues.first() else { return };
                let controller = first.controller();
                let (subsystem, host) = (controller.subsystem_nqn(), controller.host_nqn());
                let mut data = ConnectData::new([7; 16], controller.cntlid(), subsystem, host);
                let [at, value, ..] = record.data;
                data.hostid[usize::from(at % 16)] ^= value & 1;
                self.connect(&record.sqe, &data);
            }
            4 => {
                self.now += SECOND * u64::from(record.data[0]);
                for connected in &self.queues {
                    let _ = connected.controller().expired(self.now);
                }
            }
            5 => {
                let Some(first) = self.queues.first() else { return };
                while first.controller().next_event().is_some() {}
            }
            6 if queue < self.queues.len() => drop(self.queues.remove(queue)),
            _ => {
                let mut data = vec![0; HOST_DATA_BYTES];
                data[..16].copy_from_slice(&record.data);
                let length = sgl_length(&record.sqe).min(HOST_DATA_BYTES);
                self.execute(queue, &record.sqe, &data[..length]);
            }
        }
    }
}

fn sgl_length(sqe: &Sqe) -> usize {
    sqe.dptr.data().map_or(0, |data| data.length() as usize)
}

/// Everything that an input's records say; its first byte says which kind of controller it is.
pub fn admin(input: &[u8]) {
    let Some((first, mut rest)) = input.split_first() else { return };
    let mut rig = Rig::new(first & 1 != 0);
    while let Ok((record, behind)) = Record::read_from_prefix(rest) {
        rig.apply(&record);
        rest = behind;
    }
    // Whatever happened, a queue can be told to go.
    rig.execute(1, &disconnect_sqe(9), &[]);
}
