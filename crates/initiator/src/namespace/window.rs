//! The direct write window of a namespace: asked for over one of its associations, and again when it has ended.

use std::rc::Rc;
use std::sync::Arc;

use nvme::status::Status;

use super::Namespace;
use super::session::Session;
use crate::Error;
use crate::limits::{WINDOW_DELAY, WINDOW_DELAY_MOST};
use crate::windows::{DirectWindow, SharedWindow, Standing, WindowUse, receive};

impl Namespace {
    /// Has the target grant a direct write window, in memory of this machine, with rings of so many bytes each; 0
    /// leaves that to it. A window that this host had of the volume ends. Writes by it are complete when they return,
    /// and durable; with commands in flight they have no order.
    ///
    /// It may be used until its association is lost, or a command that changes something was lost with another one:
    /// then writes wait for what becomes of that, and no window is asked for meanwhile.
    ///
    /// # Errors
    /// [`Error::Command`] when the target refuses; [`Error::Window`] when what it grants cannot be had here; those of
    /// a namespace that is away.
    pub async fn window(&self, ring_bytes: u64) -> Result<DirectWindow, Error> {
        let session = self.inner.life.for_window()?;
        self.window_by(&session, ring_bytes).await
    }

    async fn window_by(
        &self,
        session: &Rc<Session>,
        ring_bytes: u64,
    ) -> Result<DirectWindow, Error> {
        let life = &self.inner.life;
        // Known before anything is asked for, so that it hears of all that happens from now on.
        let standing = Arc::<Standing>::default();
        life.stand(session, Arc::clone(&standing));
        let controller = session.controller();
        let grant = controller.ask_for_window(life.nsid(), ring_bytes).await?;
        let number = grant.number;
        if grant.block_bytes != self.geometry().block_bytes {
            let _ = controller.end_window(life.nsid(), number).await;
            return Err(Error::Answer("a direct write window of other blocks"));
        }
        match reactor::blocking(move || receive(grant, standing)).await {
            Ok(window) => Ok(window),
            Err(source) => {
                // Why it cannot be had tells more than that it could not be given back.
                let _ = controller.end_window(life.nsid(), number).await;
                Err(Error::Window { source })
            }
        }
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
        match self.window(0).await {
            Ok(window) => shared.put(window).await,
            Err(why) if wanted == WindowUse::Require => return Err(why),
            // There may be one later.
            Err(_) => {}
        }
        Ok(Some(shared))
    }

    /// Keeps a window in `shared` as far as that can be: asks for another one when the last has ended, but not all the
    /// time, and not again where it was refused for good. Never returns.
    pub async fn keep_window(&self, shared: &SharedWindow, ring_bytes: u64) {
        let mut delay = WINDOW_DELAY;
        // The association that is known to have none.
        let mut refused = None;
        loop {
            reactor::sleep(delay).await;
            if shared.stands() && self.inner.life.window_is_usable() {
                delay = WINDOW_DELAY;
                continue;
            }
            let Ok(session) = self.inner.life.for_window() else { continue };
            if refused == Some(session.generation) {
                continue;
            }
            match self.window_by(&session, ring_bytes).await {
                Ok(window) => {
                    shared.put(window).await;
                    delay = WINDOW_DELAY;
                }
                Err(error) => {
                    refused = is_final(&error).then_some(session.generation);
                    delay = (delay * 2).min(WINDOW_DELAY_MOST);
                }
            }
        }
    }
}

/// Whether asking again by the same association is in vain.
fn is_final(error: &Error) -> bool {
    let Error::Command { status, .. } = error else { return matches!(error, Error::Answer(_)) };
    status.dnr() || status.is(Status::INVALID_OPCODE)
}
