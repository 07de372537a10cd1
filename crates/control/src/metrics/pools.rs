//! Counters of pools, their drives and their volumes.

use api::v1::{Drive, DriveState, Pool, PoolSpace, PoolStatus, Scrub, ScrubState, Volume};

use api::value::Size;

use super::{Labels, Text, hardware};

/// A metric of a pool that is open.
type OfPool = (&'static str, &'static str, &'static str, fn(&PoolStatus) -> u64);

const OF_POOL: [OfPool; 30] = [
    ("capacity_bytes", "gauge", "Bytes of contents that a pool can hold.", |s| s.capacity),
    ("used_bytes", "gauge", "Bytes of contents that a pool holds.", |s| s.used),
    (
        "held_by_clones_bytes",
        "gauge",
        "Bytes of them that only clones see, of volumes that were deleted or rolled back.",
        |s| s.held_by_clones.unwrap_or(0),
    ),
    ("reserved_bytes", "gauge", "Bytes that volumes of a pool have reserved.", |s| s.reserved),
    (
        "reserved_kept_bytes",
        "gauge",
        "Bytes of them that are kept for what hosts have yet to write.",
        |s| s.reserved_kept,
    ),
    ("reserved_missing_bytes", "gauge", "Bytes of those that the pool does not have.", |s| {
        s.reserved_missing
    }),
    ("provisioned_bytes", "gauge", "Bytes of a pool's volumes together.", |s| s.provisioned),
    ("space", "gauge", "Room left: 0 enough, 1 low, 2 critical, 3 full.", |s| match s.space {
        PoolSpace::Enough => 0,
        PoolSpace::Low => 1,
        PoolSpace::Critical => 2,
        PoolSpace::Full => 3,
    }),
    ("redundancy", "gauge", "Drives that a whole pool may lose without loss of contents.", |s| {
        u64::from(s.parity)
    }),
    ("redundancy_left", "gauge", "Those that it may lose beside what it has lost.", |s| {
        u64::from(s.redundancy_left)
    }),
    ("metadata_bytes", "gauge", "Bytes of a pool's metadata.", |s| s.metadata),
    ("log_bytes", "gauge", "Size of a pool's commit log.", |s| s.log.size),
    ("log_used_bytes", "gauge", "Bytes of the commit log in use.", |s| s.log.used),
    ("log_failed_devices", "gauge", "Devices of the commit log that failed.", |s| {
        u64::try_from(s.log.failed_devices).unwrap_or(u64::MAX)
    }),
    ("log_copies", "gauge", "Copies of the commit log that are current.", |s| {
        u64::try_from(s.log.devices.saturating_sub(s.log.failed_devices)).unwrap_or(u64::MAX)
    }),
    ("log_made_anew", "gauge", "Whether the log was made anew when a pool was opened.", |s| {
        u64::from(s.log.made_anew)
    }),
    ("log_lost", "gauge", "Whether a pool was opened without its log, which was lost.", |s| {
        u64::from(s.log.lost)
    }),
    (
        "rebuild_running",
        "gauge",
        "Whether drives are being emptied onto the others, 0 or 1.",
        |s| s.rebuild.as_ref().map_or(0, |rebuild| u64::from(rebuild.running)),
    ),
    ("rebuild_paused", "gauge", "Whether that waits to be resumed, 0 or 1.", |s| {
        s.rebuild.as_ref().map_or(0, |rebuild| u64::from(rebuild.paused))
    }),
    ("rebuild_bytes", "gauge", "Bytes to move from drives that are emptied.", |s| {
        s.rebuild.as_ref().map_or(0, |rebuild| rebuild.bytes)
    }),
    ("rebuild_done_bytes", "gauge", "Those that were moved.", |s| {
        s.rebuild.as_ref().map_or(0, |rebuild| rebuild.done)
    }),
    ("spread_bytes", "gauge", "Bytes to move onto drives that came, for all their space.", |s| {
        s.spread.map_or(0, |spread| spread.bytes)
    }),
    ("windows", "gauge", "Direct write windows that hosts have of a pool's volumes.", |s| {
        s.windows
    }),
    ("window_log_bytes", "gauge", "Bytes of rings that direct write windows may have.", |s| {
        s.window_log.map_or(0, |log| log.size)
    }),
    ("window_log_used_bytes", "gauge", "Bytes of rings that direct write windows have.", |s| {
        s.window_log.map_or(0, |log| log.used)
    }),
    ("written_bytes_total", "counter", "Bytes that hosts wrote.", |s| s.written),
    ("drive_written_bytes_total", "counter", "Bytes that the drives wrote.", |s| s.drive_written),
    ("moved_bytes_total", "counter", "Bytes that reclaim moved.", |s| s.moved),
    ("segments_reclaimed_total", "counter", "Segments that reclaim emptied.", |s| {
        s.segments_reclaimed
    }),
    (
        "lost_blocks_total",
        "counter",
        "Blocks that reclaim found lost: damaged beyond what the redundancy gives back.",
        |s| s.lost_blocks,
    ),
];

/// A metric of a pool's scrub: the one that is under way, or the last one.
type OfScrub = (&'static str, &'static str, fn(&Scrub) -> u64);

const OF_SCRUB: [OfScrub; 8] = [
    ("running", "Whether a pool is being scrubbed, 0 or 1.", |s| {
        u64::from(s.state == ScrubState::Running)
    }),
    ("bytes", "Bytes on drives that the scrub checks.", |s| s.bytes),
    ("done_bytes", "Those that it has checked.", |s| s.done),
    ("damaged_blocks", "Blocks that it found damaged.", |s| s.damaged_blocks),
    ("repaired_blocks", "Those that it put right.", |s| s.repaired_blocks),
    ("lost_blocks", "Blocks of data that nothing gives.", |s| s.lost_blocks),
    ("unchecked_stripes", "Stripes that it could not check.", |s| s.unchecked_stripes),
    ("ended_seconds", "When the last one ended, in seconds since 1970; 0 for none.", |s| {
        s.ended_ms.unwrap_or(0) / 1000
    }),
];

/// A metric of a pool's spares.
type OfSpares = (&'static str, &'static str, DriveState);

const OF_SPARES: [OfSpares; 2] = [
    ("ready", "Spares of a pool that can be used now.", DriveState::Spare),
    ("missing", "Spares of a pool that cannot be used now.", DriveState::Missing),
];

fn spares(text: &mut Text, pools: &[Pool]) {
    for (suffix, help, state) in OF_SPARES {
        let name = format!("flashloom_pool_spares_{suffix}");
        text.family(&name, "gauge", help);
        for pool in pools {
            let count = pool.spares.iter().filter(|spare| spare.state == state).count();
            text.sample(&name, &vec![("pool", pool.name.as_str())], count);
        }
    }
    let name = "flashloom_pool_spares_used_up";
    text.family(name, "gauge", "Whether all spares that a pool had have places by now, 0 or 1.");
    for pool in pools {
        text.sample(name, &vec![("pool", pool.name.as_str())], u64::from(pool.spares_used_up));
    }
}

fn scrubs(text: &mut Text, pools: &[Pool]) {
    for (suffix, help, value) in OF_SCRUB {
        let name = format!("flashloom_pool_scrub_{suffix}");
        text.family(&name, "gauge", help);
        for pool in pools {
            text.sample(&name, &vec![("pool", pool.name.as_str())], value(&pool.scrub));
        }
    }
}

/// A metric of a drive.
type OfDrive = (&'static str, &'static str, fn(&Drive) -> u64);

const OF_DRIVE: [OfDrive; 11] = [
    ("reads_total", "Reads.", |d| d.counters.reads),
    ("writes_total", "Writes.", |d| d.counters.writes),
    ("read_bytes_total", "Bytes read.", |d| d.counters.bytes_read),
    ("written_bytes_total", "Bytes written.", |d| d.counters.bytes_written),
    ("read_errors_total", "Reads that failed.", |d| d.counters.read_errors),
    ("write_errors_total", "Writes that failed.", |d| d.counters.write_errors),
    ("corrupt_blocks_total", "Blocks read with a wrong checksum.", |d| d.counters.corrupt),
    ("reconstructed_blocks_total", "Blocks made from other drives.", |d| d.counters.reconstructed),
    ("repaired_blocks_total", "Blocks written anew after that.", |d| d.counters.repaired),
    ("timeouts_total", "Operations without an answer in time.", |d| d.counters.timeouts),
    ("slow_reads_total", "Reads so slow that others were asked.", |d| d.counters.slow),
];

/// What a drive is or not, beside being online.
type DriveIs = (&'static str, &'static str, fn(&Drive) -> bool);

const STATES: [DriveIs; 5] = [
    (
        "flashloom_drive_rejoining",
        "Whether a drive that was away is being made whole, 0 or 1.",
        |drive| drive.health == DriveState::Rejoining,
    ),
    (
        "flashloom_drive_vacant",
        "Whether nothing of the pool lies in the place of a drive, which is no loss, 0 or 1.",
        |drive| drive.health == DriveState::Vacant,
    ),
    (
        "flashloom_drive_leaving",
        "Whether what a drive has, or had, is being moved onto the others, 0 or 1.",
        |drive| drive.leaving,
    ),
    (
        "flashloom_drive_slow",
        "Whether a drive is slower than the others of its pool, 0 or 1.",
        |drive| drive.slow,
    ),
    (
        "flashloom_drive_stays_out",
        "Whether a drive is not taken back before an operator asks for it, 0 or 1.",
        |drive| drive.stays_out.is_some(),
    ),
];

/// The state of each drive: a series for each that one in a place can have, of which one is 1.
fn drive_states(text: &mut Text, drives: &[&Drive]) {
    let name = "flashloom_drive_state";
    text.family(name, "gauge", "The state of a drive of a pool: 1 for the one that it has.");
    let of_places = |state: &DriveState| !matches!(state, DriveState::Blank | DriveState::Spare);
    for drive in drives {
        let index = drive.index.to_string();
        for state in DriveState::ALL.iter().filter(|state| of_places(state)) {
            let labels = [("drive", index.as_str()), ("state", state.name())];
            let labels = [("pool", drive.pool.as_str())].into_iter().chain(labels).collect();
            text.sample(name, &labels, u8::from(drive.state == *state));
        }
    }
    let name = "flashloom_drive_since_seconds";
    text.family(name, "gauge", "Since when a drive has its state, in seconds since 1970.");
    for (drive, since) in drives.iter().filter_map(|drive| Some((drive, drive.since_ms?))) {
        let index = drive.index.to_string();
        let labels = vec![("pool", drive.pool.as_str()), ("drive", index.as_str())];
        text.sample(name, &labels, since / 1000);
    }
    let name = "flashloom_drive_returns";
    text.family(name, "gauge", "How often a drive was taken back by itself within an hour.");
    for drive in drives {
        let index = drive.index.to_string();
        let labels = vec![("pool", drive.pool.as_str()), ("drive", index.as_str())];
        text.sample(name, &labels, drive.returns);
    }
}

pub fn text(text: &mut Text, pools: &[Pool], volumes: &[Volume]) {
    let name = "flashloom_pool_open";
    text.family(name, "gauge", "Whether a pool is open, 0 or 1.");
    for pool in pools {
        let open = u8::from(pool.status.is_some());
        text.sample(name, &vec![("pool", pool.name.as_str())], open);
    }
    for (suffix, kind, help, value) in OF_POOL {
        let name = format!("flashloom_pool_{suffix}");
        text.family(&name, kind, help);
        for (pool, status) in open(pools) {
            text.sample(&name, &vec![("pool", pool)], value(status));
        }
    }
    scrubs(text, pools);
    spares(text, pools);
    segments(text, pools);
    drives(text, pools);
    of_volumes(text, volumes);
}

fn open(pools: &[Pool]) -> impl Iterator<Item = (&str, &PoolStatus)> {
    pools.iter().filter_map(|pool| Some((pool.name.as_str(), pool.status.as_ref()?)))
}

fn labels_of(volume: &Volume) -> Labels<'_> {
    vec![("pool", volume.name.pool.as_str()), ("volume", volume.name.volume.as_str())]
}

