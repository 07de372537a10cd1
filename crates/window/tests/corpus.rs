//! Replays the corpora of the fuzz targets of this crate.

#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/ring.rs"]
mod targets;

#[test]
fn every_target_takes_its_corpus() {
    replay::replay(targets::TARGETS);
}
