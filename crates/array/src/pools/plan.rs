//! Pools as they would be made: what is asked for is looked at, and nothing is opened to be written, made or changed.

use std::fs;
use std::sync::Arc;

use api::v1::{Kind, NewPool, PlannedDrive, PoolPlan};
use api::value::{DrivePath, LogPlace};
use engine::{LogSpec, Pool, PoolSpec};
use media::Drive;
use media::drive::OpenDrive;

use super::made_of::{
    LOG_BYTES, Made, MadeOf, Member, absolute, cannot_open, check_are_ours, scheme,
};
use super::view::breakdown_document;
use super::{Opener, blank, told};
use crate::{Error, Result};

impl Opener {
    /// What would be made of such drives.
    ///
    /// # Errors
    /// As [`create`](Self::create), as far as it is known before.
    pub fn plan(&self, new: &NewPool) -> Result<PoolPlan> {
        let (mut there, mut sizes) = (Vec::new(), Vec::new());
        for (n, drive) in new.drives.iter().enumerate() {
            if new.drives[..n].iter().any(|other| is_same(other, drive)) {
                let twice = format!("{} is given twice", drive.path.display());
                return Err(Error::new(Kind::Invalid, twice)
                    .help("each drive is a file or device of its own"));
            }
            sizes.push(self::size(drive, &mut there)?);
        }
        let places = if new.log.is_empty() { vec![LogPlace::Drives] } else { new.log.clone() };
        if !new.force {
            check_are_ours(&places)?;
            // A log that is there is looked at when it is opened.
            let made_of = MadeOf {
                drives: there,
                log: LogSpec::Drives,
                places: Vec::new(),
                locks: Vec::new(),
                made: Made::default(),
            };
            blank::check(self.home()?, &made_of)?;
        }
        let on_drives = places.iter().all(|place| matches!(place, LogPlace::Drives));
        let asked = new.log_size.map(|size| size.bytes());
        let spec = PoolSpec {
            name: new.name.to_string(),
            id: [0; 16],
            drives: Vec::new(),
            scheme: scheme(new.raid, sizes.len())?,
            log: if on_drives { LogSpec::Drives } else { LogSpec::Bbu(Vec::new()) },
            log_bytes: asked.or_else(|| (!on_drives).then(|| log_bytes(&places))),
            shards: new.shards,
            au_bytes: None,
            created: 0,
        };
        let context = format!("pool {} cannot be made", new.name);
        let plan = Pool::plan(&spec, &sizes, self.reactors.len())
            .map_err(|error| told(&context, &error))?;
        let drives = new.drives.iter().zip(&sizes).zip(plan.used);
        Ok(PoolPlan {
            name: new.name.clone(),
            data: plan.layout.data,
            parity: plan.layout.parity,
            shards: plan.shards,
            log_size: plan.log_bytes,
            breakdown: breakdown_document(plan.breakdown),
            drives: drives
                .map(|((drive, &size), used)| PlannedDrive {
                    path: drive.path.display().to_string(),
                    size,
                    used,
                })
                .collect(),
        })
    }
}

fn is_same(one: &DrivePath, other: &DrivePath) -> bool {
    let real = |of: &DrivePath| of.path.canonicalize().ok();
    // Each in memory is a drive of its own.
    DrivePath::memory(&one.path).is_none()
        && (one.path == other.path || real(one).is_some() && real(one) == real(other))
}

/// How large a drive is, or will be; it is put with those that are there.
fn size(drive: &DrivePath, there: &mut Vec<Member>) -> Result<u64> {
    if let Some(size) = DrivePath::memory(&drive.path) {
        return Ok(size.bytes());
    }
    absolute(&drive.path)?;
    let asked = drive.size.map(|size| size.bytes());
    if let Some(asked) = asked
        && !drive.path.exists()
    {
        return Ok(asked);
    }
    let block_size = stdx::num::u32_of(engine::address::BLOCK);
    let options = OpenDrive { read_only: true, block_size, ..OpenDrive::default() };
    let opened =
        Drive::open(&drive.path, options).map_err(|error| cannot_open(&drive.path, error))?;
    let size = opened.capacity().max(asked.unwrap_or(0));
    there.push(Member { path: drive.path.clone(), drive: Arc::new(opened) });
    Ok(size)
}

/// How long a log is that nobody said a size of: as its shortest device that is there.
fn log_bytes(places: &[LogPlace]) -> u64 {
    let there = places.iter().filter_map(LogPlace::path);
    let there = there.filter_map(|path| fs::metadata(path).ok()).map(|file| file.len());
    there.filter(|&bytes| bytes > 0).min().unwrap_or(LOG_BYTES)
}
