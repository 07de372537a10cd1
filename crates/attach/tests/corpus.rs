//! Replays the corpora of the fuzz targets of this crate.

#[path = "../../../fuzz/src/nbd.rs"]
mod nbd;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/vhost.rs"]
mod vhost;

#[test]
fn every_target_takes_its_corpus() {
    replay::replay(nbd::TARGETS.iter().chain(vhost::TARGETS));
}
