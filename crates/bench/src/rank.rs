//! Who runs first on a CPU that several share, by real-time priority: what they take from each other is not what is
//! measured, nor what else this machine does.

use std::process::{Command, Stdio};

/// Of who sleeps while it waits.
pub const FIRST: &str = "2";
/// Of who comes then.
pub const SECOND: &str = "1";

/// Puts the thread on a CPU, and has it run there before those of lower rank and all others.
pub fn take(cpu: usize, rank: &str) {
    let _ = reactor::pin_thread(cpu);
    let Ok(thread) = std::fs::read_link("/proc/thread-self") else { return };
    let Some(id) = thread.file_name().and_then(|id| id.to_str()) else { return };
    favour(&["-f", "-p", rank, id]);
}

/// Has all threads of a process run before those of lower rank and all others of their CPUs.
pub fn give(process: u32, rank: &str) {
    favour(&["-a", "-f", "-p", rank, &process.to_string()]);
}

fn favour(whom: &[&str]) {
    let favoured =
        Command::new("chrt").args(whom).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !favoured.is_ok_and(|status| status.success()) {
        eprintln!("(no real-time priority: what programs take from each other is in the figures)");
    }
}
