//! The measuring end: plain sockets.

use crate::report::{Case, Report};
use crate::wire::{CAPSULE, HOST_DATA, Outbox, Parser, READY, Shapes};
use reactor::{Nanos, now_exact, pin_thread};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use stdx::Histogram;

/// One measurement.
pub struct Plan<'a> {
    pub addr: SocketAddr,
    pub case: Case,
    pub depth: usize,
    pub connections: usize,
    pub seconds: f64,
    pub blocks: bool,
    pub congestion: Option<&'a str>,
    pub cpu: Option<usize>,
}

/// Received at once: the larger, the fewer calls for large transfers.
pub const RECEIVE: usize = 512 * 1024;

struct Connection {
    stream: TcpStream,
    parser: Parser,
    outbox: Outbox,
    /// When each outstanding request was sent; answers come in order.
    sent: VecDeque<Nanos>,
}

impl Connection {
    fn open(plan: &Plan<'_>) -> io::Result<Self> {
        let stream = TcpStream::connect(plan.addr)?;
        stream.set_nodelay(true)?;
        if let Some(name) = plan.congestion {
            reactor::net::set_congestion(&stream, name)?;
        }
        stream.set_nonblocking(!plan.blocks)?;
        Ok(Self {
            stream,
            parser: Parser::new(),
            outbox: Outbox::default(),
            sent: VecDeque::with_capacity(plan.depth),
        })
    }

    fn request(&mut self, now: Nanos) {
        self.outbox.push(CAPSULE);
        self.sent.push_back(now);
    }

    fn flush(&mut self, shapes: &Shapes) -> io::Result<()> {
        let stream = &mut self.stream;
        self.outbox.flush(shapes, |slices| stream.write_vectored(slices)).map(|_| ())
    }

    /// Receives once; the number of answers that came.
    fn receive(
        &mut self,
        buf: &mut [u8],
        latency: &mut Histogram,
        more: bool,
    ) -> io::Result<usize> {
        let n = match self.stream.read(buf) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(e) => return Err(e),
        };
        let now = now_exact();
        let (mut answers, mut ready) = (0, 0);
        self.parser.feed(&buf[..n], |kind| {
            if kind == READY {
                ready += 1;
            } else {
                answers += 1;
            }
        });
        for _ in 0..ready {
            self.outbox.push(HOST_DATA);
        }
        for _ in 0..answers {
            if let Some(sent) = self.sent.pop_front() {
                latency.record(now - sent);
            }
            if more {
                self.request(now);
            }
        }
        Ok(answers)
    }
}

/// Runs the plan on this thread.
pub fn run(plan: &Plan<'_>) -> io::Result<Report> {
    if let Some(cpu) = plan.cpu {
        pin_thread(cpu)?;
    }
    let shapes = Shapes::new(plan.case);
    let mut connections: Vec<_> =
        (0..plan.connections).map(|_| Connection::open(plan)).collect::<io::Result<_>>()?;
    let mut buf = stdx::Aligned::zeroed(RECEIVE);
    let mut latency = Histogram::new();
    for connection in &mut connections {
        for _ in 0..plan.depth {
            connection.request(now_exact());
        }
        connection.flush(&shapes)?;
    }
    // A tenth of the time warms up and is not counted.
    let seconds = std::time::Duration::from_secs_f64(plan.seconds);
    let nanos = u64::try_from(seconds.as_nanos()).unwrap_or(u64::MAX / 2);
    let warm = now_exact() + nanos / 10;
    let (mut begun, mut end) = (None, u64::MAX);
    let mut outstanding = plan.depth * plan.connections;
    while outstanding > 0 {
        let now = now_exact();
        if begun.is_none() && now >= warm {
            latency.clear();
            begun = Some(now);
            end = now + nanos;
        }
        let more = now < end;
        for connection in &mut connections {
            if connection.sent.is_empty() {
                continue;
            }
            let answers = connection.receive(&mut buf, &mut latency, more)?;
            connection.flush(&shapes)?;
            if !more {
                outstanding -= answers;
            }
        }
    }
    let elapsed = end.min(now_exact()) - begun.unwrap_or(warm);
    Ok(Report::new(plan.case, (plan.depth, plan.connections), &latency, elapsed))
}
