//! Writes that were begun where they were asked for, and go on from there.

use std::fmt;
use std::rc::Rc;

use crate::shard::{self, Shard};

/// A write that has to wait, and what is done of it; it goes on by
/// [`Volume::finish_write`](crate::Volume::finish_write), or is given up when this is dropped.
pub struct Writing(pub(crate) Way);

/// Who goes on with it.
pub enum Way {
    /// Nothing was done: its blocks are another reactor's, or of several shards.
    Elsewhere,
    /// The shard that began with it.
    Here(Rc<Shard>, shard::Writing),
}

impl Writing {
    /// Whether some of its data is not in the log yet. Where none is, it only waits to be durable.
    #[must_use]
    pub fn needs_data(&self) -> bool {
        match &self.0 {
            Way::Elsewhere => true,
            Way::Here(_, rest) => rest.needs_data(),
        }
    }
}

impl fmt::Debug for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writing").field("needs_data", &self.needs_data()).finish_non_exhaustive()
    }
}
