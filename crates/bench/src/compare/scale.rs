//! What a large node costs who looks at it: `flashloom status` and one scrape of the metrics, with many namespaces and
//! many hosts connected.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use super::client::median;
use super::hostile::Host;
use super::resources::resident_mib;
use super::server::{Drives, Flashloom, Folder, Log, Server};
use super::{Options, Outcome, management};

/// As many as fit in a subsystem, and some more.
const SUBSYSTEMS: usize = 10;
const NAMESPACES: usize = 1000;

/// Each with a controller and an I/O queue, from an address of its own.
const HOSTS: u16 = 1000;
const ENTRIES: u16 = 8;

/// Prints the rows.
///
/// # Errors
/// What could not be started, made or read.
pub fn print(options: &Options) -> Outcome<()> {
    let files =
        reactor::raise_descriptor_limit().map_err(|e| format!("the limit of files: {e}"))?;
    if files < 2 * u64::from(HOSTS) + 100 {
        return Err(format!(
            "{HOSTS} hosts need more files than the {files} that this process may have"
        ));
    }
    let program = options.flashloom.as_path();
    let server = Flashloom::with_pool(program, "adaptive", Drives::Memory, (Log::Memory, "1GiB"))?;
    server.ask(program, "volume unmap bench/v --yes")?;
    // Drives of this size have catalogs for so many.
    let drives = "--drive memory:512MiB ".repeat(4);
    server.ask(program, &format!("pool create more {drives}"))?;
    let begun = reactor::now_exact();
    for n in 0..SUBSYSTEMS * NAMESPACES {
        let volume = format!(r#"{{"name": "v{n}", "size": 1073741824}}"#);
        management::post(&server.socket(), &format!("/v1/pools/{}/volumes", pool_of(n)), &volume)?;
    }
    println!("\n| case | figure |");
    println!("|---|---|");
    let many = SUBSYSTEMS * NAMESPACES;
    println!("| {many} volumes made, one after the other | {:.1} s |", since(begun));
    let folder = Folder::new("flashloom-compare")?;
    let file = format!("{}/scale.toml", folder.0);
    std::fs::write(&file, configuration(&server)).map_err(|e| format!("{file}: {e}"))?;
    let begun = reactor::now_exact();
    server.ask(program, &format!("config import {file} --yes"))?;
    println!("| mapped as {many} namespaces, by one `config import` | {:.1} s |", since(begun));
    let begun = reactor::now_exact();
    let hosts: Vec<_> = (0..HOSTS).map(|n| connect(&server, n)).collect::<Outcome<_>>()?;
    println!("| {HOSTS} hosts connected, one after the other | {:.1} s |", since(begun));
    for (what, command) in [
        ("`flashloom status`", "status"),
        ("`flashloom status -o json`", "status -o json"),
        ("`flashloom health`", "health"),
        ("`flashloom namespace list`", "namespace list"),
    ] {
        let mut took = Vec::new();
        for _ in 0..options.runs {
            let begun = reactor::now_exact();
            // That something is not as it should be is an exit code of its own.
            let _ = server.ask(program, command);
            took.push(since(begun));
        }
        println!("| {what} | {:.3} s |", median(took));
    }
    let (mut took, mut bytes) = (Vec::new(), 0);
    for _ in 0..options.runs {
        let begun = reactor::now_exact();
        bytes = management::scrape(&server.socket())?.len();
        took.push(since(begun));
    }
    println!("| one scrape of the metrics | {:.3} s, {} KiB |", median(took), bytes >> 10);
    println!("| the daemon | {:.0} MiB |", resident_mib(server.id())?);
    drop(hosts);
    Ok(())
}

/// Seconds since then.
fn since(begun: reactor::Nanos) -> f64 {
    Duration::from_nanos(reactor::now_exact() - begun).as_secs_f64()
}

/// The pool that volume `n` is in.
const fn pool_of(n: usize) -> &'static str {
    if n.is_multiple_of(2) { "bench" } else { "more" }
}

/// All volumes as namespaces, the first subsystem the one that hosts connect to.
fn configuration(server: &Flashloom) -> String {
    let mut text = format!("[[listener]]\naddress = \"127.0.0.1:{}\"\n", server.port());
    for subsystem in 0..SUBSYSTEMS {
        let nqn = match subsystem {
            0 => server.nqn().to_owned(),
            more => format!("nqn.2026-11.io.flashloom:scale{more}"),
        };
        let _ = writeln!(text, "[[subsystem]]\nnqn = \"{nqn}\"\nallow-any-host = true");
        for n in 0..NAMESPACES {
            let (nsid, volume) = (n + 1, subsystem * NAMESPACES + n);
            let _ = writeln!(
                text,
                "[[subsystem.namespace]]\nnsid = {nsid}\nbackend = \"volume:{}/v{volume}\"",
                pool_of(volume)
            );
        }
    }
    text
}

/// A controller with one I/O queue.
fn connect(server: &Flashloom, n: u16) -> Outcome<[TcpStream; 2]> {
    let [high, low] = n.to_be_bytes();
    let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:0b7d0f0e-1f2f-4b0e-9a57-3f0f4d1f{n:04x}");
    let host = Host { nqn: &nqn, address: Ipv4Addr::new(127, 2, high, low + 1) };
    let (admin, cntlid) = host.admin(server)?;
    let queue = host.queue(server, 1, cntlid, ENTRIES)?;
    Ok([admin, queue])
}
