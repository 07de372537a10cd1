//! What a daemon keeps under its state directory, as anything at all.

use std::fs;

/// What a target does with an input.
pub type Target = fn(&[u8]);

/// Every target by the name of its file in `fuzz_targets` and its folder in `corpus`.
pub const TARGETS: &[(&str, Target)] = &[("state_files", state_files)];

/// The first byte says which file the others are.
pub fn state_files(input: &[u8]) {
    let Some((which, text)) = input.split_first() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let namespace = uuid::Uuid::from_bytes([7; 16]);
    if which % 2 == 0 {
        fs::write(dir.path().join("state.json"), text).expect("a file");
        if let Ok(Some(state)) = array::state::peek(dir.path()) {
            // What is understood is written and understood again.
            let again = serde_json::to_vec(&state).expect("a document");
            fs::write(dir.path().join("state.json"), again).expect("a file");
            assert!(matches!(array::state::peek(dir.path()), Ok(Some(_))));
        }
    } else {
        let kept = array::reservations::Reservations::open(dir.path()).expect("a folder");
        let file = dir.path().join("reservations").join(format!("{namespace}.json"));
        fs::write(file, text).expect("a file");
        let _ = kept.of(namespace);
    }
}
