//! tokio's current-thread runtime, receiving and answering with plain calls when told it is ready.

use crate::client::RECEIVE;
use crate::report::Case;
use crate::wire::{Outbox, Parser, Shapes};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

async fn connection(stream: TcpStream, shapes: Rc<Shapes>) -> io::Result<()> {
    let (mut parser, mut outbox) = (Parser::new(), Outbox::default());
    let mut buf = stdx::Aligned::zeroed(RECEIVE);
    loop {
        stream.readable().await?;
        match stream.try_read(&mut buf) {
            Ok(0) => return Ok(()),
            Ok(n) => parser.feed(&buf[..n], |kind| outbox.push(shapes.answer_to(kind))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        while !outbox.flush(&shapes, |slices| stream.try_write_vectored(slices))? {
            stream.writable().await?;
        }
    }
}

pub fn serve(listener: std::net::TcpListener, case: Case, stop: Arc<AtomicBool>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, async move {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let shapes = Rc::new(Shapes::new(case));
        loop {
            let (stream, _) = listener.accept().await?;
            if stop.load(Ordering::Acquire) {
                return Ok(());
            }
            stream.set_nodelay(true)?;
            let shapes = Rc::clone(&shapes);
            drop(spawn_local(async move {
                // A peer that leaves is how every connection ends here.
                let _ = connection(stream, shapes).await;
            }));
        }
    })
}
