//! A pool that is open, as seen from outside of its reactor.

mod leaving;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use api::v1::{Kind, LogPolicy};
use api::value::{LogPlace, Name};
use engine::format::label::{Label, StaysOut};
use engine::{Discards, OpenOptions, Pool, PoolSpec, PoolStatus, WindowEnd};
use reactor::{Call, Handle};
use uuid::Uuid;

use super::held::Volumes;
use super::made_of::{self, MadeOf, Member, Progress, seen};
use super::{RejoinPace, blank, told};
use crate::lock::{Lock, is_at};
use crate::{Error, Result};
use leaving::{Leaving, is_at_rest};

/// Space is looked for when hosts have had a while to give back more, and what a drive is told of in a
/// second is what it is little slowed by.
const DISCARDS: Discards = Discards { after: Duration::from_secs(5), bytes_per_second: 1 << 30 };

thread_local! {
    /// The pools of this reactor.
    static HELD: RefCell<BTreeMap<Uuid, Pool>> = const { RefCell::new(BTreeMap::new()) };
}

/// A log that was not moved, and whether it is where it was for sure.
pub struct NotMoved {
    pub error: Error,
    pub is_sure: bool,
}

/// What a pool to make is to be, beside what it is made of.
pub struct Asked {
    pub name: String,
    pub id: Uuid,
    pub scheme: raid::Scheme,
    pub log_bytes: Option<u64>,
    /// As many as suit, if nobody says.
    pub shards: Option<u16>,
}

/// An open pool. To be closed by [`OpenPool::close`]. Whoever asks something of it waits for its reactor: the
/// owner of the node does not.
#[derive(Debug)]
pub struct OpenPool {
    name: Name,
    id: Uuid,
    home: Handle,
    /// By index; `None` for a drive that is missing.
    paths: Mutex<Vec<Option<PathBuf>>>,
    places: Mutex<Vec<LogPlace>>,
    volumes: Volumes,
    log_lost: bool,
    log_rebuilt: bool,
    term: u64,
    log_id: Uuid,
    /// Until it is closed.
    locks: Mutex<Vec<Arc<Lock>>>,
    /// Every drive that it was given: what one was asked to do may outlive the pool.
    media: Mutex<Vec<Member>>,
    /// Where drives were whose places others have, or nothing has, and that may still be written to.
    leaving: Mutex<Vec<Leaving>>,
    /// Direct write windows of which it was found out when it was closed what is to be told.
    ends: Mutex<Vec<WindowEnd>>,
}

fn stopped<E>(_: E) -> Error {
    Error::new(Kind::Stopping, "the pool's reactor has stopped")
}

/// What a pool's reactor says once it is open there.
struct Opened {
    name: String,
    id: [u8; 16],
    volumes: Volumes,
    log_lost: bool,
    log_rebuilt: bool,
    term: u64,
    log_id: Uuid,
}

async fn hold(pool: Pool) -> engine::Result<Opened> {
    let status = pool.status().await?;
    let volumes = Volumes::of(&pool)?;
    let (log_lost, log_rebuilt) = (pool.has_lost_log(), pool.has_new_log());
    HELD.with_borrow_mut(|held| held.insert(Uuid::from_bytes(status.id), pool));
    let (name, id, term) = (status.name, status.id, status.log.durable_term);
    let log_id = Uuid::from_bytes(status.log.id);
    Ok(Opened { name, id, volumes, log_lost, log_rebuilt, term, log_id })
}

/// The pool of this reactor that has a volume, by the volume's identity.
pub fn pool_here(volume: [u8; 16]) -> Option<(Uuid, Pool)> {
    let is_it = |pool: &Pool, name: &String| pool.volume(name).is_ok_and(|of| of.id() == volume);
    let has_it = |pool: &Pool| pool.volumes().iter().any(|name| is_it(pool, name));
    HELD.with_borrow(|held| {
        let found = held.iter().find(|(_, pool)| has_it(pool));
        found.map(|(id, pool)| (*id, pool.clone()))
    })
}

fn name_of(text: &str) -> Result<Name> {
    text.parse().map_err(Error::from)
}

