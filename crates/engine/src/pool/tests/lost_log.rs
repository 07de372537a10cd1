//! A commit log that is lost as a whole: for whoever accepts that, the pool opens with what its drives
//! have.

use std::time::Duration;

use media::drive::SimulatedOptions;
use media::{Power, Simulated, SimulatedPmem};

use super::*;
use crate::dump::{self, Given, Severity};

const B: u64 = BLOCK as u64;

/// Blocks of the volume, and those up to which nothing is overwritten later.
const BLOCKS: u64 = 2048;
const SETTLED: u64 = 256;

const ACCEPTING: OpenOptions = OpenOptions {
    degraded: false,
    import: false,
    accept_loss: true,
    unattended: false,
    known_term: 0,
    known_log: None,
    new_log: None,
};

/// Every version a block ever had; 0 for zeroes.
type History = BTreeMap<u64, Vec<u64>>;

async fn churn(v: &Volume, history: &mut History, prng: &mut Prng, writes: u64) {
    for _ in 0..writes {
        let count = 1 + prng.below(16);
        let first = SETTLED + prng.below(BLOCKS - SETTLED - count);
        let version = if prng.below(10) == 0 { 0 } else { 1 + prng.below(1 << 40) };
        if version == 0 {
            v.deallocate(first * B, count * B).await.unwrap();
        } else {
            let data =
                (first..first + count).map(|at| block(at, version)).collect::<Vec<_>>().concat();
            v.write(first * B, &data).await.unwrap();
        }
        (first..first + count).for_each(|at| history.entry(at).or_default().push(version));
    }
}

fn contents(at: u64, version: u64) -> Vec<u8> {
    if version == 0 { vec![0; BLOCK] } else { block(at, version) }
}

/// Each block is what it was at some time; gives how many are not what they were last.
async fn check(v: &Volume, history: &mut History) -> u64 {
    let (mut got, mut lost) = (vec![0; BLOCK], 0);
    for at in 0..BLOCKS {
        v.read(at * B, &mut got).await.unwrap();
        let had = history.entry(at).or_default();
        let found = had.iter().rev().chain([&0]).position(|version| contents(at, *version) == got);
        let back = found.unwrap_or_else(|| panic!("block {at} has what was never written"));
        lost += u64::from(back > 0);
        had.truncate(had.len() - back.min(had.len()));
    }
    lost
}

async fn is_whole(drives: &[Arc<Drive>], log: &LogSpec) {
    let given = |(n, drive): (usize, &Arc<Drive>)| Given {
        name: format!("drive {n}"),
        drive: Ok(Arc::clone(drive)),
    };
    let drives = drives.iter().enumerate().map(given).collect();
    let spec = dump::Spec { drives, log: Some(log.clone()), data: true, ..Default::default() };
    let report = dump::dump(&spec, &mut |_| {}).await;
    let wrong = report.findings.iter().find(|finding| finding.severity == Severity::Error);
    assert!(wrong.is_none(), "{wrong:?}");
}

/// A life that a crash ends.
async fn live(drives: &[Arc<Drive>], log: &LogSpec, shards: u16, seed: u64) -> History {
    let (mut history, mut prng) = (History::new(), Prng::new(seed));
    let spec = PoolSpec { shards: Some(shards), au_bytes: Some(MIB), ..spec(drives, log.clone()) };
    let pool = Pool::create(spec, &[]).await.unwrap();
    let v = pool.create_volume(volume("db", BLOCKS * B)).await.unwrap();
    for at in 0..SETTLED {
        v.write(at * B, &block(at, 7)).await.unwrap();
        history.entry(at).or_default().push(7);
    }
    // All of it leaves the log.
    pool.audit_space().await.unwrap();
    let writes = 100 + prng.below(1500);
    churn(&v, &mut history, &mut prng, writes).await;
    history
}

async fn refused(drives: &[Arc<Drive>], log: &LogSpec, options: OpenOptions) -> crate::Error {
    let opened = Pool::open(drives.to_vec(), log.clone(), options, &[]).await;
    opened.err().expect("opened")
}

