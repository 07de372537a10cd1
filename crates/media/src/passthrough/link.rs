//! What a drive's commands go by.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nvme::identify::Cns;
use reactor::buffer::Buffer;
use reactor::passthrough::{Command, Completion, Device, Pace};

use crate::drive::deadline;
use crate::error::{Error, Operation};

/// A command as a script gets it.
#[derive(Debug)]
pub struct Sent<'a> {
    /// It is one of the Admin Command Set.
    pub is_admin: bool,
    pub nsid: u32,
    pub command: &'a Command,
    /// What the drive is given, and what it answers with.
    pub data: &'a mut [u8],
}

/// A drive of tests: how each command ends, or an error of the kernel's. A command that ends as `TimedOut` is one that
/// the drive has still.
pub type Script = Arc<dyn Fn(Sent<'_>) -> io::Result<Completion> + Send + Sync>;

/// By what commands go.
pub(super) enum Link {
    /// The kernel, which has the drive.
    Kernel(Device),
    Script(Script),
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(device) => device.fmt(f),
            Self::Script(_) => f.write_str("Script"),
        }
    }
}

/// The namespace that a script has.
const SCRIPTED_NSID: u32 = 1;

impl Link {
    pub fn open(path: &Path) -> Result<Self, Error> {
        let device = Device::open(path, deadline());
        device.map(Self::Kernel).map_err(|source| Error::from_io(source, Operation::Open, 0, 0))
    }

    /// The namespace's identifier at its drive.
    pub fn nsid(&self) -> u32 {
        match self {
            Self::Kernel(device) => device.nsid(),
            Self::Script(_) => SCRIPTED_NSID,
        }
    }

    pub fn is_alone(&self) -> bool {
        match self {
            Self::Kernel(device) => device.is_alone(),
            Self::Script(_) => true,
        }
    }

    pub fn late_changes(&self) -> usize {
        match self {
            Self::Kernel(device) => device.late_changes(),
            Self::Script(_) => 0,
        }
    }

    /// As [`Device::run`].
    pub async fn run(
        &self,
        command: &Command,
        buffer: Option<Buffer>,
        pace: Pace,
        changes: bool,
    ) -> (io::Result<Completion>, Option<Buffer>) {
        match self {
            Self::Kernel(device) => device.run(command, buffer, pace, changes).await,
            Self::Script(script) => {
                let mut buffer = buffer;
                let data = buffer.as_mut().map_or(&mut [][..], |buffer| &mut buffer[..]);
                let sent = Sent { is_admin: false, nsid: SCRIPTED_NSID, command, data };
                (script(sent), buffer)
            }
        }
    }

    /// As [`Device::ask`].
    pub async fn ask(
        &self,
        command: &Command,
        nsid: u32,
        bytes: usize,
        within: Duration,
    ) -> io::Result<Result<Vec<u8>, Completion>> {
        match self {
            Self::Kernel(device) => device.ask(command, nsid, bytes, within).await,
            Self::Script(script) => asked(script, command, nsid, bytes),
        }
    }

    /// As [`Device::ask_now`]. Blocks: for set-up.
    pub fn ask_now(
        &self,
        command: &Command,
        nsid: u32,
        bytes: usize,
    ) -> io::Result<Result<Vec<u8>, Completion>> {
        match self {
            Self::Kernel(device) => device.ask_now(command, nsid, bytes),
            Self::Script(script) => asked(script, command, nsid, bytes),
        }
    }

    /// The namespace that an Identify of `cns` names: the controller's structures belong to none.
    pub fn identified(&self, cns: Cns) -> u32 {
        match cns {
            Cns::Controller | Cns::CommandSetController => 0,
            _ => self.nsid(),
        }
    }
}

fn asked(
    script: &Script,
    command: &Command,
    nsid: u32,
    bytes: usize,
) -> io::Result<Result<Vec<u8>, Completion>> {
    let mut page = vec![0; bytes];
    let completion = script(Sent { is_admin: true, nsid, command, data: &mut page })?;
    Ok(if completion.status == 0 { Ok(page) } else { Err(completion) })
}
