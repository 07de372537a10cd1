//! Identities that hosts remember: derived from the node's own, so that the same thing served
//! again, by this node, is the same to a host.
//!
//! A namespace's UUID and NGUID follow its subsystem, its NSID and, for a drive or a passthrough, its path:
//! a host that reconnects after a restart finds what it left (Linux fails I/O when either
//! changes), and a namespace that moves to other media gets another identity.

use api::value::{Backend, Nqn};
use uuid::Uuid;

/// A new identity for a node.
pub fn new_node() -> Uuid {
    Uuid::new_v4()
}

/// Serial number of a subsystem: 20 characters, Base 2.1 Identify Controller SN.
pub fn serial(node: Uuid, subsystem: &Nqn) -> String {
    let derived = Uuid::new_v5(&node, format!("serial {subsystem}").as_bytes()).simple();
    let hex = derived.to_string().to_ascii_uppercase();
    format!("FL{}", &hex[..18])
}

/// UUID of a namespace that was not given one.
pub fn namespace(node: Uuid, subsystem: &Nqn, nsid: u32, backend: &Backend) -> Uuid {
    let media = match backend {
        Backend::Memory { .. } => "memory".to_owned(),
        Backend::Drive { path, .. } => format!("drive {}", path.display()),
        Backend::Passthrough { path } => format!("passthrough {}", path.display()),
        Backend::Volume(volume) => format!("volume {volume}"),
        Backend::Snapshot(snapshot) => format!("snapshot {snapshot}"),
    };
    Uuid::new_v5(&node, format!("namespace {subsystem} {nsid} {media}").as_bytes())
}

/// NGUID of a namespace: the bytes of its UUID, unique for the same reason.
pub const fn nguid(uuid: Uuid) -> [u8; 16] {
    *uuid.as_bytes()
}

/// `nguid` as 32 hexadecimal digits.
pub fn nguid_text(uuid: Uuid) -> String {
    uuid.simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_follow_what_they_name() {
        let node = new_node();
        let nqn: Nqn = "nqn.2026-11.io.flashloom:a".parse().unwrap();
        let memory: Backend = "memory:1GiB".parse().unwrap();
        let larger: Backend = "memory:2GiB".parse().unwrap();
        let drive: Backend = "drive:/dev/nvme0n1".parse().unwrap();
        assert_eq!(serial(node, &nqn).len(), 20);
        assert_eq!(serial(node, &nqn), serial(node, &nqn));
        assert_ne!(serial(node, &nqn), serial(new_node(), &nqn));
        assert_eq!(namespace(node, &nqn, 1, &memory), namespace(node, &nqn, 1, &larger));
        assert_ne!(namespace(node, &nqn, 1, &memory), namespace(node, &nqn, 2, &memory));
        assert_ne!(namespace(node, &nqn, 1, &memory), namespace(node, &nqn, 1, &drive));
    }
}
