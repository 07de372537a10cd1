//! What the workload runs on: the engine, or the reference.

use crate::array::{Array, Examined};
use crate::reference::Reference;
use engine::{GrantedWindow, WindowEnd};
use std::collections::BTreeMap;
use std::ops::Range;

/// Names and sizes in blocks, those of snapshots among them.
pub type Volumes = BTreeMap<String, u64>;

/// A volume, and how many blocks it has, at least and at most.
pub type Has = (String, u64, u64);

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No space is left in the pool.
    Full,
    /// The volume and its snapshots hold their quota.
    Quota,
    OutOfRange,
    NotFound,
    /// More drives are away than the redundancy bears.
    Failed(String),
    /// A block is lost.
    Lost(String),
    /// It cannot be done just now.
    Busy(String),
    /// Anything a healthy pool never says.
    Other(String),
}

/// An open pool.
pub enum Store {
    Reference(Reference),
    Array(Array),
}

impl Store {
    pub fn volumes(&self) -> Volumes {
        match self {
            Self::Reference(pool) => pool.volumes(),
            Self::Array(pool) => pool.volumes(),
        }
    }

    /// Whether volumes may have blocks of 512 bytes.
    pub const fn has_small_blocks(&self) -> bool {
        matches!(self, Self::Array(_))
    }

    /// `size` in blocks of `unit` bytes.
    pub async fn create(&self, name: &str, size: u64, unit: usize) -> Result<(), Refusal> {
        match self {
            Self::Reference(pool) => pool.create(name, size).await,
            Self::Array(pool) => pool.create(name, size, unit).await,
        }
    }

    pub async fn rename(&self, name: &str, to: &str) -> Result<(), Refusal> {
        match self {
            Self::Reference(pool) => pool.rename(name, to).await,
            Self::Array(pool) => pool.rename(name, to).await,
        }
    }

