//! What outlives the array's lives: its media.

use crate::plan::Plan;
use crate::reference::{Disk, Lie, Reference};
use crate::store::{Refusal, Store};
use std::rc::Rc;
use stdx::Prng;

/// Which kind of pool is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The reference, with a lie perhaps.
    Reference(Lie),
}

pub enum World {
    Reference(Rc<Disk>),
}

impl World {
    pub fn new(subject: Subject, plan: &Plan) -> Self {
        let _ = plan;
        match subject {
            Subject::Reference(lie) => {
                let disk = Disk::default();
                disk.lie.set(lie);
                Self::Reference(Rc::new(disk))
            }
        }
    }

    /// Makes the pool when there is none, and opens it when there is.
    pub async fn open(&self) -> Result<Store, Refusal> {
        match self {
            Self::Reference(disk) => Ok(Store::Reference(Reference::open(Rc::clone(disk)).await)),
        }
    }

    /// Power fails everywhere at once.
    pub fn power_cut(&self, prng: &mut Prng) {
        match self {
            Self::Reference(_) => {
                let _ = prng;
            }
        }
    }
}
