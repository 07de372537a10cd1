//! What the target says of itself: the Identify data structures. Every fact advertised here is one
//! that the rest of the crate keeps.

mod drive;

use fabric::limits::RDMA_IN_CAPSULE_BYTES;
use nvme::ana;
use nvme::discovery::TransportType;
use nvme::feature::async_event;
use nvme::identify::{
    CommandSet, IdentifyController, IdentifyNamespace, IndependentNamespace, LbaFormat,
    NamespaceDescriptor, NvmIdentifyController, NvmIdentifyNamespace, bits, namespace_bits,
    set_ascii,
};
use nvme::log::{CommandEffects, EffectsLog, SupportedPage, SupportedPages, lid};
use nvme::opcode::{admin, io};
use nvme::property::Version;
use nvme::window::MARK;
use stdx::num::{low8, low16};

use crate::controller::{ANA_GROUPS, CQE_LOG2, Controller, Kind, SQE_LOG2};
use crate::limits::{
    ABORTS_MAX, ADMIN_QUEUE_ENTRIES_MAX, ANA_TRANSITION_SECONDS, ASYNC_EVENT_REQUESTS_MAX,
    COPY_MAX_BLOCKS, COPY_MAX_RANGE_BLOCKS, COPY_MAX_RANGES, DEALLOCATE_BYTES, ERROR_LOG_ENTRIES,
    IO_IN_CAPSULE_BYTES, IO_QUEUE_ENTRIES_MAX, KEEP_ALIVE_GRANULARITY, MDTS,
    PERSISTENT_EVENT_LOG_SIZE, QUIESCE_MS, RETRY_DELAYS, WZSL,
};
use crate::namespace::{Namespace, View};
use crate::registry::Target;
use crate::subsystem::Subsystem;

/// Units of IOCCSZ and IORCSZ, bytes.
const CAPSULE_UNIT: u32 = 16;
/// Bytes of a submission and of a completion queue entry.
const SQE_BYTES: u32 = 1 << SQE_LOG2;
const CQE_BYTES: u32 = 1 << CQE_LOG2;
/// FRMW bits 3:1: one firmware slot.
const FRMW_ONE_SLOT: u8 = 1 << 1;

/// Copy descriptor formats there are (CDFS), one bit each: 0h to 3h.
pub(crate) const COPY_FORMATS: u16 = 0b1111;

/// What discovery and I/O controllers have in common.
fn controller_base(target: &Target, controller: &Controller) -> IdentifyController {
    let mut id = IdentifyController::default();
    set_ascii(&mut id.fr, &target.identity.firmware);
    id.mdts = MDTS;
    id.cntlid = controller.cntlid().into();
    id.ver = Version::V2_1.0.into();
    id.ctratt = (bits::CTRATT_HOSTID_128 | bits::CTRATT_TBKAS).into();
    id.aerl = zeros_based(ASYNC_EVENT_REQUESTS_MAX);
    id.elpe = ERROR_LOG_ENTRIES - 1;
    id.kas = KEEP_ALIVE_GRANULARITY.into();
    // How data outside of capsules is named.
    let named = match controller.path().local.trtype() {
        TransportType::Rdma => bits::SGLS_KEYED,
        _ => bits::SGLS_TRANSPORT,
    };
    id.sgls = (bits::SGLS_SUPPORTED | bits::SGLS_OFFSET | named).into();
    id.subnqn = controller.subsystem_nqn().to_field();
    id
}

/// A count as the 0's based field it goes into.
fn zeros_based(count: u32) -> u8 {
    low8(u64::from(count.saturating_sub(1)))
}

