//! An NVMe Qualified Name (NVMe Base 2.1, 4.7).

use std::fmt;
use std::str::FromStr;

use super::Refused;
use crate::limits::NQN_BYTES;

/// The NQN of a subsystem or host: `nqn.yyyy-mm.reverse.domain:string` or
/// `nqn.2014-08.org.nvmexpress:uuid:...`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(String);

/// The NQN that names every discovery subsystem, and so nothing else.
const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";
const RIGHT: &str = "an NQN looks like nqn.2026-11.io.flashloom:default or \
                     nqn.2014-08.org.nvmexpress:uuid:6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11";

impl Nqn {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the name of the discovery subsystem.
    pub fn is_discovery(&self) -> bool {
        self.0 == DISCOVERY
    }
}

impl FromStr for Nqn {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let refuse = |wrong: &str| {
            Err(Refused::new(format!("\"{}\" is not an NQN: {wrong}", shorten(text)), RIGHT))
        };
        if text.len() > NQN_BYTES {
            return refuse(&format!("it has {} bytes, more than {NQN_BYTES}", text.len()));
        }
        if text.chars().any(|char| char.is_control() || char.is_whitespace()) {
            return refuse("it contains white space or a control character");
        }
        let Some(rest) = text.strip_prefix("nqn.") else {
            return refuse("it does not begin with \"nqn.\"");
        };
        if let Some(uuid) = text.strip_prefix(UUID_PREFIX) {
            return match uuid::Uuid::try_parse(uuid) {
                Ok(_) if uuid.len() == 36 => Ok(Self(text.to_owned())),
                _ => refuse("what follows \"uuid:\" is not a UUID"),
            };
        }
        if !is_date(rest) {
            return refuse("\"nqn.\" is not followed by a year and month, yyyy-mm");
        }
        let named = rest.get(7..).and_then(|named| named.strip_prefix('.')).unwrap_or_default();
        let (domain, suffix) = named.split_once(':').map_or((named, None), |(d, s)| (d, Some(s)));
        if !domain.split('.').all(is_label) {
            return refuse("no reverse domain name follows the date");
        }
        if suffix == Some("") {
            return refuse("nothing follows the colon");
        }
        Ok(Self(text.to_owned()))
    }
}

/// `yyyy-mm` at the start of `text`.
fn is_date(text: &str) -> bool {
    let Some(date) = text.get(..7) else { return false };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (year, month) = (&date[..4], &date[5..]);
    let month_in_year = matches!(month.parse(), Ok(1_u8..=12));
    date.as_bytes()[4] == b'-' && digits(year) && digits(month) && month_in_year
}

/// A label of a domain name (RFC 1034, 3.1).
fn is_label(label: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let at_ends = label.starts_with('-') || label.ends_with('-');
    (1..=63).contains(&label.len()) && label.bytes().all(inside) && !at_ends
}

/// At most 60 characters of `text`, for a message.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

super::text_value!(
    Nqn,
    "nqn.2026-11.io.flashloom:default",
    "An NVMe Qualified Name, at most 223 bytes."
);
