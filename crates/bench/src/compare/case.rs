//! The cases: what is asked, of whom, and which figure counts.

use super::Side;
use super::Side::{
    Floor, FloorOnward, Own, OwnBusy, OwnDegraded, OwnLogOnDisk, OwnMirrored, OwnOnDisk, OwnShared,
    OwnShortLog, OwnTarget, OwnVolume, Spdk, SpdkFile, SpdkTarget,
};

/// The figure whose ratio is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    Iops,
    P50,
    Bandwidth,
}

/// One row of the comparison.
pub struct Case {
    pub name: &'static str,
    /// fio's name of the pattern.
    pub rw: &'static str,
    /// Bytes of a command.
    pub block: u32,
    pub depth: u16,
    /// I/O queues of the measured load.
    pub queues: u16,
    /// Flashloom's poll policy.
    pub poll: &'static str,
    /// A second load beside the measured one: one queue of 1 MiB writes at depth 16.
    pub writer: bool,
    pub figure: Figure,
    /// The last is what the others are held against.
    pub sides: &'static [Side],
}

const fn case(name: &'static str, rw: &'static str, block: u32, depth: u16) -> Case {
    Case {
        name,
        rw,
        block,
        depth,
        queues: 1,
        poll: "busy",
        writer: false,
        figure: Figure::Iops,
        sides: &[OwnTarget, Spdk],
    }
}

/// A volume of a pool against memory served as it is.
const fn volume(name: &'static str, rw: &'static str, block: u32, depth: u16) -> Case {
    Case { sides: &[OwnVolume, Own], ..case(name, rw, block, depth) }
}

/// Writes whose log another target has too, against those whose log is here alone. Its target is never stopped while
/// others are measured on its core, so it does not spin without end.
const fn mirrored(name: &'static str, depth: u16) -> Case {
    Case {
        poll: "adaptive",
        sides: &[OwnMirrored, OwnVolume],
        ..case(name, "randwrite", KIB4, depth)
    }
}

const KIB4: u32 = 4096;
const KIB128: u32 = 128 * 1024;

pub const CASES: &[Case] = &[
    Case {
        figure: Figure::P50,
        sides: &[Own, Spdk, Floor],
        ..case("read-qd1", "randread", KIB4, 1)
    },
    Case {
        figure: Figure::P50,
        sides: &[Own, OwnBusy],
        poll: "adaptive",
        ..case("read-qd1-adaptive", "randread", KIB4, 1)
    },
    Case { figure: Figure::P50, sides: &[Own, Spdk], ..case("write-qd1", "randwrite", KIB4, 1) },
    case("read-qd32", "randread", KIB4, 32),
    case("read-qd128", "randread", KIB4, 128),
    case("write-qd32", "randwrite", KIB4, 32),
    case("write-qd128", "randwrite", KIB4, 128),
    Case { figure: Figure::Bandwidth, ..case("read-128k", "read", KIB128, 8) },
    Case { figure: Figure::Bandwidth, ..case("write-128k", "write", KIB128, 8) },
    // The same target, so that what differs is the host.
    Case {
        figure: Figure::P50,
        sides: &[Own, OwnTarget],
        ..case("host-read-qd1", "randread", KIB4, 1)
    },
    Case { sides: &[Own, OwnTarget], ..case("host-read-qd32", "randread", KIB4, 32) },
    Case { sides: &[Own, OwnTarget], ..case("host-read-qd128", "randread", KIB4, 128) },
    Case { sides: &[Own, Floor], ..case("floor-qd32", "randread", KIB4, 32) },
    Case { sides: &[Own, Floor], ..case("floor-qd128", "randread", KIB4, 128) },
    // One client for both targets: two loads from two spinning processes would measure how the
    // scheduler shares the client's core.
    Case { queues: 16, sides: &[Own, SpdkTarget], ..case("readers", "randread", KIB4, 1) },
    Case {
        queues: 16,
        writer: true,
        sides: &[Own, SpdkTarget],
        ..case("readers-beside-writer", "randread", KIB4, 1)
    },
    Case { figure: Figure::P50, ..volume("volume-write-qd1", "randwrite", KIB4, 1) },
    volume("volume-write-qd32", "randwrite", KIB4, 32),
    volume("volume-read-qd32", "randread", KIB4, 32),
    Case { figure: Figure::Bandwidth, ..volume("volume-read-128k", "read", KIB128, 8) },
    Case { figure: Figure::Bandwidth, ..volume("volume-write-128k", "write", KIB128, 8) },
    Case {
        figure: Figure::P50,
        sides: &[OwnMirrored, OwnVolume, FloorOnward],
        ..mirrored("volume-write-mirrored-qd1", 1)
    },
    mirrored("volume-write-mirrored-qd32", 32),
    Case { sides: &[OwnDegraded, OwnShared], ..case("volume-read-two-lost", "randread", KIB4, 32) },
    Case {
        figure: Figure::P50,
        sides: &[OwnOnDisk, SpdkFile],
        ..case("volume-write-disk", "randwrite", KIB4, 1)
    },
    Case { sides: &[OwnOnDisk, SpdkFile], ..case("volume-read-disk", "randread", KIB4, 32) },
    // Commands that wait: for what was written before to be carried to the drives, and for the drives that have the log.
    Case {
        sides: &[OwnShortLog, OwnVolume],
        ..case("volume-write-log-full", "randwrite", KIB4, 128)
    },
    Case {
        sides: &[OwnLogOnDisk, OwnOnDisk],
        ..case("volume-write-log-drives", "randwrite", KIB4, 32)
    },
    // Durable when it is acknowledged, either way: in one round trip, and in one that waits for the drives.
    Case {
        figure: Figure::P50,
        sides: &[OwnOnDisk, OwnLogOnDisk],
        ..case("volume-write-drives-wait", "randwrite", KIB4, 1)
    },
];