/// A series of the volumes that have something: its name, what it is, and how many bytes.
type OfVolume = (&'static str, &'static str, fn(&Volume) -> Option<Size>);

fn of_volumes(text: &mut Text, volumes: &[Volume]) {
    let name = "flashloom_volume_size_bytes";
    text.family(name, "gauge", "Size of a volume.");
    for volume in volumes {
        text.sample(name, &labels_of(volume), volume.size.bytes());
    }
    let name = "flashloom_volume_used_bytes";
    text.family(name, "gauge", "Bytes of a volume that are used.");
    for (volume, used) in volumes.iter().filter_map(|volume| Some((volume, volume.used?))) {
        text.sample(name, &labels_of(volume), used.bytes());
    }
    let limits: [OfVolume; 4] = [
        (
            "flashloom_volume_quota_bytes",
            "Bytes that a volume and its snapshots may hold together.",
            |of| of.quota,
        ),
        (
            "flashloom_volume_quota_used_bytes",
            "Bytes of its quota that a volume and its snapshots hold.",
            |of| of.quota_used,
        ),
        ("flashloom_volume_reserved_bytes", "Bytes reserved for a volume's hosts.", |of| {
            of.reserve
        }),
        (
            "flashloom_volume_reserved_kept_bytes",
            "Bytes of its reservation that are kept for what a volume's hosts have yet to write.",
            |of| of.reserve_kept,
        ),
    ];
    for (name, help, value) in limits {
        text.family(name, "gauge", help);
        for (volume, bytes) in volumes.iter().filter_map(|of| Some((of, value(of)?))) {
            text.sample(name, &labels_of(volume), bytes.bytes());
        }
    }
    let name = "flashloom_volume_snapshots";
    text.family(name, "gauge", "Snapshots of a volume.");
    for (volume, count) in volumes.iter().filter_map(|of| Some((of, of.snapshots?))) {
        text.sample(name, &labels_of(volume), count);
    }
    let name = "flashloom_volume_held_by_snapshots_bytes";
    text.family(name, "gauge", "Bytes that a volume has not any more and its snapshots have.");
    for (volume, held) in volumes.iter().filter_map(|of| Some((of, of.held_by_snapshots?))) {
        text.sample(name, &labels_of(volume), held.bytes());
    }
}

