//! What a dump has to say.

use std::fmt;

use crate::address::Key;
use crate::format::label::{Layout, LogKind, PoolState};
use crate::limits::FINDINGS_MAX;
use crate::log::RecordSeen;
use crate::segment::{Member, Stream};

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Redundancy is less than it should be, or a hint is wrong: nothing is lost.
    Warning,
    /// Data or a structure is lost, or the pool cannot be opened from this.
    Error,
}

/// What a finding is about: the structures of `docs/format.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Structure {
    Drive,
    Label,
    Catalog,
    Root,
    Manifest,
    Segment,
    MemberHeader,
    StripeHeader,
    Map,
    Data,
    Parity,
    Volume,
    LogControl,
    LogRecord,
}

impl Structure {
    /// Its name, for people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drive => "drive",
            Self::Label => "label",
            Self::Catalog => "catalog",
            Self::Root => "root",
            Self::Manifest => "manifest",
            Self::Segment => "segment",
            Self::MemberHeader => "member header",
            Self::StripeHeader => "stripe header",
            Self::Map => "map",
            Self::Data => "data",
            Self::Parity => "parity",
            Self::Volume => "volume",
            Self::LogControl => "log control block",
            Self::LogRecord => "log record",
        }
    }
}

/// Where it is, as far as that can be said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// A drive or log device, as it was named to the dump.
    pub device: Option<String>,
    /// Bytes from the device's beginning.
    pub offset: Option<u64>,
    pub shard: Option<u16>,
    pub segment: Option<u32>,
    pub stripe: Option<u32>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match (&self.device, self.offset) {
            (Some(device), Some(offset)) => parts.push(format!("{device} at byte {offset}")),
            (Some(device), None) => parts.push(device.clone()),
            (None, _) => {}
        }
        parts.extend(self.shard.map(|shard| format!("shard {shard}")));
        parts.extend(self.segment.map(|segment| format!("segment {segment}")));
        parts.extend(self.stripe.map(|stripe| format!("stripe {stripe}")));
        f.write_str(&parts.join(", "))
    }
}

/// Something worth saying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub structure: Structure,
    pub place: Place,
    /// What is the matter.
    pub what: String,
    /// What to do about it.
    pub advice: Option<&'static str>,
}

impl Finding {
    pub(super) fn new(severity: Severity, structure: Structure, what: impl Into<String>) -> Self {
        Self { severity, structure, place: Place::default(), what: what.into(), advice: None }
    }

    pub(super) fn error(structure: Structure, what: impl Into<String>) -> Self {
        Self::new(Severity::Error, structure, what)
    }

    pub(super) fn warning(structure: Structure, what: impl Into<String>) -> Self {
        Self::new(Severity::Warning, structure, what)
    }

    pub(super) fn note(structure: Structure, what: impl Into<String>) -> Self {
        Self::new(Severity::Note, structure, what)
    }

    pub(super) fn on(mut self, device: impl Into<String>) -> Self {
        self.place.device = Some(device.into());
        self
    }

    pub(super) const fn at(mut self, offset: u64) -> Self {
        self.place.offset = Some(offset);
        self
    }

    pub(super) const fn shard(mut self, shard: u16) -> Self {
        self.place.shard = Some(shard);
        self
    }

    pub(super) const fn of(mut self, shard: Option<u16>) -> Self {
        self.place.shard = shard;
        self
    }

    pub(super) const fn segment(mut self, segment: u32) -> Self {
        self.place.segment = Some(segment);
        self
    }

    pub(super) const fn stripe(mut self, stripe: u32) -> Self {
        self.place.stripe = Some(stripe);
        self
    }

    pub(super) const fn advise(mut self, advice: &'static str) -> Self {
        self.advice = Some(advice);
        self
    }
}

/// The pool, as its newest label describes it.
#[derive(Clone, Debug)]
pub struct PoolSeen {
    pub name: String,
    pub id: [u8; 16],
    pub state: PoolState,
    pub epoch: u64,
    pub layout: Layout,
    pub shards: u16,
    pub log: LogKind,
    /// Seconds since 1970.
    pub created: u64,
}

/// What became of a drive of the pool, or of one that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Member,
    /// The pool's labels say that it failed.
    Failed,
    /// Of the pool, and not given.
    Missing,
    /// Given, and not of the pool, or a second copy.
    Foreign,
    /// Without a label.
    Blank,
    /// It cannot be read, or no label of it is whole.
    Damaged,
}

