//! What an opening has seen is there for good, whatever the process before it left unfinished.

use std::time::Duration;

use media::Operation;
use media::drive::Refusal;

use super::*;
use crate::format::catalog::CatalogArea;

/// A pool whose process is killed so long after it began to make a volume.
fn killed_after(
    nanos: u64,
    seed: u64,
    count: u64,
) -> (Vec<Arc<Simulated>>, Vec<Arc<Drive>>, LogSpec) {
    let (media, drives) = simulated(count, 64 * MIB, seed);
    let log = LogSpec::Bbu(vec![pmem(4 * MIB)]);
    let scheme = raid::Scheme::Single;
    let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, log.clone()) };
    reactor::simulate(seed, async move {
        let pool = Pool::create(spec, &[]).await.unwrap();
        let making = pool.create_volume(volume("db", MIB));
        let _ = reactor::timeout(Duration::from_nanos(nanos), making).await;
    });
    (media, drives, log)
}

/// The volumes that an opening sees, which ends right after that.
fn seen(drives: &[Arc<Drive>], log: &LogSpec, seed: u64) -> Vec<String> {
    let (drives, log) = (drives.to_vec(), log.clone());
    reactor::simulate(seed, async move {
        let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        pool.volumes()
    })
}

/// A catalog that a killed process had just put into one drive's cache was taken for what the pool has, and was gone
/// with the power, and the volume's contents with it.
#[test]
pub(super) fn a_volume_that_was_seen_is_there_after_a_power_cut() {
    let (mut made, mut missed) = (0, 0);
    for seed in 0..200 {
        // By itself, one drive has nothing that it could be found to differ in.
        let (media, drives, log) = killed_after(seed / 2 * 200, seed, 1 + seed % 2);
        // Every other time there is no space behind the drives, so that the opening leaves nothing of its own there.
        let (operation, kind) = (Some(Operation::Write), media::Kind::Full);
        let refusal =
            Refusal { operation, range: CatalogArea::LEAST.end()..u64::MAX, kind, times: None };
        if seed % 2 == 0 {
            media.iter().for_each(|medium| medium.refuse(refusal.clone()));
        }
        let before = seen(&drives, &log, seed);
        media.iter().for_each(|medium| medium.refuse_nothing());
        media.iter().for_each(|medium| medium.power_cut(&mut Prng::new(seed)));
        media.iter().for_each(|medium| medium.power_on());
        assert_eq!(seen(&drives, &log, seed), before, "seed {seed}");
        if before.is_empty() { missed += 1 } else { made += 1 }
    }
    assert!(made > 20 && missed > 20, "{made} made, {missed} not");
}
