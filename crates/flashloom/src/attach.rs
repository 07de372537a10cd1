//! `flashloom attach`: a remote namespace as a network block device, a virtual machine's disk, or a block device of this kernel.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use api::value::Size;
use attach::{Place, nbd, ublk, vhost};
use hostraid::Volume;
use reactor::net::UnixListener;
use reactor::{Config, Reactor, Task};
use sd_notify::NotifyState;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::cli::{AttachArgs, Global, Output};
use crate::exit::{Exit, Failure, Outcome};
use crate::log;
use crate::output::{emit, json};
use crate::raid;
use crate::service::{Asked, Signals, notify};

/// How long the target may take for the flush at the end.
const FINISH: Duration = Duration::from_secs(10);

/// What is offered, and where.
#[derive(Debug, Serialize)]
struct Attached {
    #[serde(flatten)]
    at: At,
    size: u64,
    block_size: u32,
    read_only: bool,
}

/// Where a namespace is offered.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum At {
    Nbd {
        /// For `nbdinfo`, `qemu-img` and the like.
        uri: String,
        export: String,
    },
    Vhost {
        /// Where a front end connects.
        vhost_user_blk: PathBuf,
    },
    Ublk {
        /// The block device.
        device: String,
    },
}

/// The server of one of the ways to use a namespace.
enum Server {
    Nbd(Rc<nbd::Server>, Task<()>),
    Vhost(Rc<vhost::Server>, Task<()>),
    Ublk(ublk::Server),
}

impl Server {
    /// Starts to serve, and tells where.
    async fn start(namespace: &Volume, args: &AttachArgs) -> Result<(Self, Attached), Failure> {
        let nsid = args.connect.nsid;
        if args.ublk {
            return Self::device(namespace, args).await;
        }
        if let Some(path) = &args.vhost_user_blk {
            let listener = UnixListener::bind(path).map_err(|e| no_listener(path.display(), e))?;
            let id = match namespace {
                Volume::Set(set) => set.name().to_owned(),
                Volume::Namespace(_) => format!("flashloom-{nsid}"),
            };
            let server = vhost::Server::new(namespace.clone(), &id, args.read_only);
            let device = server.device();
            let attached = Attached {
                at: At::Vhost { vhost_user_blk: path.clone() },
                size: device.size,
                block_size: device.block_bytes,
                read_only: device.read_only,
            };
            let listening = reactor::spawn(Rc::clone(&server).listen(listener));
            return Ok((Self::Vhost(server, listening), attached));
        }
        let Some(place) = &args.nbd else {
            return Err(Failure::new(Exit::Failed, "say how: --nbd, --vhost-user-blk or --ublk"));
        };
        let listener = nbd::Listener::bind(place).map_err(|e| no_listener(place, e))?;
        let place = listener.place(place);
        let options = nbd::Options {
            name: args.export.clone(),
            description: match namespace {
                Volume::Set(set) => set.name().to_owned(),
                Volume::Namespace(_) => {
                    format!("{}, namespace {nsid}", args.connect.ask.subnqn)
                }
            },
            read_only: args.read_only,
        };
        let server = nbd::Server::new(namespace.clone(), options)
            .map_err(|error| Failure::new(Exit::Failed, error))?;
        let shown = server.export();
        let attached = Attached {
            at: At::Nbd { uri: uri(&place, &shown.name), export: shown.name.clone() },
            size: shown.size,
            block_size: shown.block_bytes,
            read_only: shown.read_only,
        };
        let listening = reactor::spawn(Rc::clone(&server).listen(listener));
        Ok((Self::Nbd(server, listening), attached))
    }

    /// A block device of this kernel.
    async fn device(namespace: &Volume, args: &AttachArgs) -> Result<(Self, Attached), Failure> {
        let queues = args.connect.nr_io_queues;
        let options = ublk::Options { read_only: args.read_only, queues };
        let server = ublk::Server::start(namespace.clone(), options).await.map_err(|error| {
            let words = format!("cannot make a block device (is ublk_drv loaded?): {error}");
            Failure::new(Exit::Failed, words)
        })?;
        let attached = Attached {
            at: At::Ublk { device: server.path() },
            size: server.size(),
            block_size: namespace.geometry().block_bytes,
            read_only: server.read_only(),
        };
        Ok((Self::Ublk(server), attached))
    }

    /// Shows the namespace as it is now.
    async fn refresh(&self) {
        match self {
            Self::Nbd(server, _) => server.refresh(),
            Self::Vhost(server, _) => server.refresh().await,
            Self::Ublk(server) => server.refresh().await,
        }
    }

    /// Serves nobody any more, and waits for the requests in flight.
    async fn stop(self) {
        match self {
            Self::Nbd(server, listening) => {
                server.stop().await;
                listening.await;
            }
            Self::Vhost(server, listening) => {
                server.stop();
                listening.await;
            }
            Self::Ublk(server) => {
                let path = server.path();
                if let Err(error) = server.stop().await {
                    tracing::warn!("{path} could not be removed: {error}");
                }
            }
        }
    }
}

fn no_listener(place: impl std::fmt::Display, error: io::Error) -> Failure {
    let help = match error.kind() {
        io::ErrorKind::NotFound => "make the folder of the socket first",
        io::ErrorKind::AddrInUse => {
            "another program listens there, or it is a file of another kind: end that program, or choose another place"
        }
        _ => "choose another place that this user may listen at",
    };
    Failure::new(Exit::Failed, format!("cannot listen on {place}: {error}")).help(help)
}

/// `flashloom attach`
pub fn run(global: &Global, args: AttachArgs) -> Outcome {
    log::start(args.log, "info");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    runtime.block_on(async {
        let mut signals = Signals::new(std::io::IsTerminal::is_terminal(&std::io::stdin()))?;
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
    let namespace = raid::open(&args).await?;
    let (server, attached) = Server::start(&namespace, &args).await?;
    // Nobody to tell: the program ends, and this is stopped next.
    let _ = ready.send(attached);
    let asked = async {
        // Its sender is dropped, never used.
        let _ = stopped.await;
        Ok(())
    };
    let ended = initiator::race(asked, follow(&namespace, &server)).await;
    server.stop().await;
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
async fn follow(namespace: &Volume, server: &Server) -> Outcome {
    let mut seen = namespace.geometry();
    loop {
        seen = namespace.changed(&seen).await?;
        server.refresh().await;
        let bytes = seen.blocks.saturating_mul(seen.block_bytes.into());
        tracing::info!("the namespace has {bytes} bytes now");
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
        Output::Table | Output::Csv => {
            let Attached { at, size, block_size, read_only } = attached;
            let size = Size::new(*size);
            let only = if *read_only { ", read-only" } else { "" };
            let use_it = match at {
                At::Nbd { uri, .. } => format!("nbdinfo '{uri}'"),
                At::Vhost { vhost_user_blk } => chardev(vhost_user_blk),
                At::Ublk { device } => device.clone(),
            };
            emit(&format!("{size} ({block_size} byte blocks{only})\n{use_it}\n"))
        }
    }
}

/// What QEMU is told of a vhost-user back end; a comma in a path is written twice.
fn chardev(path: &Path) -> String {
    let path = path.display().to_string().replace(',', ",,");
    format!(
        "-chardev socket,id=disk,path={path},reconnect=1 -device vhost-user-blk-pci,chardev=disk"
    )
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
