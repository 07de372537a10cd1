//! Pools beyond their redundancy whose drives answer again.

use std::process::Command;

use super::returned::wait_until_whole;
use super::*;

/// A file that refuses changes as long as this is there.
struct Refusing(PathBuf);

fn chattr(how: &str, path: &Path) -> bool {
    Command::new("chattr").arg(how).arg(path).output().is_ok_and(|output| output.status.success())
}

impl Refusing {
    /// `None` where the file system, or who runs this, cannot have such files.
    fn new(path: PathBuf) -> Option<Self> {
        chattr("+i", &path).then(|| Self(path))
    }
}

impl Drop for Refusing {
    fn drop(&mut self) {
        assert!(chattr("-i", &self.0));
    }
}

/// Writes a block of a volume, all bytes alike, as a host would.
fn write(node: &Node, path: &VolumePath, at: u64, byte: u8) -> engine::Result<()> {
    let (volume, home) = volume(node, path);
    home.call(move || async move { volume.write(at * 4096, &[byte; 4096]).await }).wait().unwrap()
}

fn read(node: &Node, path: &VolumePath, at: u64) -> Vec<u8> {
    let (volume, home) = volume(node, path);
    let read = home.call(move || async move {
        let mut got = vec![0; 4096];
        volume.read(at * 4096, &mut got).await.map(|()| got)
    });
    read.wait().unwrap().unwrap()
}

fn volume(node: &Node, path: &VolumePath) -> (engine::Volume, reactor::Handle) {
    let view = node.view();
    let pools = &view.serving().unwrap().pools;
    (pools.volume(path).unwrap(), pools.pool(&path.pool).unwrap().home().clone())
}

/// Errors on more drives than the redundancy bears, which passed, were the pool's end until the daemon was started again.
#[test]
fn a_pool_beyond_its_redundancy_is_opened_again_when_its_drives_answer() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let path = make(&node, dir, "fast");
    let before = namespace(&node);
    for (round, failing) in [&[0, 1, 2, 3][..], &[1, 2, 3]].into_iter().enumerate() {
        let byte = u8::try_from(round).unwrap() + 1;
        write(&node, &path, round as u64, byte).unwrap();
        let refusing: Option<Vec<_>> =
            failing.iter().map(|n| Refusing::new(dir.join(format!("fast{n}")))).collect();
        let Some(mut refusing) = refusing else {
            eprintln!("skipped: no file can be made to refuse changes here");
            break;
        };
        assert!(write(&node, &path, 100, byte).is_err());
        // It is left as it is while they do not answer, and says how it is.
        open_late(&node);
        let pool = node.pool(&named("fast")).unwrap();
        assert_eq!(pool.health, PoolHealth::BeyondRedundancy, "{pool:?}");
        assert!(
            pool.problem
                .unwrap()
                .starts_with("beyond redundancy, writes wait, and reads of what it lacks: ")
        );
        assert_eq!(said(&node, "is opened again"), round);
        refusing.clear();
        wait_until_whole(&node, "fast");
        assert_eq!(said(&node, "pool fast is opened again: its drives answer"), round + 1);
        assert_eq!(namespace(&node), before);
        for block in 0..=round {
            assert_eq!(
                read(&node, &path, block as u64),
                vec![u8::try_from(block).unwrap() + 1; 4096]
            );
        }
        write(&node, &path, 100, byte).unwrap();
    }
    node.stop();
    drop(node);
}
