//! Quotas: what a volume, or a group of volumes, and all their snapshots may hold together (decision 0028).

use std::rc::Rc;
use std::sync::Arc;

use stdx::size::show;

use super::Pool;
use super::volumes::{check_quota, find};
use crate::address::View;
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{Catalog, Object, Record};
use crate::quotas::{Holding, Quota};
use crate::shard::Shard;
use crate::volume::state::{BLOCK_BYTES, State};

/// What the quota of a group is to be, and of which volumes.
pub(super) struct GroupPlan {
    /// The one that it has, or a new one, which bounds nothing yet.
    pub quota: Arc<Quota>,
    pub bytes: u64,
    pub joining: Vec<Arc<State>>,
    pub leaving: Vec<Arc<State>>,
}

/// What was so before a [plan](GroupPlan) was followed.
pub(super) struct Before {
    plan: GroupPlan,
    bytes: u64,
}

/// Whether a volume, or the group that it is in, has a quota.
pub(super) fn is_under_quota(catalog: &Catalog, view: View) -> bool {
    let volume = catalog.get(view);
    let group = volume.and_then(|volume| catalog.get(volume.group?));
    volume.into_iter().chain(group).any(|of| of.quota > 0)
}

impl Pool {
    /// Gives a volume a quota, another one, or none: so many bytes it and all its snapshots may hold together, what is
    /// replaced and a snapshot sees included, what it began with as a clone not. A write of what is new beyond that is
    /// refused (`Full`); what replaces contents that no snapshot sees goes on, and so does giving back.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for what is not a multiple of 1 MiB, or too large; `Full` where the volume and its snapshots
    /// hold more already; `Busy` where that cannot be found out, as nothing leaves the log; `Failed` when too many drives
    /// failed. Then all is as it was.
    pub async fn set_quota(&self, name: &str, bytes: Option<u64>) -> Result<()> {
        bytes.map_or(Ok(()), check_quota)?;
        let _turn = self.turn().await?;
        self.end_windows_of(&[name]).await?;
        let (quotas, state) = (&self.0.common.quotas, self.volume(name)?.state);
        let before = quotas.status(state.view).map(|quota| quota.bytes);
        if let Some(bytes) = bytes {
            let holding = quotas.track(&state);
            let has_room = self.check_room(&[holding], bytes, &format!("volume {name}")).await;
            if has_room.is_err() {
                quotas.release(state.view);
                return has_room;
            }
            quotas.set(&state, Some(bytes));
        }
        let change = |catalog: &Catalog| {
            let quota = bytes.unwrap_or(0);
            let volume = Object { quota, ..find(catalog, name)?.clone() };
            Ok((catalog.edit(vec![Record::Put(volume)]), ()))
        };
        let done = self.0.common.superblock.change_catalog(change).await;
        quotas.set(&state, if done.is_ok() { bytes } else { before });
        done
    }

    /// Refuses a bound below what is held already, once that was counted: nobody is to be refused for a typing error.
    async fn check_room(&self, of: &[Arc<Holding>], bytes: u64, whose: &str) -> Result<()> {
        let common = &self.0.common;
        let held = || of.iter().map(|of| of.held()).sum::<Option<u64>>();
        if held().is_some_and(|held| held * BLOCK_BYTES <= bytes) {
            return Ok(());
        }
        self.look_at_quotas().await?;
        let counted = common.quotas.recount_changed(of.to_vec(), &common.used).await;
        let Some(held) = held().filter(|_| counted) else {
            let what = format!(
                "what {whose} holds cannot be counted now: nothing leaves the log, or a drive failed"
            );
            return Err(Error::new(Kind::Busy, what));
        };
        let held = held * BLOCK_BYTES;
        if held > bytes {
            let (held, bytes) = (show(held), show(bytes));
            let what = match of {
                [_] if whose.starts_with("volume") => format!("{whose} and its snapshots hold"),
                _ => format!("the volumes of {whose} and their snapshots hold"),
            };
            let what =
                format!("{what} {held} already, more than {bytes}: delete snapshots, or trim");
            return Err(Error::new(Kind::Full, what));
        }
        Ok(())
    }

    /// A volume is there, and under its quotas from now on, if it has one or its group has. Nothing [is
    /// there](crate::quotas::Quotas::note_empty) of it yet, or it is to be counted.
    pub(super) fn adopt_quota(&self, volume: &Object, state: &Arc<State>) {
        let quotas = &self.0.common.quotas;
        if volume.quota > 0 {
            quotas.set(state, Some(volume.quota));
        }
        if let Some(group) = volume.group.and_then(|group| quotas.of_group(group)) {
            quotas.bind(&group, [state]);
        }
    }

