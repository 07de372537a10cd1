//! What hosts see of a namespace whose NVMe drive gets commands as they are: what the drive says, as far as it holds
//! for commands that come this way.

use media::Passthrough;
use media::passthrough::Described;
use nvme::identify::{IdentifyNamespace, NvmIdentifyNamespace, namespace_bits};
use stdx::num::{low16, u64_of};

/// Fills in what the drive says of capacity, of blocks that are not allocated, of atomicity, and of what it likes best.
/// Identity, reservations, sharing and the limits of Copy are ours.
pub fn describe(drive: &Passthrough, id: &mut IdentifyNamespace) {
    let told = &drive.described().namespace;
    id.ncap = told.ncap.get().min(id.nsze.get()).into();
    id.nvmcap = told.nvmcap;
    // Other bits than 2:0, how a deallocated block reads, and 3, Deallocate of Write Zeroes, are of guards.
    id.dlfeat = told.dlfeat & 0x0f;
    id.noiob = told.noiob;
    id.nsattr |= told.nsattr & 1;
    id.nsfeat &= !(namespace_bits::NSFEAT_OPTPERF | namespace_bits::NSFEAT_ATOMICS);
    id.nsfeat |= told.nsfeat & OPTPERF;
    let preferred =
        [told.npwg, told.npwa, told.npdg, told.npda, told.nows].map(|told_of| {
            match told.nsfeat & OPTPERF {
                0 => 0.into(),
                _ => told_of,
            }
        });
    [id.npwg, id.npwa, id.npdg, id.npda, id.nows] = preferred;
    atomicity(drive.described(), drive.transfer(), id);
}

/// NSFEAT bits 5:4.
const OPTPERF: u8 = 0b11 << 4;

/// What the drive writes as a whole: no more than goes to it as one command. Compare and Write is ours, of one block.
fn atomicity(described: &Described, transfer: usize, id: &mut IdentifyNamespace) {
    let (normal, power_fail) = described.atomic_units();
    let most = low16((u64_of(transfer) / u64::from(described.block_size())).clamp(1, 1 << 16) - 1);
    id.nsfeat |= namespace_bits::NSFEAT_ATOMICS;
    id.nawun = normal.min(most).into();
    id.nawupf = power_fail.min(most).into();
    id.nacwu = 0.into();
    let told = &described.namespace;
    if told.nsfeat & namespace_bits::NSFEAT_ATOMICS != 0 {
        (id.nabsn, id.nabo, id.nabspf) = (told.nabsn, told.nabo, told.nabspf);
    }
}

/// What the drive says that it likes best, beside.
pub fn nvm_namespace(drive: &Passthrough) -> NvmIdentifyNamespace {
    let told = &drive.described().nvm;
    NvmIdentifyNamespace {
        npdgl: told.npdgl,
        nprg: told.nprg,
        npra: told.npra,
        nors: told.nors,
        npdal: told.npdal,
        ..NvmIdentifyNamespace::default()
    }
}
