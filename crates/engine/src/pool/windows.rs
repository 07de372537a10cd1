//! Direct write windows (`docs/anof.md`): granted to a host, ended before anything happens that its writes must not be in
//! the midst of, and found again when the pool is opened.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use media::{Access, Pmem};
use reactor::event::Event;
use reactor::sync::Held;
use window::{Bad, Identity, RING_BYTES_MAX, RING_BYTES_MIN, RING_STEP};

use super::Pool;
use super::quotas::is_under_quota;
use super::volumes::invalid;
use crate::address::View;
use crate::canary::{self, Canary};
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{Catalog, Object, Record};
use crate::shard::Shard;
use crate::shard::window::{Ring, RingCopy, STATE_BYTES, blocks_of, identity_of};
use crate::volume::CHUNK_BYTES;
use crate::volume::state::State;

/// A direct write window that was granted: what its host is to be given.
#[derive(Debug)]
pub struct GrantedWindow {
    pub number: u32,
    pub epoch: u64,
    /// Bytes of each ring.
    pub ring_bytes: u64,
    pub volume_bytes: u64,
    /// The volume's logical block, in bytes.
    pub block_bytes: u32,
    /// Bytes next to each other that go to one ring.
    pub chunk_bytes: u64,
    /// Which ring has the first of them.
    pub placement: u32,
    /// One for each shard, in order.
    pub rings: Vec<GrantedRing>,
}

/// One ring: its copies, one beside each device of the log, and the bell.
#[derive(Debug)]
pub struct GrantedRing {
    pub copies: Vec<RingCopy>,
    /// An eventfd; none in a simulation.
    pub bell: Option<OwnedFd>,
}

/// A window that was ended for what its host did, or found damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowEnd {
    /// The name of its volume.
    pub volume: String,
    /// What the host did that none may.
    pub bad: Option<Bad>,
    /// Writes that were complete are damaged, and lost.
    pub lost: bool,
}

/// A window that there is.
pub(super) struct Open {
    number: u32,
    /// Beside which its files are.
    devices: Vec<Arc<Pmem>>,
}

/// How long a turn is waited for before it is looked whether the pool was closed.
const TURN_LOOK: Duration = Duration::from_millis(50);

const NOT_MADE: &str = "a direct write window cannot be made beside the pool's log";

/// What names a window's files begin with.
const PREFIX: &str = ".window-";

fn prefix_of(view: View) -> String {
    format!("{PREFIX}{}-", view.get())
}

/// What is behind the name of a log's file in those of a ring.
pub(super) fn stem_of(view: u32, number: u32, shard: u32) -> String {
    format!("{PREFIX}{view}-{number:08x}-{shard}")
}

/// Which files a ring is made of, beside each device of the log: the state page, and the ring.
fn names(identity: &Identity) -> (String, String) {
    let Identity { view, number, shard, .. } = identity;
    let stem = stem_of(*view, *number, *shard);
    (format!("{stem}.state"), format!("{stem}.ring"))
}

fn create(
    identity: &Identity,
    devices: &[Arc<Pmem>],
) -> std::result::Result<Vec<RingCopy>, media::Error> {
    let (state, ring) = names(identity);
    let copy = |device: &Arc<Pmem>| {
        let state = Arc::new(device.create_beside(&state, STATE_BYTES)?);
        let ring = Arc::new(device.create_beside(&ring, identity.ring_bytes)?);
        Ok(RingCopy { state, ring })
    };
    devices.iter().map(copy).collect()
}

impl RingCopy {
    /// Descriptors for the host: the state page, to be read, and the ring, to be read and written.
    ///
    /// # Errors
    /// Those of opening the files.
    pub fn share(&self) -> Result<[OwnedFd; 2]> {
        Ok([self.state.share(Access::Read)?, self.ring.share(Access::ReadWrite)?])
    }
}

/// What there is of a ring beside the devices of the log.
#[derive(Debug)]
pub(super) enum Found {
    /// What it is, and its copies that are whole.
    Whole(Identity, Vec<RingCopy>),
    /// What it was: there is no copy that its host did not cut short.
    Cut(Identity),
}

