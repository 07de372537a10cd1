//! The serving end of the loopback floor: a loop over sockets, with nothing between the system calls.

use crate::client::RECEIVE;
use crate::rank;
use crate::report::Case;
use crate::wire::{CAPSULE, Outbox, Parser, Shapes};
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// How to serve.
#[derive(Clone, Copy)]
pub struct Manner<'a> {
    pub cpu: Option<usize>,
    /// Sleep in the kernel between messages instead of spinning.
    pub blocks: bool,
    /// Run before all others on that CPU.
    pub is_first: bool,
    pub congestion: Option<&'a str>,
    /// Another server, which has answered each request before it is answered here.
    pub onward: Option<SocketAddr>,
}

/// A server running.
pub struct Server {
    pub addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

impl Server {
    /// Starts serving; the listener is bound before this returns.
    pub fn start(case: Case, manner: Manner<'_>) -> Result<Self, Box<dyn Error>> {
        if manner.onward.is_some() && case.asks() {
            return Err("only requests whose data comes with them are passed on".into());
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let addr = listener.local_addr()?;
        if let Some(name) = manner.congestion {
            reactor::net::set_congestion(&listener, name)?;
        }
        let Manner { cpu, blocks, is_first, onward, .. } = manner;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("server".into()).spawn(move || {
            match cpu {
                Some(cpu) if is_first => rank::take(cpu, rank::FIRST),
                Some(cpu) => reactor::pin_thread(cpu)?,
                None => {}
            }
            serve(&listener, case, blocks, onward, &stopped)
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
    onward: Option<Onward>,
}

/// A connection to where requests are passed on to.
struct Onward {
    stream: TcpStream,
    parser: Parser,
    outbox: Outbox,
}

impl Onward {
    fn open(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, parser: Parser::new(), outbox: Outbox::default() })
    }

    /// One request there, and its answer.
    fn exchange(&mut self, buf: &mut [u8], shapes: &Shapes) -> io::Result<()> {
        self.outbox.push(CAPSULE);
        let mut answered = false;
        while !answered {
            let stream = &mut self.stream;
            self.outbox.flush(shapes, |slices| stream.write_vectored(slices))?;
            match stream.read(buf) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.parser.feed(&buf[..n], |_| answered = true),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Connection {
    /// Receives once and answers; false when the peer is gone.
    fn turn(&mut self, buf: &mut [u8], shapes: &Shapes) -> io::Result<bool> {
        match self.stream.read(buf) {
            Ok(0) => return Ok(false),
            Ok(n) => {
                let mut requests = 0;
                self.parser.feed(&buf[..n], |kind| {
                    self.outbox.push(shapes.answer_to(kind));
                    requests += 1;
                });
                if let Some(onward) = &mut self.onward {
                    (0..requests).try_for_each(|_| onward.exchange(buf, shapes))?;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
            Err(e) => return Err(e),
        }
        let stream = &mut self.stream;
        self.outbox.flush(shapes, |slices| stream.write_vectored(slices))?;
        Ok(true)
    }
}

fn serve(
    listener: &TcpListener,
    case: Case,
    blocks: bool,
    onward: Option<SocketAddr>,
    stop: &AtomicBool,
) -> io::Result<()> {
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
                    onward: onward.map(Onward::open).transpose()?,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Direction;

    #[test]
    fn what_is_passed_on_is_answered_after_the_other_one_has() {
        let case = Case::new(Direction::Write, 4096).unwrap();
        let manner =
            Manner { cpu: None, blocks: true, is_first: false, congestion: None, onward: None };
        let other = Server::start(case, manner).unwrap();
        let onward = Some(other.addr);
        let server = Server::start(case, Manner { blocks: false, onward, ..manner }).unwrap();
        let mut client = Onward::open(server.addr).unwrap();
        let (mut buf, shapes) = (vec![0; RECEIVE], Shapes::new(case));
        for _ in 0..3 {
            client.exchange(&mut buf, &shapes).unwrap();
        }
        drop(client);
        server.stop().unwrap();
        other.stop().unwrap();
        let asks = Case::new(Direction::Write, 128 * 1024).unwrap();
        assert!(Server::start(asks, Manner { onward, ..manner }).is_err());
    }
}
