//! Rough treatment: several things that go wrong at once, and an operator who tries whatever is at hand.

use std::time::Duration;
use stdx::Prng;

/// What of that there is in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rough {
    /// Openings an operator tries before one with everything there is, at most.
    pub tries: u64,
    /// Among what is tried are copies that drives left of themselves long ago.
    pub old_copies: bool,
    /// As many drives as the redundancy bears misbehave at once, come back with what they had, or never.
    pub sick: bool,
    /// Those that misbehave do so in part, too: one ends before what the pool has there, lacks space by itself, or
    /// gives nothing of its part of the log alone.
    pub partly: bool,
    /// All drives refuse some operations for reasons that pass.
    pub passing: bool,
    /// There is no space behind the drives for a while, while the pool is opened too.
    pub full: bool,
    /// Of two devices of the log, one has bytes now and then that cannot be reached.
    pub poison: bool,
    /// Drives come and go while the pool is open, as many at once as the redundancy bears.
    pub returns: bool,
    /// An operator takes some out, and replaces others.
    pub replaces: bool,
    /// An operator adds drives, has others emptied, and what is lost with some rebuilt on the rest.
    pub widens: bool,
    /// Drives get slow, as many as may be, and fast again.
    pub slows: bool,
}

impl Rough {
    /// Of a run with everything, by chance.
    pub fn any(prng: &mut Prng) -> Self {
        let mut some = |of: u64| prng.below(of) > 0;
        Self {
            tries: 3 * u64::from(some(3)),
            old_copies: !some(4),
            sick: some(4),
            partly: false,
            passing: some(3),
            full: !some(4),
            poison: false,
            returns: false,
            replaces: false,
            widens: false,
            slows: false,
        }
    }
}

impl Rough {
    /// Drives do nothing but get slow.
    pub const fn leaves_drives_alone(self) -> bool {
        !(self.sick || self.passing || self.full || self.returns || self.replaces || self.widens)
    }
}

/// How a drive misbehaves.
#[derive(Clone, Copy, Debug)]
pub enum Sickness {
    /// It is gone, and back after so long perhaps.
    Away(Option<Duration>),
    /// It does not answer, for ever perhaps.
    Hangs(Option<Duration>),
    /// It refuses so many operations of some kind.
    Refuses { operation: Option<media::Operation>, kind: media::Kind, times: Option<u64> },
    /// It refuses this in its zone of the commit log, or everything there, and nothing anywhere else.
    RefusesLog { operation: Option<media::Operation>, times: Option<u64> },
    /// So much of a hundred parts is left of it, and all of it is there again after so long perhaps.
    CutShort { percent: u64, back: Option<Duration> },
    /// There is no space behind it for what was never written there, for so long, or as long as it is sick.
    LacksSpace(Option<Duration>),
    /// It refuses a share of everything, loses writes and forgets sectors.
    Rots,
}

/// A time from some microseconds on, short ones as likely as long ones of twice the length.
pub fn moment(prng: &mut Prng, doublings: u64) -> Duration {
    let most = 1 << (3 + prng.below(doublings));
    Duration::from_micros(prng.below(most))
}

impl Sickness {
    pub fn any(prng: &mut Prng) -> Self {
        use media::{Kind, Operation};
        let back = (prng.below(3) > 0).then(|| moment(prng, 20));
        let times = (prng.below(4) > 0).then(|| 1 << prng.below(8));
        match prng.below(7) {
            0 | 1 => Self::Away(back),
            2 => Self::Hangs(back),
            3 | 4 => Self::RefusesLog { operation: Some(Operation::Write), times },
            5 => {
                let operations =
                    [None, Some(Operation::Read), Some(Operation::Write), Some(Operation::Flush)];
                let kinds = [
                    Kind::Medium,
                    Kind::Gone,
                    Kind::Unsupported,
                    Kind::ReadOnly,
                    Kind::Timeout,
                    Kind::Passing,
                ];
                let operation = operations[stdx::num::usize64(prng.below(4))];
                let kind = kinds[stdx::num::usize64(prng.below(6))];
                Self::Refuses { operation, kind, times }
            }
            _ => Self::Rots,
        }
    }

    /// One of those that leave some of a drive as it was, which may have a zone of the log.
    pub fn in_part(prng: &mut Prng, has_zone: bool) -> Self {
        let back = (prng.below(3) > 0).then(|| moment(prng, 20));
        let times = (prng.below(4) > 0).then(|| 1 << prng.below(8));
        match prng.below(8) {
            0 | 1 if has_zone => Self::RefusesLog { operation: None, times },
            2 | 3 if has_zone => {
                Self::RefusesLog { operation: Some(media::Operation::Read), times }
            }
            7 => Self::LacksSpace(back),
            _ => {
                let percent = [0, 50, 95][stdx::num::usize64(prng.below(3))];
                Self::CutShort { percent, back }
            }
        }
    }

    /// Whether a drive seems sound that does not give what it has.
    pub const fn is_mute(self) -> bool {
        matches!(self, Self::RefusesLog { operation: None | Some(media::Operation::Read), .. })
    }
}
