//! What a namespace is: size, limits and abilities, from the Identify structures.

use nvme::identify::{IdentifyController, IdentifyNamespace, bits, namespace_bits};
use reactor::BUFFER_MAX;
use stdx::num::u32_of;

use crate::Error;
use crate::limits::BLOCKS_MAX;

/// Size, limits and abilities of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Logical block size, bytes: a power of two from 512 on.
    pub block_bytes: u32,
    /// Logical blocks (NSZE).
    pub blocks: u64,
    /// Most data of one read, write or compare, bytes: a multiple of the block size. The least of MDTS, the
    /// blocks one command can name and the largest buffer.
    pub transfer_max_bytes: u32,
    /// Blocks that a write of up to so many changes all or none of, as other commands see it (NAWUN, AWUN).
    pub atomic_blocks: u32,
    /// The same when power fails (NAWUPF, AWUPF).
    pub atomic_power_fail_blocks: u32,
    /// Blocks a write is best made of, and aligned to (NOWS, NPWG); 1 when nothing is stated.
    pub optimal_write_blocks: u32,
    /// Optional commands the controller takes.
    pub supports: Supports,
    /// Limits of Copy; `None` when it is not supported.
    pub copy: Option<CopyLimits>,
    /// A completed write may be lost when power fails until a flush, unless it had FUA.
    pub volatile_cache: bool,
    /// The namespace is write protected.
    pub read_only: bool,
    /// NGUID and EUI64, zero when absent: what the namespace is, wherever it is.
    pub identity: ([u8; 16], [u8; 8]),
}

/// Optional commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a bit of ONCS, independent of the others"
)]
pub struct Supports {
    /// Write Zeroes.
    pub write_zeroes: bool,
    /// Deallocation by Write Zeroes' DEAC bit.
    pub zeroes_deallocate: bool,
    /// Dataset Management, Deallocate.
    pub deallocate: bool,
    /// Deallocated blocks read as zeroes.
    pub deallocated_reads_zeroes: bool,
    /// Compare.
    pub compare: bool,
    /// Verify.
    pub verify: bool,
    /// The reservation commands.
    pub reservations: bool,
    /// Reservations can be had that outlast a loss of power (RESCAP, PTPL).
    pub reservations_persist: bool,
}

/// Limits of one Copy command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLimits {
    /// Source ranges (MSRC).
    pub ranges: u16,
    /// Blocks of one source range (MSSRL).
    pub range_blocks: u16,
    /// Blocks in all (MCL).
    pub blocks: u32,
}

impl Geometry {
    /// # Errors
    /// [`Error::Unsupported`] when the namespace's format is none that can be used.
    pub(crate) fn new(
        controller: &IdentifyController,
        namespace: &IdentifyNamespace,
        transfer_max: u64,
    ) -> Result<Self, Error> {
        let unsupported = |what: &str| Error::Unsupported(what.to_owned());
        let format =
            namespace.format().ok_or_else(|| unsupported("the namespace has no format"))?;
        if format.ms.get() != 0 {
            return Err(unsupported("the namespace is formatted with metadata"));
        }
        let block_bytes =
            namespace.block_bytes().ok_or_else(|| unsupported("the logical block size is odd"))?;
        let most = transfer_max.min(u64::from(BLOCKS_MAX) * u64::from(block_bytes));
        let most = stdx::num::low32(most.min(u64::from(u32_of(BUFFER_MAX))));
        if most < block_bytes {
            return Err(unsupported("a logical block exceeds the largest transfer"));
        }
        let has = |feature: u8| namespace.nsfeat & feature != 0;
        let atomics = has(namespace_bits::NSFEAT_ATOMICS);
        let unit = |own: u16, controllers: u16| {
            u32::from(if atomics && own != 0 { own } else { controllers }) + 1
        };
        let optimal = if has(namespace_bits::NSFEAT_OPTPERF) {
            let (size, grain) = (namespace.nows.get(), namespace.npwg.get());
            u32::from(if size == 0 { grain } else { size }) + 1
        } else {
            1
        };
        Ok(Self {
            block_bytes,
            blocks: namespace.nsze.get(),
            transfer_max_bytes: most / block_bytes * block_bytes,
            atomic_blocks: unit(namespace.nawun.get(), controller.awun.get()),
            atomic_power_fail_blocks: unit(namespace.nawupf.get(), controller.awupf.get()),
            optimal_write_blocks: optimal,
            supports: Supports::new(controller, namespace),
            copy: CopyLimits::new(controller, namespace),
            volatile_cache: controller.vwc & bits::VWC_PRESENT != 0,
            read_only: namespace.nsattr & 1 != 0,
            identity: (namespace.nguid, namespace.eui64),
        })
    }
}

impl Supports {
    fn new(controller: &IdentifyController, namespace: &IdentifyNamespace) -> Self {
        let offers = |bit: u16| controller.oncs.get() & bit != 0;
        let frees = namespace.dlfeat;
        Self {
            write_zeroes: offers(bits::ONCS_WRITE_ZEROES),
            zeroes_deallocate: frees & namespace_bits::DLFEAT_WRITE_ZEROES_DEALLOCATE != 0,
            deallocate: offers(bits::ONCS_DATASET_MANAGEMENT),
            deallocated_reads_zeroes: frees & 0b111 == namespace_bits::DLFEAT_READS_ZEROES,
            compare: offers(bits::ONCS_COMPARE),
            verify: offers(bits::ONCS_VERIFY),
            reservations: offers(bits::ONCS_RESERVATIONS) && namespace.rescap & !1 != 0,
            reservations_persist: namespace.rescap & 1 != 0,
        }
    }
}

impl CopyLimits {
    fn new(controller: &IdentifyController, namespace: &IdentifyNamespace) -> Option<Self> {
        // Copy is used with descriptor format 0h, which CDFS has a bit for.
        let offered =
            controller.oncs.get() & bits::ONCS_COPY != 0 && controller.cdfs.get() & 1 != 0;
        let limits = Self {
            ranges: u16::from(namespace.msrc) + 1,
            range_blocks: namespace.mssrl.get(),
            blocks: namespace.mcl.get(),
        };
        (offered && limits.range_blocks > 0 && limits.blocks > 0).then_some(limits)
    }
}
