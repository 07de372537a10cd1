//! The two tasks that serve a queue.

use std::future::poll_fn;
use std::rc::Rc;

use fabric::host::Flushed;
use fabric::race;

use reactor::Nanos;

use super::Inner;
use crate::Error;

/// Receives and completes.
pub async fn receive(inner: Rc<Inner>) {
    loop {
        let received = poll_fn(|cx| inner.queue.borrow_mut().poll_receive(cx)).await;
        // Ended meanwhile: what has come is for commands that are lost, and nobody's memory.
        if inner.broken.borrow().is_some() {
            return;
        }
        if let Err(why) = received.and_then(|()| inner.collect()) {
            return inner.end(why);
        }
    }
}

/// Sends at the end of a turn what it queued, and what nobody else sent.
pub async fn send(inner: Rc<Inner>) {
    loop {
        inner.to_send.notified().await;
        while let Some(until) = inner.may_wait_until() {
            // Commands and completions tell, and so does time.
            race(inner.to_send.notified(), reactor::sleep_until(until)).await;
        }
        inner.close_batch();
        inner.urgent.set(false);
        inner.sending.set(true);
        let sent = send_all(&inner).await;
        inner.sending.set(false);
        if let Err(why) = sent {
            return inner.end(why);
        }
    }
}

/// Sends what is queued. The queue is borrowed by nobody while this waits.
async fn send_all(inner: &Inner) -> Result<(), Error> {
    loop {
        if inner.broken.borrow().is_some() {
            return Ok(());
        }
        let flushed = inner.queue.borrow_mut().flush()?;
        if inner.queue.borrow().has_early() {
            inner.collect()?;
        }
        match flushed {
            Flushed::All => return Ok(()),
            Flushed::Blocked => {
                let writable = inner.queue.borrow().writable();
                writable.await?;
            }
            Flushed::Shared => reactor::yield_now().await,
        }
    }
}

impl Inner {
    /// Until when what is queued may wait for more; `None` when it is to be sent now.
    pub(super) fn may_wait_until(&self) -> Option<Nanos> {
        let batch = self.batch.borrow();
        let batch = batch.as_ref()?;
        let queue = self.queue.borrow();
        let waits = !self.urgent.get()
            && !queue.is_flushed()
            && !batch.is_due(queue.outstanding(), reactor::now());
        waits.then(|| batch.deadline())
    }
}
