//! What a write of a part of a stripe has to read: arithmetic only.

use crate::layout::{Layout, Slots};

/// A data unit's part that is written: first byte and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub unit: usize,
    pub at: u32,
    pub len: u32,
    /// Where its contents begin in what is written, bytes.
    pub from: usize,
}

/// How the new parity comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// From the old parity, and how the data changes (read-modify-write).
    Modify,
    /// From all of the data (reconstruct-write).
    Encode,
}

/// How to write a part of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub method: Method,
    /// The part of the units that parity changes in: first byte and length.
    pub hull: (u32, u32),
    /// Units to read over the hull.
    pub reads: Slots,
}

impl Plan {
    /// The plan that reads less. `live` are the units that can be read; the others are computed if they are
    /// wanted, from as many as there is data.
    #[must_use]
    pub fn new(layout: &Layout, parts: &[Part], live: Slots) -> Self {
        let start = parts.iter().map(|part| part.at).min().unwrap_or(0);
        let end = parts.iter().map(|part| part.at + part.len).max().unwrap_or(0);
        let hull = (start, end - start);
        let written: Slots = parts.iter().map(|part| part.unit).collect();
        let whole: Slots = parts.iter().filter(|p| p.len == hull.1).map(|part| part.unit).collect();
        let data = layout.data();
        let parity = (data..layout.width()).filter(|&unit| live.has(unit));
        if parity.clone().next().is_none() {
            // Without parity nothing depends on what was there.
            return Self { method: Method::Modify, hull, reads: Slots::default() };
        }
        let encode: Slots = (0..data).filter(|&unit| !whole.has(unit)).collect();
        let modify: Slots = written.iter().chain(parity).collect();
        let cost = |reads: Slots| {
            let lost = reads.iter().any(|unit| !live.has(unit));
            if lost { data.max(reads.count()) } else { reads.count() }
        };
        let can_modify = written.iter().all(|unit| live.has(unit));
        if can_modify && cost(modify) < cost(encode) {
            return Self { method: Method::Modify, hull, reads: modify };
        }
        Self { method: Method::Encode, hull, reads: encode }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Level;

    fn plan(level: Level, members: usize, parts: &[(usize, u32, u32)], missing: &[usize]) -> Plan {
        let layout = Layout::new(level, members, (512, 8192), 64 << 20, (Some(4), None)).unwrap();
        let parts: Vec<_> =
            parts.iter().map(|&(unit, at, len)| Part { unit, at, len, from: 0 }).collect();
        let live = (0..members).filter(|unit| !missing.contains(unit)).collect();
        Plan::new(&layout, &parts, live)
    }

    #[test]
    fn whatever_reads_less_is_done() {
        use Level::{Raid5, Raid6};
        let reads = |plan: Plan| plan.reads.iter().collect::<Vec<_>>();
        // Full stripes read nothing.
        let full: Vec<_> = (0..4).map(|unit| (unit, 0, 8192)).collect();
        let whole = plan(Raid5, 5, &full, &[]);
        assert_eq!((whole.method, reads(whole)), (Method::Encode, vec![]));
        assert_eq!(reads(plan(Raid5, 5, &full, &[1])), []);
        // One small write: its old contents and the parity.
        let small = plan(Raid5, 5, &[(1, 512, 512)], &[]);
        assert_eq!((small.method, small.hull), (Method::Modify, (512, 512)));
        assert_eq!(reads(small), [1, 4]);
        assert_eq!(reads(plan(Raid6, 8, &[(1, 512, 512)], &[])), [1, 6, 7]);
        // All but one unit: that one.
        let most = plan(Raid5, 5, &full[..3], &[]);
        assert_eq!((most.method, reads(most)), (Method::Encode, vec![3]));
        // On a missing unit: the others tell.
        let lost = plan(Raid5, 5, &[(1, 0, 512)], &[1]);
        assert_eq!((lost.method, reads(lost)), (Method::Encode, vec![0, 2, 3]));
        // Beside a missing unit: it need not be known.
        let beside = plan(Raid5, 5, &[(1, 0, 512)], &[0]);
        assert_eq!((beside.method, reads(beside)), (Method::Modify, vec![1, 4]));
        // Without parity nothing is read.
        assert_eq!(reads(plan(Raid5, 5, &[(1, 0, 512)], &[4])), []);
        // Parts of two units: over what both cover.
        let two = plan(Raid5, 5, &[(1, 7680, 512), (2, 0, 512)], &[]);
        assert_eq!(two.hull, (0, 8192));
    }
}
