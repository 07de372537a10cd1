//! Breaks the first reactor when asked to, for tests of what comes of it: by a file `panic` or `stuck` in the folder
//! that `FLASHLOOM_CANARY` names. Not a part of the program that users have.

use std::path::PathBuf;
use std::time::Duration;

use reactor::Handle;

/// How often to look.
const PAUSE: Duration = Duration::from_millis(20);

/// Watches for the files on `reactor`.
pub fn watch(reactor: &Handle) {
    let Some(folder) = std::env::var_os("FLASHLOOM_CANARY").map(PathBuf::from) else { return };
    let _ = reactor.spawn(move || async move {
        loop {
            assert!(!folder.join("panic").exists(), "asked to panic");
            while folder.join("stuck").exists() {
                std::hint::spin_loop();
            }
            reactor::sleep(PAUSE).await;
        }
    });
}