/// What is there of a ring, beside these devices. None where nothing is.
pub(super) fn find(
    devices: &[Arc<Pmem>],
    pool: [u8; 16],
    (view, number, shard): (View, u32, u16),
) -> Option<Found> {
    let wanted =
        Identity { epoch: 0, ring_bytes: 0, pool, view: view.get(), shard: shard.into(), number };
    let (state, ring) = names(&wanted);
    let mut found: Option<Identity> = None;
    let mut copies = Vec::new();
    for device in devices {
        let Ok(state) = device.open_beside(&state, STATE_BYTES) else { continue };
        let Ok(Some(identity)) = identity_of(&state) else { continue };
        let is_it = Identity { epoch: 0, ring_bytes: 0, ..identity } == wanted
            && found.is_none_or(|found| found == identity);
        if !is_it {
            continue;
        }
        match device.open_beside(&ring, identity.ring_bytes) {
            Ok(ring) => copies.push(RingCopy { state: Arc::new(state), ring: Arc::new(ring) }),
            // Its host can do that, whatever is refused then is more than that host's.
            Err(error) if error.kind == media::Kind::OutOfRange => {}
            Err(_) => continue,
        }
        found = Some(identity);
    }
    found.map(|identity| match copies.is_empty() {
        true => Found::Cut(identity),
        false => Found::Whole(identity, copies),
    })
}

fn unsupported(what: &str) -> Error {
    Error::new(Kind::Unsupported, what)
}

/// The volumes of a catalog that have a window, and its number.
pub(super) fn windows_of(catalog: &Catalog) -> Vec<(View, u32)> {
    let with = catalog.objects().filter(|object| object.window != 0);
    with.map(|object| (object.view, object.window)).collect()
}

/// Whether a file beside the log, by what is behind the name of that, is one of a window: another pool's log may have a name
/// that begins like one.
fn is_of_window(suffix: &str) -> bool {
    let Some(rest) = suffix.strip_prefix(PREFIX) else { return false };
    let stem = rest.strip_suffix(".state").or_else(|| rest.strip_suffix(".ring"));
    let parts: Vec<_> = stem.into_iter().flat_map(|stem| stem.split('-')).collect();
    let is =
        |part: &str, radix| !part.is_empty() && part.chars().all(|digit| digit.is_digit(radix));
    matches!(parts[..], [view, number, shard] if is(view, 10) && number.len() == 8 && is(number, 16) && is(shard, 10))
}

/// Takes files of windows away whose names begin so, but for those that begin as one of `keep`. What is left is taken away at
/// the next opening.
async fn remove_files(devices: Vec<Arc<Pmem>>, prefix: String, keep: Vec<String>) {
    let remove = move || {
        let is_kept = |suffix: &str| keep.iter().any(|prefix| suffix.starts_with(prefix));
        for device in devices {
            let keep = |suffix: &str| !is_of_window(suffix) || is_kept(suffix);
            let _ = device.remove_beside(&prefix, keep);
        }
        Ok(())
    };
    // Elsewhere: nobody waits for that here.
    let _ = if reactor::is_simulated() { remove() } else { reactor::blocking(remove).await };
}

/// Has a shard serve a ring; the bell has its task look.
fn serve(shard: &Rc<Shard>, ring: Ring, bell: Option<Event>) -> Rc<Ring> {
    let ring = Rc::new(ring);
    let (serving, of) = (Rc::clone(shard), Rc::clone(&ring));
    let mut tasks = vec![reactor::spawn(async move { serving.front.serve_window(&of).await })];
    if let Some(bell) = bell {
        let of = Rc::clone(&ring);
        tasks.push(reactor::spawn(async move {
            while bell.wait().await.is_ok() {
                of.ring_bell();
                // Its host may ring without end.
                reactor::yield_now().await;
            }
        }));
    }
    shard.front.windows.add(Rc::clone(&ring), tasks);
    ring
}

/// An edit that says which window a volume has.
fn edit(catalog: &Catalog, view: View, window: u32) -> Result<crate::format::catalog::Edit> {
    let none = || Error::new(Kind::NotFound, "the volume was deleted");
    let volume = Object { window, ..catalog.get(view).ok_or_else(none)?.clone() };
    Ok(catalog.edit(vec![Record::Put(volume)]))
}

impl Pool {
    fn state_with_id(&self, id: [u8; 16]) -> Result<Arc<State>> {
        let volumes = self.0.volumes.borrow();
        let found = volumes.values().find(|state| state.id == id).cloned();
        found.ok_or_else(|| Error::new(Kind::NotFound, "the pool has no such volume"))
    }

