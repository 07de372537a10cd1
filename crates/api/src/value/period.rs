//! How long it is from one run of a schedule to the next, written `15m`, `1h`, `1d`, `1w`.

use std::fmt;
use std::str::FromStr;

use super::Refused;
use crate::limits::{PERIOD_SECONDS_MAX, PERIOD_SECONDS_MIN};

/// A period in seconds, shown in the largest unit that divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(u64);

const RIGHT: &str =
    "write 1 minute to 366 days as a number of m, h, d or w, such as 15m, 1h, 1d or 1w";

/// By their letters, the largest first.
const UNITS: [(char, u64); 4] = [('w', 7 * 24 * 3600), ('d', 24 * 3600), ('h', 3600), ('m', 60)];

impl Period {
    /// In seconds.
    pub const fn seconds(self) -> u64 {
        self.0
    }
}

impl FromStr for Period {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let unit = |&(letter, seconds): &(char, u64)| Some((text.strip_suffix(letter)?, seconds));
        let read = |(count, unit): (&str, u64)| {
            let is_number = count.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| count.parse::<u64>().ok()?.checked_mul(unit)).flatten()
        };
        let seconds = UNITS.iter().find_map(unit).and_then(read);
        let is_bounded =
            |seconds: &u64| (PERIOD_SECONDS_MIN..=PERIOD_SECONDS_MAX).contains(seconds);
        let refused = || Refused::new(format!("{text:?} is not a period of a schedule"), RIGHT);
        seconds.filter(is_bounded).map(Self).ok_or_else(refused)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |(_, seconds): &&(char, u64)| self.0.is_multiple_of(*seconds);
        let (letter, seconds) = UNITS.iter().find(divides).copied().unwrap_or(('m', 60));
        out.pad(&format!("{}{letter}", self.0 / seconds))
    }
}

super::text_value!(
    Period,
    "1h",
    "How long it is from one run to the next: a number of m, h, d or w, 1 minute to 366 days."
);
