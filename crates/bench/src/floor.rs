//! The serving end of the loopback floor: a loop over sockets, with nothing between the system calls.

use crate::client::RECEIVE;
use crate::report::Case;
use crate::wire::{Outbox, Parser, Shapes};
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A server running.
pub struct Server {
    pub addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

impl Server {
    /// Starts serving; the listener is bound before this returns.
    pub fn start(
        case: Case,
        cpu: Option<usize>,
        blocks: bool,
        congestion: Option<&str>,
    ) -> Result<Self, Box<dyn Error>> {
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
            serve(&listener, case, blocks, &stopped)
        })?;
        Ok(Self { addr, stop, thread })
    }

    /// Ends it: the loop looks at the flag when a connection comes or goes.
    pub fn stop(self) -> io::Result<()> {
        self.stop.store(true, Ordering::Release);
        // Wakes whoever waits for a connection.
        drop(TcpStream::connect(self.addr));
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the server panicked")))
    }
}

struct Connection {
    stream: TcpStream,
    parser: Parser,
    outbox: Outbox,
}

impl Connection {
    /// Receives once and answers; false when the peer is gone.
    fn turn(&mut self, buf: &mut [u8], shapes: &Shapes) -> io::Result<bool> {
        match self.stream.read(buf) {
            Ok(0) => return Ok(false),
            Ok(n) => self.parser.feed(&buf[..n], |kind| self.outbox.push(shapes.answer_to(kind))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
            Err(e) => return Err(e),
        }
        let stream = &mut self.stream;
        self.outbox.flush(shapes, |slices| stream.write_vectored(slices))?;
        Ok(true)
    }
}

fn serve(listener: &TcpListener, case: Case, blocks: bool, stop: &AtomicBool) -> io::Result<()> {
    let shapes = Shapes::new(case);
    let mut buf = stdx::Aligned::zeroed(RECEIVE);
    let mut connections: Vec<Connection> = Vec::new();
    let mut idle = 0u32;
    while !stop.load(Ordering::Acquire) {
        // Blocking serves one connection: it waits for the next only when there is none.
        let accept = if blocks { connections.is_empty() } else { idle.is_multiple_of(4096) };
        if accept {
            listener.set_nonblocking(!blocks)?;
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(!blocks)?;
                connections.push(Connection {
                    stream,
                    parser: Parser::new(),
                    outbox: Outbox::default(),
                });
                if blocks {
                    break;
                }
            }
        }
        idle = idle.wrapping_add(1);
        let mut at = 0;
        while at < connections.len() {
            if connections[at].turn(&mut buf, &shapes)? {
                at += 1;
            } else {
                connections.swap_remove(at);
            }
        }
    }
    Ok(())
}
