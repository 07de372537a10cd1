//! Drives that answer late, while others have what is wrong.

use super::*;
use media::drive::{Simulated, SimulatedOptions};
use std::time::Duration;

/// Drives that take 20 to 60 us.
fn drives(count: usize) -> Vec<Arc<Simulated>> {
    let options = |n| SimulatedOptions {
        capacity: 8 * AU,
        seed: u64_of(n),
        transfer: Duration::from_micros(20)..Duration::from_micros(60),
        ..SimulatedOptions::default()
    };
    (0..count).map(|n| Simulated::new(options(n))).collect()
}

/// A header on a slow drive was given up for one that was never written, where another drive had damage: the others do
/// not make it then, and it was not waited for. An opening took the stripe for one that is not there.
#[test]
fn a_late_header_is_waited_for_where_the_others_do_not_make_it() {
    for (data, parity) in [(1, 1), (3, 1), (4, 2)] {
        reactor::simulate(1, async move {
            let media = drives(data + usize::from(parity));
            let slots = media.iter().map(|drive| Some(Drive::Simulated(Arc::clone(drive))));
            let mut rig = Rig::over(slots.collect(), parity);
            rig.write_all().await;
            rig.check().await.unwrap();
            let stripe = 1;
            let header = rig.segments.read_header(&rig.info, stripe).await.unwrap();
            assert!(header.is_some());
            for unit in 1..=usize::from(parity) {
                rig.damage(stripe, unit, 0).await;
            }
            media[usize::from(rig.info.member(stripe, 0).drive)].set_slower(100);
            for _ in 0..100 {
                assert_eq!(rig.segments.read_header(&rig.info, stripe).await.unwrap(), header);
            }
        });
    }
}

/// Blocks that nobody could read just now were told of as lost: what a host had been told is complete was given up with
/// the rest of such a block.
#[test]
fn what_no_drive_could_say_just_now_is_not_lost() {
    for damaged in [false, true] {
        reactor::simulate(1, async move {
            let media = drives(2);
            let slots = media.iter().map(|drive| Some(Drive::Simulated(Arc::clone(drive))));
            let mut rig = Rig::over(slots.collect(), 1);
            rig.write_all().await;
            let (at, bytes) = rig.written[7].clone();
            let place = rig.info.geometry.place(at.slot());
            if damaged {
                rig.damage(place.stripe, usize32(place.unit), place.block).await;
            }
            let other = rig.info.member(place.stripe, 1 - usize32(place.unit)).drive;
            for (n, drive) in media.iter().enumerate() {
                drive.set_hanging(!damaged || n == usize::from(other));
            }
            let mut out = vec![0; BLOCK];
            let crcs = [crc32c(&bytes)];
            let read = rig.segments.read(&rig.info, at.slot(), &crcs, &mut out).await;
            assert_eq!(read.unwrap_err().kind, Kind::Busy, "damaged: {damaged}");
            media.iter().for_each(|drive| drive.set_hanging(false));
            // One that hung so long is not used any more.
            if !damaged {
                rig.segments.read(&rig.info, at.slot(), &crcs, &mut out).await.unwrap();
                assert!(out == bytes);
            }
        });
    }
}
