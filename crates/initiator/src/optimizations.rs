//! What makes the host's side fast, each with a switch of its own, so that each can be measured without it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::limits::{BATCH_BYTES, BATCH_COMMANDS, BATCH_WAIT, BUSY_POLL, POLL_SPIN};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimization {
    /// Queue maps: reads, everything else and polled commands each have queues of their own, as many as
    /// [`crate::Options`] says, so that none waits behind the data of another class. Without it they all share
    /// all queues.
    Maps,
    /// Affinity: the queues of each map are numbered from CPU 0 on, and a command takes the queue of the CPU it is
    /// submitted on as long as that has room. Without it queues are taken in turn, the least busy one first.
    Affinity,
    /// A command is sent in the context that submits it, when the queue has nothing else to send and no other
    /// submitter is about to run. Without it a task of the queue's own sends.
    Direct,
    /// Whoever waits for the only command in flight receives its completion itself, looking at the socket for a
    /// bounded time. Without it the queue's own task receives, and wakes the one who waits.
    Polled,
    /// What the tasks of a turn submit is a list that is pulled at once: one system call sends all of it. Without
    /// it each command is pulled, and sent, by itself. (Nothing is shared here; where commands come from other
    /// threads, the lists between are those of the crate for such threads.)
    List,
    /// The kernel is told whether more is queued behind what is sent: `MSG_MORE` when it is, `MSG_EOR` at the
    /// end. Without it each send stands for itself.
    Hints,
    /// A throughput queue sends, with one system call, when commands or bytes enough are queued, or the first one
    /// has waited for long enough ([`Batching`]). Without it a queue sends at the end of each turn.
    Batching,
    /// The kernel polls the network card's queue instead of waiting for its interrupt (`SO_BUSY_POLL`).
    BusyPoll,
    /// Queue groups: all I/O queues of a reactor come by one queue of the network card, and those of another reactor
    /// by another, as far as the card has so many. Without it the card spreads them by addresses and ports.
    Groups,
}

impl Optimization {
    /// All of them, in the order in which they are explained.
    pub const ALL: [Self; 9] = [
        Self::Maps,
        Self::Affinity,
        Self::Direct,
        Self::Polled,
        Self::List,
        Self::Hints,
        Self::Batching,
        Self::BusyPoll,
        Self::Groups,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Maps => "maps",
            Self::Affinity => "affinity",
            Self::Direct => "direct",
            Self::Polled => "polled",
            Self::List => "list",
            Self::Hints => "hints",
            Self::Batching => "batching",
            Self::BusyPoll => "busy-poll",
            Self::Groups => "groups",
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

impl fmt::Display for Optimization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How long a throughput queue gathers commands before it sends them: the bounds of i10 (Hwang et al., NSDI
/// 2020), whichever is met first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Commands that are sent together.
    pub commands: u16,
    /// Bytes of data they send, together.
    pub bytes: u32,
    /// How long the first one waits at most.
    pub wait: Duration,
}

/// What goes by one system call to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Call {
    /// A command.
    Command,
    /// All that a turn queued.
    #[default]
    Turn,
    /// All that was gathered within these bounds.
    Batch(Batching),
}

/// Which optimizations are on, and their measures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Optimizations {
    on: u16,
    /// Bounds of [`Optimization::Batching`].
    pub batching: Batching,
    /// How long [`Optimization::Polled`] looks at the socket before the queue's own task takes over.
    pub spin: Duration,
    /// How long the kernel polls with [`Optimization::BusyPoll`].
    pub busy_poll: Duration,
}

impl Optimizations {
    /// None is on.
    #[must_use]
    pub const fn none() -> Self {
        let batching = Batching { commands: BATCH_COMMANDS, bytes: BATCH_BYTES, wait: BATCH_WAIT };
        Self { on: 0, batching, spin: POLL_SPIN, busy_poll: BUSY_POLL }
    }

    /// All are on.
    #[must_use]
    pub fn all() -> Self {
        Optimization::ALL.into_iter().fold(Self::none(), Self::with)
    }

