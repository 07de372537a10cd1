//! A target with a host, for tests: no sockets, a clock that stands until it is moved.
#![allow(clippy::unwrap_used, reason = "a test says what it met by failing there")]

use std::net::SocketAddr;
use std::sync::Arc;

use fabric::TransportAddress;
use media::memory::{Region, RegionOptions};
use nvme::fabrics::{CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, PropertySet};
use nvme::fabrics::{PropertyGet, PropertySize};
use nvme::nqn::Nqn;
use nvme::property::{Cc, CommandSetSelected, offset};
use nvme::sqe::{Sgl, Sqe};
use nvme::status::Status;

use crate::admin::Outcome;
use crate::controller::{Controller, Path};
use crate::fabrics::{ConnectParams, Connected, Refusal, connect};
use crate::listener::{ListenerId, ListenerInfo};
use crate::namespace::{Backend, NamespaceSpec};
use crate::registry::{Identity, Target};
use crate::subsystem::SubsystemSpec;

pub const SUBSYSTEM: &str = "nqn.2026-11.io.flashloom:test";
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
pub const HOST_ID: [u8; 16] = [7; 16];
/// Where the clock stands at first, in nanoseconds.
pub const START: u64 = 1_000_000_000_000;
pub const SECOND: u64 = 1_000_000_000;

pub fn nqn(name: &str) -> Nqn {
    Nqn::new(name).unwrap()
}

pub fn backend(bytes: u64) -> Backend {
    let region =
        Region::new(bytes, RegionOptions { block_size: 512, shared: false, committed: false });
    Backend::Memory(Arc::new(region.unwrap()))
}

pub struct Rig {
    pub target: Arc<Target>,
    pub path: Path,
}

/// A Connect to be bent before it is sent.
pub struct Attempt {
    pub command: Connect,
    pub data: ConnectData,
    pub path: Path,
}

impl Rig {
    /// A listener at 10.1.2.3:4420 and one subsystem with one namespace of 1 MiB, 512-byte blocks.
    pub fn new() -> Self {
        let target = Target::new(Identity::default());
        let local: SocketAddr = "10.1.2.3:4420".parse().unwrap();
        let listener =
            target.add_listener(ListenerInfo::new(TransportAddress::Tcp(local))).unwrap();
        target.add_subsystem(SubsystemSpec::new(nqn(SUBSYSTEM))).unwrap();
        let spec = NamespaceSpec::new(backend(1 << 20), 512);
        assert_eq!(target.add_namespace(&nqn(SUBSYSTEM), &spec), Ok(1));
        Self { target, path: Self::path(listener, local) }
    }

    pub fn path(listener: ListenerId, local: SocketAddr) -> Path {
        let tcp = TransportAddress::Tcp;
        Path { listener, local: tcp(local), peer: tcp("10.9.9.9:50000".parse().unwrap()) }
    }

    /// What a Linux host sends for the admin queue.
    pub fn attempt(&self, subsystem: &str, host: &str) -> Attempt {
        Attempt {
            command: Connect {
                recfmt: 0,
                qid: 0,
                sqsize: 31,
                attributes: ConnectAttributes(0),
                kato: 5000,
            },
            data: ConnectData::new(HOST_ID, CNTLID_DYNAMIC, &nqn(subsystem), &nqn(host)),
            path: self.path,
        }
    }

    /// The same for I/O queue `qid` of a controller.
    pub fn io_attempt(&self, qid: u16, controller: &Controller) -> Attempt {
        let mut attempt =
            self.attempt(controller.subsystem_nqn().as_str(), controller.host_nqn().as_str());
        attempt.command.qid = qid;
        attempt.command.sqsize = 127;
        attempt.command.kato = 0;
        attempt.data.cntlid = controller.cntlid().into();
        attempt
    }

    pub fn connect(&self, attempt: &Attempt) -> Result<Connected, Refusal> {
        let mut sqe = attempt.command.to_sqe(1);
        sqe.dptr = Sgl::in_capsule(0, 1024);
        let Attempt { data, path, .. } = attempt;
        connect(&self.target, &ConnectParams { sqe: &sqe, data, path: *path, now: START })
    }

    /// An admin queue of the test subsystem, its controller enabled.
    pub fn enabled(&self) -> Connected {
        self.enabled_as(SUBSYSTEM, HOST)
    }

    pub fn enabled_as(&self, subsystem: &str, host: &str) -> Connected {
        let connected = self.connect(&self.attempt(subsystem, host)).unwrap();
        let cc = Cc::enable(CommandSetSelected::Nvm);
        set_cc(connected.controller(), cc);
        assert!(connected.controller().status().ready());
        connected
    }
}

/// Property Set of CC.
pub fn set_cc(controller: &Controller, cc: Cc) {
    let value = u64::from(cc.0);
    let set = PropertySet { offset: offset::CC, size: PropertySize::Four, value };
    assert_eq!(execute(controller, &set.to_sqe(9)).0, Outcome::DONE);
}

/// Property Get of a 4-byte property.
pub fn get_property(controller: &Controller, offset: u32) -> u32 {
    let get = PropertyGet { offset, size: PropertySize::Four };
    match execute(controller, &get.to_sqe(9)).0 {
        Outcome::Complete { dw0, dw1: 0 } => dw0,
        other => panic!("{other:?}"),
    }
}

pub fn execute(controller: &Controller, sqe: &Sqe) -> (Outcome, Vec<u8>) {
    execute_with(controller, sqe, &[])
}

pub fn execute_with(controller: &Controller, sqe: &Sqe, data: &[u8]) -> (Outcome, Vec<u8>) {
    let mut out = vec![0xaa; 3];
    let outcome = controller.execute_admin(sqe, data, &mut out);
    assert_eq!(outcome == Outcome::Data, !out.is_empty());
    (outcome, out)
}

/// The data a command returns into a buffer of `length` bytes.
pub fn data_of(controller: &Controller, mut sqe: Sqe, length: u32) -> Vec<u8> {
    sqe.dptr = Sgl::transport(length);
    let (outcome, out) = execute(controller, &sqe);
    assert_eq!(outcome, Outcome::Data, "{sqe:?}");
    out
}

/// The status a command fails with, its flags dropped.
pub fn failure(controller: &Controller, mut sqe: Sqe, length: u32) -> Status {
    sqe.dptr = Sgl::transport(length);
    match execute(controller, &sqe).0 {
        Outcome::Failed(status) => status.kind(),
        other => panic!("{other:?}"),
    }
}
