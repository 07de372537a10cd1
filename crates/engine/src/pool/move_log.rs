//! The log goes to other devices, of another kind too, while it is written.
//!
//! Those it is to have are made whole beside those it has; then one label says that they are current and the others are
//! not. Whoever opens the pool finds the ones or the others, as that label is there or not, and they have everything.

use super::copies::{Candidate, RemoteCopy};
use super::members::{copies_on_drives, identify_device};
use super::{LogSpec, Pool};
use crate::error::{Error, Kind, Result};
use crate::format::label::{Label, LogKind};
use crate::log::{Identity, Tenant};
use std::time::Duration;
use stdx::num::{low8, u64_of};

/// For how long labels are tried again that could not be written to all drives, and how long apart.
const LABELS_PATIENCE: Duration = Duration::from_secs(10);
const LABELS_PAUSE: Duration = Duration::from_secs(1);

fn invalid<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(Kind::Invalid, what))
}

impl Pool {
    /// Moves the log: from its devices to others. Writes go on. It is on the old ones or the new ones, whatever ends it.
    ///
    /// # Errors
    /// `Invalid` for devices that are too short or have something already, and for drives without room set aside;
    /// `Failed` when one of them fails: the log stays where it is.
    pub async fn move_log(&self, to: LogSpec) -> Result<()> {
        let _log = self.hold_log().await?;
        if self.0.closed.get() {
            return Err(Error::new(Kind::Gone, "the pool was closed"));
        }
        let label = self.0.common.superblock.label();
        let places = match &to {
            LogSpec::Drives => self.zones(&label)?,
            apart => self.blank_devices(&label, apart).await?,
        };
        let devices: Vec<_> = places.iter().filter_map(Candidate::device).cloned().collect();
        let mut new = Vec::new();
        let moved = match self.bring(&to, places, &mut new).await {
            Err(error) => self.tell_of_move(error, &new).await,
            done => done,
        };
        let label = self.0.common.superblock.label();
        if moved.is_err() {
            let members = &self.0.common.superblock.members;
            for (tenant, _) in new.iter().filter(|(tenant, _)| !self.is_listed(&label, *tenant)) {
                members.give_up(*tenant);
            }
        }
        let copies = RemoteCopy::of(new.iter().map(|(tenant, _)| *tenant).zip(devices));
        // As long as some labels may call the old ones current, these get everything, too; so it is after a move before this
        // one that was left half done.
        if moved.is_err() && self.lists_all(&label, &new) {
            *self.0.half_moved.borrow_mut() = Some(copies);
            return moved;
        }
        if moved.is_err() && self.0.half_moved.borrow().is_some() {
            return moved;
        }
        if moved.is_ok() {
            self.0.half_moved.take();
            *self.0.remotes.borrow_mut() = copies;
        }
        let settled = self.leave_old_log(!label.log.is_gathered()).await;
        moved?;
        settled
    }

    /// What the log was on before is let go; where it is on memory alone records go straight there.
    async fn leave_old_log(&self, is_memory: bool) -> Result<()> {
        let settle = move |shard: std::rc::Rc<crate::shard::Shard>| async move {
            shard.base.log.drop_retired();
            if is_memory { shard.base.log.go_straight().await } else { Ok(()) }
        };
        self.each(settle).await.map(drop)
    }

    /// Ends a move that not all drives could be told of, once they can.
    ///
    /// # Errors
    /// As long as they cannot.
    pub(super) async fn end_half_move(&self) -> Result<()> {
        if self.0.half_moved.borrow().is_none() {
            return Ok(());
        }
        let Some(_log) = self.0.moving.try_hold(1) else { return Ok(()) };
        let superblock = &self.0.common.superblock;
        if superblock.durable_term() < superblock.label().term {
            superblock.write_labels(|_| {}).await?;
        }
        let Some(copies) = self.0.half_moved.take() else { return Ok(()) };
        *self.0.remotes.borrow_mut() = copies;
        self.leave_old_log(!superblock.label().log.is_gathered()).await
    }

    fn is_listed(&self, label: &Label, tenant: Tenant) -> bool {
        let id = self.0.common.superblock.members.id(tenant.slot);
        label.current_members().any(|member| member.id == id)
    }

    /// Whether a label says of all of them that the log is there.
    fn lists_all(&self, label: &Label, new: &[(Tenant, Option<u16>)]) -> bool {
        !new.is_empty() && new.iter().all(|(tenant, _)| self.is_listed(label, *tenant))
    }

    /// Whether nothing is acknowledged while the log has fewer copies than it is to have; else it goes on with those it
    /// has. Durable when this returns, and kept with the pool.
    ///
    /// # Errors
    /// `Invalid` for a log on memory alone, where nothing is waited for; `Gone` when the pool was closed.
    pub async fn have_log_wait(&self, waits: bool) -> Result<()> {
        let _log = self.hold_log().await?;
        if self.0.closed.get() {
            return Err(Error::new(Kind::Gone, "the pool was closed"));
        }
        let superblock = &self.0.common.superblock;
        if waits && !superblock.label().log.is_gathered() {
            return invalid(
                "a log on memory alone goes on with what it has: writes wait where it is on drives, or on a namespace of \
                 another target",
            );
        }
        superblock.write_labels(|label| label.log_waits = waits).await
    }

