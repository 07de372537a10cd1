//! Where a server listens.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// A socket in the file system, or a TCP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `unix:PATH`
    Unix(PathBuf),
    /// `HOST:PORT`
    Tcp(SocketAddr),
}

/// A text that is no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write unix:PATH or HOST:PORT, such as unix:/run/disk.sock or 127.0.0.1:10809: `{0}`")]
pub struct NoPlace(String);

impl FromStr for Place {
    type Err = NoPlace;

    /// Names are resolved, to the first address they stand for.
    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let refused = || NoPlace(text.to_owned());
        match text.strip_prefix("unix:") {
            Some("") => Err(refused()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => {
                let mut addresses = text.to_socket_addrs().map_err(|_| refused())?;
                addresses.next().map(Self::Tcp).ok_or_else(refused)
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_shown() {
        for text in ["unix:/run/x.sock", "127.0.0.1:10809", "[::1]:10809"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        for text in ["", "unix:", "127.0.0.1", "/run/x.sock", "no such host:1"] {
            let refused = text.parse::<Place>().unwrap_err().to_string();
            assert!(refused.contains("unix:PATH"), "{refused}");
        }
    }
}