impl Fate {
    /// Its name, for people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Failed => "failed",
            Self::Missing => "missing",
            Self::Foreign => "foreign",
            Self::Blank => "blank",
            Self::Damaged => "damaged",
        }
    }
}

/// A drive.
#[derive(Clone, Debug)]
pub struct DriveSeen {
    /// As it was named to the dump; `None` for a missing one.
    pub device: Option<String>,
    pub index: Option<u16>,
    pub id: Option<[u8; 16]>,
    pub epoch: Option<u64>,
    pub fate: Fate,
    /// Allocation units, and how many of them belong to segments.
    pub units: u32,
    pub taken: u32,
}

/// A volume.
#[derive(Clone, Debug)]
pub struct VolumeSeen {
    pub name: String,
    pub id: [u8; 16],
    pub view: u32,
    /// Size in bytes.
    pub bytes: u64,
    pub block_size: u32,
    /// Bytes of contents on the drives.
    pub used: u64,
    /// Deleted; its blocks are still being given back.
    pub deleted: bool,
    /// The name of the group that it is in.
    pub group: Option<String>,
}

/// What a shard's commit log holds.
#[derive(Clone, Debug, Default)]
pub struct LogSeen {
    pub devices: usize,
    /// Counts how often the log was opened.
    pub epoch: u32,
    /// The sequence of the last record that is not needed any more.
    pub trimmed: u64,
    /// Records that are needed, padding included, and the bytes of the ring they take.
    pub records: u64,
    pub bytes: u64,
    pub ring: u64,
    /// Bytes of contents in them, which the drives may not have.
    pub contents: u64,
    /// The records themselves, where that was asked for.
    pub list: Vec<RecordSeen>,
    /// Blocks given back in them, which the map may not have learnt: where they begin, and how many.
    pub(crate) holes: Vec<(Key, u64)>,
}

/// A shard.
#[derive(Clone, Debug, Default)]
pub struct ShardSeen {
    pub shard: u16,
    /// Of its newest checkpoint.
    pub generation: u64,
    /// The last ordered stripe whose records the map on the drives has.
    pub cut: u64,
    /// The last ordered stripe that the log counts as durable, and stripes rolled forward.
    pub durable: Option<u64>,
    pub rolled: u64,
    pub segments: u64,
    pub tables: u64,
    pub map_pages: u64,
    /// Blocks of contents that the map knows, and blocks of metadata.
    pub blocks: u64,
    pub metadata: u64,
    /// Blocks that count as in use and are not: merges find them in time.
    pub surplus: u64,
    pub log: Option<LogSeen>,
}

/// A segment.
#[derive(Clone, Debug)]
pub struct SegmentSeen {
    pub number: u32,
    pub shard: u16,
    pub generation: u64,
    pub stream: Stream,
    /// The first stripe that is rolled forward, if any may be, and how many are.
    pub roll_from: Option<u32>,
    pub rolled: u32,
    /// Blocks in use, as the checkpoint says and as the map does.
    pub hint: u32,
    pub live: u32,
    pub members: Vec<Member>,
}

/// What a dump found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub pool: Option<PoolSeen>,
    pub drives: Vec<DriveSeen>,
    pub volumes: Vec<VolumeSeen>,
    pub shards: Vec<ShardSeen>,
    pub segments: Vec<SegmentSeen>,
    /// At most [`FINDINGS_MAX`] of each severity.
    pub findings: Vec<Finding>,
    /// What was left out, in words.
    pub not_checked: Vec<&'static str>,
    /// Blocks of 4096 bytes that were looked at.
    pub blocks_read: u64,
    counts: [u64; 3],
}

const fn index(severity: Severity) -> usize {
    match severity {
        Severity::Note => 0,
        Severity::Warning => 1,
        Severity::Error => 2,
    }
}

impl Report {
    pub(super) fn add(&mut self, finding: Finding) {
        let count = &mut self.counts[index(finding.severity)];
        *count += 1;
        if *count <= FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// How many findings there are of a severity, those beyond [`FINDINGS_MAX`] included.
    #[must_use]
    pub const fn count(&self, severity: Severity) -> u64 {
        self.counts[index(severity)]
    }

    /// Whether nothing is lost.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.count(Severity::Error) == 0
    }
}