    /// These with one more.
    #[must_use]
    pub const fn with(self, optimization: Optimization) -> Self {
        Self { on: self.on | optimization.bit(), ..self }
    }

    /// These without one.
    #[must_use]
    pub const fn without(self, optimization: Optimization) -> Self {
        Self { on: self.on & !optimization.bit(), ..self }
    }

    /// Whether it is on.
    #[must_use]
    pub const fn has(&self, optimization: Optimization) -> bool {
        self.on & optimization.bit() != 0
    }

    /// What goes by one call on a queue; one for polled commands gathers nothing.
    pub(crate) const fn call(&self, polled: bool) -> Call {
        if self.has(Optimization::Batching) && !polled {
            Call::Batch(self.batching)
        } else if self.has(Optimization::List) {
            Call::Turn
        } else {
            Call::Command
        }
    }
}

impl Default for Optimizations {
    /// All that cost nobody anything: no batching, which trades latency for throughput; no affinity, which has a
    /// single reactor use a single queue, where several may stand for several cores of the target; and neither busy
    /// polling in the kernel nor queue groups, which take a network card to gain by.
    fn default() -> Self {
        let off = [
            Optimization::Batching,
            Optimization::Affinity,
            Optimization::BusyPoll,
            Optimization::Groups,
        ];
        off.into_iter().fold(Self::all(), Self::without)
    }
}

impl fmt::Display for Optimizations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on: Vec<_> =
            Optimization::ALL.into_iter().filter(|&optimization| self.has(optimization)).collect();
        match &on[..] {
            [] => f.write_str("none"),
            on => f.write_str(
                &on.iter().map(|optimization| optimization.name()).collect::<Vec<_>>().join(","),
            ),
        }
    }
}

impl fmt::Debug for Optimizations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Optimizations({self}, {:?}, {:?}, {:?})",
            self.batching, self.spin, self.busy_poll
        )
    }
}

/// `default`, `all`, `none`, or names with commas between them; a name that begins with `-` is taken off what
/// stands before it, which is `default` when nothing does.
impl FromStr for Optimizations {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut optimizations = if text.starts_with('-') { Self::default() } else { Self::none() };
        for word in text.split(',').map(str::trim) {
            let (name, off) = word.strip_prefix('-').map_or((word, false), |name| (name, true));
            optimizations = match (
                name,
                Optimization::ALL.into_iter().find(|optimization| optimization.name() == name),
            ) {
                ("default", _) if !off => Self::default(),
                ("all", _) if !off => Self::all(),
                ("none", _) if !off => Self::none(),
                (_, Some(optimization)) if off => optimizations.without(optimization),
                (_, Some(optimization)) => optimizations.with(optimization),
                _ => {
                    return Err(format!(
                        "no optimization is called `{name}`; write default, all, none or some of {}",
                        Self::all()
                    ));
                }
            };
        }
        Ok(optimizations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for optimizations in [Optimizations::none(), Optimizations::all(), Optimizations::default()]
        {
            assert_eq!(optimizations.to_string().parse(), Ok(optimizations));
        }
        for optimization in Optimization::ALL {
            assert_eq!(optimization.name().parse(), Ok(Optimizations::none().with(optimization)));
            assert_eq!(
                format!("all,-{optimization}").parse(),
                Ok(Optimizations::all().without(optimization))
            );
        }
        assert_eq!("-hints".parse(), Ok(Optimizations::default().without(Optimization::Hints)));
        assert!("speed".parse::<Optimizations>().unwrap_err().contains("busy-poll"));
    }

    #[test]
    fn one_is_switched_and_no_other() {
        for optimization in Optimization::ALL {
            for other in Optimization::ALL {
                assert_eq!(
                    Optimizations::none().with(optimization).has(other),
                    optimization == other
                );
                assert_eq!(
                    Optimizations::all().without(optimization).has(other),
                    optimization != other
                );
            }
        }
    }
}
