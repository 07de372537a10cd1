//! A report as programs read it.

use engine::address::BLOCK;
use engine::dump::{DriveSeen, PoolSeen, Report, SegmentSeen, Severity, ShardSeen, VolumeSeen};
use engine::format::label::{LogKind, PoolState};
use engine::log::{RecordSeen, RecordWhat};
use engine::segment::Stream;
use serde::Serialize;
use uuid::Uuid;

/// What `pool dump -o json` prints.
#[derive(Serialize)]
pub struct Document {
    pub summary: Summary,
    pub findings: Vec<Finding>,
    pub not_checked: Vec<&'static str>,
    pub pool: Option<Pool>,
    pub drives: Vec<Drive>,
    pub volumes: Vec<Volume>,
    pub shards: Vec<Shard>,
    pub segments: Vec<Segment>,
}

#[derive(Serialize)]
pub struct Summary {
    pub clean: bool,
    pub errors: u64,
    pub warnings: u64,
    pub notes: u64,
    pub bytes_read: u64,
}

#[derive(Serialize)]
pub struct Finding {
    pub severity: &'static str,
    pub structure: &'static str,
    /// In words, and in parts.
    pub place: String,
    pub device: Option<String>,
    pub offset: Option<u64>,
    pub shard: Option<u16>,
    pub segment: Option<u32>,
    pub stripe: Option<u32>,
    pub what: String,
    pub advice: Option<&'static str>,
}

#[derive(Serialize)]
pub struct Pool {
    pub name: String,
    pub id: String,
    pub state: &'static str,
    pub epoch: u64,
    pub created: u64,
    pub data: u8,
    pub parity: u8,
    pub unit_bytes: u64,
    pub au_bytes: u64,
    pub shards: u16,
    pub log: &'static str,
}

#[derive(Serialize)]
pub struct Drive {
    pub index: Option<u16>,
    pub path: Option<String>,
    pub id: Option<String>,
    pub state: &'static str,
    pub epoch: Option<u64>,
    pub units: u32,
    pub taken: u32,
}

