//! When a queue sends what is queued, if it gathers commands first. Arithmetic only.

use reactor::Nanos;

use crate::optimizations::Batching;

/// What is queued and not sent.
#[derive(Debug)]
pub struct Batch {
    bounds: Batching,
    commands: u16,
    bytes: u32,
    /// When the first command was queued.
    since: Nanos,
}

impl Batch {
    /// Nothing is queued.
    pub const fn new(bounds: Batching) -> Self {
        Self { bounds, commands: 0, bytes: 0, since: 0 }
    }

    /// A command that sends `bytes` of data was queued.
    pub fn add(&mut self, bytes: u32, now: Nanos) {
        if self.commands == 0 {
            self.since = now;
        }
        self.commands += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// What was queued is sent.
    pub const fn clear(&mut self) {
        self.commands = 0;
        self.bytes = 0;
    }

    /// Whether to send now, with `outstanding` commands in the queue, these included. It waits only where there are
    /// enough for a full batch on its way and another one here: with fewer, those who wait for the answers are those
    /// who would fill it, and each side would stand still while the other one works.
    pub const fn is_due(&self, outstanding: u16, now: Nanos) -> bool {
        self.commands >= self.bounds.commands
            || self.bytes >= self.bounds.bytes
            || outstanding < self.bounds.commands.saturating_mul(2)
            || now >= self.deadline()
    }

    /// Until when the first command may wait.
    pub const fn deadline(&self) -> Nanos {
        let wait = self.bounds.wait.as_nanos();
        // Waits of centuries are none that anyone asks for.
        #[allow(clippy::cast_possible_truncation, reason = "a batching bound is below a second")]
        self.since.saturating_add(wait as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BOUNDS: Batching =
        Batching { commands: 4, bytes: 10_000, wait: Duration::from_nanos(500) };

    #[test]
    fn each_bound_ends_the_wait() {
        let mut batch = Batch::new(BOUNDS);
        for _ in 0..3 {
            batch.add(0, 1000);
        }
        assert!(!batch.is_due(8, 1499));
        assert!(batch.is_due(8, 1500), "time");
        assert!(batch.is_due(7, 1000), "no second batch is in flight");
        batch.add(0, 1100);
        assert!(batch.is_due(8, 1100), "commands");
        batch.clear();
        batch.add(9999, 2000);
        assert!(!batch.is_due(8, 2000));
        batch.add(1, 2000);
        assert!(batch.is_due(8, 2000), "bytes");
    }

    #[test]
    fn the_first_command_sets_the_time() {
        let mut batch = Batch::new(BOUNDS);
        batch.add(1, 1000);
        batch.add(1, 1400);
        assert_eq!(batch.deadline(), 1500);
        batch.clear();
        batch.add(1, 1400);
        assert_eq!(batch.deadline(), 1900);
    }
}
