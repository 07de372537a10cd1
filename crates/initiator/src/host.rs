//! Who this host is: its NQN and Host Identifier (NVMe Base, sections 4.7 and 5.27.1.25).

use std::hash::{DefaultHasher, Hasher};

/// NQN and identifier a host presents in Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Host NQN.
    pub nqn: String,
    /// Host Identifier, 128 bits; the same for every controller this host connects to.
    pub id: [u8; 16],
}

const UUID_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:";

impl HostIdentity {
    /// The machine's identity: what nvme-cli keeps in `/etc/nvme`, else one derived from the machine id, so
    /// that it stays the same from run to run.
    #[must_use]
    pub fn of_machine() -> Self {
        let read = |path| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let derived = || {
            let seed = read("/etc/machine-id").or_else(|| read("/proc/sys/kernel/hostname"));
            derive(&seed.unwrap_or_default())
        };
        let id = read("/etc/nvme/hostid").and_then(|text| parse_uuid(&text));
        match (read("/etc/nvme/hostnqn").filter(|nqn| !nqn.is_empty()), id) {
            (Some(nqn), Some(id)) => Self { nqn, id },
            (Some(nqn), None) => Self::named(&nqn),
            (None, Some(id)) => Self { nqn: format!("{UUID_NQN}{}", show_uuid(id)), id },
            (None, None) => {
                let id = derived();
                Self { nqn: format!("{UUID_NQN}{}", show_uuid(id)), id }
            }
        }
    }

    /// The host called `nqn`, with the identifier its UUID gives, or one derived from the name.
    #[must_use]
    pub fn named(nqn: &str) -> Self {
        let id = nqn.strip_prefix(UUID_NQN).and_then(parse_uuid).unwrap_or_else(|| derive(nqn));
        Self { nqn: nqn.to_owned(), id }
    }

    /// The host called `nqn`, or this machine, with the identifier `id`, or its own.
    #[must_use]
    pub fn of(nqn: Option<&str>, id: Option<[u8; 16]>) -> Self {
        let host = nqn.map_or_else(Self::of_machine, Self::named);
        Self { id: id.unwrap_or(host.id), ..host }
    }

    /// A Host Identifier, written as a UUID.
    ///
    /// # Errors
    /// What would be one.
    pub fn parse_id(text: &str) -> Result<[u8; 16], String> {
        let right = "write a UUID such as 00112233-4455-6677-8899-aabbccddeeff";
        parse_uuid(text).filter(|id| *id != [0; 16]).ok_or_else(|| right.to_owned())
    }
}

/// A version 8 (custom) UUID from a seed, RFC 9562 section 5.8.
fn derive(seed: &str) -> [u8; 16] {
    let mut id = [0; 16];
    for (half, salt) in id.chunks_exact_mut(8).zip([1, 2]) {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(salt);
        hasher.write(b"flashloom host identity");
        hasher.write(seed.as_bytes());
        half.copy_from_slice(&hasher.finish().to_be_bytes());
    }
    id[6] = 0x80 | (id[6] & 0x0f);
    id[8] = 0x80 | (id[8] & 0x3f);
    id
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let hex: String = text.chars().filter(|&c| c != '-').collect();
    if hex.len() != 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    Some(u128::from_str_radix(&hex, 16).ok()?.to_be_bytes())
}

fn show_uuid(id: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(id));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_nqn_gives_its_uuid() {
        let nqn = "nqn.2014-08.org.nvmexpress:uuid:00112233-4455-6677-8899-aabbccddeeff";
        let host = HostIdentity::named(nqn);
        assert_eq!(host.id[..4], [0x00, 0x11, 0x22, 0x33]);
        assert_eq!(show_uuid(host.id), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn any_other_name_gives_a_stable_uuid_of_its_own() {
        let (a, b) =
            (HostIdentity::named("nqn.2026-11.io.x:a"), HostIdentity::named("nqn.2026-11.io.x:b"));
        assert_ne!(a.id, b.id);
        assert_eq!(a, HostIdentity::named("nqn.2026-11.io.x:a"));
        assert_eq!((a.id[6] >> 4, a.id[8] >> 6), (8, 2));
    }

    #[test]
    fn an_identifier_of_its_own_goes_before_that_of_the_name() {
        let id = HostIdentity::parse_id("00112233-4455-6677-8899-aabbccddeeff").unwrap();
        let host = HostIdentity::of(Some("nqn.2026-11.io.x:a"), Some(id));
        assert_eq!(host, HostIdentity { nqn: "nqn.2026-11.io.x:a".to_owned(), id });
        assert_eq!(HostIdentity::of(Some(&host.nqn), None), HostIdentity::named(&host.nqn));
        assert!(HostIdentity::parse_id("17").unwrap_err().contains("UUID"));
        assert!(HostIdentity::parse_id(&show_uuid([0; 16])).is_err());
    }

    #[test]
    fn the_machine_has_an_identity() {
        let host = HostIdentity::of_machine();
        assert!(host.nqn.starts_with("nqn."), "{}", host.nqn);
        assert_ne!(host.id, [0; 16]);
    }
}
