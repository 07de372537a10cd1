//! The engine's pool as the workload sees it.

use super::{exam, log_moves, remote, returning, scrubs, told};
use crate::contents::BLOCK;
use crate::host::SNAPSHOT;
use crate::store::{Has, Refusal, Volumes};
use engine::{
    CloneSpec, DriveState, Kind, Pool, QuotaStatus, Reservation, RollbackSpec, SnapshotName,
    SnapshotSpec, VolumeSpec, WritesRefused,
};
use reactor::{Handle, random, sleep};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{u64_of, usize64};

/// An open pool.
pub struct Array {
    pub(super) pool: Pool,
    pub(super) exported: Rc<Cell<bool>>,
    pub(super) closed: Rc<Cell<bool>>,
    /// Drives that did nothing wrong in this life.
    pub(super) sound: BTreeSet<usize>,
    /// Drives come and go.
    pub(super) returns: bool,
    pub(super) stage: Rc<Cell<returning::Stage>>,
    /// Where the log may move.
    pub(super) log: Option<log_moves::MovableLog>,
    /// Likewise, where a namespace of another target has it.
    pub(super) remote: Option<remote::FarLog>,
    pub(super) reactors: Vec<Handle>,
    pub(super) scrubs: Rc<scrubs::Scrubs>,
    pub(super) examiner: Option<Box<exam::Examiner>>,
    /// A group had a quota in this life.
    pub(super) bounds_groups: Cell<bool>,
    pub(super) shards: u16,
    /// Bytes of each ring of a window.
    pub(super) ring_bytes: u64,
    /// Of a hundred volumes, those that have all of their size reserved.
    pub(super) reserve_percent: u64,
    /// How often that was changed.
    pub(super) reservings: Cell<u64>,
}

/// The quota of a volume of so many bytes: most have none.
fn quota_for(bytes: u64) -> Option<u64> {
    let units = (bytes / engine::QUOTA_UNIT).max(1);
    random().is_multiple_of(4).then(|| (1 + random() % units) * engine::QUOTA_UNIT)
}

/// How often the space is looked at until it adds up: what is moved in between counts twice.
const AUDITS: usize = 50;

/// How often what counts against quotas is looked at until it adds up, and how long after the time before.
const COUNTS: usize = 3;
const COUNT_AGAIN: Duration = Duration::from_secs(60);

impl Array {
    pub fn volumes(&self) -> Volumes {
        let sized = |name: String| {
            let volume = self.pool.volume(&name).ok()?;
            Some((name, volume.len() / u64::from(volume.block_size())))
        };
        let names = self.pool.volumes();
        let snapshots = names.iter().filter_map(|name| {
            let volume = self.pool.volume(name).ok()?;
            let unit = u64::from(volume.block_size());
            let snapshots = self.pool.snapshots(name).ok()?.into_iter();
            let called = move |name: &str| Self::called(&volume, name);
            Some(snapshots.map(move |snapshot| (called(&snapshot.name), snapshot.bytes / unit)))
        });
        let snapshots: Vec<_> = snapshots.flatten().collect();
        names.into_iter().filter_map(sized).chain(snapshots).collect()
    }

    /// A volume, or a snapshot.
    pub fn volume(&self, name: &str) -> Result<engine::Volume, Refusal> {
        match self.volume_of(name) {
            Some(of) => told(self.pool.snapshot(&of.volume, &of.name)),
            None => told(self.pool.volume(name)),
        }
    }

    /// A snapshot by what it is called among all: there are no others of that name.
    fn volume_of(&self, snapshot: &str) -> Option<SnapshotName> {
        snapshot.starts_with(SNAPSHOT).then(|| self.snapshot_of(snapshot))?
    }

    pub async fn take_snapshot(&self, volume: &str, name: &str) -> Result<(), Refusal> {
        let mut id = [0; 16];
        Prng::new(random()).fill(&mut id);
        let (volume, name) = (volume.to_owned(), name.to_owned());
        told(self.pool.take_snapshots(vec![SnapshotSpec { volume, name, id, created: 1 }]).await)
    }

    pub async fn clone_volume(&self, of: &str, name: &str, size: u64) -> Result<(), Refusal> {
        let mut id = [0; 16];
        Prng::new(random()).fill(&mut id);
        let SnapshotName { volume, name: snapshot } =
            self.volume_of(of).ok_or(Refusal::NotFound)?;
        let bytes = size * u64::from(told(self.pool.volume(&volume))?.block_size());
        let name = name.to_owned();
        let spec = CloneSpec {
            volume,
            snapshot,
            name,
            id,
            bytes: Some(bytes),
            quota: None,
            reservation: None,
        };
        told(self.pool.clone_volume(spec).await).map(drop)
    }

