//! Ways to serve the exchange.

mod plain;
mod reactors;
mod tokios;
mod uring;

use crate::report::Case;
use clap::ValueEnum;
use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A way to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// A loop over non-blocking sockets, nothing else: the floor
    Plain,
    /// Our reactor, `busy`
    ReactorBusy,
    /// Our reactor, `adaptive`
    ReactorAdaptive,
    /// Our reactor, `interrupt`
    ReactorInterrupt,
    /// io_uring multishot receive into provided buffers, and ring sends; spinning on the ring
    UringSpin,
    /// The same, sleeping in the ring
    UringWait,
    /// tokio's current-thread runtime
    Tokio,
}

impl Strategy {
    pub const DEFAULTS: [Self; 5] =
        [Self::Plain, Self::ReactorBusy, Self::ReactorAdaptive, Self::UringSpin, Self::Tokio];

    /// Starts serving; the listener is bound before this returns.
    pub fn start(
        self,
        case: Case,
        cpu: Option<usize>,
        blocks: bool,
        congestion: Option<&str>,
    ) -> Result<Server, Box<dyn Error>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let addr = listener.local_addr()?;
        if let Some(name) = congestion {
            reactor::net::set_congestion(&listener, name)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("server".into()).spawn(move || {
            if let Some(cpu) = cpu {
                reactor::pin_thread(cpu)?;
            }
            match self {
                Self::Plain => plain::serve(&listener, case, blocks, &stopped),
                Self::ReactorBusy | Self::ReactorAdaptive | Self::ReactorInterrupt => {
                    reactors::serve(self, listener, case, stopped)
                }
                Self::UringSpin => uring::serve(&listener, case, true, &stopped),
                Self::UringWait => uring::serve(&listener, case, false, &stopped),
                Self::Tokio => tokios::serve(listener, case, stopped),
            }
        })?;
        Ok(Server { addr, stop, thread })
    }
}

/// A server running.
pub struct Server {
    pub addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

impl Server {
    /// Ends it: every strategy looks at the flag when a connection comes or goes.
    pub fn stop(self) -> io::Result<()> {
        self.stop.store(true, Ordering::Release);
        // Wakes whoever waits for a connection.
        drop(std::net::TcpStream::connect(self.addr));
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the server panicked")))
    }
}
