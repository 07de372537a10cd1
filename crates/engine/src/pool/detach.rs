//! Clones cut loose from what they were made of: a clone is given what it inherits as its own, by reference, while hosts use
//! it, and needs its parent no more (decision 0026).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::Pool;
use super::changes::{ChangedExtent, inherited};
use super::lineage::Removal;
use super::volumes::{find, invalid};
use crate::address::View;
use crate::canary::{self, Step};
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{Catalog, Object, Record};
use crate::limits::{DETACH_EXTENTS, DETACH_PAUSE};
use crate::shard::Shard;
use crate::volume::state::{BLOCK_BYTES, State};
use crate::volume::{CHUNK_BLOCKS, Volume, shard_of};
use reactor::sync::Signal;

/// How far a clone was given what it inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detaching {
    /// Bytes of the volume looked through, of its size.
    pub done: u64,
    /// Why it does not go on for now.
    pub waits: Option<String>,
}

/// Who gives a clone what it inherits.
#[derive(Default)]
pub(super) struct Job {
    done: Cell<u64>,
    waits: RefCell<Option<String>>,
    ends: Cell<bool>,
    changed: Signal,
}

impl Job {
    /// Bytes of the volume that were looked through; `None` once it is to be left as it is.
    pub(super) fn done(&self) -> Option<u64> {
        (!self.ends.get()).then(|| self.done.get())
    }

    fn note(&self, of: &State, done: u64) {
        self.done.set(done);
        of.set_detaching(Some(done));
    }
}

/// A clone that is being detached, or is to be no more.
fn marked(catalog: &Catalog, name: &str, detaching: bool) -> Result<Object> {
    Ok(Object { detaching, ..find(catalog, name)?.clone() })
}

impl Pool {
    /// Has a clone, or what was rolled back, get what it inherits as its own, by reference, behind this, also over the next
    /// openings. Then it is nobody's clone: reads ask nobody else, and what it was made of goes when it is deleted. What
    /// snapshots of it saw before stays as it is. Meanwhile it is used as ever; whoever writes takes turns with that.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for what inherits nothing; `Busy` while it is still being [stopped](Self::stop_detaching), or
    /// is under a quota and was not counted yet; `Full` where what it inherits may be more than its quota, or its group's, has
    /// room for; `Failed` when the log or too many drives failed.
    pub async fn detach_volume(&self, name: &str) -> Result<()> {
        let _turn = self.turn().await?;
        self.end_windows_of(&[name]).await?;
        let state = self.volume(name)?.state;
        if state.ancestors().is_none() {
            let what = "is no clone and was not rolled back: it shares nothing with a parent";
            return Err(invalid(format!("volume {name} {what}")));
        }
        match self.0.detaching.borrow().get(&state.view) {
            Some(job) if job.ends.get() => {
                let what = format!("volume {name} is still being left as it is: try again");
                return Err(Error::new(Kind::Busy, what));
            }
            Some(_) => return Ok(()),
            None => {}
        }
        self.check_room_to_detach(&state)?;
        state.take_turns(true);
        let begin = |shard: Rc<Shard>| async move { shard.front.begin_turns().await };
        let mark = |catalog: &Catalog| {
            let records = vec![Record::Put(marked(catalog, name, true)?)];
            Ok((catalog.edit(records), ()))
        };
        let begun = match self.each(begin).await {
            Ok(_) => self.0.common.superblock.change_catalog(mark).await,
            Err(error) => Err(error),
        };
        match begun {
            Ok(()) => self.go_on_detaching(state.view),
            Err(_) => state.take_turns(false),
        }
        begun
    }

    /// Leaves a clone as it is by now: what it was given stays its own.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` where it is not being detached; `Failed` when too many drives failed.
    pub async fn stop_detaching(&self, name: &str) -> Result<()> {
        let _turn = self.turn().await?;
        let mark = |catalog: &Catalog| {
            if !find(catalog, name)?.detaching {
                return Err(invalid(format!("volume {name} is not being detached")));
            }
            let object = marked(catalog, name, false)?;
            let view = object.view;
            Ok((catalog.edit(vec![Record::Put(object)]), view))
        };
        let view = self.0.common.superblock.change_catalog(mark).await?;
        if let Some(job) = self.0.detaching.borrow().get(&view) {
            job.ends.set(true);
            job.changed.raise();
        }
        Ok(())
    }

    /// How far that is with a volume; `None` where it is not under way.
    #[must_use]
    pub fn detaching(&self, of: &Volume) -> Option<Detaching> {
        let jobs = self.0.detaching.borrow();
        let job = jobs.get(&of.state.view).filter(|job| !job.ends.get())?;
        Some(Detaching { done: job.done.get(), waits: job.waits.borrow().clone() })
    }

