//! Space that becomes free goes back to the drives, and nothing else does.

use media::drive::OpenDrive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::*;
use crate::Discards;

const AT_ONCE: Discards = Discards { after: Duration::from_millis(20), bytes_per_second: 1 << 40 };

/// Writes blocks of both volumes by turns, so that they share segments.
async fn fill(volumes: &[&Volume], blocks: u64) {
    for at in 0..blocks {
        for volume in volumes {
            volume.write(at * BLOCK as u64, &block(at, 0)).await.unwrap();
        }
    }
}

async fn check(volume: &Volume, blocks: std::ops::Range<u64>) {
    let mut got = vec![0; BLOCK];
    for at in blocks {
        volume.read(at * BLOCK as u64, &mut got).await.unwrap();
        assert!(got == block(at, 0), "block {at}");
    }
}

#[test]
fn what_hosts_give_back_is_discarded_and_nothing_else() {
    reactor::simulate(1, async {
        let (_, drives) = simulated(3, 64 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let spec = PoolSpec {
            scheme: raid::Scheme::Raid5,
            au_bytes: Some(MIB),
            ..spec(&drives, log.clone())
        };
        let pool = Pool::create(spec, &[]).await.unwrap();
        pool.discard(AT_ONCE).await.unwrap();
        let kept = pool.create_volume(volume("kept", 16 * MIB)).await.unwrap();
        fill(&[&kept], 1024).await;
        let gone = VolumeSpec { id: [9; 16], ..volume("gone", 32 * MIB) };
        let gone = pool.create_volume(gone).await.unwrap();
        fill(&[&gone], 6144).await;
        pool.audit_space().await.unwrap();
        // At most what checkpoints no longer need.
        let before = pool.status().await.unwrap().discarded_bytes;
        assert!(before < 8 * MIB, "{before}");
        drop(gone);
        pool.delete_volume("gone").await.unwrap();
        // 24 MiB of contents, with parity half as much again, less what it shares with the others.
        let discarded = async {
            while pool.status().await.unwrap().discarded_bytes < before + 24 * MIB {
                reactor::sleep(Duration::from_millis(10)).await;
            }
        };
        reactor::timeout(Duration::from_secs(10), discarded).await.expect("drives are told");
        check(&kept, 0..1024).await;
        // What is free can be used.
        let more = VolumeSpec { id: [3; 16], ..volume("more", 32 * MIB) };
        let more = pool.create_volume(more).await.unwrap();
        fill(&[&more], 6144).await;
        check(&more, 0..6144).await;
        check(&kept, 0..1024).await;
        let audit = pool.audit_space().await.unwrap();
        assert_eq!(audit.taken, audit.owned);
        pool.close().await.unwrap();
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        check(&pool.volume("kept").unwrap(), 0..1024).await;
        check(&pool.volume("more").unwrap(), 0..6144).await;
        pool.close().await.unwrap();
    });
}

/// Nobody has to write, or to ask for it, before what a snapshot had is free again.
#[test]
fn what_a_deleted_snapshot_had_alone_is_found_soon() {
    reactor::simulate(2, async {
        let (_, drives) = simulated(3, 64 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let scheme = raid::Scheme::Raid5;
        let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, log) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        pool.discard(AT_ONCE).await.unwrap();
        let db = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        fill(&[&db], 3000).await;
        super::snapshots::take(&pool, "mon").await;
        fill(&[&db], 3000).await;
        let until = async |is: &dyn Fn(u64, Option<u64>) -> bool| {
            let looks = async {
                let used = async || pool.status().await.unwrap().used / BLOCK as u64;
                let unique = || pool.snapshots("db").unwrap().first().and_then(|s| s.unique);
                while !is(used().await, unique()) {
                    reactor::sleep(Duration::from_millis(10)).await;
                }
            };
            reactor::timeout(Duration::from_secs(60), looks).await.expect("it is so soon");
        };
        until(&|used, unique| used >= 6000 && unique == Some(3000 * BLOCK as u64)).await;
        pool.delete_snapshot("db", "mon").await.unwrap();
        until(&|used, _| used == 3000).await;
        check(&db, 0..3000).await;
        pool.close().await.unwrap();
    });
}

/// Also where nobody knows any more, since the pool was opened, that something was given back.
#[test]
fn what_was_given_back_before_an_opening_is_found_behind_it() {
    reactor::simulate(3, async {
        let (_, drives) = simulated(3, 64 * MIB, 0);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        let scheme = raid::Scheme::Raid5;
        let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, log.clone()) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let db = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        fill(&[&db], 3000).await;
        super::snapshots::take(&pool, "mon").await;
        fill(&[&db], 3000).await;
        // What is in the map's memory yet is given up there.
        super::snapshots::empty_all(&pool).await;
        pool.delete_snapshot("db", "mon").await.unwrap();
        pool.close().await.unwrap();
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        let used = async || pool.status().await.unwrap().used / BLOCK as u64;
        assert_eq!(used().await, 6000);
        pool.discard(AT_ONCE).await.unwrap();
        let found = async {
            while used().await > 3000 {
                reactor::sleep(Duration::from_millis(10)).await;
            }
        };
        reactor::timeout(Duration::from_secs(60), found).await.expect("it is looked for");
        check(&pool.volume("db").unwrap(), 0..3000).await;
        pool.close().await.unwrap();
    });
}

fn files(folder: &Path, bytes: u64) -> Vec<Arc<Drive>> {
    let open = |n| {
        let options = OpenDrive { create: Some(bytes), ..OpenDrive::default() };
        Arc::new(Drive::open(&folder.join(format!("d{n}")), options).unwrap())
    };
    (0..3).map(open).collect()
}

