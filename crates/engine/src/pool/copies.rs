//! The copies of the log while a pool is open: when one is lost another takes its place.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use reactor::{Nanos, now};

use super::Pool;
use super::members::{identify_device, next_member, part_of, zone_of};
use crate::error::{Error, Kind, Result};
use crate::format::label::LogKind;
use crate::limits::{COPY_PAUSES, REMOTE_PAUSES};
use crate::log::{self, Identity, Joining, LogDevice, Place, RemoteLog, Tenant};
use crate::shard::Shard;
use stdx::num::u64_of;

/// Where a further copy can be.
#[derive(Clone)]
pub(super) enum Candidate {
    Device(LogDevice),
    Drive(u16),
}

impl Candidate {
    pub const fn device(&self) -> Option<&LogDevice> {
        match self {
            Self::Device(device) => Some(device),
            Self::Drive(_) => None,
        }
    }
}

/// A namespace of another target that has the log, or had it.
pub(super) struct RemoteCopy {
    /// As it was when it got what it has.
    device: RemoteLog,
    /// As what it has it; none of one that was away when the pool was opened.
    tenant: Option<Tenant>,
    tried: Option<Tried>,
    /// Why it was not made whole when that was tried last.
    why: Option<String>,
}

impl RemoteCopy {
    fn is(&self, device: &RemoteLog) -> bool {
        Arc::ptr_eq(&self.device.drive, &device.drive)
    }

    /// Those among devices that have the log by now, as these tenants.
    pub fn of(devices: impl IntoIterator<Item = (Tenant, LogDevice)>) -> Vec<Self> {
        let remote = devices.into_iter().filter_map(|(tenant, device)| match device {
            LogDevice::Remote(device) => {
                Some(Self { device, tenant: Some(tenant), tried: None, why: None })
            }
            LogDevice::Memory(_) => None,
        });
        remote.collect()
    }
}

/// Where further copies are looked for.
struct Places {
    spare: Vec<LogDevice>,
    /// Drives that were tried, each with how often it had been taken back: what made it fail may have passed, but a
    /// zone that cannot be written is not tried without end.
    tried: BTreeMap<(u16, usize), Tried>,
}

struct Tried {
    times: u32,
    last: Nanos,
}

impl Tried {
    /// Whether it is time to try again.
    fn is_due(&self, pauses: &RangeInclusive<Duration>) -> bool {
        let pause = pauses.start().saturating_mul(1 << self.times.min(16));
        Duration::from_nanos(now() - self.last) >= pause.min(*pauses.end())
    }
}

impl Pool {
    /// Has the log have as many copies as it is to have, as long as the pool is open: on these devices of memory,
    /// or other drives.
    pub(super) fn keep_copies(&self, spare: Vec<LogDevice>) {
        let (weak, common) = (Rc::downgrade(&self.0), Arc::clone(&self.0.common));
        let mut places = Places { spare, tried: BTreeMap::new() };
        reactor::spawn(async move {
            let mut seen = 0;
            loop {
                let enough = match weak.upgrade().map(Pool) {
                    Some(pool) if !pool.0.closed.get() => pool.make_copies(&mut places).await,
                    _ => return,
                };
                let changed = common.superblock.members.changed(seen);
                let pause = match enough {
                    true => Duration::MAX,
                    false if common.superblock.label().log == LogKind::Remote => {
                        *REMOTE_PAUSES.start()
                    }
                    false => *COPY_PAUSES.start(),
                };
                seen = reactor::timeout(pause, changed).await.unwrap_or(seen);
            }
        });
    }

