//! Changes that are under way: of each open file, counted on each core, and found by what the file is. What this process let
//! go of, and opens again, is not free of them.

use std::cell::Cell;
use std::fs::{FileType, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Local;

/// What is open, by whichever name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    File {
        device: u64,
        inode: u64,
    },
    /// A disk, or a partition of it.
    Block {
        disk: u64,
        partition: Option<u64>,
    },
    Other(u64),
}

/// Where the system tells of devices, by their numbers.
const SYS_DEVICES: &str = "/sys/dev";

impl Identity {
    fn of(file: &Metadata) -> Self {
        let kind = file.file_type();
        match is_device(kind) {
            true => Self::of_device(kind.is_block_device(), file.rdev(), SYS_DEVICES.as_ref()),
            false => Self::File { device: file.dev(), inode: file.ino() },
        }
    }

    fn of_device(is_block: bool, number: u64, devices: &Path) -> Self {
        let kind = if is_block { "block" } else { "char" };
        let named = format!("{kind}/{}:{}", libc::major(number), libc::minor(number));
        // Where the system tells nothing each is one of its own.
        let here = devices.join(named).canonicalize().ok();
        if !is_block {
            let disk = here.as_deref().and_then(block_of_generic);
            return disk.map_or(Self::Other(number), |disk| Self::Block { disk, partition: None });
        }
        let disk = here.filter(|here| here.join("partition").exists());
        match disk.and_then(|here| number_of(here.parent()?)) {
            Some(disk) => Self::Block { disk, partition: Some(number) },
            None => Self::Block { disk: number, partition: None },
        }
    }

    /// Whether a change of the one may be one of the other.
    fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Block { disk, partition },
                Self::Block { disk: disk_of_other, partition: other },
            ) => {
                disk == disk_of_other
                    && (partition.is_none() || other.is_none() || partition == other)
            }
            _ => self == other,
        }
    }
}

fn is_device(kind: FileType) -> bool {
    kind.is_block_device() || kind.is_char_device()
}

/// The disk whose commands go by this generic character device (`ng0n1` of `nvme0n1`), beside which the system has it.
fn block_of_generic(here: &Path) -> Option<u64> {
    let name = here.file_name()?.to_str()?.strip_prefix("ng")?;
    let beside = here.parent()?.join(format!("nvme{name}"));
    // Of one that goes by a subsystem of several paths the disk is there, the generic device at its controller, or likewise.
    number_of(&beside)
}

