//! Replays the corpora of fuzz targets, regression inputs among them, without a fuzzer.

use std::fs;
use std::path::Path;

/// Gives each of `targets` every input of its corpus.
///
/// # Panics
/// When a target does, or has no corpus.
pub fn replay<'a>(targets: impl IntoIterator<Item = &'a (&'static str, fn(&[u8]))>) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    for (name, target) in targets {
        let corpus = fs::read_dir(fuzz.join("corpus").join(name)).expect("a corpus");
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
