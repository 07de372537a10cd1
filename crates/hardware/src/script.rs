//! Drives that answer as they were told to: for tests of what a program makes of the answers.

use crate::drive::Drive;
use crate::error::{Error, Result};
use crate::transport::Transport;
use crate::{Health, sysfs};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a drive answers that is asked for its health.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The SMART / Health log page.
    Page(Box<[u8; 512]>),
    /// It may not be asked, for want of a right.
    Denied,
    /// Its controller is being reset.
    Resetting,
    /// Nothing, until it is told to answer otherwise.
    Never,
}

#[derive(Debug, Default)]
struct State {
    /// Answers of the drives there are, by path, with their serial numbers.
    drives: BTreeMap<PathBuf, (String, Answer)>,
    /// How often each was asked, by serial number.
    asked: BTreeMap<String, usize>,
    /// Callers that wait for one that does not answer.
    waiting: usize,
}

/// The drives of a machine. What is no drive of it has no hardware.
#[derive(Debug, Default)]
pub struct Script {
    state: Mutex<State>,
    changed: Condvar,
}

impl Script {
    /// From now on the drive at `path` is the one with this serial number, and answers so.
    pub fn set(&self, path: &Path, serial: &str, answer: Answer) {
        self.lock().drives.insert(path.to_owned(), (serial.to_owned(), answer));
        self.changed.notify_all();
    }

    /// How often the drive with this serial number was asked for its health.
    pub fn asked(&self, serial: &str) -> usize {
        self.lock().asked.get(serial).copied().unwrap_or(0)
    }

    /// Callers that wait just now for a drive that does not answer.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn drive(&self, path: &Path) -> Option<Drive> {
        let (serial, _) = self.lock().drives.get(path)?.clone();
        Some(Drive {
            kernel_name: sysfs::name(path),
            transport: Transport::Pcie,
            model: Some("EXAMPLE MODEL".to_owned()),
            serial: Some(serial),
            firmware: Some("1.0".to_owned()),
            wwid: None,
            rotational: false,
            address: None,
            slot: Some("3".to_owned()),
            disk: path.to_owned(),
            is_nvme: true,
            controllers: Vec::new(),
        })
    }

    /// What identifies the drive at `path`: its serial number. One that does not answer holds up who opens it.
    pub(crate) fn identity(&self, path: &Path) -> Option<String> {
        let mut state = self.lock();
        state.waiting += 1;
        let is_silent =
            |state: &mut State| matches!(state.drives.get(path), Some((_, Answer::Never)));
        let waited = self.changed.wait_while(state, is_silent);
        state = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state.drives.get(path).map(|(serial, _)| serial.clone())
    }

    fn answer(&self, drive: &Drive) -> Option<Answer> {
        let state = self.lock();
        let (serial, answer) = state.drives.get(&drive.disk)?;
        (drive.serial.as_ref() == Some(serial)).then(|| answer.clone())
    }

    pub(crate) fn health(&self, drive: &Drive) -> Result<Option<Health>> {
        let serial = drive.serial.clone().unwrap_or_default();
        *self.lock().asked.entry(serial).or_default() += 1;
        while matches!(self.answer(drive), Some(Answer::Never)) {
            let mut state = self.lock();
            state.waiting += 1;
            let is_silent = |state: &mut State| {
                matches!(state.drives.get(&drive.disk), Some((serial, Answer::Never))
                    if Some(serial) == drive.serial.as_ref())
            };
            let waited = self.changed.wait_while(state, is_silent);
            waited.unwrap_or_else(PoisonError::into_inner).waiting -= 1;
        }
        let path = PathBuf::from("/dev/nvme0");
        match self.answer(drive) {
            Some(Answer::Page(page)) => Ok(Some(Health::parse(&page))),
            Some(Answer::Denied) => Err(Error::Denied {
                action: "ask for the health of",
                path,
                needs: "CAP_SYS_ADMIN",
                source: io::ErrorKind::PermissionDenied.into(),
            }),
            Some(Answer::Resetting) => Err(Error::NotLive {
                controller: "nvme0".to_owned(),
                state: "resetting".to_owned(),
            }),
            Some(Answer::Never) | None => Err(Error::Gone { drive: drive.kernel_name.clone() }),
        }
    }

    pub(crate) fn temperature(&self, drive: &Drive) -> Option<i32> {
        let answer = self.answer(drive)?;
        matches!(answer, Answer::Denied | Answer::Resetting).then_some(40)
    }

    pub(crate) fn critical_temperature(&self, _: &Drive) -> Option<i32> {
        Some(85)
    }
}
