//! Direct write windows (`docs/anof.md`): granted of the volumes of open pools, and handed out through a socket of this
//! machine to whoever shows the token that a host was told.

mod books;
mod offers;
mod reach;
mod socket;

use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use api::v1::{Severity, WindowLog};
use api::value::Name;
use engine::{GrantedRing, GrantedWindow, Pool, WindowEnd};
use nvme::window::Fabric;
use reactor::{Handle, Nanos};
use stdx::num::u64_of;
use target::windows::{Ending, Granted, Granting, NotEnded, Refused, Wanted};
use uuid::Uuid;
use window::Grant;
use window::grant::PATH_BYTES_MAX;

use crate::config::Settings;
use crate::limits::{TOKEN_LIFE, WINDOW_RING_BYTES};
use crate::serving::reactors::Reactors;
use books::Books;
use offers::{Of, Offers, One, Ring, RingFiles, drawn};
use reach::Reach;
use socket::Socket;

/// How long a pool that is being closed, and ends its windows by that, is waited for; and how often it is looked.
const CLOSING: Duration = Duration::from_secs(5);
const CLOSING_LOOK: Duration = Duration::from_millis(20);

/// Finds the open pool that has a volume among those of the reactor that it is asked on.
pub type Find = fn(volume: [u8; 16]) -> Option<(Uuid, Pool)>;

/// What grants windows of a node's volumes.
#[derive(Debug)]
pub struct Windows {
    itself: Weak<Self>,
    reactors: Arc<Reactors>,
    find: Find,
    /// Where the rings are handed out.
    path: String,
    books: Mutex<Books>,
    offers: Arc<Offers>,
    reach: Arc<Reach>,
}

/// The way to the rings: windows are handed out while it is there.
#[derive(Debug)]
pub struct Door {
    windows: Arc<Windows>,
    _socket: Socket,
}

impl Door {
    /// Opens it in the state directory, unless windows are not to be granted, or the place is none for a socket.
    pub fn open(
        settings: &Settings,
        state_dir: &Path,
        reactors: &Arc<Reactors>,
        find: Find,
    ) -> Option<Self> {
        if !settings.windows {
            return None;
        }
        let path = socket_path(state_dir);
        let Some(name) = path.to_str().filter(|name| name.len() <= PATH_BYTES_MAX) else {
            tracing::warn!(
                "no direct write windows are granted: {} is no path for a socket: it is not of {PATH_BYTES_MAX} bytes or \
                 less in UTF-8",
                path.display()
            );
            return None;
        };
        let offers = Arc::<Offers>::default();
        let socket = Socket::serve(reactors.acceptor(0), &path, &offers).inspect_err(|error| {
            tracing::warn!("no direct write windows are granted: {}: {error}", path.display());
        });
        let windows = Arc::new_cyclic(|itself| Windows {
            itself: Weak::clone(itself),
            reactors: Arc::clone(reactors),
            find,
            path: name.to_owned(),
            books: Mutex::new(Books::new(settings.window_bytes)),
            offers,
            reach: Reach::new(settings.window_bytes),
        });
        Some(Self { windows, _socket: socket.ok()? })
    }

    /// What grants.
    pub fn windows(&self) -> Arc<Windows> {
        Arc::clone(&self.windows)
    }
}

/// The socket of the node with this state directory where rings are handed out.
#[must_use]
pub fn socket_path(state_dir: &Path) -> PathBuf {
    state_dir.join("windows.sock")
}

impl target::windows::Windows for Windows {
    fn grant(&self, volume: [u8; 16], wanted: Wanted, granting: Granting) {
        let Some(windows) = self.itself.upgrade() else { return };
        // A reactor that has stopped drops the closure, which says that there is no window.
        let _ = self.reactors.acceptor(0).spawn(move || async move {
            granting.done(windows.granted(volume, wanted).await);
        });
    }

    fn hand_out(&self, asked: Box<fabric::ring::Asked>) {
        let now = reactor::now_exact();
        let wanted = (asked.token(), asked.ring());
        let taken = self.offers.take_one(now, wanted, |place| self.reach.enter(place));
        let Some((One { ring, ring_bytes }, stay)) = taken else { return };
        let files =
            |RingFiles { state, ring, flushed }| fabric::ring::CopyFiles { state, ring, flushed };
        let copies = ring.copies.into_iter().map(files).collect();
        let files = fabric::ring::Files { copies, ring_bytes, bell: ring.bell };
        // Gone is a reactor that stops: the host is refused.
        let _ = self.reactors.acceptor(asked.ring()).spawn(move || async move {
            let _stay = stay;
            let peer = asked.peer();
            if let Err(error) = asked.serve(files).await {
                tracing::warn!("{peer} has no direct write window by RDMA: {error}");
            }
        });
    }