#[derive(Serialize)]
pub struct Volume {
    pub name: String,
    pub id: String,
    pub view: u32,
    pub bytes: u64,
    pub block_size: u32,
    pub used_bytes: u64,
    pub deleted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

#[derive(Serialize)]
pub struct Shard {
    pub shard: u16,
    pub generation: u64,
    pub cut: u64,
    pub durable: Option<u64>,
    pub rolled: u64,
    pub segments: u64,
    pub tables: u64,
    pub map_pages: u64,
    pub content_bytes: u64,
    pub metadata_bytes: u64,
    pub surplus_bytes: u64,
    pub log: Option<Log>,
    pub log_records: Vec<Record>,
}

#[derive(Serialize)]
pub struct Log {
    pub devices: usize,
    pub epoch: u32,
    pub trimmed: u64,
    pub records: u64,
    pub bytes: u64,
    pub ring_bytes: u64,
    pub content_bytes: u64,
}

#[derive(Serialize)]
pub struct Record {
    pub sequence: u64,
    pub position: u64,
    pub epoch: u32,
    pub what: &'static str,
    pub view: Option<u32>,
    pub block: Option<u64>,
    pub blocks: Option<u64>,
}

#[derive(Serialize)]
pub struct Segment {
    pub number: u32,
    pub shard: u16,
    pub generation: u64,
    pub stream: &'static str,
    pub roll_from: Option<u32>,
    pub rolled: u32,
    pub counted_blocks: u32,
    pub used_blocks: u32,
    /// Drive and allocation unit of each column.
    pub members: Vec<String>,
}

fn bytes(blocks: u64) -> u64 {
    blocks * stdx::num::u64_of(BLOCK)
}

fn id(bytes: [u8; 16]) -> String {
    Uuid::from_bytes(bytes).to_string()
}

impl Document {
    /// A report's document, with its segments if they are wanted.
    pub fn of(report: &Report, segments: bool) -> Self {
        let segments = report.segments.iter().filter(|_| segments);
        Self {
            summary: Summary {
                clean: report.is_clean(),
                errors: report.count(Severity::Error),
                warnings: report.count(Severity::Warning),
                notes: report.count(Severity::Note),
                bytes_read: bytes(report.blocks_read),
            },
            findings: report.findings.iter().map(Finding::of).collect(),
            not_checked: report.not_checked.clone(),
            pool: report.pool.as_ref().map(Pool::of),
            drives: report.drives.iter().map(Drive::of).collect(),
            volumes: report.volumes.iter().map(Volume::of).collect(),
            shards: report.shards.iter().map(Shard::of).collect(),
            segments: segments.map(Segment::of).collect(),
        }
    }
}

impl Finding {
    fn of(finding: &engine::dump::Finding) -> Self {
        let place = &finding.place;
        Self {
            severity: match finding.severity {
                Severity::Note => "note",
                Severity::Warning => "warning",
                Severity::Error => "error",
            },
            structure: finding.structure.name(),
            place: place.to_string(),
            device: place.device.clone(),
            offset: place.offset,
            shard: place.shard,
            segment: place.segment,
            stripe: place.stripe,
            what: finding.what.clone(),
            advice: finding.advice,
        }
    }
}

impl Pool {
    fn of(pool: &PoolSeen) -> Self {
        Self {
            name: pool.name.clone(),
            id: id(pool.id),
            state: match pool.state {
                PoolState::Active => "active",
                PoolState::Exported => "exported",
            },
            epoch: pool.epoch,
            created: pool.created,
            data: pool.layout.data,
            parity: pool.layout.parity,
            unit_bytes: bytes(pool.layout.unit_blocks.into()),
            au_bytes: pool.layout.au_bytes,
            shards: pool.shards,
            log: match pool.log {
                LogKind::Pmem => "pmem",
                LogKind::Bbu => "bbu",
                LogKind::Drives => "drives",
                LogKind::Remote => "remote",
            },
        }
    }
}

impl Drive {
    fn of(drive: &DriveSeen) -> Self {
        Self {
            index: drive.index,
            path: drive.device.clone(),
            id: drive.id.map(id),
            state: drive.fate.name(),
            epoch: drive.epoch,
            units: drive.units,
            taken: drive.taken,
        }
    }
}

impl Volume {
    fn of(volume: &VolumeSeen) -> Self {
        Self {
            name: volume.name.clone(),
            id: id(volume.id),
            view: volume.view,
            bytes: volume.bytes,
            block_size: volume.block_size,
            used_bytes: volume.used,
            deleted: volume.deleted,
            group: volume.group.clone(),
        }
    }
}

impl Shard {
    fn of(shard: &ShardSeen) -> Self {
        let log = shard.log.as_ref();
        Self {
            shard: shard.shard,
            generation: shard.generation,
            cut: shard.cut,
            durable: shard.durable,
            rolled: shard.rolled,
            segments: shard.segments,
            tables: shard.tables,
            map_pages: shard.map_pages,
            content_bytes: bytes(shard.blocks),
            metadata_bytes: bytes(shard.metadata),
            surplus_bytes: bytes(shard.surplus),
            log: log.map(|log| Log {
                devices: log.devices,
                epoch: log.epoch,
                trimmed: log.trimmed,
                records: log.records,
                bytes: log.bytes,
                ring_bytes: log.ring,
                content_bytes: log.contents,
            }),
            log_records: log.map_or_else(Vec::new, |log| log.list.iter().map(Record::of).collect()),
        }
    }
}

impl Record {
    fn of(record: &RecordSeen) -> Self {
        let (what, key, blocks) = match record.what {
            RecordWhat::Write { key, blocks } => ("write", Some(key), Some(blocks)),
            RecordWhat::Hole { key, blocks } => ("hole", Some(key), Some(blocks)),
            RecordWhat::References { key, blocks } => ("references", Some(key), Some(blocks)),
            RecordWhat::Lost { key, blocks } => ("lost", Some(key), Some(blocks)),
            RecordWhat::Padding => ("padding", None, None),
        };
        Self {
            sequence: record.sequence,
            position: record.position,
            epoch: record.epoch,
            what,
            view: key.map(|key| key.view.get()),
            block: key.map(|key| key.block),
            blocks,
        }
    }
}

impl Segment {
    fn of(segment: &SegmentSeen) -> Self {
        let members = segment.members.iter();
        Self {
            number: segment.number,
            shard: segment.shard,
            generation: segment.generation,
            stream: match segment.stream {
                Stream::User => "user",
                Stream::Reclaim => "reclaim",
                Stream::Metadata => "metadata",
            },
            roll_from: segment.roll_from,
            rolled: segment.rolled,
            counted_blocks: segment.hint,
            used_blocks: segment.live,
            members: members.map(|member| format!("{}:{}", member.drive, member.au)).collect(),
        }
    }
}
