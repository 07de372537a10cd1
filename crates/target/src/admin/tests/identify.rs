//! Identify, CNS by CNS.

use std::time::Duration;

use nvme::ana::State;
use nvme::identify::{
    Cns, CommandSet, CommandSets, ControllerList, Identify, IdentifyController, IdentifyNamespace,
    IndependentNamespace, NSID_ALL, NamespaceDescriptor, NamespaceList, NvmIdentifyController,
    bits, namespace_bits,
};
use nvme::sqe::Sqe;
use nvme::status::Status;
use zerocopy::FromBytes;

use crate::command::tests::double::{On, Place, on_reactor};
use crate::controller::Controller;
use crate::limits::{IO_IN_CAPSULE_BYTES, TRANSFER_BYTES_MAX, WRITE_ZEROES_BYTES_MAX};
use crate::namespace::{Backend, NamespaceSpec};
use crate::rig::{Rig, SUBSYSTEM, backend, data_of, failure, nqn};

fn identify(cns: Cns, nsid: u32) -> Sqe {
    Identify::new(cns, nsid).to_sqe(1)
}

fn page(controller: &Controller, cns: Cns, nsid: u32) -> Vec<u8> {
    let page = data_of(controller, identify(cns, nsid), 4096);
    assert_eq!(page.len(), 4096);
    page
}

/// Adds namespace 5: 2 MiB of 4096-byte blocks.
fn add_fifth(rig: &Rig) {
    let spec = NamespaceSpec {
        nsid: Some(5),
        uuid: Some([5; 16]),
        eui64: Some([6; 8]),
        ..NamespaceSpec::new(backend(2 << 20), 4096)
    };
    rig.target.add_namespace(&nqn(SUBSYSTEM), &spec).unwrap();
}

#[test]
fn the_controller_advertises_what_hosts_need_and_what_is_kept() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let id = IdentifyController::read_from_bytes(&page(controller, Cns::Controller, 0)).unwrap();
    assert_eq!(id.cntlid.get(), controller.cntlid());
    assert_eq!(id.ver.get(), 0x0002_0100);
    assert_eq!(id.cntrltype, bits::CNTRLTYPE_IO);
    assert_eq!(4096u32 << id.mdts, TRANSFER_BYTES_MAX);
    // What the Linux host checks of a fabrics controller before it uses it.
    assert_eq!(id.ioccsz.get() * 16, 64 + IO_IN_CAPSULE_BYTES);
    assert_eq!((id.iorcsz.get(), id.icdoff.get()), (1, 0));
    assert_ne!(id.sgls.get() & 3, 0);
    assert_ne!((id.kas.get(), id.maxcmd.get()), (0, 0));
    assert_eq!((id.sqes, id.cqes), (0x66, 0x44));
    assert_eq!((id.crdt1.get(), id.crdt2.get(), id.cqt.get()), (10, 50, 500));
    assert_eq!(nvme::nqn::field_str(&id.subnqn), Ok(SUBSYSTEM));
    assert_eq!(nvme::identify::ascii(&id.mn), "Flashloom");
    assert_eq!((id.nn.get(), id.mnan.get()), (1024, 1024));
    assert_eq!(id.oacs.get(), 0, "no optional admin command");
    assert_eq!(id.vwc & bits::VWC_PRESENT, 1, "what has a volatile cache may come later");
    assert_ne!(id.ctratt.get() & bits::CTRATT_TBKAS, 0);
    assert_ne!(id.ctratt.get() & bits::CTRATT_RESERVATIONS_NEED_HOSTID, 0);
}

#[test]
fn a_namespace_is_described_by_size_format_and_identifiers() {
    let rig = Rig::new();
    add_fifth(&rig);
    let connected = rig.enabled();
    let controller = connected.controller();
    for (cns, nsid, blocks, size) in [
        (Cns::Namespace, 1, 2048, 512),
        (Cns::Namespace, 5, 512, 4096),
        (Cns::AllocatedNamespace, 5, 512, 4096),
    ] {
        let id = IdentifyNamespace::read_from_bytes(&page(controller, cns, nsid)).unwrap();
        assert_eq!((id.nsze.get(), id.ncap.get(), id.block_bytes()), (blocks, blocks, Some(size)));
        assert_eq!(u128::from_le_bytes(id.nvmcap), u128::from(blocks) * u128::from(size));
        assert_ne!(id.nguid, [0; 16]);
        assert_eq!((id.npdg.get() + 1) * u16::try_from(size).unwrap(), 4096);
        assert_eq!((id.mssrl.get(), id.mcl.get(), id.msrc), (4096, 65_536, 127));
        assert_eq!(id.dlfeat, 0b1001);
    }
    let descriptors =
        NamespaceDescriptor::parse_page(&page(controller, Cns::NamespaceDescriptors, 5));
    assert!(descriptors.contains(&NamespaceDescriptor::Uuid([5; 16])));
    assert!(descriptors.contains(&NamespaceDescriptor::Eui64([6; 8])));
    assert!(descriptors.contains(&NamespaceDescriptor::CommandSet(CommandSet::Nvm)));
    let independent = page(controller, Cns::IndependentNamespace, 5);
    let independent = IndependentNamespace::read_from_bytes(&independent).unwrap();
    assert_eq!((independent.nstat, independent.nmic), (1, 1));
    let without = namespace_bits::INDEPENDENT_NSFEAT_NO_VOLATILE_CACHE;
    assert_ne!(independent.nsfeat & without, 0, "memory has no cache to flush");
}

