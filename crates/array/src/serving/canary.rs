//! Breaks things when asked to, for tests of what comes of it, by files in the folder that `FLASHLOOM_CANARY` names: the
//! first reactor by `panic` or `stuck`, and `slow-NAME` has drives with files of that name take so many microseconds longer
//! for each operation as it says. Not a part of the program that users have.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use media::{Drive, FaultPlan};
use reactor::Handle;

/// How often to look.
const PAUSE: Duration = Duration::from_millis(20);

/// How much longer each drive takes, by the names of their files.
static LONGER: Mutex<Vec<(PathBuf, Arc<AtomicU64>)>> = Mutex::new(Vec::new());

fn folder() -> Option<PathBuf> {
    std::env::var_os("FLASHLOOM_CANARY").map(PathBuf::from)
}

/// Watches for the files on `reactor`.
pub fn watch(reactor: &Handle) {
    let Some(folder) = folder() else { return };
    let _ = reactor.spawn(move || async move {
        loop {
            assert!(!folder.join("panic").exists(), "asked to panic");
            while folder.join("stuck").exists() {
                std::hint::spin_loop();
            }
            follow();
            reactor::sleep(PAUSE).await;
        }
    });
}

/// Has drives be as slow as their files say.
fn follow() {
    let mut all = LONGER.lock().unwrap_or_else(PoisonError::into_inner);
    // Drives are opened again and again to be looked at.
    all.retain(|(_, longer)| Arc::strong_count(longer) > 1);
    for (file, longer) in &*all {
        let asked = fs::read_to_string(file).unwrap_or_default();
        longer.store(asked.trim().parse().unwrap_or(0), Ordering::Relaxed);
    }
}

/// A drive that takes longer when asked to.
pub fn slowed(path: &Path, drive: Drive) -> Drive {
    let (Some(folder), Some(name)) = (folder(), path.file_name()) else { return drive };
    let longer = Arc::new(AtomicU64::new(0));
    let file = folder.join(format!("slow-{}", name.display()));
    LONGER.lock().unwrap_or_else(PoisonError::into_inner).push((file, Arc::clone(&longer)));
    drive.with_faults(FaultPlan { longer: Some(longer), ..FaultPlan::default() })
}
