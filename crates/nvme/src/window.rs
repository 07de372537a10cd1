//! The vendor specific admin commands of direct write windows (`docs/anof.md`, "Negotiation").

use stdx::num::u32_of;

use crate::opcode::admin;
use crate::refusal::{Reason, Refusal};
use crate::sqe::Sqe;

/// Bytes that a Window Receive returns, and the dwords that it asks for less 1.
pub const GRANT_BYTES: usize = 512;
const DWORDS: u32 = u32_of(GRANT_BYTES) / 4 - 1;

/// What the vendor specific bytes of Identify Controller begin with where there are windows: these opcodes are others' elsewhere.
pub const MARK: [u8; 8] = *b"FLWINDOW";

/// What CDW12 counts in, in bytes.
const UNIT: u64 = 4096;

/// The fabric of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fabric {
    /// Memory that host and target share.
    Shm,
    /// Memory of the target's that the host writes by RDMA.
    Rdma,
}

impl Fabric {
    const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            1 => Some(Self::Shm),
            2 => Some(Self::Rdma),
            _ => None,
        }
    }

    const fn raw(self) -> u32 {
        match self {
            Self::Shm => 1,
            Self::Rdma => 2,
        }
    }
}

/// A Window Receive command: asks for a window of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowReceive {
    pub nsid: u32,
    pub fabric: Fabric,
    /// Bytes of each ring, a multiple of 4096; `None` leaves them to the target.
    pub ring_bytes: Option<u64>,
    /// By RDMA: the host's card can have what it wrote be flushed.
    pub flushes: bool,
}

impl WindowReceive {
    /// Reads a Window Receive; how large rings may be is the controller's to say.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        if sqe.cdw10.get() != DWORDS {
            return Err(Refusal::at(Reason::Value, 10, 0));
        }
        let fabric = Fabric::from_raw(sqe.cdw11.get()).ok_or(Refusal::at(Reason::Value, 11, 0))?;
        let ring_bytes = match sqe.cdw12.get() {
            0 => None,
            units => Some(u64::from(units) * UNIT),
        };
        let flushes = match sqe.cdw13.get() {
            flushes @ 0..=1 => flushes == 1,
            _ => return Err(Refusal::at(Reason::Value, 13, 0)),
        };
        Ok(Self { nsid: sqe.nsid.get(), fabric, ring_bytes, flushes })
    }

    /// The entry a host sends; its data pointer is the caller's to set. Of `ring_bytes` that are no whole units the next
    /// larger are asked for.
    #[must_use]
    pub fn to_sqe(self, cid: u16) -> Sqe {
        let units = self.ring_bytes.map_or(0, |bytes| bytes.div_ceil(UNIT));
        let mut sqe = Sqe::new(admin::WINDOW_RECEIVE, cid, self.nsid);
        sqe.cdw10 = DWORDS.into();
        sqe.cdw11 = self.fabric.raw().into();
        sqe.cdw12 = u32::try_from(units).unwrap_or(u32::MAX).into();
        sqe.cdw13 = u32::from(self.flushes).into();
        sqe
    }
}

/// A Window End command: gives a window back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowEnd {
    pub nsid: u32,
    /// The window's number, as it was granted.
    pub number: u32,
}

impl WindowEnd {
    /// Reads a Window End: every value is one.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        Self { nsid: sqe.nsid.get(), number: sqe.cdw10.get() }
    }

    /// The entry a host sends.
    #[must_use]
    pub fn to_sqe(self, cid: u16) -> Sqe {
        let mut sqe = Sqe::new(admin::WINDOW_END, cid, self.nsid);
        sqe.cdw10 = self.number.into();
        sqe
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opcode::Direction;

    #[test]
    fn what_is_sent_is_read_and_other_lengths_and_fabrics_are_refused() {
        let (nsid, fabric) = (3, Fabric::Shm);
        let by_rdma = (Some(1 << 20), Fabric::Rdma);
        for ((ring_bytes, fabric), flushes) in
            [((None, fabric), false), (by_rdma, false), (by_rdma, true)]
        {
            let asked = WindowReceive { nsid, fabric, ring_bytes, flushes };
            assert_eq!(WindowReceive::parse(&asked.to_sqe(9)), Ok(asked));
        }
        let end = WindowEnd { nsid, number: 77 };
        assert_eq!(WindowEnd::parse(&end.to_sqe(9)), end);
        let sqe = WindowReceive { nsid, fabric, ring_bytes: None, flushes: false }.to_sqe(9);
        for refused in [
            (Sqe { cdw10: 126.into(), ..sqe }, 10),
            (Sqe { cdw11: 0.into(), ..sqe }, 11),
            (Sqe { cdw11: 3.into(), ..sqe }, 11),
            (Sqe { cdw13: 2.into(), ..sqe }, 13),
        ] {
            let refusal = WindowReceive::parse(&refused.0).unwrap_err();
            assert_eq!(refusal, Refusal::at(Reason::Value, refused.1, 0));
        }
    }

    #[test]
    fn the_opcodes_say_where_the_data_goes() {
        assert_eq!(Direction::of(admin::WINDOW_RECEIVE), Direction::ControllerToHost);
        assert_eq!(Direction::of(admin::WINDOW_END), Direction::None);
    }
}
