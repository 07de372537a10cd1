//! The emulator's monitor (QMP): what happens to a machine's hardware while it runs.
use crate::Result;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest that a guest may take to let go of a device, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection to the monitor of a running emulator.
pub struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects to the monitor's socket.
    pub fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut monitor = Self { lines: BufReader::new(stream) };
        // It greets first.
        monitor.next()?;
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Has it carry out a command, to its end.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> Result<()> {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.lines.get_ref(), "{line}")?;
        loop {
            let said = self.next()?;
            if let Some(error) = said.get("error") {
                return Err(format!("{command}: {error}").into());
            }
            if said.get("return").is_some() {
                return Ok(());
            }
        }
    }

    /// Waits until it tells of `event` of a device.
    pub fn wait_for(&mut self, event: &str, device: &str) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let said = self.next()?;
            if said["event"] == event && said["data"]["device"] == device {
                return Ok(());
            }
        }
        Err(format!("no {event} of {device}").into())
    }

    fn next(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err("the emulator's monitor closed".into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}
