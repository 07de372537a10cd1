//! Changes that the kernel still has, and that nobody waits for: counted by open file, and found by what the file is. What
//! this process let go of, and opens again, is not free of them.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Why nobody waits for a change.
#[derive(Clone, Copy)]
pub enum Unawaited {
    /// It is past its deadline.
    Late,
    /// Whoever waited is gone.
    Left,
}

/// Those of one open file.
#[derive(Debug)]
pub struct Changes {
    /// What the file is, by whichever name.
    of: (bool, u64, u64),
    late: AtomicUsize,
    left: AtomicUsize,
}

/// Of all files that this process has open, or has changes of.
static ALL: Mutex<Vec<Weak<Changes>>> = Mutex::new(Vec::new());

impl Changes {
    /// Those of a file that was just opened. They are known as long as somebody has them: so has each change.
    pub fn of(file: &Metadata) -> Arc<Self> {
        let kind = file.file_type();
        let is_device = kind.is_block_device() || kind.is_char_device();
        let of = match is_device {
            true => (true, file.rdev(), u64::from(kind.is_block_device())),
            false => (false, file.dev(), file.ino()),
        };
        let (late, left) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let changes = Arc::new(Self { of, late, left });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&changes));
        changes
    }

    const fn count(&self, why: Unawaited) -> &AtomicUsize {
        match why {
            Unawaited::Late => &self.late,
            Unawaited::Left => &self.left,
        }
    }

    /// Nobody waits for one more.
    pub fn leave(&self, why: Unawaited) {
        self.count(why).fetch_add(1, Ordering::AcqRel);
    }

    /// The kernel is done with one.
    pub fn end(&self, why: Unawaited) {
        self.count(why).fetch_sub(1, Ordering::AcqRel);
    }

    pub fn late(&self) -> usize {
        self.late.load(Ordering::Acquire)
    }

    pub fn are_some(&self) -> bool {
        self.late() > 0 || self.left.load(Ordering::Acquire) > 0
    }

    /// Whether there are some of the same file that was opened another time.
    pub fn are_some_of_others(&self) -> bool {
        let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let others = all.iter().filter_map(Weak::upgrade);
        others.into_iter().any(|other| {
            !std::ptr::eq(&raw const *other, self) && other.of == self.of && other.are_some()
        })
    }
}