    fn end(&self, volume: [u8; 16], number: u32, ending: Ending) {
        let Some(windows) = self.itself.upgrade() else { return };
        let _ = self.reactors.acceptor(0).spawn(move || async move {
            let ended = windows.ended(volume, number).await;
            ending.done(ended);
        });
    }

    fn may_stand(&self, volume: [u8; 16], number: u32) -> bool {
        self.books().may_stand(volume, number)
    }
}

impl Windows {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many windows of a pool stand, and what is set aside for them.
    pub fn of(&self, pool: Uuid) -> (u64, WindowLog) {
        let mut books = self.books();
        let (size, used) = books.log_of(pool);
        (u64_of(books.standing(pool)), WindowLog { size, used })
    }

    /// Has the pool of a volume, on its reactor, do something; `None` when no open pool has the volume.
    async fn of_pool<T, F>(
        &self,
        volume: [u8; 16],
        work: impl FnOnce(Uuid, Pool) -> F + Clone + Send + 'static,
    ) -> Option<T>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        for handle in self.reactors.handles() {
            let handle: &Handle = handle;
            let (work, find) = (work.clone(), self.find);
            let done = handle.call(move || async move {
                let (id, pool) = find(volume)?;
                Some(work(id, pool).await)
            });
            if let Ok(Some(done)) = done.await {
                return Some(done);
            }
        }
        None
    }

    async fn granted(&self, volume: [u8; 16], wanted: Wanted) -> Granted {
        let Some(windows) = self.itself.upgrade() else { return Err(Refused::Failed) };
        let (fabric, ring_bytes) = (wanted.fabric, wanted.ring_bytes);
        let ring_bytes = ring_bytes.unwrap_or(WINDOW_RING_BYTES);
        let granted = self.of_pool(volume, move |id, pool| async move {
            let shards = pool.status().await.map_err(|error| refused(&error))?.shards;
            let bytes = u64::from(shards) * ring_bytes;
            if !windows.books().reserve(id, volume, bytes) {
                return Err(Refused::Busy);
            }
            let (epoch, number) = drawn_numbers();
            let granted = match pool.grant_window(volume, ring_bytes, epoch, number).await {
                Ok(mut granted) => {
                    let rings = std::mem::take(&mut granted.rings);
                    let rings =
                        rings.into_iter().map(|ring| suited(ring, wanted).and_then(Ring::of));
                    let rings = rings.collect::<engine::Result<Vec<_>>>();
                    if rings.is_err() {
                        // Nobody gets it. What keeps it from being ended is told when its volume is used.
                        let _ = pool.end_window(volume, Some(granted.number)).await;
                    }
                    rings.map(|rings| (granted, rings))
                }
                Err(error) => Err(error),
            };
            let told = granted.as_ref().ok().map(|(of, rings)| (of.number, states_of(rings)));
            windows.books().settle(volume, bytes, told);
            granted.map(|(granted, rings)| (id, granted, rings)).map_err(|error| refused(&error))
        });
        // One whose pool is not open may be had when it is.
        let granted = granted.await.unwrap_or(Err(Refused::Busy))?;
        let (pool, granted, rings) = granted;
        let (number, ring_bytes) = (granted.number, granted.ring_bytes);
        Ok(self.offer(Of { pool, volume, number, fabric, ring_bytes }, &granted, rings))
    }

    /// Has the rings be handed out to whoever shows the token.
    fn offer(&self, of: Of, granted: &GrantedWindow, handed: Vec<Ring>) -> Grant {
        let rings = handed.len();
        let token = self.offers.offer(later(reactor::now_exact(), TOKEN_LIFE), of, handed);
        // Where a host by RDMA finds it, it knows.
        let path = if of.fabric == Fabric::Shm { self.path.clone() } else { String::new() };
        let itself = Weak::clone(&self.itself);
        // What nobody asks for is kept no longer than it is good, nor is the window, which keeps others out.
        let _ = self.reactors.acceptor(0).spawn(move || async move {
            reactor::sleep(TOKEN_LIFE).await;
            let Some(windows) = itself.upgrade() else { return };
            for (volume, number) in windows.offers.expire(reactor::now_exact()) {
                // That it cannot be is told there, and tried again by whoever wants another.
                let _ = windows.ended(volume, number).await;
            }
        });
        Grant {
            number: granted.number,
            epoch: granted.epoch,
            ring_bytes: granted.ring_bytes,
            rings,
            volume_bytes: granted.volume_bytes,
            block_bytes: granted.block_bytes,
            chunk_bytes: granted.chunk_bytes,
            placement: granted.placement,
            token,
            path,
        }
    }

    async fn ended(&self, volume: [u8; 16], number: u32) -> Result<(), NotEnded> {
        self.offers.withdraw(volume, number);
        let deadline = later(reactor::now_exact(), CLOSING);
        loop {
            let end =
                move |_, pool: Pool| async move { pool.end_window(volume, Some(number)).await };
            match self.of_pool(volume, end).await {
                Some(Ok(())) => break,
                Some(Err(error)) if is_gone(&error) => {}
                Some(Err(error)) => {
                    tracing::error!("a direct write window cannot be ended: {error}");
                    return Err(NotEnded);
                }
                None => {}
            }
            // Its pool is closed, or being closed: that ends it.
            if !self.books().stands(volume, number) {
                break;
            }
            if reactor::now_exact() >= deadline {
                return Err(NotEnded);
            }
            reactor::sleep(CLOSING_LOOK).await;
        }
        self.books().forget(volume, number);
        Ok(())
    }
}