#[test]
fn inactive_namespaces_are_zero_and_invalid_ones_are_refused() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    for cns in [
        Cns::Namespace,
        Cns::AllocatedNamespace,
        Cns::IndependentNamespace,
        Cns::CommandSetNamespace,
        Cns::CommandSetAllocatedNamespace,
    ] {
        assert!(page(controller, cns, 2).iter().all(|&byte| byte == 0), "{cns}");
        for nsid in [0, 1025, NSID_ALL - 1] {
            let status = failure(controller, identify(cns, nsid), 4096);
            assert_eq!(status, Status::INVALID_NAMESPACE_OR_FORMAT, "{cns} {nsid:#x}");
        }
    }
    // It was answered as if it named what namespaces have in common.
    let all = identify(Cns::CommandSetAllocatedNamespace, NSID_ALL);
    assert_eq!(failure(controller, all, 4096), Status::INVALID_NAMESPACE_OR_FORMAT);
    for nsid in [0, 2, NSID_ALL] {
        let status = failure(controller, identify(Cns::NamespaceDescriptors, nsid), 4096);
        assert_eq!(status, Status::INVALID_NAMESPACE_OR_FORMAT);
    }
    // What all namespaces have in common.
    let common = page(controller, Cns::Namespace, NSID_ALL);
    assert_eq!(IdentifyNamespace::read_from_bytes(&common).unwrap().nlbaf, 1);
}

#[test]
fn lists_start_behind_the_namespace_given() {
    let rig = Rig::new();
    add_fifth(&rig);
    let connected = rig.enabled();
    let controller = connected.controller();
    for cns in [
        Cns::ActiveNamespaces,
        Cns::AllocatedNamespaces,
        Cns::CommandSetActiveNamespaces,
        Cns::CommandSetAllocatedNamespaces,
    ] {
        for (after, expected) in [(0, vec![1, 5]), (1, vec![5]), (5, vec![])] {
            let list = NamespaceList::read_from_bytes(&page(controller, cns, after)).unwrap();
            assert_eq!(list.iter().collect::<Vec<_>>(), expected, "{cns}");
        }
        for after in [NSID_ALL, NSID_ALL - 1] {
            let status = failure(controller, identify(cns, after), 4096);
            assert_eq!(status, Status::INVALID_NAMESPACE_OR_FORMAT);
        }
    }
}

#[test]
fn controller_lists_name_every_controller_of_the_subsystem() {
    let rig = Rig::new();
    let (first, second) = (rig.enabled(), rig.enabled());
    let ids = [first.controller().cntlid(), second.controller().cntlid()];
    for (cns, nsid) in [(Cns::Controllers, 0), (Cns::NamespaceControllers, 1)] {
        let list = page(first.controller(), cns, nsid);
        let list = ControllerList::read_from_bytes(&list).unwrap();
        assert_eq!(list.iter().collect::<Vec<_>>(), ids);
    }
    let from = Identify { cntid: ids[1], ..Identify::new(Cns::Controllers, 0) };
    let list = data_of(first.controller(), from.to_sqe(1), 4096);
    let list = ControllerList::read_from_bytes(&list).unwrap();
    assert_eq!(list.iter().collect::<Vec<_>>(), ids[1..]);
    let unattached = identify(Cns::NamespaceControllers, 2);
    let status = failure(first.controller(), unattached, 4096);
    assert_eq!(status, Status::INVALID_NAMESPACE_OR_FORMAT);
}

#[test]
fn only_the_nvm_command_set_is_offered() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let sets = CommandSets::read_from_bytes(&page(controller, Cns::CommandSets, 0)).unwrap();
    assert_eq!((sets.vectors[0].get(), sets.vectors[1].get()), (1, 0));
    let nvm = page(controller, Cns::CommandSetController, 0);
    let nvm = NvmIdentifyController::read_from_bytes(&nvm).unwrap();
    assert_eq!(nvm.ver.get(), 0x0001_0100);
    assert_eq!(4096 << nvm.wzsl, WRITE_ZEROES_BYTES_MAX);
    for cns in [
        Cns::CommandSetNamespace,
        Cns::CommandSetController,
        Cns::CommandSetActiveNamespaces,
        Cns::CommandSetAllocatedNamespaces,
    ] {
        for csi in [1, 2, 0x30] {
            let zoned = Identify { csi, ..Identify::new(cns, 1) };
            assert_eq!(failure(controller, zoned.to_sqe(1), 4096), Status::INVALID_FIELD);
        }
    }
}