    /// Takes a snapshot of a volume. It is read, and deleted, by its own name.
    pub async fn take_snapshot(&self, volume: &str, name: &str) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Err(Refusal::Other("the reference takes no snapshots".into())),
            Self::Array(pool) => pool.take_snapshot(volume, name).await,
        }
    }

    /// What the snapshot of a volume is called among all that is one of several by this name.
    pub fn name_in_group(&self, volume: &str, name: &str) -> Option<String> {
        match self {
            Self::Reference(_) => None,
            Self::Array(pool) => pool.name_in_group(volume, name),
        }
    }

    /// Takes snapshots of volumes at one instant, which have a name together.
    pub async fn take_group(&self, volumes: &[String], name: &str) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Err(Refusal::Other("the reference takes no snapshots".into())),
            Self::Array(pool) => pool.take_group(volumes, name).await,
        }
    }

    /// Makes clones of snapshots that have a name together, by volume what its clone is called.
    pub async fn clone_group(
        &self,
        name: &str,
        clones: &[(String, String)],
    ) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Err(Refusal::Other("the reference makes no clones".into())),
            Self::Array(pool) => pool.clone_group(name, clones).await,
        }
    }

    /// Deletes snapshots in one step.
    pub async fn delete_together(&self, names: &[String]) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Err(Refusal::Other("the reference has no snapshots".into())),
            Self::Array(pool) => pool.delete_together(names).await,
        }
    }

    /// Takes a volume back to one of its snapshots.
    pub async fn roll_back(&self, to: &str, keep: Option<&str>) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Err(Refusal::Other("the reference has no snapshots".into())),
            Self::Array(pool) => pool.roll_back(to, keep).await,
        }
    }

    /// Makes a clone of a snapshot, of so many blocks.
    pub async fn clone_volume(&self, of: &str, name: &str, size: u64) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Err(Refusal::Other("the reference makes no clones".into())),
            Self::Array(pool) => pool.clone_volume(of, name, size).await,
        }
    }

    /// Has a clone get what it inherits as its own, or leaves it as it is by then.
    pub async fn detach(&self, name: &str, leave: bool) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Err(Refusal::Other("the reference makes no clones".into())),
            Self::Array(pool) => pool.detach(name, leave).await,
        }
    }

    /// What is wrong with the space, if blocks of data are within these bounds.
    pub async fn audit(&self, bounds: (u64, u64)) -> Option<String> {
        match self {
            Self::Reference(_) => None,
            Self::Array(pool) => pool.audit(bounds).await,
        }
    }

    /// What volumes do not use as they should: each of these has so many blocks, at least and at most, and holds so many
    /// together with its snapshots. Quotas are kept to within so many, which hosts may have written at once.
    pub async fn check_used(&self, volumes: &[Has], held: &[Has], at_once: u64) -> Option<String> {
        match self {
            Self::Reference(_) => None,
            Self::Array(pool) => pool.check_used(volumes, held, at_once).await,
        }
    }

    /// Whether no quota can be in the way of so many blocks for a volume, where volumes hold that.
    pub fn has_quota_for(&self, name: &str, held: &[Has], blocks: u64) -> bool {
        match self {
            Self::Reference(_) => true,
            Self::Array(pool) => pool.has_quota_for(name, held, blocks),
        }
    }

    /// Whether a volume is there, and has no quota.
    pub fn lacks_quota(&self, name: &str) -> bool {
        match self {
            Self::Reference(_) => false,
            Self::Array(pool) => pool.lacks_quota(name),
        }
    }

    /// How often reservations were changed, if all of a volume's size is reserved.
    pub fn thick(&self, name: &str) -> Option<u64> {
        match self {
            Self::Reference(_) => None,
            Self::Array(pool) => pool.thick(name),
        }
    }

    /// Blocks that are kept for volumes with reservations.
    pub async fn kept(&self) -> u64 {
        match self {
            Self::Reference(_) => 0,
            Self::Array(pool) => pool.kept().await,
        }
    }

    /// The epoch of labels by which writes wait, as one of two places alone has the log.
    pub fn holds_back(&self) -> Option<u64> {
        match self {
            Self::Reference(_) => None,
            Self::Array(pool) => pool.holds_back(),
        }
    }

    /// Whether the pool may not have what is reserved.
    pub async fn lacks_reserved(&self) -> bool {
        match self {
            Self::Reference(_) => false,
            Self::Array(pool) => pool.lacks_reserved().await,
        }
    }

    /// Whether it says that it wins no space back because it cannot read what has it.
    pub async fn is_unreadable(&self) -> bool {
        match self {
            Self::Reference(_) => false,
            Self::Array(pool) => pool.is_unreadable().await,
        }
    }

    /// Has everything carried to the drives that was answered so far.
    pub async fn settle(&self) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Ok(()),
            Self::Array(pool) => pool.settle().await,
        }
    }

    /// Of each log, the records that are not on the drives yet.
    pub fn undestaged(&self) -> Option<Vec<Range<u64>>> {
        match self {
            Self::Reference(_) => None,
            Self::Array(pool) => pool.undestaged(),
        }
    }

    /// Blocks of 4096 bytes the pool may hold.
    pub async fn capacity(&self) -> u64 {
        match self {
            Self::Reference(_) => u64::MAX,
            Self::Array(pool) => pool.capacity().await,
        }
    }

    pub async fn delete(&self, name: &str) -> Result<(), Refusal> {
        match self {
            Self::Reference(pool) => pool.delete(name).await,
            Self::Array(pool) => pool.delete(name).await,
        }
    }

    /// Changes a volume's size, in blocks.
    pub async fn resize(&self, name: &str, size: u64) -> Result<(), Refusal> {
        match self {
            Self::Reference(pool) => pool.resize(name, size).await,
            Self::Array(pool) => pool.resize(name, size).await,
        }
    }

    /// With `patient`, for a host that waits for the answer.
    pub async fn read(
        &self,
        name: &str,
        first: u64,
        count: u64,
        patient: bool,
    ) -> Result<Vec<u8>, Refusal> {
        match self {
            Self::Reference(pool) => pool.read(name, first, count).await,
            Self::Array(pool) => pool.read(name, first, count, patient).await,
        }
    }

    /// Writes whole blocks.
    pub async fn write(
        &self,
        name: &str,
        first: u64,
        data: Vec<u8>,
        patient: bool,
    ) -> Result<(), Refusal> {
        match self {
            Self::Reference(pool) => pool.write(name, first, &data).await,
            Self::Array(pool) => pool.write(name, first, data, patient).await,
        }
    }

    /// Copies `count` blocks from one volume to another with blocks of the same size.
    pub async fn copy(
        &self,
        (source, from): (&str, u64),
        (target, to): (&str, u64),
        count: u64,
        patient: bool,
    ) -> Result<(), Refusal> {
        match self {
            Self::Reference(pool) => {
                let data = pool.read(source, from, count).await?;
                pool.write(target, to, &data).await
            }
            Self::Array(pool) => pool.copy((source, from), (target, to), count, patient).await,
        }
    }

    pub async fn zero(
        &self,
        name: &str,
        first: u64,
        count: u64,
        deallocate: bool,
        patient: bool,
    ) -> Result<(), Refusal> {
        match self {
            Self::Reference(pool) => pool.zero(name, first, count).await,
            Self::Array(pool) => pool.zero(name, first, count, deallocate, patient).await,
        }
    }

    pub fn flush(&self, name: &str) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Ok(()),
            Self::Array(pool) => pool.flush(name),
        }
    }

    /// How the pool is doing, for whoever looks into a failure.
    pub async fn describe(&self) -> String {
        match self {
            Self::Reference(_) => String::new(),
            Self::Array(pool) => pool.describe().await,
        }
    }

    /// Drives that are out of use though nothing but what passes was ever wrong with them.
    pub async fn condemned(&self) -> Vec<usize> {
        match self {
            Self::Reference(_) => Vec::new(),
            Self::Array(pool) => pool.condemned().await,
        }
    }

    /// Has all drives given back that came and went.
    pub async fn make_whole(&self) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Ok(()),
            Self::Array(pool) => pool.make_whole().await,
        }
    }

    /// Has a scrub examined, if that is to be.
    pub async fn examine(&self) -> Result<Option<Examined>, Refusal> {
        match self {
            Self::Reference(_) => Ok(None),
            Self::Array(pool) => pool.examine().await,
        }
    }

    /// What was pulled for that is there again.
    pub fn end_exam(&self, exam: &Examined) {
        if let Self::Array(pool) = self {
            pool.end_exam(exam);
        }
    }

    /// Has the log move to other devices.
    pub async fn move_log(&self) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Ok(()),
            Self::Array(pool) => pool.move_log().await,
        }
    }

    /// Has a volume get a direct write window, with rings of so many bytes; `None` where it cannot have one now. Gives the
    /// volume's identity, too.
    pub async fn grant_window(
        &self,
        name: &str,
        ring_bytes: u64,
        epoch: u64,
        number: u32,
    ) -> Result<Option<([u8; 16], GrantedWindow)>, Refusal> {
        match self {
            Self::Reference(_) => Ok(None),
            Self::Array(pool) => pool.grant_window(name, ring_bytes, epoch, number).await,
        }
    }

    pub async fn end_window(&self, volume: [u8; 16], number: u32) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Ok(()),
            Self::Array(pool) => pool.window_ender(volume, number).await,
        }
    }

    /// Ends a window whoever waits for it.
    pub fn window_ender(
        &self,
        volume: [u8; 16],
        number: u32,
    ) -> impl Future<Output = Result<(), Refusal>> + use<> {
        let pool = match self {
            Self::Reference(_) => None,
            Self::Array(pool) => Some(pool.window_ender(volume, number)),
        };
        async move {
            match pool {
                Some(end) => end.await,
                None => Ok(()),
            }
        }
    }

    /// Ends windows of hosts that did what none may.
    pub async fn end_bad_windows(&self) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Ok(()),
            Self::Array(pool) => pool.end_bad_windows().await,
        }
    }

    /// What windows are told of since this was last asked.
    pub fn window_ends(&self) -> Vec<WindowEnd> {
        match self {
            Self::Reference(_) => Vec::new(),
            Self::Array(pool) => pool.window_ends(),
        }
    }

    /// Blocks that are set aside for what hosts may store in windows.
    pub fn set_aside_for_windows(&self) -> u64 {
        match self {
            Self::Reference(_) => 0,
            Self::Array(pool) => pool.set_aside_for_windows(),
        }
    }

    pub async fn close(&self, export: bool) -> Result<(), Refusal> {
        match self {
            Self::Reference(_) => Ok(()),
            Self::Array(pool) => pool.close(export).await,
        }
    }
}