    /// Grants a direct write window of the volume with this identity, with rings of so many bytes each; one that it has
    /// is ended first. `epoch` and `number`, which is not 0, are drawn at random, each for itself.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for rings of another size; `Unsupported` where no window can be had: the log is not on files in
    /// memory, or the volume is under a quota; `Busy` while the log's devices change; `Full` when there is no space to set aside;
    /// `Failed` when too many drives, or the log, failed.
    pub async fn grant_window(
        &self,
        volume: [u8; 16],
        ring_bytes: u64,
        epoch: u64,
        number: NonZeroU32,
    ) -> Result<GrantedWindow> {
        if !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes)
            || !ring_bytes.is_multiple_of(RING_STEP)
        {
            return Err(invalid(format!(
                "a ring has a multiple of {RING_STEP} bytes, {RING_BYTES_MIN} to {RING_BYTES_MAX}"
            )));
        }
        // To its end, also where nobody waits for it any more.
        let pool = self.clone();
        let granting = reactor::spawn(async move {
            let _turn = pool.turn().await?;
            // No device of the log comes or goes meanwhile.
            let Some(_log) = pool.0.moving.try_hold(1) else {
                return Err(Error::new(Kind::Busy, "the log's devices are being changed"));
            };
            let state = pool.state_with_id(volume)?;
            pool.end_windows(&[state.view]).await?;
            pool.grant(&state, ring_bytes, (epoch, number.get())).await
        });
        granting.await.unwrap_or_else(|| Err(Error::new(Kind::Gone, "the reactor has stopped")))
    }

    async fn grant(
        &self,
        state: &Arc<State>,
        ring_bytes: u64,
        (epoch, number): (u64, u32),
    ) -> Result<GrantedWindow> {
        let common = &self.0.common;
        let view = state.view;
        if common.superblock.catalog(|catalog| is_under_quota(catalog, view)) {
            let what = "a volume with a quota, or in a group with one, has no direct write windows";
            return Err(unsupported(what));
        }
        let pool = common.superblock.label().pool;
        let devices = self.memory_of_log().await?;
        if devices.len() > window::COPIES_MAX {
            // Before one has gone to others as a whole it is on both: no host takes so many.
            return Err(Error::new(Kind::Busy, "the log is being moved to other devices"));
        }
        let before = self.0.windows.borrow_mut().insert(view, Open { number, devices });
        assert!(before.is_none(), "a volume has one window");
        let (of, identity) = (
            Arc::clone(state),
            Identity { epoch, ring_bytes, pool, view: view.get(), shard: 0, number },
        );
        let begin = move |shard: Rc<Shard>| {
            let of = Arc::clone(&of);
            let identity = Identity { shard: shard.base.writer.shard().into(), ..identity };
            async move { shard.begin_window(of, identity).await }
        };
        // Before its host can store anything, hosts' requests look, and the catalog says that it is part of the log: once its
        // rings are there to be found, or a kill in between would leave a pool that does not open.
        state.set_window(true);
        let begun = match self.each(begin).await {
            Ok(rings) => {
                let mark = |catalog: &Catalog| Ok((edit(catalog, view, number)?, ()));
                common.superblock.change_catalog(mark).await.map(|()| rings)
            }
            Err(error) => Err(error),
        };
        match begun {
            Ok(rings) => Ok(GrantedWindow {
                number,
                epoch,
                ring_bytes,
                volume_bytes: state.bytes(),
                block_bytes: state.block_size,
                chunk_bytes: CHUNK_BYTES,
                placement: state.placement(),
                rings,
            }),
            Err(error) => {
                // That it cannot be ended is told when that is tried again.
                let _ = self.end_windows(&[view]).await;
                Err(error)
            }
        }
    }

    /// Ends the window of the volume with this identity, if it has one, with this number if one is named. What its host was told
    /// is complete is in the log when this returns.
    ///
    /// # Errors
    /// `Failed` when too many drives, or the log, failed.
    pub async fn end_window(&self, volume: [u8; 16], number: Option<u32>) -> Result<()> {
        let pool = self.clone();
        let ending = reactor::spawn(async move {
            let _turn = pool.turn().await?;
            let Ok(state) = pool.state_with_id(volume) else { return Ok(()) };
            let has = pool.0.windows.borrow().get(&state.view).map(|open| open.number);
            if number.is_some() && number != has {
                return Ok(());
            }
            pool.end_windows(&[state.view]).await
        });
        ending.await.unwrap_or_else(|| Err(Error::new(Kind::Gone, "the reactor has stopped")))
    }

    /// Ends the windows of these views, those that have one. Within a [turn](Self::turn).
    ///
    /// # Errors
    /// `Failed` when the log, or too many drives, failed: what is there waits for the next opening.
    pub(super) async fn end_windows(&self, views: &[View]) -> Result<()> {
        let has = |view: &&View| self.0.windows.borrow().contains_key(*view);
        let open: Vec<View> = views.iter().filter(has).copied().collect();
        for view in open {
            let end = move |shard: Rc<Shard>| async move { Ok(shard.front.end_window(view).await) };
            let ended = self.each(end).await?;
            // Also of one shard, where another's cannot be ended.
            let told = || ended.iter().flatten();
            let (bad, lost) = (told().find_map(|(_, bad)| *bad), told().any(|(lost, _)| *lost));
            if bad.is_some() || lost {
                self.note_window_end(view, bad, lost);
            }
            ended.into_iter().collect::<Result<Vec<_>>>()?;
            self.forget_window(view).await?;
        }
        Ok(())
    }

    /// Ends the windows of these volumes, those that there are and that have one. Within a [turn](Self::turn).
    ///
    /// # Errors
    /// As [`end_windows`](Self::end_windows).
    pub(super) async fn end_windows_of(&self, names: &[&str]) -> Result<()> {
        self.assert_turn();
        let views: Vec<View> = self.0.common.superblock.catalog(|catalog| {
            names.iter().filter_map(|name| catalog.find(name)).map(|of| of.view).collect()
        });
        self.end_windows(&views).await
    }

    /// Ends the windows of all volumes. Within a [turn](Self::turn), or when there are no more.
    ///
    /// # Errors
    /// As [`end_windows`](Self::end_windows).
    pub(super) async fn end_all_windows(&self) -> Result<()> {
        let views: Vec<View> = self.0.windows.borrow().keys().copied().collect();
        self.end_windows(&views).await
    }

    /// Leave to change which devices have the log. No volume has a window then: another device would lack what is there.
    ///
    /// # Errors
    /// `Gone` when the pool was closed; `Failed` when windows cannot be ended.
    pub(super) async fn hold_log(&self) -> Result<Held<'_>> {
        loop {
            // Only then: whoever changes volumes may have to wait for a device.
            let turn = if self.open_windows() > 0 {
                match reactor::timeout(TURN_LOOK, self.turn()).await {
                    Ok(turn) => Some(turn?),
                    // Whoever closes the pool has it, and may wait for this one.
                    Err(_) => {
                        self.check_open()?;
                        continue;
                    }
                }
            } else {
                None
            };
            let log = self.0.moving.hold(1).await;
            if turn.is_some() {
                self.end_all_windows().await?;
            } else if self.open_windows() > 0 {
                continue;
            }
            return Ok(log);
        }
    }

    /// What it held is in the log: it is not part of that any more.
    async fn forget_window(&self, view: View) -> Result<()> {
        if canary::has(Canary::ReleasesWindowEarly) {
            let open = self.0.windows.borrow().get(&view).map(|open| open.devices.clone());
            remove_files(open.unwrap_or_default(), prefix_of(view), Vec::new()).await;
        }
        let unmark = |catalog: &Catalog| Ok((edit(catalog, view, 0)?, ()));
        self.0.common.superblock.change_catalog(unmark).await?;
        let open = self.0.windows.borrow_mut().remove(&view);
        if let Some(state) = self.state_of(view) {
            state.set_window(false);
        }
        let devices = open.map_or_else(Vec::new, |open| open.devices);
        remove_files(devices, prefix_of(view), Vec::new()).await;
        Ok(())
    }

    /// The devices of memory that the log is on.
    async fn memory_of_log(&self) -> Result<Vec<Arc<Pmem>>> {
        let all = self.each(|shard: Rc<Shard>| async move { Ok(shard.base.log.memory()) }).await?;
        Ok(all.into_iter().next().unwrap_or_default())
    }

    fn note_window_end(&self, view: View, bad: Option<Bad>, lost: bool) {
        let volume = self.0.common.superblock.catalog(|catalog| {
            catalog.get(view).map_or_else(String::new, |of| of.name.to_string())
        });
        self.0.window_ends.borrow_mut().push(WindowEnd { volume, bad, lost });
    }

    /// Windows that were ended for what their hosts did, or found damaged, since this was last asked.
    #[must_use]
    pub fn take_window_ends(&self) -> Vec<WindowEnd> {
        self.0.window_ends.take()
    }

    /// Ends the windows of hosts that did what none may, and those that could not be ended when they were to be.
    ///
    /// # Errors
    /// As [`end_window`](Self::end_window).
    pub async fn end_bad_windows(&self) -> Result<()> {
        if self.bad_windows().await?.is_empty() {
            return Ok(());
        }
        let _turn = self.turn().await?;
        // Others may have come in their places meanwhile.
        let bad = self.bad_windows().await?;
        self.end_windows(&bad).await
    }

    async fn bad_windows(&self) -> Result<Vec<View>> {
        let bad = |shard: Rc<Shard>| async move { Ok(shard.front.windows.to_end()) };
        let bad: BTreeSet<View> = self.each(bad).await?.into_iter().flatten().collect();
        Ok(bad.into_iter().collect())
    }

    /// How many volumes have a window.
    #[must_use]
    pub fn open_windows(&self) -> usize {
        self.0.windows.borrow().len()
    }

    /// Ends what windows there were when the pool was closed by a crash: what hosts were told is complete is in the log
    /// when this returns, or, where there is no room now, before anything else is done with the volume. Without what is not
    /// there only if `accept_loss`.
    pub(super) async fn recover_windows(&self, accept_loss: bool) -> Result<()> {
        let open = self.0.common.superblock.catalog(windows_of);
        for (view, number) in open {
            let devices = self.memory_of_log().await?;
            self.0.windows.borrow_mut().insert(view, Open { number, devices });
            if let Some(state) = self.state_of(view) {
                state.set_window(true);
                let reopen = move |shard: Rc<Shard>| {
                    let state = Arc::clone(&state);
                    async move { shard.reopen_window(state, number) }
                };
                let found = self.each(reopen).await?;
                let forgets = canary::has(Canary::ForgetsWindow);
                if found.contains(&false) && !accept_loss && !forgets {
                    // It was there a moment ago.
                    let what = "a direct write window cannot be read any more: open the pool again";
                    return Err(Error::new(Kind::Loss, what));
                }
                if found.contains(&false) {
                    // Of this volume alone, whatever the log has.
                    self.note_window_end(view, None, true);
                }
            }
            match self.end_windows(&[view]).await {
                // [Later](Self::end_bad_windows): an opening needs no space.
                Err(error) if error.may_pass() && !canary::has(Canary::OpeningNeedsSpace) => {}
                ended => ended?,
            }
        }
        let kept = self.0.windows.borrow().keys().copied().map(prefix_of).collect();
        remove_files(self.memory_of_log().await?, PREFIX.to_owned(), kept).await;
        Ok(())
    }
}

