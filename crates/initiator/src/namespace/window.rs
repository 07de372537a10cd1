//! The direct write window of a namespace: asked for over one of its associations, and again when it has ended.

use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nvme::status::Status;
use nvme::window::Fabric;

use super::Namespace;
use super::session::Session;
use crate::Error;
use crate::limits::{
    WINDOW_DELAY, WINDOW_DELAY_MOST, WINDOW_REQUIRED, WINDOW_REQUIRED_LOOK, WINDOW_STOOD,
};
use crate::windows::{DirectWindow, SharedWindow, Standing, WindowUse, Written, dial, receive};

impl Namespace {
    /// Has the target grant a direct write window as it is wanted, with rings of so many bytes each; 0 leaves that to
    /// it. A window that this host had of the volume ends. Writes by it are complete when they return,
    /// and durable; with commands in flight they have no order.
    ///
    /// It may be used until its association is lost, or a command that changes something was lost with another one:
    /// then writes wait for what becomes of that, and no window is asked for meanwhile.
    ///
    /// # Errors
    /// [`Error::Command`] when the target refuses; [`Error::Window`] when what it grants cannot be had here; those of
    /// a namespace that is away.
    pub async fn window(&self, wanted: WindowUse, ring_bytes: u64) -> Result<DirectWindow, Error> {
        let session = self.inner.life.for_window()?;
        self.window_by(&session, wanted, ring_bytes).await
    }

    async fn window_by(
        &self,
        session: &Rc<Session>,
        wanted: WindowUse,
        ring_bytes: u64,
    ) -> Result<DirectWindow, Error> {
        let life = &self.inner.life;
        // Known before anything is asked for, so that it hears of all that happens from now on.
        let standing = Arc::<Standing>::default();
        life.stand(session, Arc::clone(&standing));
        let controller = session.controller();
        if !controller.has_windows() {
            return Err(Error::Answer("no direct write windows, as its controller says"));
        }
        let address = controller.association().address;
        let fabric = wanted.fabric(address.trtype());
        let fabric = fabric.ok_or(Error::Answer("no direct write window, as is wanted"))?;
        let grant = controller.ask_for_window(life.nsid(), fabric, ring_bytes).await?;
        let number = grant.number;
        if grant.block_bytes != self.geometry().block_bytes {
            let _ = controller.end_window(life.nsid(), number).await;
            return Err(Error::Answer("a direct write window of other blocks"));
        }
        let received = match fabric {
            Fabric::Shm => reactor::blocking(move || receive(grant, standing)).await,
            Fabric::Rdma => dial(grant, address, standing).await,
        };
        match received {
            Ok(window) => Ok(window),
            Err(source) => {
                // Why it cannot be had tells more than that it could not be given back.
                let _ = controller.end_window(life.nsid(), number).await;
                Err(Error::Window { source })
            }
        }
    }

    /// Has a direct write be in doubt, as one that was on its way when its connection failed.
    #[cfg(test)]
    pub(crate) fn doubt_direct_write(&self) {
        self.standing().doubt();
    }

    /// What the writers of the window that was asked for last are told.
    #[cfg(test)]
    pub(crate) fn standing(&self) -> Arc<Standing> {
        self.inner.life.standing().expect("a window was asked for")
    }

    /// A place for a window, and one in it if that can be had; none when it is not wanted. It is for the caller to have
    /// it kept, by [`Namespace::keep_window`].
    ///
    /// # Errors
    /// As [`Namespace::window`], when one is required.
    pub async fn open_window(&self, wanted: WindowUse) -> Result<Option<Arc<SharedWindow>>, Error> {
        if wanted == WindowUse::Off {
            return Ok(None);
        }
        let shared = Arc::<SharedWindow>::default();
        self.fill_window(&shared, wanted).await?;
        Ok(Some(shared))
    }

    /// Puts a window in that place, if it can be had: where none is required, there may be one later.
    ///
    /// # Errors
    /// As [`Namespace::open_window`].
    pub async fn fill_window(&self, shared: &SharedWindow, wanted: WindowUse) -> Result<(), Error> {
        let asked = match wanted {
            WindowUse::Off => None,
            WindowUse::Require => self.required_window().await.map(Some)?,
            _ => self.window(wanted, 0).await.ok(),
        };
        if let Some(window) = asked {
            shared.put(window).await;
        }
        Ok(())
    }

    /// The same namespace with its writes going by the window that is in this place, as far as there is one and it takes
    /// them; else as commands. What is written by it is durable when it has ended, FUA or not. A write under a window that
    /// ends waits for that end with all of the reactor (`docs/anof.md`, "A write").
    #[must_use]
    pub fn with_window(&self, window: Arc<SharedWindow>) -> Self {
        Self { window: Some(window), ..self.clone() }
    }

    /// Whether the window took a write of `data` to block `lba` and those that follow: it is complete then.
    pub(super) fn write_directly(&self, lba: u64, data: &[u8]) -> bool {
        let Some(window) = &self.window else { return false };
        let offset = lba * u64::from(self.geometry().block_bytes);
        // What became of one whose outcome is not known is for the command to say.
        window.write(offset, data) == Written::Done
    }

    /// As [`Namespace::window`], again and again for a while where there is none at the moment.
    async fn required_window(&self) -> Result<DirectWindow, Error> {
        let mut waited = Duration::ZERO;
        loop {
            match self.window(WindowUse::Require, 0).await {
                Err(Error::Command { status, .. })
                    if status.is(Status::WINDOW_BUSY) && waited < WINDOW_REQUIRED => {}
                other => return other,
            }
            reactor::sleep(WINDOW_REQUIRED_LOOK).await;
            waited += WINDOW_REQUIRED_LOOK;
        }
    }

    /// Keeps a window in `shared` as far as that can be: asks for another one when the last has ended, but not all the
    /// time, and not again where it was refused for good. Never returns.
    pub async fn keep_window(&self, shared: &SharedWindow, wanted: WindowUse, ring_bytes: u64) {
        let (mut delay, mut since) = (WINDOW_DELAY, reactor::now());
        // The association that is known to have none.
        let mut refused = None;
        loop {
            let stands = shared.stands() && self.inner.life.window_is_usable();
            let stood = Duration::from_nanos(reactor::now().saturating_sub(since));
            if stands && stood >= WINDOW_STOOD {
                delay = WINDOW_DELAY;
            }
            reactor::sleep(if stands { WINDOW_DELAY } else { delay }).await;
            if shared.stands() && self.inner.life.window_is_usable() {
                continue;
            }
            let Ok(session) = self.inner.life.for_window() else { continue };
            if refused == Some(session.generation) {
                continue;
            }
            // Also after one that was granted: where others want one as well, none of them is to be of no use.
            delay = (delay * 2).min(WINDOW_DELAY_MOST);
            match self.window_by(&session, wanted, ring_bytes).await {
                Ok(window) => {
                    shared.put(window).await;
                    since = reactor::now();
                }
                Err(error) => refused = is_final(&error).then_some(session.generation),
            }
        }
    }
}

/// Whether asking again by the same association is in vain.
fn is_final(error: &Error) -> bool {
    match error {
        Error::Command { status, .. } => status.dnr() || status.is(Status::INVALID_OPCODE),
        Error::Answer(_) => true,
        // The target's socket is not of this machine, or not for this user; a network card is not up to it.
        Error::Window { source } => matches!(
            source.kind(),
            ErrorKind::NotFound
                | ErrorKind::PermissionDenied
                | ErrorKind::ConnectionRefused
                | ErrorKind::Unsupported
        ),
        _ => false,
    }
}
