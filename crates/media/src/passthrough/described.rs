//! What a drive says of a namespace and of itself, by Identify.

use nvme::identify::{
    Cns, IdentifyController, IdentifyNamespace, NvmIdentifyController, NvmIdentifyNamespace, bits,
    namespace_bits,
};
use nvme::limits::IDENTIFY_BYTES;
use stdx::num::low32;
use zerocopy::FromBytes;

use super::BLOCKS_MAX;
use super::admin::identify_command;
use super::link::Link;
use crate::error::{Error, Kind, Operation};

/// Bytes of the smallest page of memory, in which limits are counted: CAP.MPSMIN of every drive that there is.
const PAGE: u64 = 4096;
/// DLFEAT bits 2:0: what a deallocated block reads as.
const DLFEAT_READS: u8 = 0b111;

/// What a drive says, checked: the format is one that is served.
#[derive(Clone, Debug)]
pub struct Described {
    /// Of the namespace.
    pub namespace: IdentifyNamespace,
    /// Of the namespace, beside: zeroes for a drive that has no such page.
    pub nvm: NvmIdentifyNamespace,
    /// Optional commands.
    oncs: u16,
    volatile_cache: bool,
    mdts: u8,
    awun: u16,
    awupf: u16,
    limits: NvmIdentifyController,
    lpa: u8,
    cdfs: u16,
    block: u32,
}

impl Described {
    /// Asks the drive.
    pub(super) fn ask(link: &Link) -> Result<Self, Error> {
        let required =
            |cns| page(link, cns)?.ok_or_else(|| refused("the drive refuses Identify".to_owned()));
        let namespace = required(Cns::Namespace)?;
        let controller = required(Cns::Controller)?;
        // Newer than drives that are in use.
        let nvm = page(link, Cns::CommandSetNamespace)?;
        let limits = page(link, Cns::CommandSetController)?;
        Self::new(&namespace, &controller, nvm.as_deref(), limits.as_deref())
    }

    /// What these pages say.
    ///
    /// # Errors
    /// `Unsupported`, with words, for a format that is not served.
    pub(super) fn new(
        namespace: &[u8],
        controller: &[u8],
        nvm: Option<&[u8]>,
        limits: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let short = || refused("the drive answers Identify with too little".to_owned());
        let namespace = IdentifyNamespace::read_from_bytes(namespace).map_err(|_| short())?;
        let controller = IdentifyController::read_from_bytes(controller).map_err(|_| short())?;
        let nvm = nvm.and_then(|page| NvmIdentifyNamespace::read_from_bytes(page).ok());
        let limits = limits.and_then(|page| NvmIdentifyController::read_from_bytes(page).ok());
        let format = namespace.format();
        let block = match (format, namespace.block_bytes()) {
            (Some(format), _) if format.ms.get() != 0 => {
                let words =
                    format!("its format has {} bytes of metadata for each block", format.ms);
                return Err(refused(words));
            }
            (_, Some(block @ (512 | 4096))) => block,
            (_, Some(block)) => {
                return Err(refused(format!("its format has blocks of {block} bytes")));
            }
            (_, None) => return Err(refused("it says nothing of its format".to_owned())),
        };
        if namespace.nsze.get() == 0 || namespace.nsze.get().checked_mul(block.into()).is_none() {
            return Err(refused("it has no size".to_owned()));
        }
        Ok(Self {
            oncs: controller.oncs.get(),
            volatile_cache: controller.vwc & bits::VWC_PRESENT != 0,
            mdts: controller.mdts,
            awun: controller.awun.get(),
            awupf: controller.awupf.get(),
            lpa: controller.lpa,
            cdfs: controller.cdfs.get(),
            namespace,
            nvm: nvm.unwrap_or_default(),
            limits: limits.unwrap_or_default(),
            block,
        })
    }