fn segments(text: &mut Text, pools: &[Pool]) {
    let name = "flashloom_pool_segments";
    text.family(name, "gauge", "Segments by what they are in.");
    for (pool, status) in open(pools) {
        let counts = status.segments;
        for (state, count) in [
            ("free", counts.free),
            ("reserved", counts.reserved),
            ("open", counts.open),
            ("sealed", counts.sealed),
        ] {
            text.sample(name, &vec![("pool", pool), ("state", state)], count);
        }
    }
}

fn drives(text: &mut Text, pools: &[Pool]) {
    let name = "flashloom_drive_online";
    text.family(name, "gauge", "Whether a drive of a pool works, 0 or 1.");
    let all = || open(pools).flat_map(|(_, status)| &status.drives);
    // Of a pool that is not open no drive works, as far as anybody knows: what alerts on it must not vanish.
    for pool in pools.iter().filter(|pool| pool.status.is_none()) {
        for index in 0..pool.paths.len() {
            let index = index.to_string();
            text.sample(name, &vec![("pool", pool.name.as_str()), ("drive", &index)], 0);
        }
    }
    for drive in all() {
        let online = u8::from(drive.health == DriveState::Online);
        let index = drive.index.to_string();
        text.sample(name, &vec![("pool", drive.pool.as_str()), ("drive", &index)], online);
    }
    drive_states(text, &all().collect::<Vec<_>>());
    for (name, help, is) in STATES {
        text.family(name, "gauge", help);
        for drive in all() {
            let index = drive.index.to_string();
            let labels = vec![("pool", drive.pool.as_str()), ("drive", index.as_str())];
            text.sample(name, &labels, u8::from(is(drive)));
        }
    }
    for (suffix, help, value) in OF_DRIVE {
        let name = format!("flashloom_drive_{suffix}");
        text.family(&name, "counter", help);
        for drive in all() {
            let index = drive.index.to_string();
            let labels = vec![("pool", drive.pool.as_str()), ("drive", index.as_str())];
            text.sample(&name, &labels, value(drive));
        }
    }
    hardware::of_drives(text, all());
}