/// Identify Controller of a discovery controller (section 3.1.3.3).
pub(crate) fn discovery_controller(target: &Target, controller: &Controller) -> IdentifyController {
    let mut id = controller_base(target, controller);
    set_ascii(&mut id.sn, "discovery");
    set_ascii(&mut id.mn, &target.identity.model);
    id.cntrltype = bits::CNTRLTYPE_DISCOVERY;
    id.dctype = bits::DCTYPE_DIRECT;
    id.oaes = bits::OAES_DISCOVERY_CHANGE.into();
    id.lpa = bits::LPA_EFFECTS | bits::LPA_EXTENDED_DATA | bits::LPA_SUPPORTED_PAGES;
    id.maxcmd = ADMIN_QUEUE_ENTRIES_MAX.into();
    id
}

/// Identify Controller of an I/O controller.
pub(crate) fn io_controller(
    target: &Target,
    subsystem: &Subsystem,
    controller: &Controller,
) -> IdentifyController {
    let mut id = controller_base(target, controller);
    set_ascii(&mut id.sn, &subsystem.spec.serial);
    set_ascii(&mut id.mn, &subsystem.spec.model);
    if controller.grants_windows() {
        id.vs[..MARK.len()].copy_from_slice(&MARK);
    }
    id.ctratt = (id.ctratt.get() | bits::CTRATT_RESERVATIONS_NEED_HOSTID).into();
    id.cmic = bits::CMIC_MULTI_PORT | bits::CMIC_MULTI_CONTROLLER | bits::CMIC_ANA;
    id.oaes = (bits::OAES_NAMESPACE_ATTRIBUTE | bits::OAES_ANA_CHANGE).into();
    id.anatt = ANA_TRANSITION_SECONDS;
    let [shortly, later] = RETRY_DELAYS;
    id.crdt1 = shortly.into();
    id.crdt2 = later.into();
    id.cqt = QUIESCE_MS.into();
    id.anacap = bits::ANACAP_OPTIMIZED
        | bits::ANACAP_NON_OPTIMIZED
        | bits::ANACAP_INACCESSIBLE
        | bits::ANACAP_PERSISTENT_LOSS
        | bits::ANACAP_CHANGE;
    id.anagrpmax = ANA_GROUPS.into();
    id.nanagrpid = ANA_GROUPS.into();
    id.cntrltype = bits::CNTRLTYPE_IO;
    id.acl = zeros_based(u32::from(ABORTS_MAX));
    id.frmw = bits::FRMW_SLOT_1_READ_ONLY | FRMW_ONE_SLOT;
    id.lpa = bits::LPA_EFFECTS
        | bits::LPA_EXTENDED_DATA
        | bits::LPA_PERSISTENT_EVENT
        | bits::LPA_SUPPORTED_PAGES;
    if subsystem.view.has_drive_with_health() {
        id.lpa |= bits::LPA_SMART_PER_NAMESPACE;
    }
    id.pels = PERSISTENT_EVENT_LOG_SIZE.into();
    id.sqes = SQE_LOG2 << 4 | SQE_LOG2;
    id.cqes = CQE_LOG2 << 4 | CQE_LOG2;
    id.maxcmd = IO_QUEUE_ENTRIES_MAX.into();
    id.nn = subsystem.spec.max_namespaces.into();
    id.mnan = subsystem.spec.max_namespaces.into();
    let uncorrectable = match has_write_uncorrectable(&subsystem.view) {
        true => bits::ONCS_WRITE_UNCORRECTABLE,
        false => 0,
    };
    id.oncs = (uncorrectable
        | bits::ONCS_COMPARE
        | bits::ONCS_DATASET_MANAGEMENT
        | bits::ONCS_WRITE_ZEROES
        | bits::ONCS_SAVE_SELECT
        | bits::ONCS_RESERVATIONS
        | bits::ONCS_TIMESTAMP
        | bits::ONCS_VERIFY
        | bits::ONCS_COPY)
        .into();
    id.fuses = bits::FUSES_COMPARE_AND_WRITE.into();
    // Whatever the namespaces are now: hosts read this once, and one with a cache may come, or come again, at any time.
    // To a namespace without one a Flush is nothing.
    id.vwc = bits::VWC_BROADCAST_FLUSH | bits::VWC_PRESENT;
    // One logical block is written whole or not at all; more is not promised (0's based).
    id.awun = 0.into();
    id.awupf = 0.into();
    id.acwu = 0.into();
    id.cdfs = COPY_FORMATS.into();
    let in_capsule = match controller.path().local.trtype() {
        TransportType::Rdma => RDMA_IN_CAPSULE_BYTES,
        _ => IO_IN_CAPSULE_BYTES,
    };
    id.ioccsz = ((SQE_BYTES + in_capsule) / CAPSULE_UNIT).into();
    id.iorcsz = (CQE_BYTES / CAPSULE_UNIT).into();
    id.msdbd = 1;
    id.ofcs = bits::OFCS_DISCONNECT.into();
    id
}