    /// Takes a volume back to one of its snapshots, keeping a snapshot of this name of what it has.
    pub async fn roll_back(&self, to: &str, keep: Option<&str>) -> Result<(), Refusal> {
        let mut id = [0; 16];
        Prng::new(random()).fill(&mut id);
        let SnapshotName { volume, name: snapshot } =
            self.volume_of(to).ok_or(Refusal::NotFound)?;
        let keep = keep.map(|keep| (keep.to_owned(), id));
        let spec = RollbackSpec { volume, snapshot, keep, created: 1 };
        told(self.pool.rollback_volume(spec).await).map(drop)
    }

    /// Has a clone get what it inherits as its own, or leaves it as it is by then.
    pub async fn detach(&self, name: &str, leave: bool) -> Result<(), Refusal> {
        let done = match leave {
            true => self.pool.stop_detaching(name).await,
            false => self.pool.detach_volume(name).await,
        };
        match done {
            // There is nothing to do, or left to do.
            Err(error) if error.kind == Kind::Invalid => Ok(()),
            done => told(done),
        }
    }

    pub async fn create(&self, name: &str, size: u64, unit: usize) -> Result<(), Refusal> {
        let mut id = [0; 16];
        Prng::new(random()).fill(&mut id);
        let bytes = size * u64_of(unit);
        let block_size = stdx::num::u32_of(unit);
        let quota = quota_for(bytes);
        let reservation = self.reservation();
        let spec = VolumeSpec { name: name.to_owned(), id, bytes, block_size, quota, reservation };
        match self.pool.create_volume(spec.clone()).await {
            // There is no room for all of it.
            Err(error) if error.kind == Kind::Full && reservation.is_some() => {
                let spec = VolumeSpec { reservation: None, ..spec };
                told(self.pool.create_volume(spec).await).map(drop)
            }
            made => told(made).map(drop),
        }
    }

    pub async fn rename(&self, name: &str, to: &str) -> Result<(), Refusal> {
        told(self.pool.rename_volume(name, to).await)?;
        if self.reserve_percent > 0 {
            self.reservings.set(self.reservings.get() + 1);
            match self.pool.set_reservation(to, self.reservation()).await {
                // There is no room for it, or nobody can count.
                Err(error) if matches!(error.kind, Kind::Full | Kind::Busy) => {}
                done => told(done)?,
            }
        }
        Ok(())
    }

    /// What a volume has reserved.
    fn reservation(&self) -> Option<Reservation> {
        let is_reserved = self.reserve_percent > 0 && random() % 100 < self.reserve_percent;
        is_reserved.then_some(Reservation::All)
    }

    /// How often reservations were changed, if all of a volume's size is reserved: then it is never full.
    pub fn thick(&self, name: &str) -> Option<u64> {
        let reservation = self.pool.volume(name).ok()?.reservation()?;
        (reservation.of == Reservation::All).then(|| self.reservings.get())
    }

    /// As [`Store::kept`](crate::store::Store::kept).
    pub async fn kept(&self) -> u64 {
        if self.reserve_percent == 0 {
            return 0;
        }
        self.pool.status().await.map_or(0, |status| status.reservations.kept / u64_of(BLOCK))
    }

    /// As [`Store::holds_back`](crate::store::Store::holds_back).
    pub fn holds_back(&self) -> Option<u64> {
        self.remote.as_ref().and_then(|remote| remote.holds_back())
    }

    /// Whether the pool may not have what is reserved.
    pub async fn lacks_reserved(&self) -> bool {
        let Ok(status) = self.pool.status().await else { return true };
        let is_whole = status.drives.iter().all(|drive| drive.state == DriveState::Online);
        // What is missing although all drives are there was given away.
        !is_whole || !status.reservations.is_counted
    }

    /// Blocks the pool may hold; none when it was closed.
    pub async fn capacity(&self) -> u64 {
        self.pool.status().await.map_or(0, |status| status.capacity / u64_of(BLOCK))
    }