impl OpenPool {
    /// Makes a pool. What its drives and its log hold is lost.
    ///
    /// # Errors
    /// `Invalid`, `Failed`.
    pub fn create(on: Vec<Handle>, made_of: MadeOf, asked: Asked) -> Result<Self> {
        let home = home(&on)?;
        let media = made_of.drives.clone();
        let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let spec = PoolSpec {
            name: asked.name.clone(),
            id: *asked.id.as_bytes(),
            drives: made_of.drives.iter().map(|member| Arc::clone(&member.drive)).collect(),
            scheme: asked.scheme,
            log: made_of.log,
            log_bytes: asked.log_bytes,
            shards: asked.shards,
            au_bytes: None,
            created: created.map_or(0, |since| since.as_secs()),
        };
        let call = home.call(move || async move { hold(Pool::create(spec, &on).await?).await });
        let context = format!("pool {} cannot be made", asked.name);
        let opened = call.wait().map_err(stopped)?.map_err(|error| told(&context, &error))?;
        let paths = made_of.drives.into_iter().map(|member| Some(member.path)).collect();
        Self::assemble(home, opened, paths, media, (made_of.places, made_of.locks))
    }

    /// Opens the pool that drives make.
    ///
    /// # Errors
    /// As the engine says: missing or stale drives, damage.
    pub fn open(on: Vec<Handle>, made_of: MadeOf, options: OpenOptions) -> Result<Self> {
        let home = home(&on)?;
        let MadeOf { mut drives, log, places, locks, .. } = made_of;
        let labels = given_labels(&home, &mut drives, options.degraded)?;
        let known = drives.iter().zip(&labels);
        let index = |label: &Label| usize::from(label.drive);
        let count = labels.iter().flatten().map(|label| label.drives.len()).max().unwrap_or(0);
        let newest = labels.iter().flatten().max_by_key(|label| label.epoch);
        // What another has replaced is nowhere of the pool: the other one is looked for where it was.
        let is_its = |label: &&Label| newest.is_some_and(|newest| newest.has_drive_of(label));
        let mut paths = vec![None; count];
        for (member, label) in known {
            let label = label.as_ref().filter(is_its);
            if let Some(place) = label.and_then(|label| paths.get_mut(index(label))) {
                *place = Some(member.path.clone());
            }
        }
        let given = given(&drives, &labels);
        let media = drives.clone();
        let drives: Vec<_> = drives.into_iter().map(|member: Member| member.drive).collect();
        let call = home
            .call(move || async move { hold(Pool::open(drives, log, options, &on).await?).await });
        let opened = call
            .wait()
            .map_err(stopped)?
            .map_err(|error| told("", &error).help(help(error.kind, &given)))?;
        Self::assemble(home, opened, paths, media, (places, locks))
    }

    fn assemble(
        home: Handle,
        opened: Opened,
        paths: Vec<Option<PathBuf>>,
        media: Vec<Member>,
        (places, locks): (Vec<LogPlace>, Vec<Arc<Lock>>),
    ) -> Result<Self> {
        Ok(Self {
            name: name_of(&opened.name)?,
            id: Uuid::from_bytes(opened.id),
            home,
            paths: Mutex::new(paths),
            places: Mutex::new(places),
            volumes: opened.volumes,
            log_lost: opened.log_lost,
            log_rebuilt: opened.log_rebuilt,
            term: opened.term,
            log_id: opened.log_id,
            locks: Mutex::new(locks),
            media: Mutex::new(media),
            leaving: Mutex::default(),
            ends: Mutex::default(),
        })
    }

    /// Its name.
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// Whether it was opened without its commit log, which was lost.
    pub const fn has_lost_log(&self) -> bool {
        self.log_lost
    }

    /// Whether its log was made anew when it was opened, with nothing lost.
    pub const fn has_new_log(&self) -> bool {
        self.log_rebuilt
    }

    /// The term of its labels when it was opened.
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// The name of its log, which is the same as long as it is open.
    pub const fn log_id(&self) -> Uuid {
        self.log_id
    }

    /// What identifies it for ever.
    pub const fn id(&self) -> Uuid {
        self.id
    }

    /// The reactor it is managed on; its shards may be on others, too.
    pub const fn home(&self) -> &Handle {
        &self.home
    }

    /// Its drives by index; `None` for one that is missing.
    pub fn paths(&self) -> Vec<Option<PathBuf>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What holds this path, if the pool has it.
    pub fn own_lock(&self, path: &Path) -> Option<Arc<Lock>> {
        let locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.iter().find(|own| is_at(own, path)).cloned()
    }

    /// Takes a drive back that was away, to be made whole; which one it is.
    ///
    /// # Errors
    /// As the engine says why it cannot be.
    pub fn rejoin(&self, member: Member) -> Result<u16> {
        let drive = Arc::clone(&member.drive);
        let mut media = self.media();
        // Those that were refused before are nobody's any more.
        media.retain_mut(|member| !is_at_rest(member));
        media.push(member);
        drop(media);
        self.call(|pool| async move { pool.rejoin(drive).await })
    }