    /// Bytes of a logical block: 512 or 4096.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        self.block
    }

    /// Capacity in bytes (NSZE).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.namespace.nsze.get() * u64::from(self.block)
    }

    /// Whether SMART / Health Information is told for each namespace (LPA); else it is for the drive.
    #[must_use]
    pub const fn has_health_of_namespaces(&self) -> bool {
        self.lpa & bits::LPA_SMART_PER_NAMESPACE != 0
    }

    /// Whether blocks take space only once they are written (NSFEAT).
    #[must_use]
    pub const fn is_thin(&self) -> bool {
        self.namespace.nsfeat & namespace_bits::NSFEAT_THIN != 0
    }

    /// Whether deallocated blocks are sure to read as zeroes (DLFEAT).
    #[must_use]
    pub const fn zeroes_when_deallocated(&self) -> bool {
        self.namespace.dlfeat & DLFEAT_READS == namespace_bits::DLFEAT_READS_ZEROES
    }

    /// Whether the drive has a volatile write cache.
    #[must_use]
    pub const fn has_volatile_cache(&self) -> bool {
        self.volatile_cache
    }

    /// Whether the drive has Compare.
    #[must_use]
    pub const fn has_compare(&self) -> bool {
        self.oncs & bits::ONCS_COMPARE != 0
    }

    /// Whether the drive has Write Zeroes.
    #[must_use]
    pub const fn has_write_zeroes(&self) -> bool {
        self.oncs & bits::ONCS_WRITE_ZEROES != 0
    }

    /// Whether the drive has Write Uncorrectable.
    #[must_use]
    pub const fn has_write_uncorrectable(&self) -> bool {
        self.oncs & bits::ONCS_WRITE_UNCORRECTABLE != 0
    }

    /// Whether the drive has Dataset Management.
    #[must_use]
    pub const fn has_dataset_management(&self) -> bool {
        self.oncs & bits::ONCS_DATASET_MANAGEMENT != 0
    }

    /// Whether the drive has Verify.
    #[must_use]
    pub const fn has_verify(&self) -> bool {
        self.oncs & bits::ONCS_VERIFY != 0
    }

    /// Blocks that are written as a whole whatever happens to other commands, and whatever happens to power: those of the
    /// namespace, else of the drive. 0's based.
    #[must_use]
    pub fn atomic_units(&self) -> (u16, u16) {
        let own = self.namespace.nsfeat & namespace_bits::NSFEAT_ATOMICS != 0;
        let of = |own_unit: u16, drives: u16| if own { own_unit } else { drives };
        (of(self.namespace.nawun.get(), self.awun), of(self.namespace.nawupf.get(), self.awupf))
    }

    /// The most bytes that the drive moves with one command (MDTS): a power of two.
    pub(super) fn transfer_max(&self) -> u32 {
        let most = size_limit(self.mdts).min(1 << 30);
        // Of 512 byte blocks no more can be named.
        let named = BLOCKS_MAX * u64::from(self.block);
        low32(most.min(named).max(PAGE))
    }

    /// The most bytes of one Write Zeroes (WZSL).
    pub(super) fn zeroes_max(&self) -> u64 {
        self.named(self.limits.wzsl)
    }

    /// The most bytes of one Verify (VSL).
    pub(super) fn verify_max(&self) -> u64 {
        self.named(self.limits.vsl)
    }

    /// The most bytes of one Write Uncorrectable (WUSL).
    pub(super) fn uncorrectable_max(&self) -> u64 {
        self.named(self.limits.wusl)
    }

    /// The most ranges of one Dataset Management, blocks of one of them, and of all together (DMRL, DMRSL, DMSL).
    pub(super) fn deallocate_limits(&self) -> (usize, u32, u32) {
        let limit = |limit: u64| match limit {
            0 => u32::MAX,
            limit => low32(limit.min(u32::MAX.into())),
        };
        let ranges = match self.limits.dmrl {
            0 => usize::MAX,
            limit => usize::from(limit),
        };
        (ranges, limit(self.limits.dmrsl.get().into()), limit(self.limits.dmsl.get()))
    }

    /// The most blocks of one Copy from one range; 0 for a drive that has no such command, or not with the format of
    /// descriptors that is the least.
    pub(super) fn copy_max(&self) -> u32 {
        let has = self.oncs & bits::ONCS_COPY != 0 && self.cdfs & 1 != 0;
        let (range, all) = (self.namespace.mssrl.get(), self.namespace.mcl.get());
        if has { all.min(range.into()) } else { 0 }
    }

    /// The most bytes of a command that moves nothing, within its limit of size. A drive that gives none may mean that of
    /// transfers, as Linux takes it.
    fn named(&self, exponent: u8) -> u64 {
        match exponent {
            0 => u64::from(self.transfer_max()),
            _ => size_limit(exponent).min(BLOCKS_MAX * u64::from(self.block)),
        }
    }
}

/// Bytes that a limit stands for, 2^n pages; 0 is none.
const fn size_limit(exponent: u8) -> u64 {
    match exponent {
        0 => u64::MAX,
        1..=40 => PAGE << exponent,
        _ => u64::MAX,
    }
}

/// The page of an Identify; `None` where the drive refuses it.
fn page(link: &Link, cns: Cns) -> Result<Option<Vec<u8>>, Error> {
    let answer = link.ask_now(&identify_command(cns), link.identified(cns), IDENTIFY_BYTES);
    answer.map(Result::ok).map_err(|source| Error::from_io(source, Operation::Open, 0, 0))
}

fn refused(words: String) -> Error {
    let source = std::io::Error::new(std::io::ErrorKind::Unsupported, words);
    Error { source: Some(source), ..Error::new(Kind::Unsupported, Operation::Open, 0, 0) }
}
