//! What a bell does, for loom, which does not see what the kernel keeps.
#![allow(clippy::unwrap_used, reason = "of tests only")]

use loom::sync::{Condvar, Mutex};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

#[derive(Debug)]
pub struct Bell(Mutex<bool>, Condvar);

impl Bell {
    pub fn new() -> io::Result<Self> {
        Ok(Self(Mutex::new(false), Condvar::new()))
    }

    pub fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    pub fn silence(&self) {
        *self.0.lock().unwrap() = false;
    }

    pub fn wait(&self, _: Option<Duration>) {
        let mut rings = self.0.lock().unwrap();
        while !*rings {
            rings = self.1.wait(rings).unwrap();
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        unreachable!("loom has no kernel")
    }
}
