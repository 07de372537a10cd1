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

/// A segment on these, written from end to end.
async fn written(media: &[Arc<Simulated>], parity: u8) -> Rig {
    let slots = media.iter().map(|drive| Some(Drive::Simulated(Arc::clone(drive))));
    let mut rig = Rig::over(slots.collect(), parity);
    rig.write_all().await;
    rig
}

/// A header on a slow drive was given up for one that was never written, where another drive had damage: the others do
/// not make it then, and it was not waited for. An opening took the stripe for one that is not there.
#[test]
fn a_late_header_is_waited_for_where_the_others_do_not_make_it() {
    for (data, parity) in [(1, 1), (3, 1), (4, 2)] {
        reactor::simulate(1, async move {
            let media = drives(data + usize::from(parity));
            let mut rig = written(&media, parity).await;
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
            let rig = written(&media, 1).await;
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

/// A block was declared lost, and its segment given back, after errors that had passed by the time the drives were asked
/// whether they answer.
#[test]
fn what_errors_that_pass_keep_from_a_reader_is_not_lost() {
    reactor::simulate(1, async move {
        let media = drives(2);
        let rig = written(&media, 1).await;
        let (at, bytes) = rig.written[7].clone();
        let place = rig.info.geometry.place(at.slot());
        rig.damage(place.stripe, usize32(place.unit), place.block).await;
        let other = rig.info.member(place.stripe, 1 - usize32(place.unit));
        let block = rig.info.geometry.member_block(place.stripe, place.block);
        let offset = rig.segments.drives.offset(other.drive, other.au, block);
        let range = offset..offset + BLOCK as u64;
        let (operation, kind) = (Some(media::Operation::Read), media::Kind::Passing);
        let drive = &media[usize::from(other.drive)];
        drive.refuse(media::Refusal { operation, range, kind, times: None });
        let (crc, mut out) = (crc32c(&bytes), vec![0; BLOCK]);
        let recovered = rig.segments.recover_block(&rig.info, at.slot(), crc, &mut out).await;
        assert_eq!(recovered, crate::segment::Recovered::Unknown);
        drive.refuse_nothing();
        let recovered = rig.segments.recover_block(&rig.info, at.slot(), crc, &mut out).await;
        assert!(recovered == crate::segment::Recovered::Whole && out == bytes);
    });
}

/// A read of several blocks failed where each of them is there: sectors of two drives could not be read.
#[test]
fn blocks_of_one_read_may_be_unreadable_on_different_drives() {
    reactor::simulate(1, async move {
        let media = drives(4);
        let rig = written(&media, 1).await;
        let (first, _) = rig.written[0];
        let place = rig.info.geometry.place(first.slot());
        let run: Vec<u8> = rig.written[..8].iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let crcs: Vec<u32> = run.chunks(BLOCK).map(crc32c).collect();
        for (unit, n) in [(usize32(place.unit), 2), (usize32(place.unit) + 1, 5)] {
            let member = rig.info.member(place.stripe, unit);
            let block = rig.info.geometry.member_block(place.stripe, place.block + n);
            let offset = rig.segments.drives.offset(member.drive, member.au, block);
            media[usize::from(member.drive)].damage(offset, BLOCK as u64);
        }
        let mut out = vec![0; run.len()];
        rig.segments.read(&rig.info, first.slot(), &crcs, &mut out).await.unwrap();
        assert!(out == run);
    });
}
