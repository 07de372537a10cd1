//! Replays the fuzz targets' corpora, regression inputs among them, without a fuzzer.

#[path = "../../../fuzz/src/pool.rs"]
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

#[test]
fn every_target_takes_its_corpus() {
    for (name, target) in targets::TARGETS {
        let corpus = fs::read_dir(fuzz().join("corpus").join(name)).expect("a corpus");
        let mut inputs = 0;
        for input in corpus {
            let path = input.expect("an input").path();
            // Shown when the target panics.
            println!("{}", path.display());
            target(&fs::read(path).expect("its bytes"));
            inputs += 1;
        }
        assert!(inputs > 0, "the corpus of {name} is empty");
    }
}
