//! Faults at random, power cuts, and drives that lie.

use super::*;
use media::drive::{Simulated, SimulatedFaults, SimulatedOptions};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever happens to at most m units of each row, in whatever way, all data is there.
    #[test]
    fn whatever_is_borne_is_borne(
        shape in proptest::sample::select(SHAPES.to_vec()),
        seed: u64,
        failed in proptest::collection::vec(any::<proptest::sample::Index>(), 0..=2),
        damages in 0usize..60,
    ) {
        let (data, parity) = shape;
        let failed: Vec<usize> = failed.iter().map(|f| f.index(data + usize::from(parity))).collect();
        reactor::simulate(seed, bear(data, parity, seed, failed, damages));
    }
}

async fn bear(data: usize, parity: u8, seed: u64, failed: Vec<usize>, damages: usize) {
    let width = data + usize::from(parity);
    let mut rig = Rig::new(data, parity);
    rig.prng = Prng::new(seed);
    rig.write(0).await.unwrap();
    rig.write(1).await.unwrap();
    let mut lost = std::collections::HashMap::<(u32, u32), Vec<usize>>::new();
    let mut failed = failed;
    failed.truncate(usize::from(parity));
    failed.sort_unstable();
    failed.dedup();
    for _ in 0..damages {
        let stripe = stdx::num::low32(rig.prng.below(2));
        let block = stdx::num::low32(rig.prng.below(rig.info.geometry.unit_blocks().into()));
        let unit = stdx::num::usize64(rig.prng.below(u64_of(width)));
        let row = lost.entry((stripe, block)).or_default();
        let column = rig.info.geometry.column(rig.info.id.get(), stripe, unit);
        let others = failed.iter().filter(|f| **f != column).count();
        let known = row.contains(&unit) || failed.contains(&column);
        if !known && row.len() + others < usize::from(parity) {
            row.push(unit);
            rig.damage(stripe, unit, block).await;
        }
    }
    for drive in &failed {
        rig.segments.drives.fail(u16_of(*drive), crate::drives::Cause::Operator);
    }
    for stripe in 0..2 {
        assert!(rig.segments.read_header(&rig.info, stripe).await.unwrap().is_some());
    }
    rig.check().await.unwrap();
}

fn simulated(count: u64, seed: u64) -> Vec<Arc<Simulated>> {
    let options = |n| SimulatedOptions {
        capacity: 8 * AU,
        seed: seed * 100 + n,
        ..SimulatedOptions::default()
    };
    (0..count).map(|n| Simulated::new(options(n))).collect()
}

fn over(drives: &[Arc<Simulated>], parity: u8) -> Rig {
    let drives = drives.iter().map(|drive| Some(Drive::Simulated(Arc::clone(drive))));
    Rig::over(drives.collect(), parity)
}

#[test]
fn what_was_flushed_survives_a_power_cut() {
    for seed in 0..20 {
        let drives = simulated(6, seed);
        let before = reactor::simulate(seed, {
            let drives = drives.clone();
            async move {
                let mut rig = over(&drives, 2);
                rig.prng = Prng::new(seed);
                rig.write(0).await.unwrap();
                rig.write(1).await.unwrap();
                rig.segments.flush(&[&rig.info]).await.unwrap();
                let flushed = rig.written.clone();
                rig.write(2).await.unwrap();
                let mut prng = Prng::new(seed);
                drives.iter().for_each(|drive| drive.power_cut(&mut prng));
                flushed
            }
        });
        reactor::simulate(seed, async move {
            drives.iter().for_each(|drive| drive.power_on());
            let mut rig = over(&drives, 2);
            rig.written = before;
            for stripe in 0..2 {
                let verdict = rig.segments.verify(&rig.info, stripe).await.unwrap();
                let (header, faults) = verdict.unwrap();
                assert!(header.blocks() > 100 && faults.is_none(), "{faults:?}");
            }
            rig.check().await.unwrap();
            // What was not may be there in parts, or not at all.
            rig.segments.verify(&rig.info, 2).await.unwrap();
            assert_eq!(rig.segments.verify(&rig.info, 3).await.unwrap(), None);
        });
    }
}

/// Drives that say they wrote and did not, or wrote elsewhere: as long as there are no more of
/// them than there is parity, checksums tell and the others make up for it.
#[test]
fn drives_that_lie_are_found_out() {
    let mut lies = 0;
    for seed in 0..20 {
        let drives = simulated(6, seed);
        let liars = [drives[2].clone(), drives[5].clone()];
        reactor::simulate(seed, async move {
            let faults = SimulatedFaults {
                lost_ppm: 100_000,
                misdirected_ppm: 100_000,
                latent_ppm: 100_000,
                rot_ppm: 100_000,
                ..SimulatedFaults::default()
            };
            drives[2].set_faults(faults);
            drives[5].set_faults(faults);
            let mut rig = over(&drives, 2);
            rig.prng = Prng::new(seed);
            rig.write_all().await;
            for stripe in 0..rig.info.geometry.stripes() {
                let header = rig.segments.read_header(&rig.info, stripe).await.unwrap();
                assert!(header.is_some(), "{stripe}");
            }
            rig.check().await.unwrap();
        });
        lies += liars.iter().map(|d| d.counters().lost + d.counters().misdirected).sum::<u64>();
    }
    assert!(lies > 20, "{lies}");
}