    async fn bring(
        &self,
        to: &LogSpec,
        places: Vec<Candidate>,
        new: &mut Vec<(Tenant, Option<u16>)>,
    ) -> Result<()> {
        if matches!(to, LogSpec::Drives | LogSpec::Remote(_)) {
            self.each(|shard| async move { shard.base.log.gather().await }).await?;
        }
        let copies = low8(u64_of(places.len()));
        for place in places {
            new.push(self.bring_copy(place).await?);
        }
        self.0.common.superblock.admit(new, Some((to.kind(), copies))).await
    }

    /// Labels of this move that some drives may have, and others not, are tried again for a while: a drive may have had no
    /// space just then.
    async fn tell_of_move(&self, error: Error, new: &[(Tenant, Option<u16>)]) -> Result<()> {
        let superblock = &self.0.common.superblock;
        let begun = reactor::now();
        let is_owed = || {
            let label = superblock.label();
            self.lists_all(&label, new) && superblock.durable_term() < label.term
        };
        while is_owed() && !self.0.closed.get() {
            if Duration::from_nanos(reactor::now() - begun) > LABELS_PATIENCE {
                return Err(error);
            }
            reactor::sleep(LABELS_PAUSE).await;
            // Another change may have been told of meanwhile, and this with it.
            let _ = superblock.write_labels(|_| {}).await;
        }
        let label = superblock.label();
        let is_told = self.lists_all(&label, new) && superblock.durable_term() >= label.term;
        if is_told { Ok(()) } else { Err(error) }
    }

    /// The drives whose zones are to have it.
    fn zones(&self, label: &Label) -> Result<Vec<Candidate>> {
        if label.log == LogKind::Drives {
            return invalid("the log is on the pool's drives already");
        }
        let drives = &self.0.common.superblock.drives;
        let has_zone = |index: &u16| {
            let is_leaving = self.0.common.leaving() & (1 << *index) != 0;
            let has_room = label.drives[usize::from(*index)].log_bytes > 0;
            drives.is_online(*index) && has_room && !is_leaving
        };
        let copies = copies_on_drives(label.layout.parity, label.drives.len());
        let zones: Vec<_> = drives.indices().filter(has_zone).take(copies).collect();
        if zones.len() < copies {
            return invalid(format!(
                "{} of the {copies} drives that the log would be on have room set aside for it: it was too long for \
                 that when the pool was made, or drives are missing or being emptied",
                zones.len()
            ));
        }
        Ok(zones.into_iter().map(Candidate::Drive).collect())
    }

    /// Devices that have nothing, and room for the log.
    async fn blank_devices(&self, label: &Label, to: &LogSpec) -> Result<Vec<Candidate>> {
        let devices = to.devices();
        if devices.is_empty() || devices.len() > crate::limits::LOG_COPIES_MAX {
            return invalid("name one device for the log, or two that mirror each other");
        }
        // One that the log is on, and whose control blocks are damaged, would look like a copy that it had before.
        self.each(|shard| async move { shard.base.log.sign().await }).await?;
        let mut places = Vec::new();
        for device in devices {
            let device = device.answers().await?;
            let needs = label.log_bytes * u64::from(label.shards);
            if let Some(has) = device.capacity().filter(|&has| has < needs) {
                return invalid(format!(
                    "a device of {has} bytes is too short: the log has {needs}"
                ));
            }
            match identify_device(label, &device).await? {
                Identity::Blank => places.push(Candidate::Device(device)),
                Identity::Member { term, .. } if term > label.term => {
                    return invalid(
                        "the device has the log of this pool as it went on elsewhere, with later labels than these",
                    );
                }
                Identity::Member { id, beside: true, .. }
                    if !label.current_members().any(|m| m.id == id) =>
                {
                    return invalid(
                        "the device has an old copy of this log, and something else beside it: another log, or other data",
                    );
                }
                // A copy that it had before is written over from end to end.
                Identity::Member { id, .. } if !label.current_members().any(|m| m.id == id) => {
                    places.push(Candidate::Device(device));
                }
                Identity::Member { .. } => return invalid("the device has the log already"),
                // Somebody may have it by now who wrote elsewhere so far.
                Identity::Records => {
                    return invalid(
                        "the device has an old copy of this log that does not say so any more, as its control blocks are \
                         damaged: if it is nobody else's by now, write zeroes to all of it and try again",
                    );
                }
                Identity::Foreign => {
                    return invalid("the device has something already: another log, or other data");
                }
            }
        }
        Ok(places)
    }
}
