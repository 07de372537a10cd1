//! What happens in a shard that its tasks wait for.

use reactor::sync::Signal;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The log has so much that destage should look at it.
    LogFills,
    /// The map took entries, or segments came or went: who keeps the map, and who wins space back, are to look.
    SpaceChanged,
    /// The map learnt a stripe, the log was trimmed, or a checkpoint was taken.
    Advanced,
    /// A search for space was asked for, or ended, or cannot come to its end.
    Search,
    /// Contents of volumes changed after they were counted, or a count ended.
    Counted,
}

/// A signal for each event: whoever waits looks by itself whether what it waits for is so.
#[derive(Debug, Default)]
pub struct Events([Signal; 5]);

impl Events {
    pub fn raise(&self, event: Event) {
        self.0[event as usize].raise();
    }

    /// Waits until `done`, which is looked at whenever this happened.
    pub async fn until(&self, event: Event, done: impl FnMut() -> bool) {
        self.0[event as usize].until(done).await;
    }
}
