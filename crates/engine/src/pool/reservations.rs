//! Reservations: space kept for what a volume's hosts have yet to write (decision 0034).

use std::rc::Rc;
use std::sync::Arc;

use stdx::size::show;

use super::Pool;
use super::volumes::{check_reservation, find};
use crate::address::View;
use crate::canary::{self, Canary};
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{Catalog, Object, Record, Reservation};
use crate::quotas::{Lacking, Reserve};
use crate::shard::Shard;
use crate::volume::state::State;

/// All of a volume's reservation is kept, and nobody draws from it, as long as this lives.
pub(super) struct Paused {
    reserve: Arc<Reserve>,
    pool: Pool,
    /// The size it may have then.
    bytes: u64,
    is_shared: bool,
}

impl Paused {
    /// All that hosts had is shared by now, and that is the size.
    pub fn end_shared(mut self) {
        self.is_shared = true;
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.reserve.go_on(self.is_shared.then_some(self.bytes), &self.pool.0.common.space);
    }
}

impl Pool {
    /// Keeps so much space for a volume, another amount, or none: its hosts can write until what they have of their own is
    /// as much, however full the pool is. What its snapshots see as well, or is shared with copies, is not theirs alone.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for what is not a multiple of 1 MiB, or more than the volume has; `Full` where the pool does
    /// not have as much space; `Busy` where what the volume has cannot be counted, as nothing leaves the log; `Failed` when
    /// too many drives failed. Then all is as it was.
    pub async fn set_reservation(&self, name: &str, of: Option<Reservation>) -> Result<()> {
        // To its end, also where nobody waits for it any more.
        let (pool, name) = (self.clone(), name.to_owned());
        let setting = reactor::spawn(async move { pool.change_reservation(&name, of).await });
        setting.await.unwrap_or_else(|| Err(Error::new(Kind::Gone, "the reactor has stopped")))
    }

    async fn change_reservation(&self, name: &str, of: Option<Reservation>) -> Result<()> {
        let _turn = self.turn().await?;
        let (common, state) = (&self.0.common, self.volume(name)?.state);
        let before = common.quotas.reserve(state.view);
        if let Some(of) = of {
            check_reservation(of, state.bytes())?;
            let reserve = match &before {
                Some(reserve) => Arc::clone(reserve),
                None => self.begin_reserve(name, &state, of).await?,
            };
            let status = reserve.status();
            if before.is_some() {
                // What was written since it was counted is not to be asked for again.
                let _ = common.quotas.recount(state.view).await;
            }
            let want = || self.keep(name, || reserve.want(of, state.bytes(), &common.space));
            let done = if of.of(state.bytes()) < status.bytes {
                // Nothing is given away before the catalog has it.
                match self.record_reservation(name, Some(of)).await {
                    Ok(()) => return want().await,
                    Err(error) => Err(error),
                }
            } else {
                match want().await {
                    Ok(()) => self.record_reservation(name, Some(of)).await,
                    Err(error) => Err(error),
                }
            };
            if done.is_err() {
                match before {
                    // Of what there was before there is enough.
                    Some(_) => drop(reserve.want(status.of, state.bytes(), &common.space)),
                    None => self.drop_reserve(&state, &reserve),
                }
            }
            return done;
        }
        let Some(reserve) = before else { return Ok(()) };
        self.record_reservation(name, None).await?;
        self.drop_reserve(&state, &reserve);
        Ok(())
    }

    fn drop_reserve(&self, state: &Arc<State>, reserve: &Reserve) {
        let common = &self.0.common;
        common.quotas.set_reserve(state, None);
        reserve.end(&common.space);
    }

    async fn record_reservation(&self, name: &str, of: Option<Reservation>) -> Result<()> {
        let change = |catalog: &Catalog| {
            let volume = Object { reservation: of, ..find(catalog, name)?.clone() };
            Ok((catalog.edit(vec![Record::Put(volume)]), ()))
        };
        self.0.common.superblock.change_catalog(change).await
    }

    /// What a volume gives back, and shares, is known from now on, and what it has was counted. Nothing is kept yet.
    async fn begin_reserve(
        &self,
        name: &str,
        state: &Arc<State>,
        of: Reservation,
    ) -> Result<Arc<Reserve>> {
        let (common, shards) = (&self.0.common, self.0.common.shards);
        let reserve = Arc::new(Reserve::of_uncounted(of, shards));
        common.quotas.set_reserve(state, Some(Arc::clone(&reserve)));
        let settle = |shard: Rc<Shard>| async move {
            shard.front.look_at_quotas();
            // Whoever did not know of it yet.
            shard.front.settle_writes().await;
            // What was copied by reference shows in the map.
            shard.front.carry_log().await
        };
        let settled = self.each(settle).await;
        reserve.count_anew();
        let counted = common.quotas.recount(state.view).await && reserve.is_counted();
        let done = match settled {
            Ok(_) if counted => return Ok(reserve),
            Ok(_) => {
                let what = format!(
                    "what volume {name} has cannot be counted now: nothing leaves the log, or a drive failed"
                );
                Err(Error::new(Kind::Busy, what))
            }
            Err(error) => Err(error),
        };
        self.drop_reserve(state, &reserve);
        done
    }