    /// What hosts have under that number, unless it was deleted or rolled back.
    pub(super) fn state_of(&self, view: View) -> Option<Arc<State>> {
        self.0.volumes.borrow().values().find(|state| state.view == view).cloned()
    }

    /// Gives a clone what it inherits, as long as the pool is open. All that change it take turns by now.
    pub(super) fn go_on_detaching(&self, view: View) {
        let job = Rc::new(Job::default());
        if self.0.detaching.borrow().contains_key(&view) {
            // It finds the volume by its number, whoever has it open.
            return;
        }
        self.0.detaching.borrow_mut().insert(view, Rc::clone(&job));
        let weak = Rc::downgrade(&self.0);
        let open = move || weak.upgrade().map(Pool).filter(|pool| !pool.0.closed.get());
        reactor::spawn(async move {
            while !job.ends.get()
                && let Some(pool) = open()
                && let Some(state) = pool.state_of(view)
            {
                job.note(&state, job.done.get());
                let done = pool.detach_some(&state, &job).await;
                // Who waits keeps no pool open.
                drop(pool);
                match done {
                    Ok(true) => break,
                    Ok(false) => _ = job.waits.take(),
                    Err(error) => {
                        job.waits.replace(Some(error.to_string()));
                        let ends = job.changed.until(|| job.ends.get());
                        let _ = reactor::timeout(DETACH_PAUSE, ends).await;
                    }
                }
            }
            if let Some(pool) = open() {
                pool.0.detaching.borrow_mut().remove(&view);
                if let Some(state) = pool.state_of(view) {
                    state.set_detaching(None);
                    state.take_turns(false);
                }
            }
        });
    }

    /// Gives a clone some more of what it inherits; tells whether that was all.
    async fn detach_some(&self, state: &Arc<State>, job: &Job) -> Result<bool> {
        let Some(of) = inherited(state) else { return Ok(true) };
        let found = (state.placement(), state.bytes());
        let found = self.gather_changes(of, found, job.done.get(), DETACH_EXTENTS).await?;
        for ChangedExtent { offset, bytes, .. } in found.extents {
            let (mut at, end) = (offset / BLOCK_BYTES, (offset + bytes) / BLOCK_BYTES);
            while at < end && !job.ends.get() {
                let to = end.min((at / CHUNK_BLOCKS + 1) * CHUNK_BLOCKS);
                self.adopt_inherited(state, at..to).await?;
                job.note(state, to * BLOCK_BYTES);
                at = to;
            }
        }
        job.note(state, found.next.unwrap_or(state.bytes()));
        if job.ends.get() || found.next.is_some() {
            return Ok(false);
        }
        self.end_detaching(state.view).await?;
        Ok(true)
    }

    async fn adopt_inherited(
        &self,
        state: &Arc<State>,
        blocks: std::ops::Range<u64>,
    ) -> Result<()> {
        let handles = &self.0.handles;
        let shard = shard_of(state.placement(), blocks.start, handles.len());
        let state = Arc::clone(state);
        let adopt = move |shard: Rc<Shard>| async move {
            let adopt = async move { shard.front.adopt_inherited(&state, blocks).await };
            let gone = || Err(Error::new(Kind::Gone, "the shard has stopped"));
            reactor::spawn_behind(adopt).await.unwrap_or_else(gone)
        };
        handles[shard].call(adopt).await
    }

    /// A clone has all that it inherits: it needs its parent no more, but for what snapshots of it saw before.
    async fn end_detaching(&self, view: View) -> Result<()> {
        // What it inherits is not lost with the log.
        self.each(|shard: Rc<Shard>| async move { shard.front.carry_log().await }).await?;
        let _turn = self.turn().await?;
        // What hosts have by now: it was given them anew where it was nearly rolled back.
        let Some(state) = self.state_of(view) else { return Ok(()) };
        let cut = |catalog: &Catalog| {
            let volume = catalog.get(view).filter(|of| of.detaching);
            let Some(volume) = volume else { return Ok((catalog.edit(vec![]), None)) };
            if catalog.needing(view) > 0 {
                let detached = Some(volume.epoch);
                let detached = Object { detaching: false, detached, ..volume.clone() };
                return Ok((catalog.edit(vec![Record::Put(detached)]), Some(vec![])));
            }
            let (records, loose) = Removal::of(catalog).cut(volume).end();
            Ok((catalog.edit(records), Some(loose)))
        };
        let Some(loose) = self.0.common.superblock.change_catalog(cut).await? else {
            return Ok(());
        };
        state.set_detached();
        // Whoever found that an ancestor has something still asks it.
        if !canary::skips(Step::DetachHeirs) {
            self.each(|shard: Rc<Shard>| async move {
                shard.front.settle_heirs().await;
                Ok(())
            })
            .await?;
        }
        self.forget_clones(&loose);
        self.0.common.used.note_change();
        Ok(())
    }
}