    /// Takes a drive out of use until an operator wants it back.
    ///
    /// # Errors
    /// As the engine says why it cannot be.
    pub fn fail_drive(&self, index: u16) -> Result<()> {
        self.call(move |pool| async move { pool.fail_drive(index).await })
    }

    /// A drive that is out is not taken back before an operator wants it.
    ///
    /// # Errors
    /// As the engine says.
    pub fn keep_out(&self, index: u16, why: StaysOut) -> Result<()> {
        self.call(move |pool| async move { pool.keep_out(index, why).await })
    }

    /// A drive that was kept out may be taken back.
    ///
    /// # Errors
    /// As the engine says.
    pub fn let_return(&self, index: u16) -> Result<()> {
        self.call(move |pool| async move { pool.let_return(index).await })
    }

    /// Puts another drive in a place, to be made whole there.
    ///
    /// # Errors
    /// As the engine says why it cannot be.
    pub fn replace_drive(&self, index: u16, member: Member) -> Result<()> {
        let drive = Arc::clone(&member.drive);
        self.media().push(member);
        let id = *Uuid::new_v4().as_bytes();
        self.call(move |pool| async move { pool.replace_drive(index, drive, id).await })
    }

    /// Has one drive more; its index.
    ///
    /// # Errors
    /// As the engine says why it cannot be.
    pub fn add_drive(&self, member: Member) -> Result<u16> {
        let drive = Arc::clone(&member.drive);
        self.media().push(member);
        let id = *Uuid::new_v4().as_bytes();
        self.call(move |pool| async move { pool.add_drive(drive, id).await })
    }

    /// Begins to move what drives had that are gone onto the others.
    ///
    /// # Errors
    /// As the engine says why it cannot be.
    pub fn rebuild(&self, limit: u64) -> Result<()> {
        self.call(move |pool| async move { pool.rebuild(limit).await })
    }

    /// Begins to move what a drive has onto the others.
    ///
    /// # Errors
    /// As the engine says why it cannot be.
    pub fn evacuate(&self, index: u16, limit: u64) -> Result<()> {
        self.call(move |pool| async move { pool.evacuate(index, limit).await })
    }

