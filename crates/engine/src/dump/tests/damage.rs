//! Each kind of structure damaged in turn.

use super::*;

/// A closed pool with something of everything, its drives, and a dump of it.
async fn prepared(memories: usize) -> (Media, Report) {
    let media = Media::new(5, memories);
    let pool = media.create(raid::Scheme::Raid6).await;
    scribble(&volume(&pool, "db", 12 * MIB).await, 1500, 1).await;
    pool.close().await.unwrap();
    let report = media.dump(true).await;
    whole(&report);
    (media, report)
}

/// Flips a bit of every drive's copy of something, or of one's.
fn flip(media: &Media, drives: std::ops::Range<usize>, offset: u64) {
    media.drives[drives].iter().for_each(|drive| drive.flip(offset, 3));
}

/// The findings about a structure, which must be all there are above notes, but that a drive
/// without a label is missing.
fn only(report: &Report, structure: Structure) -> Vec<&Finding> {
    let tells = |finding: &&Finding| {
        finding.severity > Severity::Note
            && (structure != Structure::Label || finding.structure != Structure::Drive)
    };
    let above: Vec<&Finding> = report.findings.iter().filter(tells).collect();
    assert!(!above.is_empty(), "{structure:?} was damaged and not found");
    assert!(above.iter().all(|finding| finding.structure == structure), "{above:#?}");
    assert!(above.iter().all(|finding| finding.advice.is_some()), "{above:#?}");
    above
}

#[test]
fn labels_catalogs_and_roots_are_found_damaged() {
    reactor::simulate(1, async {
        let label = crate::format::area::LABEL;
        let root = crate::area::root_at(0, 0);
        let catalog = crate::format::area::CATALOG;
        for (structure, slots) in [
            (Structure::Label, [label, label + BLOCK as u64]),
            (Structure::Root, [root, root + BLOCK as u64]),
            (Structure::Catalog, [catalog + BLOCK as u64, catalog]),
        ] {
            let (media, _) = prepared(1).await;
            for slot in slots {
                flip(&media, 2..3, slot + 40);
                let report = media.dump(false).await;
                let found = only(&report, structure);
                assert!(report.is_clean(), "{found:#?}");
                assert_eq!(found[0].place.device.as_deref(), Some("d2"));
                assert!(
                    found.iter().any(|finding| finding.place.offset == Some(slot)
                        || structure == Structure::Label),
                    "{found:#?}"
                );
            }
            for slot in slots {
                flip(&media, 0..2, slot + 40);
                flip(&media, 3..5, slot + 40);
            }
            assert!(!media.dump(false).await.is_clean(), "{structure:?} lost everywhere");
        }
    });
}

/// The offset on a drive of a block of a segment, and the drive.
fn place(media: &Media, segment: &SegmentSeen, stripe: u32, unit: usize) -> (usize, u64) {
    // Five drives, RAID 6: three data units of a power of two of blocks, which its label says.
    let geometry = geometry();
    let column = geometry.column(segment.number, stripe, unit);
    let member = segment.members[column];
    let begins = crate::format::catalog::CatalogArea::LEAST.end()
        + if media.pmem.is_empty() && member.drive < 2 { 3 * MIB } else { 0 };
    let set = DriveSet::new(
        vec![crate::drives::DriveSlot {
            vacant: false,
            drive: None,
            failed: false,
            begins,
            au_count: DriveSet::au_count(48 * MIB, begins, MIB),
        }],
        MIB,
        0,
    );
    (usize::from(member.drive), set.offset(0, member.au, geometry.member_block(stripe, 0)))
}

fn geometry() -> Geometry {
    let shape = raid::Shape { data: 3, parity: 2 };
    // An allocation unit of 256 blocks has 16 stripe units.
    Geometry::new(shape, 16, 16).unwrap()
}

fn fullest(report: &Report, stream: crate::segment::Stream) -> SegmentSeen {
    let of = report.segments.iter().filter(|segment| segment.stream == stream);
    of.max_by_key(|segment| segment.live).unwrap().clone()
}

#[test]
fn stripes_are_found_damaged_where_they_are() {
    use crate::segment::Stream;
    reactor::simulate(2, async {
        for (structure, unit, block, data) in [
            (Structure::StripeHeader, 0, 0, false),
            (Structure::Data, 0, 1, true),
            (Structure::Data, 2, 5, true),
            (Structure::Parity, 3, 0, true),
            (Structure::Parity, 4, 7, true),
        ] {
            let (media, report) = prepared(1).await;
            let segment = fullest(&report, Stream::User);
            let (drive, offset) = place(&media, &segment, 1, unit);
            media.drives[drive].flip(offset + block * BLOCK as u64 + 100, 5);
            if data {
                whole(&media.dump(false).await);
            }
            let report = media.dump(data).await;
            let found = only(&report, structure);
            assert!(report.is_clean(), "{found:#?}");
            let at = &found[0].place;
            assert_eq!((at.segment, at.stripe), (Some(segment.number), Some(1)));
            if structure != Structure::Parity {
                assert_eq!(at.device, Some(format!("d{drive}")));
                assert_eq!(at.offset, Some(offset + block * BLOCK as u64));
            }
        }
    });
}