/// The number of a device, as the system tells it.
fn number_of(device: &Path) -> Option<u64> {
    let told = std::fs::read_to_string(device.join("dev")).ok()?;
    let (major, minor) = told.trim().split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Why nobody waits for a change.
#[derive(Clone, Copy, Debug)]
pub enum Unawaited {
    /// It is past its deadline.
    Late,
    /// Whoever waited is gone.
    Left,
}

/// What all know together that have the same thing open.
#[derive(Debug)]
struct Shared {
    of: Identity,
    /// Changes past their deadline, which the kernel may make still.
    late: AtomicUsize,
}

/// Changes that one open file was asked for.
#[derive(Debug)]
pub struct Changes {
    shared: Arc<Shared>,
    /// Those of each core, which alone writes there.
    on_cores: Mutex<Vec<Arc<AtomicUsize>>>,
    /// Those of helper threads.
    calls: AtomicUsize,
    /// Those of both that nobody waits for, save those that are late.
    left: AtomicUsize,
}

/// Of all files that this process has open, or has changes of.
static ALL: Mutex<Vec<Weak<Changes>>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Changes {
    /// Those of a file that was just opened. They are known as long as somebody has them: so has each change.
    pub fn of(file: &Metadata) -> Arc<Self> {
        let of = Identity::of(file);
        let mut all = locked(&ALL);
        all.retain(|known| known.strong_count() > 0);
        let known = all.iter().filter_map(Weak::upgrade).find(|known| known.shared.of == of);
        let shared = match known {
            Some(known) => Arc::clone(&known.shared),
            None => Arc::new(Shared { of, late: AtomicUsize::new(0) }),
        };
        let (calls, left) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let changes = Arc::new(Self { shared, on_cores: Mutex::default(), calls, left });
        all.push(Arc::downgrade(&changes));
        changes
    }

    /// Where another core counts those that it begins.
    pub fn on_core(&self) -> Arc<AtomicUsize> {
        let mut all = locked(&self.on_cores);
        all.retain(|core| Arc::strong_count(core) > 1);
        let core = Arc::default();
        all.push(Arc::clone(&core));
        core
    }

    /// A helper thread is asked for one more.
    pub fn begin_call(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
    }

    /// It is done with one.
    pub fn end_call(&self) {
        self.calls.fetch_sub(1, Ordering::AcqRel);
    }

    fn unawaited(&self, why: Unawaited) -> &AtomicUsize {
        match why {
            Unawaited::Late => &self.shared.late,
            Unawaited::Left => &self.left,
        }
    }

    /// Nobody waits for one more.
    pub fn leave(&self, why: Unawaited) {
        self.unawaited(why).fetch_add(1, Ordering::AcqRel);
    }

    /// One of those ended.
    pub fn end(&self, why: Unawaited) {
        self.unawaited(why).fetch_sub(1, Ordering::AcqRel);
    }

    /// Those past their deadline, however often this is open.
    pub fn late(&self) -> usize {
        self.shared.late.load(Ordering::Acquire)
    }

    /// Whether nobody waits for some.
    pub fn are_unawaited(&self) -> bool {
        self.late() > 0 || self.left.load(Ordering::Acquire) > 0
    }

    /// Whether some are under way, whoever waits for them.
    pub fn are_some(&self) -> bool {
        let is_some = |core: &Arc<AtomicUsize>| core.load(Ordering::Acquire) > 0;
        self.calls.load(Ordering::Acquire) > 0 || locked(&self.on_cores).iter().any(is_some)
    }

    /// Whether there are some of the same thing that was opened another time.
    pub fn are_some_of_others(&self) -> bool {
        let all: Vec<_> = locked(&ALL).iter().filter_map(Weak::upgrade).collect();
        all.iter().any(|other| {
            !std::ptr::eq(&raw const **other, self)
                && other.shared.of.overlaps(self.shared.of)
                && other.are_some()
        })
    }
}

/// A change from when it is asked for until the kernel is done with it, whoever waits. Belongs to the operation's slot once
/// it has one.
pub struct Change {
    file: Rc<Local>,
    unawaited: Cell<Option<Unawaited>>,
}

impl Change {
    pub(crate) fn begin(file: &Rc<Local>) -> Self {
        file.add(1);
        Self { file: Rc::clone(file), unawaited: Cell::new(None) }
    }

    /// Nobody waits for it any more.
    pub(crate) fn leave(&self, why: Unawaited) {
        if self.unawaited.get().is_none() {
            self.unawaited.set(Some(why));
            self.file.inner.changes.leave(why);
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if let Some(why) = self.unawaited.get() {
            self.file.inner.changes.end(why);
        }
        self.file.add(-1);
    }
}

impl Local {
    /// This core alone writes there.
    fn add(&self, one: isize) {
        let changing = self.changing.load(Ordering::Relaxed).wrapping_add_signed(one);
        self.changing.store(changing, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A pool had a drive as /dev/nvme0n1 that was served as /dev/ng0n1 before; a disk was opened whose partition had changes
    /// under way.
    #[test]
    fn a_device_is_known_by_whichever_name() {
        let dir = tempfile::tempdir().unwrap();
        let controller = dir.path().join("devices/nvme0");
        let devices = [("nvme0n1", "259:0"), ("nvme0n1/nvme0n1p1", "259:1"), ("nvme0n2", "259:3")];
        let devices = [&devices[..], &[("nvme0n1/nvme0n1p2", "259:2"), ("ng0n1", "240:0")]];
        for (name, number) in devices.concat() {
            fs::create_dir_all(controller.join(name)).unwrap();
            fs::write(controller.join(name).join("dev"), format!("{number}\n")).unwrap();
            let kind = dir.path().join(if name.starts_with("ng") { "char" } else { "block" });
            fs::create_dir_all(&kind).unwrap();
            symlink(controller.join(name), kind.join(number)).unwrap();
        }
        for partition in ["nvme0n1p1", "nvme0n1p2"] {
            fs::write(controller.join("nvme0n1").join(partition).join("partition"), "1\n").unwrap();
        }
        let of = |is_block, major, minor| {
            Identity::of_device(is_block, libc::makedev(major, minor), dir.path())
        };
        let (disk, first, second) = (of(true, 259, 0), of(true, 259, 1), of(true, 259, 2));
        assert_eq!(of(false, 240, 0), disk);
        assert!(disk.overlaps(first) && second.overlaps(disk) && first.overlaps(first));
        assert!(!first.overlaps(second));
        assert!([disk, first].iter().all(|of_first| !of_first.overlaps(of(true, 259, 3))));
        // The system tells nothing of these.
        let (unknown, generic) = (of(true, 7, 1), of(false, 7, 1));
        assert!(unknown.overlaps(unknown) && generic.overlaps(generic));
        assert!(!unknown.overlaps(generic) && !unknown.overlaps(disk));
    }
}