/// Whether any namespace's drive has Write Uncorrectable: the others refuse it.
fn has_write_uncorrectable(view: &View) -> bool {
    let mut drives = view.iter().filter_map(|namespace| namespace.backend.passthrough());
    drives.any(|drive| drive.described().has_write_uncorrectable())
}

/// Identify Namespace (CNS 00h).
pub(crate) fn namespace(namespace: &Namespace, access: ana::State) -> IdentifyNamespace {
    let mut id = common_namespace();
    let blocks = namespace.blocks();
    id.nsze = blocks.into();
    id.ncap = blocks.into();
    // Section 8.1.1: utilization is not known where the namespace cannot be looked at.
    let blind =
        matches!(namespace.ana(access), ana::State::Inaccessible | ana::State::PersistentLoss);
    id.nuse = if blind { 0.into() } else { namespace.used_blocks().into() };
    id.anagrpid = namespace.ana_group().into();
    id.nsfeat = namespace_bits::NSFEAT_NO_ID_REUSE | namespace_bits::NSFEAT_OPTPERF;
    if namespace.backend.is_thin() {
        id.nsfeat |= namespace_bits::NSFEAT_THIN;
    }
    preferences(namespace, &mut id);
    atomicity(namespace, &mut id);
    id.nlbaf = 0;
    id.lbaf = [LbaFormat::default(); nvme::limits::LBA_FORMATS_MAX];
    id.lbaf[0] = format(namespace.block_size);
    id.rescap = namespace.reservation.with(crate::reservation::State::capabilities);
    id.nsattr = u8::from(namespace.write_protected());
    id.nvmcap = u128::from(namespace.bytes()).to_le_bytes();
    if let Some(drive) = namespace.backend.passthrough() {
        drive::describe(drive, &mut id);
    }
    id.nguid = namespace.identity.nguid;
    id.eui64 = namespace.identity.eui64.unwrap_or_default();
    id
}

/// Sizes that cost least (OPTPERF): writes in units of the medium, deallocation in units of the
/// pages that memory and files give back.
fn preferences(namespace: &Namespace, id: &mut IdentifyNamespace) {
    let blocks_of = |bytes: u32| low16(u64::from((bytes / namespace.block_size).max(1)));
    let write = blocks_of(namespace.backend.physical_block()) - 1;
    let deallocate = blocks_of(DEALLOCATE_BYTES) - 1;
    id.npwg = write.into();
    id.npwa = write.into();
    id.nows = write.into();
    id.npdg = deallocate.into();
    id.npda = deallocate.into();
    let zeroes = match namespace.backend.zeroes_when_deallocated() {
        true => namespace_bits::DLFEAT_READS_ZEROES,
        false => 0,
    };
    id.dlfeat = zeroes | namespace_bits::DLFEAT_WRITE_ZEROES_DEALLOCATE;
}

/// What is written as a whole or not at all, also when power fails (NVM Command Set 1.1, section 2.1.4): more than one
/// logical block where the backend's own are larger, as long as it is within one of those.
fn atomicity(namespace: &Namespace, id: &mut IdentifyNamespace) {
    let blocks = namespace.backend.atomic_bytes() / namespace.block_size;
    if blocks > 1 {
        let zeros_based = low16(u64::from(blocks - 1));
        id.nsfeat |= namespace_bits::NSFEAT_ATOMICS;
        id.nawun = zeros_based.into();
        id.nawupf = zeros_based.into();
        id.nabsn = zeros_based.into();
        id.nabspf = zeros_based.into();
    }
}