fn memories(count: usize) -> LogSpec {
    LogSpec::Bbu((0..count).map(|_| pmem(16 * MIB)).collect())
}

/// It was refused for ever.
#[test]
fn a_pool_that_lost_its_log_opens_with_what_its_drives_have_for_whoever_accepts_that() {
    let mut lost_at_all = 0;
    for seed in 0..12 {
        let count = 1 + usize64(seed % 2);
        let (drives, old, new) = (drives(6, 128 * MIB), memories(count), memories(count));
        let (given, log) = (drives.clone(), old.clone());
        let shards = if seed % 3 == 0 { 2 } else { 1 };
        let mut history =
            reactor::simulate(seed, async move { live(&given, &log, shards, seed).await });
        let (given, logs) = (drives.clone(), (old.clone(), new.clone()));
        let (lost, mut history) = reactor::simulate(seed, async move {
            let (drives, (_, new)) = (given, logs);
            let error = refused(&drives, &new, OpenOptions::default()).await;
            assert_eq!(error.kind, Kind::Loss, "{error}");
            assert!(error.to_string().contains("an old copy on"), "{error}");
            let pool = Pool::open(drives.clone(), new.clone(), ACCEPTING, &[]).await.unwrap();
            assert!(pool.has_lost_log());
            let v = pool.volume("db").unwrap();
            let lost = check(&v, &mut history).await;
            let settled = history.range(..SETTLED).all(|(_, had)| had == &[7]);
            assert!(settled, "what the drives had is lost");
            let audit = pool.audit_space().await.unwrap();
            assert_eq!(audit.taken, audit.owned);
            churn(&v, &mut history, &mut Prng::new(seed ^ 99), 300).await;
            assert_eq!(check(&v, &mut history).await, 0);
            (lost, history)
        });
        lost_at_all += lost;
        reactor::simulate(seed, async move {
            // The old one, should it be found again, is not read any more.
            assert_eq!(refused(&drives, &old, OpenOptions::default()).await.kind, Kind::Loss);
            let pool = Pool::open(drives.clone(), new.clone(), OpenOptions::default(), &[]).await;
            let pool = pool.unwrap();
            assert!(!pool.has_lost_log());
            assert_eq!(check(&pool.volume("db").unwrap(), &mut history).await, 0);
            pool.close().await.unwrap();
            is_whole(&drives, &new).await;
        });
    }
    assert!(lost_at_all > 0, "nothing was in a log");
}

/// What is not a log, and not blank, is somebody's.
#[test]
fn what_is_not_blank_is_never_made_the_log_of_a_pool_that_lost_it() {
    let (drives, old, other) = (drives(6, 128 * MIB), memories(1), memories(1));
    let given = drives.clone();
    reactor::simulate(1, async move { live(&given, &old, 1, 1).await });
    let LogSpec::Bbu(devices) = &other else { panic!("bbu") };
    devices[0].write(0, b"somebody's").unwrap();
    reactor::simulate(2, async move {
        assert_eq!(refused(&drives, &other, ACCEPTING).await.kind, Kind::Missing);
    });
}

/// Of one shard the log has records and no control block, of the other nothing at all: whoever accepts the loss was told that
/// nothing was ever written there, and had no way to open the pool.
#[test]
fn records_of_one_shard_alone_keep_no_pool_closed() {
    reactor::simulate(5, async {
        let (drives, memory) = (drives(6, 128 * MIB), pmem(16 * MIB));
        let log = LogSpec::Bbu(vec![Arc::clone(&memory)]);
        let mut history = live(&drives, &log, 2, 5).await;
        let part = memory.capacity() / 2;
        memory.write(0, &vec![0; usize64(part)]).unwrap();
        [0, 4096].iter().for_each(|at| memory.write(part + at, &[0xA5; 64]).unwrap());
        let error = refused(&drives, &log, OpenOptions::default()).await;
        assert!(matches!(error.kind, Kind::Missing | Kind::Loss), "{error}");
        let pool = Pool::open(drives, log, ACCEPTING, &[]).await.unwrap();
        check(&pool.volume("db").unwrap(), &mut history).await;
        assert!(pool.has_lost_log());
        pool.close().await.unwrap();
    });
}

