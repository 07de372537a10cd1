//! io_uring for the bytes themselves: multishot receive into provided buffers, gathered ring sends.
#![allow(unsafe_code, reason = "submission entries carry pointers the kernel follows")]

use crate::report::Case;
use crate::wire::{Outbox, Parser, Shapes};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::io::{self, IoSlice};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use stdx::num::{low32, u32_of, u64_of, usize32};

const BUFFERS: u16 = 256;
const BUFFER_LEN: usize = 64 * 1024;
const GROUP: u16 = 7;
const SEND: u64 = 1 << 32;
const ACCEPT: u64 = u64::MAX;

struct Connection {
    stream: TcpStream,
    parser: Parser,
    outbox: Outbox,
    /// What the kernel sends from now: stays put while a send is in flight.
    slices: Vec<IoSlice<'static>>,
    message: Box<libc::msghdr>,
    sending: bool,
    gone: bool,
}

/// A ring of provided buffers: given back by a store, without an entry for each.
#[repr(C, align(4096))]
struct BufferRing([types::BufRingEntry; BUFFERS as usize]);

struct Server {
    ring: IoUring,
    memory: Vec<u8>,
    buffers: Box<BufferRing>,
    tail: u16,
    shapes: &'static Shapes,
    connections: Vec<Connection>,
}

fn message() -> libc::msghdr {
    // SAFETY: all zeroes is an empty message header.
    unsafe { std::mem::zeroed() }
}

impl Server {
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: entries point to buffers and headers of this server, which outlives its ring.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    /// Gives buffer `id` to the kernel.
    fn provide(&mut self, id: u16) {
        let address = self.memory[usize::from(id) * BUFFER_LEN..].as_mut_ptr().addr();
        let entry = &mut self.buffers.0[usize::from(self.tail % BUFFERS)];
        entry.set_addr(u64_of(address));
        entry.set_len(u32_of(BUFFER_LEN));
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the first entry of a registered ring of buffers, whose tail the kernel reads.
        let tail =
            unsafe { &*types::BufRingEntry::tail(self.buffers.0.as_ptr()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    fn receive(&mut self, index: usize) -> io::Result<()> {
        let fd = types::Fd(self.connections[index].stream.as_raw_fd());
        self.push(&opcode::RecvMulti::new(fd, GROUP).build().user_data(u64_of(index)))
    }

    fn send(&mut self, index: usize) -> io::Result<()> {
        let shapes = self.shapes;
        let c = &mut self.connections[index];
        if c.sending || c.gone || c.outbox.is_empty() {
            return Ok(());
        }
        c.slices = c.outbox.gather(shapes);
        c.message.msg_iov = c.slices.as_mut_ptr().cast();
        c.message.msg_iovlen = c.slices.len();
        c.sending = true;
        let flags = u32::try_from(libc::MSG_NOSIGNAL).map_err(io::Error::other)?;
        let entry = opcode::SendMsg::new(types::Fd(c.stream.as_raw_fd()), &raw const *c.message)
            .flags(flags)
            .build()
            .user_data(SEND | u64_of(index));
        self.push(&entry)
    }

    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        let fd = types::Fd(listener.as_raw_fd());
        self.push(&opcode::PollAdd::new(fd, 1).build().user_data(ACCEPT))
    }

    fn accepted(&mut self, listener: &TcpListener) -> io::Result<()> {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        self.connections.push(Connection {
            stream,
            parser: Parser::new(),
            outbox: Outbox::default(),
            slices: Vec::new(),
            message: Box::new(message()),
            sending: false,
            gone: false,
        });
        self.receive(self.connections.len() - 1)?;
        self.accept(listener)
    }

    fn received(&mut self, index: usize, result: i32, flags: u32) -> io::Result<()> {
        let shapes = self.shapes;
        let n = usize::try_from(result).unwrap_or(0);
        if let Some(id) = cqueue::buffer_select(flags) {
            let c = &mut self.connections[index];
            let bytes = &self.memory[usize::from(id) * BUFFER_LEN..][..n];
            c.parser.feed(bytes, |kind| c.outbox.push(shapes.answer_to(kind)));
            self.provide(id);
        }
        if !cqueue::more(flags) {
            // Out of buffers ends the multishot; anything else ends the connection.
            if n > 0 || result == -libc::ENOBUFS {
                self.receive(index)?;
            } else {
                self.connections[index].gone = true;
            }
        }
        Ok(())
    }

    fn sent(&mut self, index: usize, result: i32) {
        let c = &mut self.connections[index];
        c.sending = false;
        match usize::try_from(result) {
            Ok(n) => c.outbox.advance(self.shapes, n),
            Err(_) => c.gone = true,
        }
    }

    fn turn(&mut self, listener: &TcpListener) -> io::Result<bool> {
        let done: Vec<_> =
            self.ring.completion().map(|c| (c.user_data(), c.result(), c.flags())).collect();
        for &(data, result, flags) in &done {
            let index = usize32(low32(data));
            match data {
                ACCEPT => self.accepted(listener)?,
                _ if data & SEND != 0 => self.sent(index, result),
                _ => self.received(index, result, flags)?,
            }
        }
        for index in 0..self.connections.len() {
            self.send(index)?;
        }
        Ok(!done.is_empty())
    }
}

pub fn serve(listener: &TcpListener, case: Case, spin: bool, stop: &AtomicBool) -> io::Result<()> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_cqsize(4096)
        .build(1024)?;
    // Leaked: a measurement runs a handful of these, and the kernel's pointers stay good.
    let shapes: &'static Shapes = Box::leak(Box::new(Shapes::new(case)));
    let memory = vec![0; usize::from(BUFFERS) * BUFFER_LEN];
    // SAFETY: all zeroes is a ring of empty entries.
    let buffers: Box<BufferRing> = unsafe { Box::new(std::mem::zeroed()) };
    let address = u64_of(buffers.0.as_ptr().addr());
    // SAFETY: the entries stay where they are until the ring is dropped.
    unsafe { ring.submitter().register_buf_ring_with_flags(address, BUFFERS, GROUP, 0) }?;
    let mut server = Server { ring, memory, buffers, tail: 0, shapes, connections: Vec::new() };
    (0..BUFFERS).for_each(|id| server.provide(id));
    server.accept(listener)?;
    while !stop.load(Ordering::Acquire) {
        let worked = server.turn(listener)?;
        let sq = server.ring.submission();
        let needed = !sq.is_empty() || sq.taskrun();
        drop(sq);
        if needed || (!spin && !worked) {
            server.ring.submit_and_wait(usize::from(!spin && !worked))?;
        } else {
            std::hint::spin_loop();
        }
    }
    // Ends every operation before the buffers go.
    for c in &server.connections {
        let _ = c.stream.shutdown(std::net::Shutdown::Both);
    }
    drop(server.ring);
    Ok(())
}