/// Identify Namespace with NSID FFFFFFFFh: what every namespace has in common, and the formats a
/// namespace can have.
pub(crate) fn common_namespace() -> IdentifyNamespace {
    let mut id = IdentifyNamespace {
        nlbaf: 1,
        nmic: namespace_bits::NMIC_SHARED,
        mssrl: low16(COPY_MAX_RANGE_BLOCKS.into()).into(),
        mcl: COPY_MAX_BLOCKS.into(),
        msrc: low8(u64::from(COPY_MAX_RANGES) - 1),
        ..IdentifyNamespace::default()
    };
    id.lbaf[0] = format(512);
    id.lbaf[1] = format(4096);
    id
}

fn format(block_size: u32) -> LbaFormat {
    LbaFormat { lbads: low8(u64::from(block_size.trailing_zeros())), ..LbaFormat::default() }
}

/// Namespace Identification Descriptors (CNS 03h).
pub(crate) fn descriptors(namespace: &Namespace) -> Vec<NamespaceDescriptor> {
    let identity = &namespace.identity;
    let eui64 = identity.eui64.map(NamespaceDescriptor::Eui64);
    eui64
        .into_iter()
        .chain([
            NamespaceDescriptor::Nguid(identity.nguid),
            NamespaceDescriptor::Uuid(identity.uuid),
            NamespaceDescriptor::CommandSet(CommandSet::Nvm),
        ])
        .collect()
}

/// NVM Command Set specific Identify Namespace (CNS 05h): no metadata, no protection information. What is preferred is
/// told by drives that get commands as they are.
pub(crate) fn nvm_namespace(namespace: &Namespace) -> NvmIdentifyNamespace {
    match namespace.backend.passthrough() {
        Some(drive) => drive::nvm_namespace(drive),
        None => nvm_common_namespace(),
    }
}

/// The same with NSID FFFFFFFFh.
pub(crate) fn nvm_common_namespace() -> NvmIdentifyNamespace {
    NvmIdentifyNamespace::default()
}

/// NVM Command Set specific Identify Controller (CNS 06h). 0 is "no limit"; but Linux takes MDTS for the limit of Write
/// Zeroes where none is given.
pub(crate) fn nvm_controller() -> NvmIdentifyController {
    NvmIdentifyController {
        wzsl: WZSL,
        ver: Version::V1_1.0.into(),
        ..NvmIdentifyController::default()
    }
}

/// I/O Command Set Independent Identify Namespace (CNS 08h).
pub(crate) fn independent_namespace(namespace: &Namespace) -> IndependentNamespace {
    let without_cache = match namespace.backend.has_volatile_cache() {
        true => 0,
        false => namespace_bits::INDEPENDENT_NSFEAT_NO_VOLATILE_CACHE,
    };
    IndependentNamespace {
        nsfeat: namespace_bits::INDEPENDENT_NSFEAT_NO_ID_REUSE | without_cache,
        nmic: namespace_bits::NMIC_SHARED,
        anagrpid: namespace.ana_group().into(),
        rescap: namespace.reservation.with(crate::reservation::State::capabilities),
        nsattr: u8::from(namespace.write_protected()),
        nstat: namespace_bits::NSTAT_READY,
        ..IndependentNamespace::default()
    }
}

/// The bits of Asynchronous Event Configuration (0Bh) that a host may set: the critical warnings,
/// and the notices of OAES.
pub(crate) fn event_configuration(kind: Kind) -> u32 {
    match kind {
        Kind::Io => {
            async_event::CRITICAL_WARNINGS | bits::OAES_NAMESPACE_ATTRIBUTE | bits::OAES_ANA_CHANGE
        }
        Kind::Discovery => bits::OAES_DISCOVERY_CHANGE,
    }
}

