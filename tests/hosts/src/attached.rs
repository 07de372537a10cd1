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
    arguments: Vec<String>,
    /// What it printed: the size, and how to use what it offers.
    pub said: Vec<String>,
    log: PathBuf,
}

impl Attached {
    /// Starts it with `arguments`, and waits until it serves. What it logs goes to `log`.
    pub fn start(target: &Target, log: &Path, arguments: &[&str]) -> Result<Self> {
        let (port, subsystem) = target.address();
        let port = port.to_string();
        let to = ["attach", "--subnqn", subsystem, "--trsvcid", &port];
        let arguments = to.iter().chain(arguments).map(ToString::to_string).collect();
        let child = spawn(&arguments, log)?;
        let mut attached = Self { child, arguments, said: Vec::new(), log: log.to_owned() };
        attached.listen()?;
        Ok(attached)
    }

    /// Waits until it serves.
    fn listen(&mut self) -> Result<()> {
        let lines = BufReader::new(self.child.stdout.take().ok_or("no output")?).lines();
        self.said = lines.take(2).collect::<std::io::Result<Vec<_>>>()?;
        match self.said.len() {
            2 => Ok(()),
            _ => Err(format!("attach did not serve\n{}", self.logged()).into()),
        }
    }

    /// Kills it with signal 9.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts it again as it was, after [`Attached::kill`].
    pub fn launch(&mut self) -> Result<()> {
        self.child = spawn(&self.arguments, &self.log)?;
        self.listen()
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

fn spawn(arguments: &Vec<String>, log: &Path) -> Result<Child> {
    let log = File::options().create(true).append(true).open(log)?;
    Ok(shell::tied(program()?).args(arguments).stdout(Stdio::piped()).stderr(log).spawn()?)
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
