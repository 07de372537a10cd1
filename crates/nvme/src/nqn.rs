//! NVMe Qualified Names (section 4.7).

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use crate::limits::{NQN_BYTES_MAX, NQN_FIELD_BYTES};

/// The name every discovery subsystem answers to.
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// What stands before the UUID in the second form of a name.
pub const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";
/// Longest label of a domain name (RFC 1034).
const LABEL_BYTES_MAX: usize = 63;

/// A validated NVMe Qualified Name: at most 223 bytes, `nqn.yyyy-mm.reverse.domain[:string]` or
/// the UUID form. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(Arc<str>);

/// Why a string is no NQN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NqnError {
    #[error("NQN is empty")]
    Empty,
    #[error("NQN is longer than {NQN_BYTES_MAX} bytes")]
    TooLong,
    #[error("NQN field has no terminating NUL")]
    NotTerminated,
    #[error("NQN is not UTF-8")]
    NotUtf8,
    #[error("NQN does not start with \"nqn.\"")]
    Prefix,
    #[error("NQN has no date of the form yyyy-mm behind \"nqn.\"")]
    Date,
    #[error("NQN has no valid reverse domain name behind its date")]
    Domain,
    #[error("NQN has nothing, or characters that are not seen, behind its colon")]
    Suffix,
    #[error("NQN does not end in a UUID")]
    Uuid,
}

impl Nqn {
    /// Validates a name.
    pub fn new(name: &str) -> Result<Self, NqnError> {
        validate(name)?;
        Ok(Self(name.into()))
    }

    /// The well-known discovery name.
    #[must_use]
    pub fn discovery() -> Self {
        Self(DISCOVERY.into())
    }

    /// Reads a 256-byte field of a wire structure: the name, then a NUL.
    pub fn from_field(field: &[u8; NQN_FIELD_BYTES]) -> Result<Self, NqnError> {
        Self::new(field_str(field)?)
    }

    /// The name in a field of a wire structure, padded with NULs.
    #[must_use]
    pub fn to_field(&self) -> [u8; NQN_FIELD_BYTES] {
        let mut field = [0; NQN_FIELD_BYTES];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the well-known discovery name.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        &*self.0 == DISCOVERY
    }
}

/// The text of a 256-byte NQN field up to its NUL, not checked to be an NQN.
pub fn field_str(field: &[u8; NQN_FIELD_BYTES]) -> Result<&str, NqnError> {
    let end = field.iter().position(|&byte| byte == 0).ok_or(NqnError::NotTerminated)?;
    let bytes = field.get(..end).unwrap_or_default();
    if bytes.len() > NQN_BYTES_MAX {
        return Err(NqnError::TooLong);
    }
    core::str::from_utf8(bytes).map_err(|_| NqnError::NotUtf8)
}

fn validate(name: &str) -> Result<(), NqnError> {
    if name.is_empty() {
        return Err(NqnError::Empty);
    }
    if name.len() > NQN_BYTES_MAX {
        return Err(NqnError::TooLong);
    }
    if let Some(uuid) = name.strip_prefix(UUID_PREFIX) {
        return if is_uuid(uuid) { Ok(()) } else { Err(NqnError::Uuid) };
    }
    let rest = name.strip_prefix("nqn.").ok_or(NqnError::Prefix)?;
    let (date, rest) = rest.split_once('.').ok_or(NqnError::Date)?;
    if !is_date(date) {
        return Err(NqnError::Date);
    }
    let (domain, suffix) = match rest.split_once(':') {
        Some((domain, suffix)) => (domain, Some(suffix)),
        None => (rest, None),
    };
    if !domain.split('.').all(is_label) {
        return Err(NqnError::Domain);
    }
    match suffix {
        Some(suffix) if suffix.is_empty() || suffix.chars().any(is_unseen) => Err(NqnError::Suffix),
        _ => Ok(()),
    }
}

/// Characters that are not seen, or have others shown in another order: two names would look the same.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn is_date(date: &str) -> bool {
    let Some((year, month)) = date.split_once('-') else { return false };
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    digits(year, 4) && digits(month, 2) && matches!(month.parse::<u8>(), Ok(1..=12))
}

fn is_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= LABEL_BYTES_MAX
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

impl FromStr for Nqn {
    type Err = NqnError;

    fn from_str(name: &str) -> Result<Self, NqnError> {
        Self::new(name)
    }
}

impl AsRef<str> for Nqn {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl core::borrow::Borrow<str> for Nqn {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_names() {
        for name in [
            DISCOVERY,
            "nqn.2026-11.io.flashloom:default",
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "nqn.2019-01.com.example:nvme:sub.1/é",
            "nqn.2019-12.com",
        ] {
            let nqn = Nqn::new(name).unwrap();
            assert_eq!(Nqn::from_field(&nqn.to_field()).unwrap(), nqn);
        }
    }

    #[test]
    fn each_fault_has_its_name() {
        let long = format!("nqn.2019-01.com.example:{}", "x".repeat(200));
        for (name, error) in [
            ("", NqnError::Empty),
            (long.as_str(), NqnError::TooLong),
            ("iqn.2019-01.com.example", NqnError::Prefix),
            ("nqn.2019-13.com.example", NqnError::Date),
            ("nqn.19-01.com.example", NqnError::Date),
            ("nqn.2019-01", NqnError::Date),
            ("nqn.2019-01.", NqnError::Domain),
            ("nqn.2019-01.com..example", NqnError::Domain),
            ("nqn.2019-01.com.-example:x", NqnError::Domain),
            ("nqn.2019-01.com.example:", NqnError::Suffix),
            ("nqn.2019-01.com.example:a\nb", NqnError::Suffix),
            ("nqn.2019-01.com.example:a\u{202e}b", NqnError::Suffix),
            ("nqn.2019-01.com.example:a\u{200b}", NqnError::Suffix),
            ("nqn.2014-08.org.nvmexpress:uuid:f81d4fae", NqnError::Uuid),
        ] {
            assert_eq!(Nqn::new(name), Err(error), "{name:?}");
        }
        assert_eq!(Nqn::from_field(&[b'n'; 256]), Err(NqnError::NotTerminated));
        assert_eq!(Nqn::from_field(&[0; 256]), Err(NqnError::Empty));
    }
}