/// Supported Log Pages (00h). Of Discovery the LID Specific Parameter says which Log Specific
/// Parameter bits are supported.
pub(crate) fn supported_pages(lids: &[u8]) -> SupportedPages {
    let mut page = SupportedPages::new(lids);
    // Of Persistent Event, whether the header can be read with the context's establishment.
    if lids.contains(&lid::PERSISTENT_EVENT) {
        let specific = 1 << SupportedPage::SPECIFIC_SHIFT;
        page.lids[usize::from(lid::PERSISTENT_EVENT)] =
            (specific | SupportedPage::SUPPORTED).into();
    }
    if lids.contains(&lid::DISCOVERY) {
        let specific = u32::from(crate::discovery::LSP_SUPPORTED) << SupportedPage::SPECIFIC_SHIFT;
        page.lids[usize::from(lid::DISCOVERY)] = (specific | SupportedPage::SUPPORTED).into();
    }
    page
}

/// Commands Supported and Effects (05h) for one command set; `None` for a CSI that no command set
/// has. No command needs exclusive access, changes capabilities or the inventory.
///
/// A command set that this controller does not have gives the Admin commands and no I/O command:
/// nvme-cli asks for the Zoned Namespace Command Set's page of every controller with CAP.CSS bit 6,
/// and prints nothing at all when that is refused.
pub(crate) fn effects(kind: Kind, csi: u8, view: &View, has_windows: bool) -> Option<EffectsLog> {
    const CONTROLLER: u32 = CommandEffects::SCOPE_CONTROLLER;
    // Of I/O commands Linux expects no scope, and warns of "unusual effects" where one is given.
    const NOTHING: u32 = 0;
    const CHANGES: u32 = CommandEffects::CONTENT_CHANGE;
    let common = [
        (admin::GET_LOG_PAGE, CONTROLLER),
        (admin::IDENTIFY, CONTROLLER),
        (admin::SET_FEATURES, CONTROLLER),
        (admin::GET_FEATURES, CONTROLLER),
        (admin::ASYNC_EVENT_REQUEST, CONTROLLER),
        (admin::KEEP_ALIVE, CONTROLLER),
        (admin::FABRICS, CONTROLLER),
    ];
    let nvm = [
        (io::FLUSH, NOTHING),
        (io::WRITE, CHANGES),
        (io::READ, NOTHING),
        (io::COMPARE, NOTHING),
        (io::WRITE_ZEROES, CHANGES),
        (io::DATASET_MANAGEMENT, CHANGES),
        (io::VERIFY, NOTHING),
        (io::RESERVATION_REGISTER, NOTHING),
        (io::RESERVATION_REPORT, NOTHING),
        (io::RESERVATION_ACQUIRE, NOTHING),
        (io::RESERVATION_RELEASE, NOTHING),
        (io::COPY, CHANGES),
    ];
    let set = CommandSet::from_raw(csi)?;
    Some(match kind {
        Kind::Discovery => EffectsLog::new(&common, &[]),
        Kind::Io => {
            let commands: &[_] = if set == CommandSet::Nvm { &nvm } else { &[] };
            let mut page = EffectsLog::new(&common, commands);
            if set == CommandSet::Nvm && has_write_uncorrectable(view) {
                let place = &mut page.iocs[usize::from(io::WRITE_UNCORRECTABLE)];
                *place = (CHANGES | CommandEffects::SUPPORTED).into();
            }
            page.acs[usize::from(admin::ABORT)] = (CONTROLLER | CommandEffects::SUPPORTED).into();
            if has_windows {
                for opcode in [admin::WINDOW_RECEIVE, admin::WINDOW_END] {
                    let effects = CommandEffects::SCOPE_NAMESPACE | CommandEffects::SUPPORTED;
                    page.acs[usize::from(opcode)] = effects.into();
                }
            }
            page
        }
    })
}