    /// What of the space does not add up, while nobody writes.
    pub async fn audit(&self, (least, most): (u64, u64)) -> Option<String> {
        for _ in 0..AUDITS {
            let audit = self.pool.audit_space().await.ok()?;
            let adds_up = (least..=most).contains(&audit.live) && audit.taken == audit.owned;
            if adds_up {
                return None;
            }
            if self.is_unreadable().await {
                return None;
            }
            sleep(Duration::from_millis(20)).await;
        }
        let audit = self.pool.audit_space().await.ok()?;
        Some(format!("{audit:?}, and volumes have {least} to {most} blocks"))
    }

    /// Whether a volume is there, and neither it nor a group has a quota, which may be gone since.
    pub fn lacks_quota(&self, name: &str) -> bool {
        let has_none = self.pool.groups().iter().all(|group| group.quota.is_none());
        let is_free = has_none && !self.bounds_groups.get();
        is_free && self.pool.volume(name).is_ok_and(|volume| volume.quota().is_none())
    }

    /// Whether the pool says that it wins no space back because it cannot read what has it.
    pub async fn is_unreadable(&self) -> bool {
        let status = self.pool.status().await;
        status.is_ok_and(|status| status.refuses == Some(WritesRefused::Unreadable))
    }

    /// As [`Store::check_used`](crate::store::Store::check_used), while nobody writes.
    pub async fn check_used(&self, volumes: &[Has], held: &[Has], at_once: u64) -> Option<String> {
        let mut wrong = None;
        for _ in 0..COUNTS {
            // Where too many drives are away nobody can count.
            if !self.pool.counted().await.ok()? {
                return None;
            }
            let beside = self.beyond_quota(at_once).or_else(|| self.beside_used(volumes));
            if beside.is_some() {
                return beside;
            }
            wrong = self.beside_held(held, at_once);
            // What snapshots hold is not counted while nothing leaves the log.
            if wrong.is_none() || self.pool.status().await.ok()?.refuses.is_some() {
                return None;
            }
            // Nor was it perhaps a moment ago.
            sleep(COUNT_AGAIN).await;
        }
        wrong
    }

    fn beyond_quota(&self, at_once: u64) -> Option<String> {
        self.bounded().into_iter().find_map(|(name, quota, _)| {
            let (used, bytes) = (quota.used?, quota.bytes);
            let is_within = used <= bytes + at_once * u64_of(BLOCK);
            (!is_within).then(|| format!("`{name}` holds {used} bytes, and may hold {bytes}"))
        })
    }

    /// What has a quota, that, and the volumes that count.
    fn bounded(&self) -> Vec<(String, QuotaStatus, Vec<String>)> {
        let of_volumes = self.pool.volumes().into_iter().filter_map(|name| {
            let quota = self.pool.volume(&name).ok()?.quota()?;
            Some((name.clone(), quota, vec![name]))
        });
        let groups = self.pool.groups().into_iter();
        let of_groups =
            groups.filter_map(|group| Some((group.name, group.quota?.status(), group.volumes)));
        of_volumes.chain(of_groups).collect()
    }

    fn beside_held(&self, held: &[Has], at_once: u64) -> Option<String> {
        let of = |name: &String| held.iter().find(|(of, ..)| of == name);
        self.bounded().into_iter().find_map(|(name, quota, volumes)| {
            let used = quota.used? / u64_of(BLOCK);
            let least: u64 = volumes.iter().filter_map(of).map(|(_, least, _)| least).sum();
            let each = volumes.iter().map(|name| of(name).map(|(_, _, most)| *most));
            let most = each.sum::<Option<u64>>().map_or(u64::MAX, |most| most + at_once);
            let fits = (least..=most).contains(&used);
            let words =
                format!("`{name}` is said to hold {used} blocks, and has {least} to {most}");
            (!fits).then_some(words)
        })
    }

    /// As [`Store::has_quota_for`](crate::store::Store::has_quota_for).
    pub fn has_quota_for(&self, name: &str, held: &[Has], blocks: u64) -> bool {
        let of = |name: &String| held.iter().find(|(of, ..)| of == name).map(|(.., most)| *most);
        let bounded = self.bounded().into_iter();
        let mut over = bounded.filter(|(.., volumes)| volumes.iter().any(|of| of == name));
        over.all(|(_, quota, volumes)| {
            let most = volumes.iter().map(of).sum::<Option<u64>>();
            most.is_some_and(|most| most + blocks <= quota.bytes / u64_of(BLOCK))
        })
    }

    fn beside_used(&self, volumes: &[Has]) -> Option<String> {
        volumes.iter().find_map(|(name, least, most)| {
            let used = self.pool.volume(name).ok()?.used()?;
            let fits = (least * u64_of(BLOCK)..=most * u64_of(BLOCK)).contains(&used);
            (!fits).then(|| format!("`{name}` uses {used} bytes, and has {least} to {most} blocks"))
        })
    }

