//! What happened, as lines, and as one number that tells two runs apart.

use std::fmt::Arguments;

#[derive(Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    /// Print each line as it happens.
    pub echo: bool,
    line: String,
}

impl Trace {
    pub const fn new(echo: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, events: 0, echo, line: String::new() }
    }

    /// Notes an event at `nanos` of the life's time.
    pub fn note(&mut self, nanos: u64, what: Arguments<'_>) {
        use std::fmt::Write;
        self.line.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.line, "{:>12.3} us  {what}", micros(nanos));
        for byte in self.line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.events += 1;
        if self.echo {
            println!("{}", self.line);
        }
    }

    /// Two runs of a seed have the same.
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    pub const fn events(&self) -> u64 {
        self.events
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people to read")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}
