//! Replays the corpora of the fuzz targets of this crate.

#[path = "../../../fuzz/src/log.rs"]
mod log;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/pool.rs"]
mod targets;

#[test]
fn every_target_takes_its_corpus() {
    replay::replay(targets::TARGETS.iter().chain(log::TARGETS));
}