/// Bytes that the files of a folder take.
fn taken(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
}

#[test]
fn files_under_drives_shrink_when_a_volume_is_trimmed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    reactor::run(reactor::Config::default(), async move {
        let drives = files(&path, 96 * MIB);
        let log = LogSpec::Bbu(vec![pmem(8 * MIB)]);
        // Small enough that the last segment in use does not decide.
        let (scheme, au_bytes) = (raid::Scheme::Raid5, Some(MIB));
        let made = PoolSpec { scheme, au_bytes, ..spec(&drives, log) };
        let pool = Pool::create(made, &[]).await.unwrap();
        let empty = taken(&path);
        pool.discard(AT_ONCE).await.unwrap();
        let v = pool.create_volume(volume("v", 64 * MIB)).await.unwrap();
        fill(&[&v], 10_000).await;
        pool.audit_space().await.unwrap();
        let full = taken(&path);
        assert!(full > empty + 40 * MIB, "{full}");
        v.deallocate(4 * MIB, 60 * MIB).await.unwrap();
        let mut space_wait = 600;
        while taken(&path) > empty + (full - empty) / 3 {
            space_wait -= 1;
            assert!(space_wait > 0, "{} of {full}, {empty} empty", taken(&path));
            reactor::sleep(Duration::from_millis(50)).await;
        }
        check(&v, 0..1024).await;
        pool.close().await.unwrap();
    })
    .unwrap();
}

/// They once waited for ever: the log had no room for more stretches, and destage left it alone because
/// its ring was nearly empty.
#[test]
fn more_deallocations_than_the_log_tells_apart_go_on() {
    reactor::simulate(1, async {
        let drives: Vec<_> = super::drives(3, 96 * MIB);
        let scheme = raid::Scheme::Raid5;
        let spec = PoolSpec { scheme, ..spec(&drives, LogSpec::Bbu(vec![pmem(32 * MIB)])) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("v", 256 * MIB)).await.unwrap();
        let all = async {
            for at in 0..20_000 {
                v.deallocate(2 * at * BLOCK as u64, BLOCK as u64).await.unwrap();
            }
        };
        reactor::timeout(Duration::from_secs(60), all).await.expect("destage makes room");
        pool.close().await.unwrap();
    });
}

/// What this test does in a mount namespace of its own.
const INSIDE: &str = "FLASHLOOM_TEST_SMALL_FILE_SYSTEM";

/// Runs the named test once more, in a user and mount namespace of its own with a file system of
/// `size` at `folder`. False where the machine does not allow that; `tests/hosts` fills an ext4 and an
/// xfs in any case.
fn with_small_file_system(test: &str, size: &str, folder: &Path) -> bool {
    let allowed = Command::new("unshare").args(["-rm", "true"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        println!("no namespaces of users here: a file system that is full is not tested");
        return false;
    }
    let script = format!("mount -t tmpfs -o size={size} none \"$1\" && exec \"$0\" --exact {test}");
    let program = std::env::current_exe().unwrap();
    let status = Command::new("unshare")
        .args(["-rm", "sh", "-c", &script])
        .arg(program)
        .arg(folder)
        .env(INSIDE, format!("{size}:{}", folder.display()))
        .status()
        .unwrap();
    assert!(status.success(), "with {size}");
    true
}

#[test]
fn a_file_system_that_is_full_is_told_of_at_once_or_waited_out() {
    let Some(inside) = std::env::var_os(INSIDE) else {
        let folder = tempfile::tempdir().unwrap();
        let test =
            "pool::tests::discards::a_file_system_that_is_full_is_told_of_at_once_or_waited_out";
        let _ = ["12m", "72m"].iter().all(|size| with_small_file_system(test, size, folder.path()));
        return;
    };
    let inside = inside.into_string().unwrap();
    let (size, folder) = inside.split_once(':').unwrap();
    let (has_room, path) = (size == "72m", Path::new(folder).to_owned());
    reactor::run(reactor::Config::default(), async move {
        let drives = files(&path, 96 * MIB);
        let scheme = raid::Scheme::Raid5;
        let spec = PoolSpec {
            scheme,
            log_bytes: Some(crate::log::LOG_BYTES_MIN),
            ..spec(&drives, LogSpec::Drives)
        };
        let pool = Pool::create(spec, &[]).await;
        if !has_room {
            let error = pool.err().expect("no room for labels and log");
            assert_eq!(error.kind, Kind::Full, "{error}");
            assert!(error.to_string().contains("no room for its labels and log"), "{error}");
            return;
        }
        let pool = pool.unwrap();
        let ballast = path.join("ballast");
        std::fs::write(&ballast, vec![1; 16 << 20]).unwrap();
        let v = pool.create_volume(volume("v", 96 * MIB)).await.unwrap();
        let mut written = 0;
        let error = loop {
            match v.write(written * BLOCK as u64, &block(written, 0)).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind, Kind::Full, "{error}");
        check(&v, 0..written).await;
        let status = pool.status().await.unwrap();
        assert!(status.drives.iter().all(|d| d.state == crate::drives::DriveState::Online));
        assert_eq!(status.refuses, Some(crate::WritesRefused::NoDriveSpace));
        std::fs::remove_file(&ballast).unwrap();
        let mut space_wait = 600;
        while v.write(written * BLOCK as u64, &block(written, 0)).await.is_err() {
            space_wait -= 1;
            assert!(space_wait > 0, "there is space again");
            reactor::sleep(Duration::from_millis(50)).await;
        }
        check(&v, 0..written + 1).await;
        assert_eq!(pool.status().await.unwrap().refuses, None);
        pool.close().await.unwrap();
    })
    .unwrap();
}
