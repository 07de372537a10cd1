//! Opening without the log while more drives are away than the redundancy bears.

use super::*;
use crate::address::LogMark;
use crate::format::manifest::{Manifest, SegmentRecord};
use crate::format::root::Root;
use crate::recover::{Found, last_whole};
use crate::superblock::RootOn;
use media::Simulated;
use media::drive::SimulatedOptions;

/// A checkpoint since which all of the rig's stripes were written.
fn checkpoint(rig: &Rig) -> Found {
    let info = SegmentInfo::clone(&rig.info);
    let record = SegmentRecord { info, roll_from: Some(0), stripes: None, live: 0 };
    let (shard, generation, cut) = (0, 1, 100);
    let (map, index, segments) = (Vec::new(), Vec::new(), vec![record]);
    let manifest = Manifest { shard, generation, cut, next_segment: 12, segments, map };
    let segments = Vec::new();
    let log = LogMark::default();
    let root = Root { pool: POOL, shard, generation, log, bytes: 0, index, segments };
    let pages = crate::manifest_pages::ManifestPages::default();
    Found {
        root,
        manifest,
        blocks: Vec::new(),
        pages,
        segments: Vec::new(),
        root_on: RootOn::default(),
    }
}

/// A damaged header was taken for the end of the stripes, because nothing else of its stripe could be read: once the
/// drives were back, what had left the lost log long ago was gone.
#[test]
fn where_stripes_end_cannot_be_told_while_too_many_drives_are_away() {
    reactor::simulate(1, async {
        let options = SimulatedOptions { capacity: 8 * AU, ..SimulatedOptions::default() };
        let media: Vec<_> = (0..4).map(|_| Simulated::new(options.clone())).collect();
        let drive = |media: &Arc<Simulated>| Some(Drive::Simulated(Arc::clone(media)));
        let mut rig = Rig::over(media.iter().map(drive).collect(), 1);
        for stripe in 0..2 {
            rig.write(stripe).await.unwrap();
        }
        let found = checkpoint(&rig);
        assert_eq!(last_whole(&found, &rig.segments).await.unwrap(), 102);
        rig.damage(0, 0, 0).await;
        let stays = usize::from(rig.info.member(0, 0).drive);
        let away = || media.iter().enumerate().filter(|(n, _)| *n != stays).take(2);
        away().for_each(|(_, drive)| drive.fail());
        let error = last_whole(&found, &rig.segments).await.unwrap_err();
        assert_eq!(error.kind, Kind::Failed, "{error}");
        away().for_each(|(_, drive)| drive.revive());
        let back = Rig::over(media.iter().map(drive).collect(), 1);
        assert_eq!(last_whole(&found, &back.segments).await.unwrap(), 102);
    });
}
