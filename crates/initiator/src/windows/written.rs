//! What comes of a write by a window.

/// What came of a write by a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is durable, and complete.
    Done,
    /// It was not done and never will be: it is to go as a command.
    NotDone(NotDone),
    /// It may be in the target's log by now, or get there before anything else of the volume is done. As that of a
    /// command whose connection was lost, its outcome is not known; it may go as a command all the same.
    Unknown,
}

/// Why a write was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// There is no window, or it has ended, or may not be used any more.
    Ended,
    /// It is longer than a record's data can be.
    TooLong,
    /// It is not of whole blocks of the volume, or not of one ring.
    NotOneRing,
    /// The target has given no credit for it.
    Credit,
    /// The window's memory cannot be reached.
    Memory,
    /// Another thread is writing.
    Busy,
}
