//! The socket where rings are handed out. It is for programs of this user, or root; each has little time, so that none
//! keeps the others out.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use reactor::net::{TcpStream, UnixListener};
use reactor::{Call, Handle};
use stdx::num::u32_of;
use window::Token;

use super::offers::{Offers, Ring};
use crate::limits::{WINDOW_CALLERS, WINDOW_PATIENCE};
use crate::serving::signal::Signal;

/// How long to let go after accept(2) failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A bound socket. Dropping it removes the socket before the drop returns.
pub struct Socket {
    close: Signal,
    task: Option<Call<()>>,
}

impl Socket {
    /// Serves what is offered at `path`, on this reactor.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn serve(on: &Handle, path: &Path, offers: &Arc<Offers>) -> io::Result<Self> {
        let (bound, answer) = mpsc::channel();
        let close = Signal::default();
        let (closes, path, offers) = (close.clone(), path.to_owned(), Arc::clone(offers));
        let task = on.call(move || async move {
            let listener = match UnixListener::bind_packets(&path) {
                Ok(listener) => Rc::new(listener),
                Err(error) => {
                    let _ = bound.send(Err(error));
                    return;
                }
            };
            let _ = bound.send(Ok(()));
            // As many as are served at once accept: others wait.
            let seats = (0..WINDOW_CALLERS).map(|_| seat(&listener, &offers));
            let _ = closes.unless(reactor::join_all(seats)).await;
        });
        answer.recv().map_err(|_| io::Error::other("the reactors have stopped"))??;
        Ok(Self { close, task: Some(task) })
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Socket").finish_non_exhaustive()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close.give();
        if let Some(task) = self.task.take() {
            // Gone is a reactor that has stopped: the socket went with it.
            let _ = task.wait();
        }
    }
}

/// Serves one caller after the other.
async fn seat(listener: &UnixListener, offers: &Offers) {
    loop {
        let accepted = listener.accept_fd().await.and_then(TcpStream::from_fd);
        let served = match accepted {
            Ok(caller) if is_ours(&caller) => {
                reactor::timeout(WINDOW_PATIENCE, hand_out(&caller, offers)).await
            }
            Ok(_stranger) => Ok(Ok(())),
            Err(error) => {
                tracing::warn!(
                    "a program that asks for a direct write window is not heard: {error}"
                );
                reactor::sleep(PAUSE).await;
                Ok(Ok(()))
            }
        };
        if let Ok(Err(error)) = served {
            tracing::debug!("rings of a direct write window were not handed out: {error}");
        }
    }
}

fn is_ours(caller: &TcpStream) -> bool {
    caller.peer_user().is_ok_and(|user| user == 0 || user == reactor::user())
}

/// Takes a token, and sends the rings for it; nothing for any other.
async fn hand_out(caller: &TcpStream, offers: &Offers) -> io::Result<()> {
    // One byte more shows what is longer.
    let mut message = [0; size_of::<Token>() + 1];
    let length = caller.recv(&mut message).await?;
    let Ok(token) = Token::try_from(&message[..length]) else { return Ok(()) };
    let Some(rings) = offers.take(reactor::now_exact(), &token) else { return Ok(()) };
    for (index, ring) in rings.iter().enumerate() {
        let Ring { copies, bell } = ring;
        let copies_of_it = copies.iter().flat_map(|copy| [copy.state.as_fd(), copy.ring.as_fd()]);
        let sent: Vec<BorrowedFd<'_>> = [bell.as_fd()].into_iter().chain(copies_of_it).collect();
        let message = [u32_of(index).to_le_bytes(), u32_of(copies.len()).to_le_bytes()];
        caller.send_packet(message.as_flattened(), &sent).await?;
    }
    Ok(())
}