    /// Tells whether there are enough then, or nothing more will be tried.
    async fn make_copies(&self, places: &mut Places) -> bool {
        loop {
            if self.has_enough_copies() {
                return true;
            }
            // What keeps windows from being ended keeps another copy from being made.
            let Ok(_log) = self.hold_log().await else { return false };
            let superblock = &self.0.common.superblock;
            let enough = superblock.members.current() >= usize::from(superblock.label().log_copies);
            let late = if enough { self.late_copy() } else { None };
            if enough && late.is_none() || self.0.closed.get() {
                return true;
            }
            let Some(candidate) = self.candidate(places, late.is_some()) else {
                let on = superblock.label().log;
                return enough || !matches!(on, LogKind::Drives | LogKind::Remote);
            };
            let done = self.add_copy(candidate).await;
            self.0.copies_made.set(self.0.copies_made.get() + u64::from(done.is_ok()));
            if let (Ok(()), Some((drive, late))) = (done, late) {
                superblock.members.report(late);
                superblock.drives.forget_appends(drive);
                // Nothing relies on it here: who writes next tells before it is answered, and nobody is answered without a
                // copy of the log that the labels still call current.
                let _ = superblock.tell_failures().await;
            }
        }
    }

    /// Whether nothing is to be made. Windows go on then.
    fn has_enough_copies(&self) -> bool {
        let superblock = &self.0.common.superblock;
        let enough = superblock.members.current() >= usize::from(superblock.label().log_copies);
        self.0.closed.get() || enough && self.late_copy().is_none()
    }

    /// A copy of the log that all writes have been waiting for at several looks, and its drive.
    fn late_copy(&self) -> Option<(u16, Tenant)> {
        let superblock = &self.0.common.superblock;
        let looks = self.0.looks.borrow();
        let label = superblock.label();
        let mut copies = label.log_members.iter().enumerate().filter(|(_, copy)| copy.current);
        copies.find_map(|(slot, copy)| {
            let drive = copy.drive.filter(|&drive| looks.is_late_to_append(drive))?;
            Some((drive, superblock.members.tenant(slot)))
        })
    }

    /// The next place to try, one that is not slow where that is wanted.
    fn candidate(&self, places: &mut Places, fast: bool) -> Option<Candidate> {
        let superblock = &self.0.common.superblock;
        let label = superblock.label();
        match label.log {
            LogKind::Drives => {}
            LogKind::Pmem | LogKind::Bbu => return places.spare.pop().map(Candidate::Device),
            LogKind::Remote => return self.remote_candidate(places),
        }
        let holds = |drive: u16, current: bool| {
            let of = |m: &&crate::format::label::LogMember| m.drive == Some(drive);
            label.log_members.iter().filter(of).any(|m| m.current || !current)
        };
        let place = |index: u16| (index, superblock.drives.returns(index));
        let free = |index: &u16| {
            let zone = label.drives[usize::from(*index)].log_bytes > 0;
            zone && superblock.drives.is_online(*index)
                && self.0.common.leaving() & (1 << *index) == 0
                && !holds(*index, true)
                && !(fast && superblock.drives.is_slow(*index))
                && places.tried.get(&place(*index)).is_none_or(|tried| tried.is_due(&COPY_PAUSES))
        };
        // One that is slow, or whose zone failed before, comes last.
        let order = |index: &u16| (superblock.drives.is_slow(*index), holds(*index, false), *index);
        let index = superblock.drives.indices().filter(free).min_by_key(order)?;
        let times = places.tried.get(&place(index)).map_or(0, |tried| tried.times + 1);
        places.tried.insert(place(index), Tried { times, last: now() });
        Some(Candidate::Drive(index))
    }

    /// Memory that is given and has not the log; or a namespace that lost it, again and again: what was between it and
    /// here may have passed.
    fn remote_candidate(&self, places: &mut Places) -> Option<Candidate> {
        while let Some(spare) = places.spare.pop() {
            // Namespaces are all known.
            if matches!(spare, LogDevice::Memory(_)) {
                return Some(Candidate::Device(spare));
            }
        }
        let members = &self.0.common.superblock.members;
        let mut remotes = self.0.remotes.borrow_mut();
        let free = remotes.iter_mut().find(|remote| {
            let has_it = remote.tenant.is_some_and(|tenant| members.takes(tenant));
            !has_it && remote.tried.as_ref().is_none_or(|tried| tried.is_due(&REMOTE_PAUSES))
        })?;
        let times = free.tried.as_ref().map_or(0, |tried| tried.times + 1);
        free.tried = Some(Tried { times, last: now() });
        Some(Candidate::Device(LogDevice::Remote(free.device.clone())))
    }

