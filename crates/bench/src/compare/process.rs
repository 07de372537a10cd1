//! Child processes that are measured: started, favoured by the scheduler, stopped, ended.

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};

/// A child that is ended when dropped.
pub struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Starts a program with its output discarded.
    ///
    /// # Errors
    /// That it could not be started.
    pub fn start<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<Self, String> {
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("cannot start {program}: {e}"))?;
        let process = Self { child, name: program.to_owned() };
        favour(process.id());
        Ok(process)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it where it is, and waits for that.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal by name.
    ///
    /// # Errors
    /// That it was not delivered: the process is gone.
    pub fn signal(&self, signal: &str) -> Result<(), String> {
        let sent =
            Command::new("kill").arg(format!("-{signal}")).arg(self.id().to_string()).status();
        match sent {
            Ok(status) if status.success() => Ok(()),
            _ => Err(format!("{} is gone", self.name)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Gives a process the scheduler's favour as far as this user may: others' work on the machine is
/// not what is measured. Plain nice values do not reach across autogroups.
pub fn favour(id: u32) {
    let _ = Command::new("renice")
        .args(["-n", "-20", "-p", &id.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let _ = std::fs::write(format!("/proc/{id}/autogroup"), "-20");
}

/// Runs a program to its end, favoured; its standard output.
///
/// # Errors
/// That it could not be started, or what it said when it failed.
pub fn output<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<String, String> {
    start_output(program, args)?.finish()
}

/// A program whose output is wanted later.
pub struct Running {
    child: Child,
    name: String,
}

/// Starts a program whose output is wanted, favoured.
///
/// # Errors
/// That it could not be started.
pub fn start_output<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<Running, String> {
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start {program}: {e}"))?;
    favour(child.id());
    Ok(Running { child, name: program.to_owned() })
}

impl Running {
    /// Waits for its end.
    ///
    /// # Errors
    /// What it said when it failed.
    pub fn finish(self) -> Result<String, String> {
        let output = self.child.wait_with_output().map_err(|e| format!("{}: {e}", self.name))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} failed ({}): {said}", self.name, output.status));
        }
        String::from_utf8(output.stdout).map_err(|e| format!("{}: {e}", self.name))
    }
}