#[test]
fn what_does_not_apply_is_an_invalid_field() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    for cns in [
        Cns::NvmSets,
        Cns::PrimaryControllerCapabilities,
        Cns::SecondaryControllers,
        Cns::NamespaceGranularities,
        Cns::Uuids,
        Cns::Domains,
        Cns::EnduranceGroups,
        Cns::Ports,
    ] {
        assert_eq!(failure(controller, identify(cns, 0), 4096), Status::INVALID_FIELD, "{cns}");
    }
    let mut unknown = identify(Cns::Controller, 0);
    unknown.cdw10 = 0x7f.into();
    assert_eq!(failure(controller, unknown, 4096), Status::INVALID_FIELD);
    let uuid = Identify { uuid_index: 1, ..Identify::new(Cns::Controller, 0) };
    assert_eq!(failure(controller, uuid.to_sqe(1), 4096), Status::INVALID_FIELD);
}

#[test]
fn the_data_pointer_is_checked() {
    let rig = Rig::new();
    let connected = rig.enabled();
    let controller = connected.controller();
    let command = identify(Cns::Controller, 0);
    assert_eq!(failure(controller, command, 4095), Status::DATA_SGL_LENGTH_INVALID);
    assert_eq!(data_of(controller, command, 8192).len(), 4096);
    let prp = Sqe { flags: 0, ..command };
    assert_eq!(failure(controller, prp, 4096), Status::INVALID_FIELD);
    // The last was found by fuzzing: data was sent to a host that had named its own capsule for it.
    for id in [nvme::sqe::Sgl::SEGMENT, nvme::sqe::Sgl::DATA_BLOCK_OFFSET] {
        let mut wrong = command;
        wrong.dptr = nvme::sqe::Sgl::transport(4096);
        wrong.dptr.id = id;
        let mut out = Vec::new();
        let outcome = controller.execute_admin(&wrong, &[], &mut out);
        let crate::admin::Outcome::Failed(status) = outcome else { panic!("{outcome:?}") };
        assert!(status.is(Status::SGL_DESCRIPTOR_TYPE_INVALID));
    }
}

/// `nvme list` said of an empty volume that all of it was used, and Linux took its blocks of 512 bytes for what it writes
/// as a whole.
#[test]
fn a_volume_is_thin_and_tells_what_it_writes_as_a_whole() {
    on_reactor(async {
        for (block_size, atomic) in [(512, 8), (4096, 1)] {
            let place = Place::new(On::Volume, 1, 2048, block_size).await;
            let id = crate::describe::namespace(&place.namespace, State::Optimized);
            assert_ne!(id.nsfeat & namespace_bits::NSFEAT_THIN, 0);
            assert_eq!(id.nsfeat & namespace_bits::NSFEAT_ATOMICS != 0, atomic > 1);
            let zeros_based = [id.nawun, id.nawupf, id.nabsn, id.nabspf].map(|field| field.get());
            assert_eq!(zeros_based, [atomic - 1; 4]);
            assert_eq!((id.nabo.get(), id.nacwu.get()), (0, 0));
        }
        let place = Place::new(On::Memory, 1, 2048, 512).await;
        let id = crate::describe::namespace(&place.namespace, State::Optimized);
        assert_eq!(id.nsfeat & (namespace_bits::NSFEAT_THIN | namespace_bits::NSFEAT_ATOMICS), 0);
    });
}

#[test]
fn nuse_is_what_is_used_of_a_volume() {
    on_reactor(async {
        for (block_size, of_a_block) in [(512, 8), (4096, 1)] {
            let place = Place::new(On::Volume, 1, 2048, block_size).await;
            let namespace = &place.namespace;
            let Backend::Volume(volume) = &namespace.backend else { panic!("it is one") };
            let nuse = |access| crate::describe::namespace(namespace, access).nuse.get();
            let reaches = async |blocks: u64| {
                let look = async {
                    while nuse(State::Optimized) != blocks * of_a_block {
                        reactor::sleep(Duration::from_millis(10)).await;
                    }
                };
                let in_time = reactor::timeout(Duration::from_secs(60), look).await.is_ok();
                assert!(in_time, "{} in place of {blocks}", nuse(State::Optimized));
            };
            reaches(0).await;
            volume.write(0, &[0x5a; 10 * 4096]).await.unwrap();
            reaches(10).await;
            volume.deallocate(4096, 8192).await.unwrap();
            reaches(8).await;
            assert_eq!(nuse(State::Inaccessible), 0);
            // Whatever is counted, it is no more than there is.
            namespace.set_blocks(3);
            assert_eq!(nuse(State::Optimized), 3);
        }
        for on in [On::Memory, On::File] {
            let place = Place::new(on, 1, 2048, 512).await;
            let id = crate::describe::namespace(&place.namespace, State::Optimized);
            assert_eq!(id.nuse.get(), 2048, "{on:?} is not thin");
        }
    });
}
