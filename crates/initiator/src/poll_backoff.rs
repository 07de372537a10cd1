//! Whether to look for a completion where it is waited for. Arithmetic only.

/// Most commands that are not looked for after looking was in vain.
const LAST_BACKOFF: u32 = 1024;

/// Learns whether looking pays: it does not where completions take longer, or where the controller shares the CPU
/// and can only answer once nobody spins. Then all but one in a growing number of commands are not looked for.
#[derive(Debug, Default)]
pub struct PollBackoff {
    skip: u32,
    backoff: u32,
}

impl PollBackoff {
    /// Whether to look for the next command's completion.
    pub const fn looks(&mut self) -> bool {
        if self.skip == 0 {
            return true;
        }
        self.skip -= 1;
        false
    }

    /// It was found.
    pub const fn found(&mut self) {
        self.backoff = 0;
    }

    /// It did not come while it was looked for.
    pub fn in_vain(&mut self) {
        self.backoff = (self.backoff * 2).clamp(1, LAST_BACKOFF);
        self.skip = self.backoff;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_goes_on_while_it_pays() {
        let mut backoff = PollBackoff::default();
        for _ in 0..100 {
            assert!(backoff.looks());
            backoff.found();
        }
    }

    #[test]
    fn looking_in_vain_becomes_rare_and_comes_back() {
        let mut backoff = PollBackoff::default();
        let mut looks = 0;
        for _ in 0..10_000 {
            if backoff.looks() {
                looks += 1;
                backoff.in_vain();
            }
        }
        assert!(looks < 25, "{looks}");
        while !backoff.looks() {}
        backoff.found();
        assert!((0..100).all(|_| backoff.looks()));
    }
}