    /// How fast drives are made whole from now on.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn throttle_rejoins(&self, pace: RejoinPace) -> Result<()> {
        self.call(move |pool| async move {
            pool.throttle_rejoins(pace.limit, pace.paused);
            Ok(())
        })
    }

    /// How many bytes are moved in a second at most; 0 for as many as there is time for.
    ///
    /// # Errors
    /// `NotFound` when none are.
    pub fn limit_rebuild(&self, limit: u64) -> Result<()> {
        self.call(move |pool| async move { pool.limit_rebuild(limit) })
    }

    /// What was not moved so far stays where it is.
    ///
    /// # Errors
    /// `NotFound` when nothing is moved.
    pub fn cancel_rebuild(&self) -> Result<()> {
        self.call(|pool| async move { pool.cancel_rebuild().await })
    }

    /// Begins to check what the drives hold, and to put right what is damaged, from where an earlier scrub was left.
    ///
    /// # Errors
    /// As the engine says why it cannot be.
    pub fn scrub(&self, from: engine::ScrubPosition, limit: u64) -> Result<()> {
        self.call(move |pool| async move { pool.scrub(&from, limit).await })
    }

    /// How many bytes are checked in a second at most; 0 for as many as there is time for.
    ///
    /// # Errors
    /// `NotFound` when none are.
    pub fn limit_scrub(&self, limit: u64) -> Result<()> {
        self.call(move |pool| async move { pool.limit_scrub(limit) })
    }

    /// Has the scrub end where it is, and waits for that.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn end_scrub(&self) -> Result<()> {
        self.call(|pool| async move {
            pool.end_scrub().await;
            Ok(())
        })
    }

    /// How it is doing, some time from now.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn status_in(&self, pause: Duration) -> Result<PoolStatus> {
        self.call(move |pool| async move {
            reactor::sleep(pause).await;
            pool.status().await
        })
    }

    /// What holds its files and devices.
    pub fn locks(&self) -> Vec<Arc<Lock>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Nothing is in a drive's place any more that was at this path; another one may be there by now.
    pub fn leaves(&self, index: usize, at: &Path) {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = paths.get_mut(index).filter(|path| path.as_deref() == Some(at)) {
            *path = None;
        }
    }

    /// Where its log lies.
    pub fn places(&self) -> Vec<LogPlace> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What becomes of writes while its log has fewer devices than it is to have.
    ///
    /// # Errors
    /// `Invalid` for a log that waits for none, `Failed`.
    pub fn set_log_policy(&self, policy: LogPolicy) -> Result<()> {
        let waits = policy == LogPolicy::Wait;
        self.call(move |pool| async move { pool.have_log_wait(waits).await })
    }

    /// Moves its log while it is written.
    ///
    /// # Errors
    /// `Invalid` for what cannot have the log, `Conflict` for what is in use, `Failed`.
    pub fn move_log(&self, to: &[LogPlace], node: Uuid) -> std::result::Result<(), NotMoved> {
        let sure = |error| NotMoved { error, is_sure: true };
        let before = self.status().map_err(sure)?.log;
        let (log, locks, made) =
            made_of::open_new_log(to, node, before.device_bytes).map_err(sure)?;
        blank::check_new_places(&self.home, &log, to).map_err(sure)?;
        if let Err(error) = self.call(|pool| async move { pool.move_log(log).await }) {
            // What was written to the labels, and did not reach all of them, has another term.
            let is_sure = self.status().is_ok_and(|after| after.log.term == before.term);
            if !is_sure {
                made.keep();
            }
            return Err(NotMoved { error, is_sure });
        }
        made.keep();
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |lock: &Arc<Lock>| {
            places.iter().filter_map(LogPlace::path).any(|path| is_at(lock, path))
        };
        held.retain(|lock| !is_old(lock));
        held.extend(locks);
        *places = to.to_vec();
        Ok(())
    }

    fn media(&self) -> MutexGuard<'_, Vec<Member>> {
        self.media.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it is doing, once drives are out of use that take no writes.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn tried(&self) -> Result<PoolStatus> {
        self.call(|pool| async move {
            // Whether they are too few, the drives' states say.
            let _ = pool.try_drives().await;
            pool.status().await
        })
    }

    /// Its drives, to be had in use by somebody else.
    #[cfg(test)]
    pub fn use_drives(&self) -> Vec<Member> {
        self.media().clone()
    }

    /// Ends it as the end of the process would: what was acknowledged is in its log, and nothing says that it was
    /// closed. It is to be [let go of](Self::let_go) then.
    pub fn abandon(&self) {
        let id = self.id;
        // A reactor that has stopped has nothing of it left.
        let _ = self.call(move |pool| async move {
            HELD.with_borrow_mut(|all| all.remove(&id));
            pool.abandon().await;
            Ok(())
        });
    }

    /// Lets go of what it is made of, once it was abandoned and nothing can come any more of what its drives were
    /// asked to do; whether it did.
    pub fn let_go(&self) -> bool {
        let mut media = self.media();
        if !media.iter_mut().all(is_at_rest) {
            return false;
        }
        media.clear();
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).clear();
        true
    }

    /// Its volumes and their snapshots.
    pub(super) const fn held(&self) -> &Volumes {
        &self.volumes
    }

    /// Runs `work` on the pool's reactor.
    pub(super) fn call<T, F>(&self, work: impl FnOnce(Pool) -> F + Send + 'static) -> Result<T>
    where
        F: Future<Output = engine::Result<T>> + 'static,
        T: Send + 'static,
    {
        let id = self.id;
        let call = self.home.call(move || async move {
            match HELD.with_borrow(|held| held.get(&id).cloned()) {
                Some(pool) => work(pool).await,
                None => Err(engine::Error::new(engine::Kind::Gone, "the pool was closed")),
            }
        });
        call.wait().map_err(stopped)?.map_err(|error| told("", &error))
    }

    /// An error with the pool's name: the engine's errors say what volumes are called in it.
    pub(super) fn named(&self, mut error: Error) -> Error {
        error.context = format!("pool {}: {}", self.name(), error.context);
        error
    }

    /// How it is doing.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn status(&self) -> Result<PoolStatus> {
        self.call(|pool| async move { pool.status().await })
    }

    /// Has it tell its drives of the space that becomes free.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn discard(&self) -> Result<()> {
        self.call(|pool| async move { pool.discard(DISCARDS).await })
    }

    /// How it is doing, awaited in place of waited for; after it has found out what it really holds, if
    /// `settle`. `None` when it was closed meanwhile.
    pub fn look(&self, settle: bool) -> Call<Option<PoolStatus>> {
        let id = self.id;
        self.home.call(move || async move {
            let pool = HELD.with_borrow(|held| held.get(&id).cloned())?;
            let here = pool.clone();
            // It may wait for a drive that hangs.
            reactor::spawn(async move {
                if let Err(error) = here.look_at_drives().await {
                    tracing::warn!(
                        "pool {id} cannot put right what is wrong with its drives: {error}"
                    );
                }
                // What has no room now is tried again.
                if let Err(error) = here.end_bad_windows().await
                    && !error.may_pass()
                {
                    tracing::warn!("pool {id} cannot end a direct write window: {error}");
                }
            });
            if settle && let Err(error) = pool.settle_space().await {
                tracing::warn!("pool {id} cannot find out how much it holds: {error}");
            }
            pool.status().await.ok()
        })
    }

    /// The direct write windows that were ended for what their hosts did, or found damaged, since this was last asked.
    pub fn window_ends(&self) -> Call<Vec<WindowEnd>> {
        let id = self.id;
        self.home.call(move || async move {
            let pool = HELD.with_borrow(|held| held.get(&id).cloned());
            pool.map_or_else(Vec::new, |pool| pool.take_window_ends())
        })
    }

    /// The same, as of when it was closed.
    pub fn ends_at_close(&self) -> Vec<WindowEnd> {
        std::mem::take(&mut *self.ends.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Closes it to be moved to another node.
    ///
    /// # Errors
    /// `Failed`: it is closed all the same, and not marked as exported.
    pub fn export(&self) -> Result<()> {
        self.shut(true)
    }

    /// Closes it.
    pub fn close(&self) {
        let name = self.name.clone();
        if let Err(error) = self.shut(false) {
            tracing::error!("pool {name} was not closed in order: {error}");
        }
    }

    fn shut(&self, export: bool) -> Result<()> {
        let id = self.id;
        let shut = self.call(move |pool| async move {
            HELD.with_borrow_mut(|all| all.remove(&id));
            let after = pool.clone();
            let shut = if export { pool.export().await } else { pool.close().await };
            Ok((shut, after.take_window_ends()))
        });
        let shut = shut.and_then(|(shut, ends)| {
            *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = ends;
            shut.map_err(|error| told("", &error))
        });
        // Others may have it, though somebody may still hold on to this.
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).clear();
        shut
    }
}