    /// Has something be kept for a volume, once space was looked for if need be.
    async fn keep(
        &self,
        name: &str,
        take: impl Fn() -> std::result::Result<(), Lacking>,
    ) -> Result<()> {
        if take().is_ok() {
            return Ok(());
        }
        let common = &self.0.common;
        common.quotas.recount_reserved(None, &common.used).await;
        let find = |shard: Rc<Shard>| async move {
            shard.search.find().await;
            shard.capacity.give_back(0);
            Ok(())
        };
        self.each(find).await?;
        take().map_err(|Lacking { needed, free }| {
            let (needed, free) = (show(needed), show(free));
            let what = format!(
                "the reservation of volume {name} needs {needed} more to be kept, and the pool has {free} free"
            );
            Error::new(Kind::Full, what)
        })
    }

    /// What is kept for a volume to be made, which is to [last](Self::end_keeping) or to be undone.
    pub(super) async fn keep_for_new(
        &self,
        name: &str,
        of: Option<Reservation>,
        bytes: u64,
    ) -> Result<Option<Arc<Reserve>>> {
        let Some(of) = of else { return Ok(None) };
        let common = &self.0.common;
        let reserve = Reserve::of_empty(of, common.shards);
        self.keep(name, || reserve.want(of, bytes, &common.space)).await?;
        Ok(Some(Arc::new(reserve)))
    }

    /// A volume was made, or was not: then nothing is kept for it.
    pub(super) fn end_keeping<T>(
        &self,
        kept: &[Option<Arc<Reserve>>],
        made: Result<T>,
    ) -> Result<T> {
        if made.is_err() {
            kept.iter().flatten().for_each(|reserve| reserve.end(&self.0.common.space));
        }
        made
    }

    /// This is kept for a volume that is there from now on.
    pub(super) fn set_reserve(&self, state: &Arc<State>, kept: Option<Arc<Reserve>>) {
        if kept.is_some() {
            self.0.common.quotas.set_reserve(state, kept);
        }
    }

    /// The volume is gone.
    pub(super) fn end_reserve(&self, view: View) {
        if let Some(reserve) = self.0.common.quotas.reserve(view) {
            reserve.end(&self.0.common.space);
        }
    }

    /// A volume is there when its pool is opened: all of its reservation is kept until what it has was counted.
    pub(super) fn adopt_reservation(&self, volume: &Object, state: &Arc<State>) {
        let Some(of) = volume.reservation else { return };
        let common = &self.0.common;
        let reserve = Reserve::of_uncounted(of, common.shards);
        reserve.claim(of, volume.bytes, &common.space);
        common.quotas.set_reserve(state, Some(Arc::new(reserve)));
    }

    /// What is kept for a volume is what one of that size has reserved.
    pub(super) async fn reserve_for_size(
        &self,
        name: &str,
        state: &State,
        bytes: u64,
    ) -> Result<()> {
        let common = &self.0.common;
        let Some(reserve) = common.quotas.reserve(state.view) else { return Ok(()) };
        let of = reserve.status().of;
        self.keep(name, || reserve.want(of, bytes, &common.space)).await
    }

    /// All that hosts have of these volumes is about to be shared, with snapshots or what they were: there has to be room
    /// for the reservations of those that have one, in full. Of sizes that they may have then.
    pub(super) async fn pause_reserved<'v>(
        &self,
        volumes: impl IntoIterator<Item = (&'v State, u64)>,
    ) -> Result<Vec<Paused>> {
        let (common, mut paused) = (&self.0.common, Vec::new());
        for (state, bytes) in volumes {
            let Some(reserve) = common.quotas.reserve(state.view) else { continue };
            if canary::has(Canary::SnapshotSkipsRoom) {
                continue;
            }
            let (of, name) = (reserve.status().of, state.name.lock().clone());
            self.keep(&name, || reserve.pause(of.of(bytes), &common.space)).await?;
            paused.push(Paused { reserve, pool: self.clone(), bytes, is_shared: false });
        }
        Ok(paused)
    }
}