    /// Knows the namespaces of other targets among the devices that have the log, by slot, and among those that were
    /// named.
    pub(super) fn note_remotes(&self, have: &[(usize, LogDevice)], named: &[LogDevice]) {
        let members = &self.0.common.superblock.members;
        let have = have.iter().map(|(slot, device)| (members.tenant(*slot), device.clone()));
        let mut remotes = RemoteCopy::of(have);
        for device in named {
            let LogDevice::Remote(device) = device else { continue };
            if !remotes.iter().any(|remote| remote.is(device)) {
                let device = device.clone();
                remotes.push(RemoteCopy { device, tenant: None, tried: None, why: None });
            }
        }
        *self.0.remotes.borrow_mut() = remotes;
    }

    /// Has the log have a copy more, on a drive that has none and is not about to go.
    pub(super) async fn add_copy_elsewhere(&self) -> Result<()> {
        let _log = self.hold_log().await?;
        let mut places = Places { spare: Vec::new(), tried: BTreeMap::new() };
        let none = || Error::new(Kind::Busy, "no other drive has room set aside for the log");
        let candidate = self.candidate(&mut places, false).ok_or_else(none)?;
        self.add_copy(candidate).await
    }

    /// Makes a place one of the log's devices: the labels say so last.
    async fn add_copy(&self, candidate: Candidate) -> Result<()> {
        let Candidate::Device(LogDevice::Remote(was)) = candidate else {
            let new = self.bring_copy(candidate).await?;
            return self.admit_copy(new).await;
        };
        let (device, brought) = match self.check_returned(was.clone()).await {
            Ok(device) => {
                let candidate = Candidate::Device(LogDevice::Remote(device.clone()));
                (device, self.bring_copy(candidate).await)
            }
            Err(error) => (was, Err(error)),
        };
        if let Some(remote) = self.0.remotes.borrow_mut().iter_mut().find(|of| of.is(&device)) {
            remote.why = brought.as_ref().err().map(ToString::to_string);
            remote.tenant = brought.as_ref().ok().map(|(tenant, _)| *tenant);
            remote.device = device;
        }
        self.admit_copy(brought?).await
    }

    async fn admit_copy(&self, new: (Tenant, Option<u16>)) -> Result<()> {
        let (new, tenant) = ([new], new.0);
        let superblock = &self.0.common.superblock;
        let admitted = superblock.admit(&new, None).await;
        if admitted.is_err() {
            // It counts only where labels say so: else another attempt is made.
            let id = superblock.members.id(tenant.slot);
            if !superblock.label().current_members().any(|member| member.id == id) {
                superblock.members.give_up(tenant);
            }
        }
        admitted
    }

    /// Whether a namespace that comes back may be written over: it has what it had of this log, or nothing. What is there
    /// by now may be another pool's, or somebody else's.
    async fn check_returned(&self, was: RemoteLog) -> Result<RemoteLog> {
        let superblock = &self.0.common.superblock;
        // Labels say that it is not the log's before it loses its name; the last one to fail has everything.
        superblock.tell_failures().await?;
        let device = &LogDevice::Remote(was).answers().await?;
        let label = superblock.label();
        let is_current = |id| label.current_members().any(|member| member.id == id);
        let may_be_taken = match identify_device(&label, device).await? {
            Identity::Member { id, term, .. } => term <= label.term && !is_current(id),
            // It may be the one that has everything, without a name.
            Identity::Records => superblock.members.current() > 0,
            Identity::Blank => true,
            Identity::Foreign => false,
        };
        match device {
            LogDevice::Remote(device) if may_be_taken => Ok(device.clone()),
            _ => {
                let what = "the log's namespace of another target has something else by now";
                Err(Error::new(Kind::Invalid, what))
            }
        }
    }