/// The reactor that manages a pool of these.
fn home(on: &[Handle]) -> Result<Handle> {
    on.first().cloned().ok_or_else(|| Error::new(Kind::Stopping, "the reactors have stopped"))
}

/// What the labels of these drives say. One that does not answer, or is otherwise at fault, is left out of a pool that
/// may be opened without it: what it says counts for nothing.
///
/// # Errors
/// `Failed` with its name otherwise.
fn given_labels(
    home: &Handle,
    drives: &mut Vec<Member>,
    degraded: bool,
) -> Result<Vec<Option<Label>>> {
    let seen = seen(home, drives, |_| true, &Progress::default())?;
    let (mut left, mut known, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for (member, label) in std::mem::take(drives).into_iter().zip(seen) {
        match label {
            Err(unknown) if unknown.is_faulty() => {
                faults.push(format!("{} {unknown}", member.path.display()));
            }
            label => {
                left.push(member);
                known.push(label.ok());
            }
        }
    }
    if !faults.is_empty() && (!degraded || left.is_empty()) {
        return Err(Error::new(Kind::Failed, faults.join("; ")).help(
            "put that right, or open the pool without it, if its redundancy bears that: \
             `flashloom pool import --degraded`",
        ));
    }
    *drives = left;
    Ok(known)
}

/// What to do about a pool that does not open.
fn help(why: engine::Kind, given: &str) -> String {
    match why {
        engine::Kind::Loss => {
            "give the log's newest devices, not copies of them, or open the pool without what is lost: \
                               `flashloom pool import --accept-loss` with its drives and log; \
                               `flashloom pool dump` tells more"
                .to_owned()
        }
        _ => format!("drives given: {given}"),
    }
}

/// The paths of drives as they were given, with the numbers that the pool has for them, for people.
fn given(drives: &[Member], labels: &[Option<Label>]) -> String {
    let given = drives.iter().zip(labels).enumerate();
    let named = given.map(|(n, (member, label))| match label {
        Some(label) => format!("{n} is {}, drive {} of it", member.path.display(), label.drive),
        None => format!("{n} is {}, of no pool", member.path.display()),
    });
    named.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