/// What was left of a control block half made, or of a log made under the number before, was taken for another
/// pool's log from then on, and the pool could not be opened any more.
#[test]
fn power_may_fail_again_and_again_while_a_new_log_is_made() {
    for seed in 0..2 {
        let power = Arc::<Power>::default();
        let options = |n| SimulatedOptions {
            capacity: 128 * MIB,
            seed: n,
            power: Arc::clone(&power),
            ..SimulatedOptions::default()
        };
        let media: Vec<_> = (0..4).map(|n| Simulated::new(options(n))).collect();
        let memory = Arc::new(SimulatedPmem::with_power(16 * MIB, Arc::clone(&power)));
        let drives: Vec<_> =
            media.iter().map(|d| Arc::new(Drive::Simulated(Arc::clone(d)))).collect();
        let log = LogSpec::Bbu(vec![Arc::new(Pmem::Simulated(Arc::clone(&memory)))]);
        let (given, old, mut prng) = (drives.clone(), memories(1), Prng::new(seed));
        let mut history = reactor::simulate(seed, async move { live(&given, &old, 2, seed).await });
        let mut crash = || {
            media.iter().for_each(|drive| drive.power_cut(&mut prng));
            memory.crash(&mut prng);
            media.iter().for_each(|drive| drive.power_on());
        };
        crash();
        // It is made in 8 lines.
        for lines in 1..8 {
            memory.cut_after(lines);
            let (drives, log) = (drives.clone(), log.clone());
            reactor::simulate(seed, async move {
                let open = Pool::open(drives, log, ACCEPTING, &[]);
                let cut_short = reactor::timeout(Duration::from_secs(1), open).await;
                assert!(cut_short.is_err(), "{lines} lines");
            });
            crash();
        }
        reactor::simulate(seed, async move {
            let pool = Pool::open(drives, log, ACCEPTING, &[]).await.unwrap();
            check(&pool.volume("db").unwrap(), &mut history).await;
            pool.close().await.unwrap();
        });
    }
}

/// What a volume had that the log took away, and the catalog had forgotten, was nobody's for ever.
#[test]
fn what_was_taken_away_in_the_log_that_is_lost_is_given_back() {
    let (drives, old, new) = (drives(6, 128 * MIB), memories(1), memories(1));
    let given = drives.clone();
    reactor::simulate(1, async move {
        let spec = PoolSpec { shards: Some(2), au_bytes: Some(MIB), ..spec(&given, old) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        for name in ["kept", "shrunk", "deleted"] {
            let v = pool.create_volume(volume(name, 64 * B)).await.unwrap();
            for at in 0..64 {
                v.write(at * B, &block(at, 1)).await.unwrap();
            }
        }
        // All of it leaves the log.
        assert_eq!(pool.audit_space().await.unwrap().live, 3 * 64);
        pool.resize_volume("shrunk", 16 * B).await.unwrap();
        pool.delete_volume("deleted").await.unwrap();
    });
    reactor::simulate(2, async move {
        let pool = Pool::open(drives, new, ACCEPTING, &[]).await.unwrap();
        assert_eq!(pool.volumes(), ["kept", "shrunk"]);
        let audit = pool.audit_space().await.unwrap();
        assert_eq!((audit.live, audit.taken), (64 + 16, audit.owned));
        pool.resize_volume("shrunk", 64 * B).await.unwrap();
        let (kept, shrunk) = (pool.volume("kept").unwrap(), pool.volume("shrunk").unwrap());
        let mut got = vec![0; BLOCK];
        for at in 0..64 {
            kept.read(at * B, &mut got).await.unwrap();
            assert_eq!(got, block(at, 1));
            shrunk.read(at * B, &mut got).await.unwrap();
            assert_eq!(got, contents(at, if at < 16 { 1 } else { 0 }).as_slice());
        }
        pool.close().await.unwrap();
    });
}
