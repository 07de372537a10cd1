//! What is being done about a drive, or has to be, in words for operators.

use std::time::Duration;

use api::v1::DriveState;
use api::value::{Name, PoolDrive, Size};
use engine::format::label::StaysOut;
use engine::{DriveStatus, PoolStatus};
use reactor::Nanos;

use super::PoolDef;
use super::lives::{Clock, span, state_of};
use crate::limits::{RETURNS_BORNE, RETURNS_WINDOW};

/// What is going to be done about a drive that a pool lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// It failed lately, and is left alone until then.
    pub(super) tries_at: Option<Nanos>,
    /// It is there, and why it is not taken back.
    pub(super) refused: Option<String>,
    /// A spare that fits stands by; when it takes the place for no other reason than time.
    pub(super) spare: Option<Option<Nanos>>,
    /// When what it had is rebuilt on the others.
    pub(super) rebuild_at: Option<Nanos>,
}

/// A drive, and what its pool does.
#[derive(Clone, Copy, Debug)]
pub struct Doing<'a> {
    pub pool: &'a Name,
    pub def: &'a PoolDef,
    pub status: &'a PoolStatus,
    pub outlook: Option<&'a Outlook>,
    pub clock: Clock,
}

impl Doing<'_> {
    /// What is being done about the drive in a place; `None` where there is nothing to be done.
    pub fn words(&self, index: u16, drive: &DriveStatus) -> Option<String> {
        let of = PoolDrive { pool: self.pool.clone(), index };
        Some(match state_of(drive) {
            DriveState::Online | DriveState::Spare | DriveState::Blank => return None,
            DriveState::Slow => "reads go around it where that is what is slow".to_owned(),
            DriveState::Evacuating => self.moving("what it has is moved onto the others"),
            DriveState::Rebuilding => self.moving("what it had is made anew on the others"),
            DriveState::Vacant => {
                format!("nothing is lost: `flashloom drive replace {of} NEW` puts a drive there")
            }
            DriveState::Rejoining => self.rejoining(drive),
            DriveState::Missing | DriveState::Failed => {
                let first = self.first(&of, drive);
                let then = self.then(&of);
                let needs = format!("`flashloom drive replace {of} NEW` puts another one there");
                format!("{first}; {}", then.unwrap_or(needs))
            }
        })
    }

    fn rejoining(&self, drive: &DriveStatus) -> String {
        if self.def.rejoin.paused {
            let name = self.pool;
            return format!("waits to be made whole: `flashloom pool rejoin resume {name}`");
        }
        let Some(rejoin) = drive.rejoin.as_ref().filter(|rejoin| rejoin.units > 0) else {
            return "is made whole".to_owned();
        };
        let unit = self.status.layout.au_bytes;
        let (done, all) = (rejoin.done.min(rejoin.units), rejoin.units);
        let begun = drive.changed.unwrap_or(self.clock.now);
        let spent = u128::from(self.clock.now.saturating_sub(begun));
        let left = (spent * u128::from(all - done)).checked_div(u128::from(done));
        let left = left.and_then(|left| u64::try_from(left).ok()).map(Duration::from_nanos);
        let left = left.map_or_else(String::new, |left| format!(", {} left", span(left)));
        let of = Size::new(all * unit);
        format!("is made whole: {} % of {of}{left}", done * 100 / all)
    }

    fn moving(&self, what: &str) -> String {
        let moved = self.status.rebuild.as_ref().filter(|of| of.is_under_way && of.bytes > 0);
        match moved {
            Some(of) => {
                let percent = of.done.min(of.bytes).saturating_mul(100) / of.bytes;
                let waits = if of.waits { ", waits for room there" } else { "" };
                format!("{what}: {percent} % of {}{waits}", Size::new(of.bytes))
            }
            None => what.to_owned(),
        }
    }

    /// What becomes of the drive itself.
    fn first(&self, of: &PoolDrive, drive: &DriveStatus) -> String {
        let rejoin = format!("`flashloom drive rejoin {of}` takes it back");
        match drive.stays_out {
            Some(StaysOut::Operator) => return format!("stays out: {rejoin}"),
            Some(StaysOut::Faults) => {
                return format!("stays out, as it falls apart: {rejoin} all the same");
            }
            Some(StaysOut::Returns) => {
                let minutes = RETURNS_WINDOW.as_secs() / 60;
                return format!(
                    "stays out, as it came and went {RETURNS_BORNE} times within {minutes} minutes: {rejoin}"
                );
            }
            None => {}
        }
        let outlook = self.outlook.cloned().unwrap_or_default();
        match (outlook.refused, outlook.tries_at.and_then(|at| self.until(at))) {
            (Some(why), _) => why,
            (None, Some(left)) => format!("is tried again in {left}"),
            (None, None) => "is looked for, and taken back once it is there".to_owned(),
        }
    }

    /// What becomes of its place, should it not come back.
    fn then(&self, of: &PoolDrive) -> Option<String> {
        let (def, name) = (self.def, self.pool);
        if def.removing.contains_key(&of.index) {
            return Some("it is being removed".to_owned());
        }
        if def.paused.is_some() {
            let words = format!("the rebuild is paused: `flashloom pool rebuild resume {name}`");
            return Some(words);
        }
        let outlook = self.outlook?;
        let within = |at: Nanos| match self.until(at) {
            Some(left) => format!("in {left}"),
            None => "now".to_owned(),
        };
        if let Some(Some(at)) = outlook.spare {
            return Some(format!("a spare takes its place {}", within(at)));
        }
        if def.stopped.contains(&of.index) {
            let start = format!("`flashloom pool rebuild start {name}`");
            return Some(format!("what it had is not rebuilt, as that was stopped: {start}"));
        }
        let rebuild = outlook.rebuild_at;
        rebuild.map(|at| format!("what it had is rebuilt on the others {}", within(at)))
    }

    fn until(&self, at: Nanos) -> Option<String> {
        let left = at.checked_sub(self.clock.now).filter(|left| *left > 0)?;
        Some(span(Duration::from_nanos(left)))
    }
}
