//! Our reactor, as the target uses it: one task receives, a turn-end task sends what the turn
//! produced.

use super::Strategy;
use crate::client::RECEIVE;
use crate::report::Case;
use crate::wire::{Outbox, Parser, Shapes};
use reactor::net::{TcpListener, TcpStream};
use reactor::sync::Notify;
use reactor::{Config, PollPolicy, run, spawn, spawn_late};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

struct Connection {
    stream: TcpStream,
    outbox: RefCell<Outbox>,
    dirty: Notify,
    gone: Cell<bool>,
}

async fn flush(connection: Rc<Connection>, shapes: Rc<Shapes>) -> io::Result<()> {
    while !connection.gone.get() {
        connection.dirty.notified().await;
        loop {
            let done = connection
                .outbox
                .borrow_mut()
                .flush(&shapes, |slices| connection.stream.try_send_vectored(slices))?;
            if done {
                break;
            }
            connection.stream.writable().await?;
        }
    }
    Ok(())
}

async fn receive(connection: Rc<Connection>, shapes: Rc<Shapes>) {
    let mut parser = Parser::new();
    let mut buf = stdx::Aligned::zeroed(RECEIVE);
    while let Ok(n) = connection.stream.recv(&mut buf).await {
        if n == 0 {
            break;
        }
        let mut any = false;
        parser.feed(&buf[..n], |kind| {
            connection.outbox.borrow_mut().push(shapes.answer_to(kind));
            any = true;
        });
        if any {
            connection.dirty.notify();
        }
    }
    connection.gone.set(true);
    connection.dirty.notify();
}

pub fn serve(
    strategy: Strategy,
    listener: std::net::TcpListener,
    case: Case,
    stop: Arc<AtomicBool>,
) -> io::Result<()> {
    let poll = match strategy {
        Strategy::ReactorBusy => PollPolicy::Busy,
        Strategy::ReactorInterrupt => PollPolicy::Interrupt,
        _ => PollPolicy::default(),
    };
    let config = Config { poll, name: "bench".into(), ..Config::default() };
    let serving = async move {
        let listener = TcpListener::from_fd(OwnedFd::from(listener))?;
        let shapes = Rc::new(Shapes::new(case));
        loop {
            let (stream, _) = listener.accept().await?;
            if stop.load(Ordering::Acquire) {
                return Ok(());
            }
            stream.set_nodelay(true)?;
            let connection = Rc::new(Connection {
                stream,
                outbox: RefCell::default(),
                dirty: Notify::new(),
                gone: Cell::new(false),
            });
            drop(spawn(receive(Rc::clone(&connection), Rc::clone(&shapes))));
            drop(spawn_late(flush(connection, Rc::clone(&shapes))));
        }
    };
    run(config, serving).map_err(io::Error::other)?
}
