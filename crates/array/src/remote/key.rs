//! Reservation keys: whose they are can be told from them.

use stdx::crc32c;
use uuid::Uuid;

/// From whom the namespace is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// From whoever of this node had it: a process that was killed, perhaps.
    Nodes,
    /// From another node, too, which is gone for good.
    Anybodys,
    /// From this drive alone, which held it before: whoever else of this node has it is newer.
    Own,
}

/// An incarnation's key, the same on all reactors. From the highest bits on: 32 of the node, 24 of the drive in this
/// process, drawn at random, 7 of the incarnation, and one that is set until whatever was in flight before has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u64);

const CLAIMING: u64 = 1;
const NODE_SHIFT: u32 = 32;
const DRIVE_SHIFT: u32 = 8;

impl Key {
    /// `line` is drawn at random for each drive of each process.
    pub fn new(node: Uuid, line: u32, incarnation: u64) -> Self {
        // A key is not 0 (NVMe Base 2.1, section 8.1.22.1).
        let tag = u64::from(crc32c(node.as_bytes()).max(1)) << NODE_SHIFT;
        Self(tag | of_line(line) | (incarnation & 0x7f) << 1)
    }

    /// As it is once the namespace is held.
    pub const fn settled(self) -> u64 {
        self.0
    }

    /// As it is while the namespace is being taken.
    pub const fn claiming(self) -> u64 {
        self.0 | CLAIMING
    }

    /// Whether a key is this node's.
    pub const fn is_of_node(self, key: u64) -> bool {
        self.0 >> NODE_SHIFT == key >> NODE_SHIFT
    }

    /// Whether a key is of an incarnation of the same drive.
    pub const fn is_of_drive(self, key: u64) -> bool {
        self.0 >> DRIVE_SHIFT == key >> DRIVE_SHIFT
    }
}

const LINE: u32 = 0x00ff_ffff;

fn of_line(line: u32) -> u64 {
    u64::from(line & LINE) << DRIVE_SHIFT
}

/// Whether a key of this node is of the drive for which this was drawn.
pub(super) fn is_of_line(key: u64, line: u32) -> bool {
    key & of_line(LINE) == of_line(line)
}

/// Whether the one with this key had not seen yet that what was in flight before it has ended.
pub(super) const fn is_claiming(key: u64) -> bool {
    key & CLAIMING != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_whose_it_is() {
        let (node, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let key = Key::new(node, 0xffff_ffff, 1);
        for again in [key, Key::new(node, 0xffff_ffff, 2)] {
            for as_it_is in [again.settled(), again.claiming()] {
                assert!(key.is_of_node(as_it_is) && key.is_of_drive(as_it_is));
            }
        }
        let next = Key::new(node, 7, 1);
        assert!(key.is_of_node(next.settled()) && !key.is_of_drive(next.settled()));
        assert!(is_of_line(key.claiming(), 0xffff_ffff) && !is_of_line(next.settled(), 8));
        let foreign = Key::new(other, 0xffff_ffff, 1);
        assert!(!key.is_of_node(foreign.settled()) && !key.is_of_drive(foreign.settled()));
        assert_ne!(key, Key::new(node, 0xffff_ffff, 2), "another incarnation, another key");
        assert!(is_claiming(key.claiming()) && !is_claiming(key.settled()));
    }
}