    /// A group is there, with its quota if it has one. Before its volumes.
    pub(super) fn adopt_group_quota(&self, object: &Object) {
        if object.is_group() && object.quota > 0 {
            let quotas = &self.0.common.quotas;
            quotas.add_group(object.view, quotas.for_group(&object.name, object.quota));
        }
    }

    /// All shards know the quotas there are by now: what a volume held that is under one no more is nobody's any more.
    pub(super) async fn look_at_quotas(&self) -> Result<()> {
        let look = |shard: Rc<Shard>| async move {
            shard.front.look_at_quotas();
            Ok(())
        };
        self.each(look).await.map(drop)
    }

    /// Has the quota of a group be what is planned, and bound whom, if there is room for what they hold. It is to
    /// [last](Self::end_group_plan) then, or to be undone.
    ///
    /// # Errors
    /// `Full` where they hold more, `Busy` where that cannot be counted. Then all is as it was.
    pub(super) async fn follow_group_plan(&self, name: &str, plan: GroupPlan) -> Result<Before> {
        let quotas = &self.0.common.quotas;
        let GroupPlan { quota, bytes, joining, leaving } = &plan;
        let joining_holdings = joining.iter().map(|state| quotas.track(state));
        let stays = |of: &Arc<Holding>| !leaving.iter().any(|state| state.view == of.state.view);
        let staying = quota.members().into_iter().filter(stays);
        let all: Vec<_> = staying.chain(joining_holdings).collect();
        let before = quota.bytes();
        // What leaves it is let go, however much is held beyond it.
        let takes = !joining.is_empty() || *bytes < before;
        let has_room = match takes {
            true => self.check_room(&all, *bytes, &format!("group {name}")).await,
            false => Ok(()),
        };
        if let Err(error) = has_room {
            joining.iter().for_each(|state| quotas.release(state.view));
            return Err(error);
        }
        // Whoever is let in from here on is within it.
        quota.set_limit(*bytes);
        quotas.unbind(leaving);
        quotas.bind(quota, joining);
        let before = Before { bytes: before, plan };
        match self.look_at_quotas().await {
            Ok(()) => Ok(before),
            Err(error) => {
                self.undo_group_plan(before);
                Err(error)
            }
        }
    }

    fn undo_group_plan(&self, before: Before) {
        let Before { plan: GroupPlan { quota, joining, leaving, .. }, bytes } = before;
        let quotas = &self.0.common.quotas;
        quota.set_limit(bytes);
        quotas.unbind(&joining);
        quotas.bind(&quota, &leaving);
    }

    /// What was planned for a group of that view lasts, or does not: then all is as it was.
    pub(super) async fn end_group_plan<T>(
        &self,
        before: Option<Before>,
        lasts: Result<T>,
        view: impl FnOnce(&T) -> View,
    ) -> Result<T> {
        let Some(before) = before else { return lasts };
        match &lasts {
            Ok(done) => {
                self.0.common.quotas.add_group(view(done), before.plan.quota);
            }
            Err(_) => {
                self.undo_group_plan(before);
                // The error that is told is the first one.
                let _ = self.look_at_quotas().await;
            }
        }
        lasts
    }

    /// Refuses to give a volume more of its own than its quota, or its group's, has room for: hosts would find nothing left
    /// of that.
    pub(super) fn check_room_to_detach(&self, state: &State) -> Result<()> {
        let Some(of) = self.0.common.quotas.get(state.view) else { return Ok(()) };
        for quota in of.own.iter().chain(&of.group) {
            let inherited = self.inherited_by(quota, state);
            let (Some(held), Some(inherited)) = (quota.held(), inherited) else {
                let what = format!(
                    "what {} hold of their quota is not counted yet: try again in a moment",
                    quota.whose()
                );
                return Err(Error::new(Kind::Busy, what));
            };
            let (needs, bytes) = (held * BLOCK_BYTES + inherited, quota.bytes());
            if needs > bytes {
                let (whose, needs, bytes) = (quota.whose(), show(needs), show(bytes));
                let what = format!(
                    "{whose} may hold up to {needs} once volume {} is detached, and their quota is {bytes}",
                    *state.name.lock()
                );
                return Err(Error::new(Kind::Full, what));
            }
        }
        Ok(())
    }

    /// What a volume and those under a quota that are being detached may get of what they inherit, at most.
    fn inherited_by(&self, quota: &Quota, state: &State) -> Option<u64> {
        let jobs = self.0.detaching.borrow();
        let others = quota.members().into_iter().filter_map(|of| {
            let done = jobs.get(&of.state.view)?.done()?;
            let left = of.state.bytes().saturating_sub(done);
            Some(of.state.inherited().map(|inherited| inherited.min(left)))
        });
        std::iter::once(state.inherited()).chain(others).sum()
    }
}
