//! What grants windows in tests: at once, or when it is let go on.

use std::sync::Mutex;

use window::Grant;

use super::{Ending, Granting, NotEnded, Refused, Wanted, Windows};

#[derive(Debug, Default)]
pub struct Stub(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    /// Of the window granted last.
    number: u32,
    standing: Option<u32>,
    /// What it is asked is kept.
    holds: bool,
    granting: Option<Granting>,
    ending: Option<Ending>,
    refuses: Option<Refused>,
    cannot_end: bool,
    /// Sizes of rings that were asked for.
    asked: Vec<Option<u64>>,
    /// Numbers of windows that were to be ended.
    ended: Vec<u32>,
}

impl Stub {
    fn with<T>(&self, change: impl FnOnce(&mut Inside) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    /// Keeps what it is asked, or answers what it kept, and from then on at once.
    pub fn hold(&self, holds: bool) {
        let (granting, ending) = self.with(|inside| {
            inside.holds = holds;
            if holds { (None, None) } else { (inside.granting.take(), inside.ending.take()) }
        });
        if let Some(granting) = granting {
            granting.done(self.next());
        }
        if let Some(ending) = ending {
            ending.done(self.end_now());
        }
    }

    pub fn refuse(&self, refused: Option<Refused>) {
        self.with(|inside| inside.refuses = refused);
    }

    pub fn cannot_end(&self, cannot: bool) {
        self.with(|inside| inside.cannot_end = cannot);
    }

    /// Ends the window as its pool does, with nobody told.
    pub fn end_of_itself(&self) {
        self.with(|inside| inside.standing = None);
    }

    /// Drops what it was asked.
    pub fn forget(&self) {
        let kept = self.with(|inside| (inside.granting.take(), inside.ending.take()));
        drop(kept);
    }

    pub fn standing(&self) -> Option<u32> {
        self.with(|inside| inside.standing)
    }

    pub fn ended(&self) -> Vec<u32> {
        self.with(|inside| inside.ended.clone())
    }

    pub fn asked(&self) -> Vec<Option<u64>> {
        self.with(|inside| inside.asked.clone())
    }

    fn next(&self) -> Result<Grant, Refused> {
        self.with(|inside| {
            // The one there is ends first.
            inside.standing = None;
            if let Some(refused) = inside.refuses {
                return Err(refused);
            }
            inside.number += 1;
            inside.standing = Some(inside.number);
            Ok(Grant {
                number: inside.number,
                epoch: 5,
                ring_bytes: 1 << 20,
                rings: 1,
                volume_bytes: 4 << 20,
                block_bytes: 4096,
                chunk_bytes: 1 << 20,
                placement: 0,
                token: [9; 16],
                path: "/run/windows.sock".to_owned(),
            })
        })
    }

    fn end_now(&self) -> Result<(), NotEnded> {
        self.with(|inside| {
            if inside.cannot_end {
                return Err(NotEnded);
            }
            inside.standing = None;
            Ok(())
        })
    }
}

impl Windows for Stub {
    fn grant(&self, _volume: [u8; 16], wanted: Wanted, granting: Granting) {
        let now = self.with(|inside| {
            inside.asked.push(wanted.ring_bytes);
            if inside.holds {
                assert!(inside.granting.replace(granting).is_none(), "one at a time");
                return None;
            }
            Some(granting)
        });
        if let Some(granting) = now {
            granting.done(self.next());
        }
    }

    fn hand_out(&self, _asked: Box<fabric::ring::Asked>) {}

    fn end(&self, _volume: [u8; 16], number: u32, ending: Ending) {
        let now = self.with(|inside| {
            inside.ended.push(number);
            if inside.holds {
                assert!(inside.ending.replace(ending).is_none(), "one at a time");
                return None;
            }
            Some(ending)
        });
        if let Some(ending) = now {
            ending.done(self.end_now());
        }
    }

    fn may_stand(&self, _volume: [u8; 16], number: u32) -> bool {
        self.standing() == Some(number)
    }
}