    /// Has everything carried to the drives that was answered so far.
    pub async fn settle(&self) -> Result<(), Refusal> {
        told(self.pool.audit_space().await).map(drop)
    }

    /// As [`Pool::undestaged`].
    pub fn undestaged(&self) -> Option<Vec<Range<u64>>> {
        self.pool.undestaged()
    }

    pub async fn delete(&self, name: &str) -> Result<(), Refusal> {
        match self.volume_of(name) {
            Some(of) => told(self.pool.delete_snapshot(&of.volume, &of.name).await),
            None => told(self.pool.delete_volume(name).await),
        }
    }

    pub async fn resize(&self, name: &str, size: u64) -> Result<(), Refusal> {
        let bytes = size * u64::from(self.volume(name)?.block_size());
        told(self.pool.resize_volume(name, bytes).await)
    }

    /// Does what a host asks for on its reactor. One that may go away is on this one: what it asked for goes with it.
    async fn host<T, F>(
        &self,
        patient: bool,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = engine::Result<T>> + 'static,
    {
        if self.reactors.is_empty() || !patient {
            return told(work().await);
        }
        let at = usize64(random() % u64_of(self.reactors.len()));
        let answer = self.reactors[at].call(work).await;
        told(answer.expect("a simulated reactor lives as long as the first"))
    }

    pub async fn read(
        &self,
        name: &str,
        first: u64,
        count: u64,
        patient: bool,
    ) -> Result<Vec<u8>, Refusal> {
        let volume = self.volume(name)?;
        let unit = u64::from(volume.block_size());
        let read = move || async move {
            let mut out = vec![0xEE; usize64(count * unit)];
            volume.read(first * unit, &mut out).await?;
            Ok(out)
        };
        self.host(patient, read).await
    }

    pub async fn write(
        &self,
        name: &str,
        first: u64,
        data: Vec<u8>,
        patient: bool,
    ) -> Result<(), Refusal> {
        let volume = self.volume(name)?;
        let offset = first * u64::from(volume.block_size());
        self.host(patient, move || async move { volume.write(offset, &data).await }).await
    }

    pub async fn copy(
        &self,
        (source, from): (&str, u64),
        (target, to): (&str, u64),
        count: u64,
        patient: bool,
    ) -> Result<(), Refusal> {
        let (source, target) = (self.volume(source)?, self.volume(target)?);
        let unit = u64::from(target.block_size());
        let copy = move || async move {
            target.copy_from(&source, from * unit, to * unit, count * unit).await
        };
        self.host(patient, copy).await
    }

    pub async fn zero(
        &self,
        name: &str,
        first: u64,
        count: u64,
        deallocate: bool,
        patient: bool,
    ) -> Result<(), Refusal> {
        let volume = self.volume(name)?;
        let unit = u64::from(volume.block_size());
        let (offset, len) = (first * unit, count * unit);
        let zero = move || async move {
            match deallocate {
                true => volume.deallocate(offset, len).await,
                false => volume.write_zeroes(offset, len).await,
            }
        };
        self.host(patient, zero).await
    }

    pub fn flush(&self, name: &str) -> Result<(), Refusal> {
        told(self.volume(name)?.flush())
    }

    /// Has the log move to other devices, unless it is on its way.
    pub async fn move_log(&self) -> Result<(), Refusal> {
        match (&self.log, &self.remote) {
            (Some(log), _) => log.move_on(&self.pool).await,
            (None, Some(log)) => log.move_on(&self.pool).await,
            (None, None) => Ok(()),
        }
    }

    pub async fn describe(&self) -> String {
        format!("{:#?}", self.pool.status().await)
    }

    pub async fn close(&self, export: bool) -> Result<(), Refusal> {
        let pool = self.pool.clone();
        self.exported.set(self.exported.get() || export);
        told(if export { pool.export().await } else { pool.close().await })?;
        self.closed.set(true);
        Ok(())
    }

    /// Drives that are out of use though nothing but what passes was ever wrong with them.
    pub async fn condemned(&self) -> Vec<usize> {
        let Ok(status) = self.pool.status().await else { return Vec::new() };
        // One that was emptied is out of use for good reason.
        let is_out = |n: &&usize| {
            let drive = &status.drives[**n];
            drive.state != DriveState::Online && !drive.vacant
        };
        self.sound.iter().filter(is_out).copied().collect()
    }
}