    /// Takes those out of the log that are not what they were when they got what they have: what answers by another
    /// connection may have lost it. Where nobody writes, nothing else would tell.
    pub(super) fn look_at_remotes(&self) {
        let members = &self.0.common.superblock.members;
        for remote in &*self.0.remotes.borrow() {
            let has_it = |tenant: &Tenant| members.is_current(*tenant);
            let Some(tenant) = remote.tenant.filter(has_it) else { continue };
            // The last one is relied on, whatever became of it.
            if !remote.device.is_the_same() && members.current() > 1 {
                members.report(tenant);
            }
        }
    }

    /// Has a place take what is in the log: first what is in the log of every shard goes there, then its control
    /// blocks. Nothing relies on it yet.
    pub(super) async fn bring_copy(&self, candidate: Candidate) -> Result<(Tenant, Option<u16>)> {
        let common = &self.0.common;
        let nth = self.0.joined.get();
        self.0.joined.set(nth + 1);
        let label = common.superblock.label();
        let id = next_member(&label, nth);
        let none = || Error::new(Kind::Busy, "the log has no room for another device");
        let tenant = common.superblock.members.begin(id).ok_or_else(none)?;
        let drive = match candidate {
            Candidate::Drive(index) => Some(index),
            Candidate::Device(_) => None,
        };
        let shards = Arc::clone(common);
        let join = move |shard: Rc<Shard>| {
            let (common, label, candidate) =
                (Arc::clone(&shards), label.clone(), candidate.clone());
            async move {
                let number = shard.base.writer.shard();
                let place = match &candidate {
                    Candidate::Device(device) => part_of(&label, device, number),
                    Candidate::Drive(index) => {
                        let zone = zone_of(&label, &common.superblock.drives, *index, number);
                        let gone = || Error::new(Kind::Failed, format!("drive {index} failed"));
                        Place::Zone(zone.ok_or_else(gone)?)
                    }
                };
                shard.base.log.join(Joining { tenant, drive, place }).await
            }
        };
        match self.each(join).await {
            Ok(_) => Ok((tenant, drive)),
            Err(error) => {
                common.superblock.members.give_up(tenant);
                Err(error)
            }
        }
    }

    /// Files and namespaces of other targets that are to have the log, and have not all of it, in words.
    pub(super) fn away_copies(&self, log: Option<&log::Status>) -> Vec<String> {
        let files = log.map_or(&[][..], |log| &log.failed_files);
        let files = files
            .iter()
            .map(|path| format!("{} was cut short, or cannot be reached", path.display()));
        let members = &self.0.common.superblock.members;
        let remotes = self.0.remotes.borrow();
        let is_away =
            |remote: &&RemoteCopy| !remote.tenant.is_some_and(|tenant| members.is_current(tenant));
        let words = |remote: &RemoteCopy| {
            let away = remote.device.drive.away().or_else(|| remote.why.clone());
            away.unwrap_or_else(|| "a namespace of another target is made whole".to_owned())
        };
        files.chain(remotes.iter().filter(is_away).map(words)).collect()
    }

    /// Copies of the log made since the pool was opened, in place of others or because there were too few.
    #[must_use]
    pub fn log_copies_made(&self) -> u64 {
        self.0.copies_made.get()
    }

    /// How many copies the log has, and how many it is to have.
    #[must_use]
    pub fn log_copies(&self) -> (u64, u64) {
        let superblock = &self.0.common.superblock;
        (u64_of(superblock.members.current()), u64::from(superblock.label().log_copies))
    }
}