impl Shard {
    /// Makes a ring, which its host may use as soon as it has it.
    async fn begin_window(
        self: Rc<Self>,
        volume: Arc<State>,
        identity: Identity,
    ) -> Result<GrantedRing> {
        let devices = self.base.log.memory();
        if devices.is_empty() {
            return Err(unsupported(
                "the pool's log is not on memory: it has no direct write windows",
            ));
        }
        let full = || Error::new(Kind::Full, "the pool has no space to set aside for a window");
        let promise = self
            .capacity
            .promise(blocks_of(identity.ring_bytes, volume.block_size))
            .ok_or_else(full)?;
        // Files are made elsewhere: nobody waits for that here.
        let make = move || Ok(create(&identity, &devices));
        let passes = |error| Error::caused(Kind::Busy, NOT_MADE, error);
        let (made, bell) = match reactor::is_simulated() {
            true => (make(), None),
            false => (reactor::blocking(make).await, Some(Event::new().map_err(passes)?)),
        };
        let copies = made.map_err(passes)?.map_err(|error| {
            let never = error.kind == media::Kind::Unsupported;
            Error::caused(if never { Kind::Unsupported } else { Kind::Busy }, NOT_MADE, error)
        })?;
        let fd = bell.as_ref().map(Event::to_fd).transpose().map_err(passes)?;
        let ring = Ring::create(volume, identity, copies.clone(), promise)?;
        serve(&self, ring, bell);
        Ok(GrantedRing { copies, bell: fd })
    }

    /// Has a ring that was found be taken; false where it is not there.
    fn reopen_window(self: Rc<Self>, volume: Arc<State>, number: u32) -> Result<bool> {
        let (pool, shard) = (self.base.common.superblock.label().pool, self.base.writer.shard());
        let (devices, of) = (self.base.log.memory(), (volume.view, number, shard));
        let mut found = find(&devices, pool, of);
        let was_cut = match found {
            Some(Found::Cut(identity)) => {
                for device in &devices {
                    // One that cannot be is not found again.
                    let _ = device.fill_up_beside(&names(&identity).1, identity.ring_bytes);
                }
                found = find(&devices, pool, of);
                true
            }
            _ => false,
        };
        let Some(Found::Whole(identity, copies)) = found else { return Ok(false) };
        let promise =
            self.capacity.promise_anyway(blocks_of(identity.ring_bytes, volume.block_size));
        let ring = Ring::reopen(volume, identity, copies, promise)?;
        if was_cut {
            ring.note_lost();
        }
        serve(&self, ring, None);
        Ok(true)
    }
}
