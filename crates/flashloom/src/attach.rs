//! `flashloom attach`: a remote namespace as a network block device.

use std::rc::Rc;
use std::time::Duration;

use api::value::Size;
use attach::Place;
use attach::nbd::{Listener, Options, Server};
use initiator::Namespace;
use reactor::{Config, Reactor};
use sd_notify::NotifyState;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::cli::{AttachArgs, Global, Output};
use crate::exit::{Exit, Failure, Outcome};
use crate::log;
use crate::output::{emit, json};
use crate::paths;
use crate::service::{Asked, Signals, notify};

/// How long the target may take for the flush at the end.
const FINISH: Duration = Duration::from_secs(10);

/// What is offered, and where.
#[derive(Debug, Serialize)]
struct Attached {
    /// For `nbdinfo`, `qemu-img` and the like.
    uri: String,
    export: String,
    size: u64,
    block_size: u32,
    read_only: bool,
}

/// `flashloom attach`
pub fn run(global: &Global, args: AttachArgs) -> Outcome {
    log::start(args.log, "info");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let config =
            Config { cpu: args.cpu, poll: args.poll.policy(), name: "flashloom-attach".to_owned() };
        let reactor = Reactor::start(config).map_err(|error| Failure::new(Exit::Failed, error))?;
        let (ready, mut is_ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let mut served = reactor.call(move || serve(args, ready, stopped));
        let mut stop = Some(stop);
        loop {
            tokio::select! {
                result = &mut served => {
                    reactor.stop();
                    return result.unwrap_or_else(|gone| Err(Failure::new(Exit::Failed, gone)));
                }
                Ok(attached) = &mut is_ready, if stop.is_some() && !is_ready.is_terminated() => {
                    announce(global, &attached)?;
                    notify(&[NotifyState::Ready]);
                }
                asked = signals.next() => if asked == Asked::Stop {
                    notify(&[NotifyState::Stopping]);
                    // Asked twice is asked once.
                    drop(stop.take());
                },
            }
        }
    })
}

/// Connects and serves, until `stopped` is dropped at its other end.
async fn serve(
    args: AttachArgs,
    ready: oneshot::Sender<Attached>,
    stopped: oneshot::Receiver<()>,
) -> Outcome {
    let AttachArgs { connect, nbd, export, read_only, .. } = args;
    let nsid = connect.nsid;
    let description = format!("{}, namespace {nsid}", connect.ask.subnqn);
    let namespace = paths::attach(&connect).await?;
    let listener = Listener::bind(&nbd).map_err(|error| {
        let listen = format!("cannot listen on {nbd}: {error}");
        Failure::new(Exit::Failed, listen)
    })?;
    let place = listener.place(&nbd);
    let options = Options { name: export, description, read_only };
    let server = Server::new(namespace.clone(), options)
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    let shown = server.export();
    let attached = Attached {
        uri: uri(&place, &shown.name),
        export: shown.name.clone(),
        size: shown.size,
        block_size: shown.block_bytes,
        read_only: shown.read_only,
    };
    let listening = reactor::spawn(Rc::clone(&server).listen(listener));
    // Nobody to tell: the program ends, and this is stopped next.
    let _ = ready.send(attached);
    let asked = async {
        // Its sender is dropped, never used.
        let _ = stopped.await;
        Ok(())
    };
    let ended = initiator::race(asked, follow(&namespace, &server)).await;
    server.stop().await;
    listening.await;
    ended?;
    // What was answered is durable only if it says so or a flush did; a client that left without one
    // gets it all the same.
    let finish = async {
        let flushed = namespace.flush().await;
        // Nothing is lost by a controller that is not shut down: it notices by itself.
        let _ = namespace.shut_down().await;
        flushed
    };
    match reactor::timeout(FINISH, finish).await {
        Ok(flushed) => Ok(flushed?),
        Err(_) => {
            Err(Failure::new(Exit::Target, "the target is away: nothing was flushed at last"))
        }
    }
}

/// Shows clients the namespace as it changes.
///
/// # Errors
/// Why it is gone for good.
async fn follow(namespace: &Namespace, server: &Server) -> Outcome {
    let mut seen = namespace.geometry();
    loop {
        seen = namespace.changed(&seen).await?;
        server.refresh();
        tracing::info!("the namespace has {} bytes now", server.export().size);
    }
}

/// An NBD URI, as the NBD project specifies it (`doc/uri.md`).
fn uri(place: &Place, export: &str) -> String {
    match place {
        Place::Unix(path) => {
            format!(
                "nbd+unix:///{}?socket={}",
                escaped(export),
                escaped(&path.display().to_string())
            )
        }
        Place::Tcp(address) => format!("nbd://{address}/{}", escaped(export)),
    }
}

/// Percent-encoded but for what may stand in a path as it is (RFC 3986).
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn announce(global: &Global, attached: &Attached) -> Outcome {
    match global.output {
        Output::Json => json(attached),
        Output::Table => {
            let Attached { uri, size, block_size, read_only, .. } = attached;
            let size = Size::new(*size);
            let only = if *read_only { ", read-only" } else { "" };
            emit(&format!("{size} ({block_size} byte blocks{only})\nnbdinfo '{uri}'\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_what_tools_take() {
        let unix = Place::Unix("/run/a b.sock".into());
        assert_eq!(uri(&unix, ""), "nbd+unix:///?socket=/run/a%20b.sock");
        let tcp: Place = "[::1]:10809".parse().unwrap();
        assert_eq!(uri(&tcp, "db"), "nbd://[::1]:10809/db");
    }
}
