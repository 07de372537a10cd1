//! `flashloom attach` as a process.
use crate::target::{Target, program};
use crate::{Result, shell};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A namespace of a target, offered somewhere.
pub struct Attached {
    child: Child,
    /// What it printed: the size, and how to use what it offers.
    pub said: Vec<String>,
    log: PathBuf,
}

impl Attached {
    /// Starts it with `arguments`, and waits until it serves. What it logs goes to `log`.
    pub fn start(target: &Target, log: &Path, arguments: &[&str]) -> Result<Self> {
        let (port, subsystem) = target.address();
        let mut child = shell::tied(program()?)
            .args(["attach", "--subnqn", subsystem, "--trsvcid", &port.to_string()])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let said = lines.take(2).collect::<std::io::Result<Vec<_>>>()?;
        let attached = Self { child, said, log: log.to_owned() };
        match attached.said.len() {
            2 => Ok(attached),
            _ => Err(format!("attach did not serve\n{}", attached.logged()).into()),
        }
    }

    /// What it logged.
    pub fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks it to end, which it must do in order.
    pub fn stop(mut self) -> Result<()> {
        shell::run(Command::new("kill").args(["-s", "TERM", &self.child.id().to_string()]))?;
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("attach ended: {status}\n{}", self.logged()).into())
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