#[test]
fn what_no_redundancy_brings_back_is_an_error() {
    use crate::segment::Stream;
    reactor::simulate(3, async {
        for (stream, structure, block) in [
            (Stream::User, Structure::StripeHeader, 0),
            (Stream::User, Structure::Data, 2),
            (Stream::Metadata, Structure::Map, 1),
        ] {
            let (media, report) = prepared(1).await;
            let segment = fullest(&report, stream);
            for unit in 0..5 {
                for stripe in 0..geometry().stripes() {
                    let (drive, offset) = place(&media, &segment, stripe, unit);
                    media.drives[drive].flip(offset + block * BLOCK as u64 + 9, 1);
                }
            }
            let report = media.dump(true).await;
            let errors = report.findings.iter().filter(|f| f.severity == Severity::Error);
            let found: Vec<_> = errors.collect();
            let kinds = |finding: &&&Finding| finding.structure == structure;
            assert!(found.iter().any(|f| kinds(&f) && f.place.offset.is_some()), "{found:#?}");
            assert!(found.iter().all(|finding| finding.advice.is_some()), "{found:#?}");
        }
    });
}

#[test]
fn pages_and_manifests_are_found_damaged_and_reconstructed() {
    use crate::segment::Stream;
    reactor::simulate(4, async {
        let (media, report) = prepared(1).await;
        let segment = fullest(&report, Stream::Metadata);
        for stripe in 0..geometry().stripes() {
            let (drive, offset) = place(&media, &segment, stripe, 0);
            let blocks = 1..u64::from(geometry().unit_blocks());
            blocks.for_each(|n| media.drives[drive].flip(offset + n * BLOCK as u64, 0));
        }
        let report = media.dump(false).await;
        assert!(report.is_clean(), "{:#?}", report.findings);
        for structure in [Structure::Map, Structure::Manifest] {
            let is = |finding: &&Finding| finding.structure == structure;
            let found = report.findings.iter().find(is).unwrap();
            assert_eq!(found.place.segment, Some(segment.number));
            assert!(found.place.offset.is_some() && found.what.contains("reconstructed"));
        }
    });
}

#[test]
fn member_headers_are_found_damaged() {
    reactor::simulate(5, async {
        let (media, report) = prepared(1).await;
        let segment = fullest(&report, crate::segment::Stream::User);
        let member = segment.members[2];
        let offset =
            crate::format::catalog::CatalogArea::LEAST.end() + u64::from(member.au) * BLOCK as u64;
        media.drives[usize::from(member.drive)].flip(offset + 20, 0);
        let report = media.dump(false).await;
        let found = only(&report, Structure::MemberHeader);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place.offset, Some(offset));
        assert_eq!(found[0].place.segment, Some(segment.number));
        assert!(report.is_clean());
    });
}

/// A pool whose log has records, because its power was cut.
fn crashed(memories: usize) -> Media {
    let media = Media::new(5, memories);
    let made = media.clone();
    reactor::simulate(6, async move {
        let pool = made.create(raid::Scheme::Raid6).await;
        scribble(&volume(&pool, "db", 12 * MIB).await, 300, 1).await;
    });
    media
}

#[test]
fn the_log_is_found_damaged() {
    for memories in [1, 2] {
        let media = crashed(memories);
        reactor::simulate(7, async move {
            let report = media.dump(false).await;
            whole(&report);
            let log = report.shards[0].log.clone().unwrap();
            assert!(log.records > 20 && log.list.len() as u64 == log.records);
            assert!(log.contents > 0);
            let damage = |at: u64| {
                let pmem = Pmem::Simulated(Arc::clone(&media.pmem[0]));
                let mut byte = [0];
                pmem.read(at, &mut byte).unwrap();
                pmem.write(at, &[byte[0] ^ 4]).unwrap();
                pmem.fence();
            };
            // A record in the middle: mirrored it is there twice.
            let record = log.list[10];
            damage(8192 + record.position % log.ring + 70);
            let report = media.dump(false).await;
            let found = only(&report, Structure::LogRecord);
            assert_eq!(report.is_clean(), memories == 2, "{found:#?}");
            assert!(found[0].what.contains(&record.sequence.to_string()), "{found:#?}");
            assert_eq!(found[0].place.device.as_deref(), Some("log0"));
            assert_eq!(found[0].place.offset, Some(8192 + record.position % log.ring));
            // A control block, then both.
            damage(20);
            let report = media.dump(false).await;
            assert!(report.findings.iter().any(|f| f.structure == Structure::LogControl));
            damage(4096 + 20);
            let report = media.dump(false).await;
            assert_eq!(report.is_clean(), memories == 2, "{:#?}", report.findings);
        });
    }
}

#[test]
fn a_log_that_is_not_given_is_said_to_be_missing() {
    let media = crashed(1);
    reactor::simulate(8, async move {
        let spec = Spec { log: None, ..media.spec(false) };
        let report = dump(&spec, &mut |_| {}).await;
        only(&report, Structure::LogControl);
        assert!(report.not_checked.iter().any(|what| what.contains("commit log")));
    });
}