fn later(now: Nanos, by: Duration) -> Nanos {
    now.saturating_add(Nanos::try_from(by.as_nanos()).unwrap_or(Nanos::MAX))
}

const fn is_gone(error: &engine::Error) -> bool {
    matches!(error.kind, engine::Kind::NotFound | engine::Kind::Gone)
}

/// A window's epoch, which nobody guesses, and its number, which says nothing of it: that is in names of files.
fn drawn_numbers() -> (u64, NonZeroU32) {
    let (token, other) = (drawn(), drawn());
    let number = u32::from_le_bytes(std::array::from_fn(|at| other[at]));
    let epoch = u64::from_le_bytes(std::array::from_fn(|at| token[at]));
    (epoch, NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
}

/// What operators are told of the end of a window that nobody asked for.
pub fn told(pool: &Name, end: &WindowEnd) -> Vec<(Severity, String)> {
    let window = format!("the direct write window of volume {pool}/{}", end.volume);
    let kept = if end.lost { "" } else { "; what it had stored before that was kept" };
    let bad = end.bad.map(|bad| {
        let words = format!("{window} was ended for what its host did: {bad}{kept}");
        (Severity::Warning, words)
    });
    let lost = end.lost.then(|| {
        let words = format!(
            "{window} was damaged: writes that its host was told are complete are lost; its host changed what it had stored, or \
             the memory that the log is on failed"
        );
        (Severity::Error, words)
    });
    bad.into_iter().chain(lost).collect()
}

/// The state pages by which it is seen whether a window stands.
fn states_of(rings: &[Ring]) -> Vec<Vec<std::fs::File>> {
    let own = |copy: &RingFiles| copy.state.as_fd().try_clone_to_owned().map(Into::into).ok();
    rings.iter().map(|ring| ring.copies.iter().filter_map(own).collect()).collect()
}

/// A ring, where it can be written as is wanted: what a network card stored, and is seen, has to be durable, or to be flushed.
fn suited(ring: GrantedRing, wanted: Wanted) -> engine::Result<GrantedRing> {
    let keeps = ring.copies.iter().all(|copy| copy.ring.keeps_what_is_seen());
    if wanted.fabric == Fabric::Rdma && !keeps && !wanted.flushes {
        let what = "what network cards without RDMA FLUSH stored in persistent memory is not known to be durable";
        return Err(engine::Error::new(engine::Kind::Unsupported, what));
    }
    Ok(ring)
}

fn refused(error: &engine::Error) -> Refused {
    match error.kind {
        engine::Kind::Unsupported => Refused::Never,
        engine::Kind::Invalid => Refused::RingBytes,
        engine::Kind::Busy | engine::Kind::Full | engine::Kind::NotFound | engine::Kind::Gone => {
            Refused::Busy
        }
        _ => {
            tracing::error!("a direct write window cannot be granted: {error}");
            Refused::Failed
        }
    }
}

#[cfg(test)]
mod tests;
