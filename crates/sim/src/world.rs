//! What outlives the array's lives: its media.

use crate::array::{Fork, Media, Seen, Start};
use crate::model::Model;
use crate::plan::Plan;
use crate::reference::{Disk, Lie, Reference};
use crate::shape::{LogLoss, Rot};
use crate::store::{Refusal, Store};
use engine::canary::Canary;
use reactor::{Handle, Nanos};
use std::rc::Rc;
use stdx::Prng;

/// Which kind of pool is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The reference, with a lie perhaps.
    Reference(Lie),
    /// The engine, with a planted bug perhaps.
    Array(Option<Canary>),
    /// The engine, and a target with a planted bug.
    Target(target::canary::Canary),
    /// The engine, and hosts that write by windows with a planted bug.
    Host(initiator::canary::Canary),
}

pub enum World {
    Reference(Rc<Disk>),
    Array(Box<Media>),
}

/// Plants a bug in what this thread does, or none.
pub fn plant(canary: Option<Canary>, small_maps: bool) {
    engine::canary::plant(canary);
    engine::canary::make_maps_small(small_maps);
}

impl World {
    pub fn new(subject: Subject, plan: &Plan) -> Self {
        target::canary::plant(match subject {
            Subject::Target(canary) => Some(canary),
            Subject::Reference(_) | Subject::Array(_) | Subject::Host(_) => None,
        });
        match subject {
            Subject::Reference(lie) => {
                let disk = Disk::default();
                disk.lie.set(lie);
                Self::Reference(Rc::new(disk))
            }
            Subject::Array(_) | Subject::Target(_) | Subject::Host(_) => {
                let canary = match subject {
                    Subject::Array(canary) => canary,
                    Subject::Reference(_) | Subject::Target(_) | Subject::Host(_) => None,
                };
                plant(canary, plan.small_maps);
                Self::Array(Box::new(Media::new(plan, canary)))
            }
        }
    }

    /// The reactors of the life that begins.
    pub async fn move_to(&self, reactors: Vec<Handle>) {
        if let Self::Array(media) = self {
            media.move_to(reactors).await;
        }
    }

    /// Makes the pool when there is none, and opens it when there is.
    pub async fn open(&self, life: usize) -> Result<Store, Refusal> {
        match self {
            Self::Reference(disk) => Ok(Store::Reference(Reference::open(Rc::clone(disk)).await)),
            Self::Array(media) => Ok(Store::Array(media.open(life).await?)),
        }
    }

    /// Whether all that lies on the media is whole.
    pub async fn check(&self) -> Result<(), String> {
        match self {
            Self::Reference(_) => Ok(()),
            Self::Array(media) => media.check().await,
        }
    }

    /// What a daemon may find after a life.
    pub fn starts(&self, model: &Model, life: usize) -> Vec<Start> {
        match self {
            Self::Reference(_) => Vec::new(),
            Self::Array(media) => media.starts(model, life),
        }
    }

    /// What is wrong with what comes of such a start.
    pub async fn try_start(&self, start: Start) -> Result<(), String> {
        match self {
            Self::Reference(_) => Ok(()),
            Self::Array(media) => media.try_start(start).await,
        }
    }

    /// A pool of which some drives go elsewhere.
    pub fn fork(&self, model: &Model, life: usize, nth: u64) -> Option<Fork> {
        match self {
            Self::Reference(_) => None,
            Self::Array(media) => media.fork(model, life, nth),
        }
    }

    /// Power fails everywhere at once, and comes back.
    pub fn power_cut(&self, prng: &mut Prng) {
        if let Self::Array(media) = self {
            media.power_cut(prng);
        }
    }

    /// A life comes to its end, on its reactor: what is known of the log by then.
    pub fn look_last(&self) {
        if let Self::Array(media) = self {
            media.look_last();
        }
    }

    /// The process ended at this time of its own, however it did.
    pub fn end_process(&self, at: Nanos, life: usize) {
        if let Self::Array(media) = self {
            media.end_process(at, life);
        }
    }

    /// What does not outlive a life that was cut short, of what another has as well.
    pub fn bury(&self, seed: u64) {
        if let Self::Array(media) = self {
            media.bury(seed);
        }
    }

    /// Flips bits of what hosts wrote, beyond what the redundancy gives back perhaps.
    pub fn rot(&self, rot: Rot) {
        if let Self::Array(media) = self {
            media.rot(rot);
        }
    }

    /// Takes devices of the commit log away, and puts blank ones there; tells whether all of it is
    /// lost then.
    pub fn lose_log(&self, loss: LogLoss) -> bool {
        match self {
            Self::Reference(_) => false,
            Self::Array(media) => media.lose_log(loss),
        }
    }

    /// Power fails after so many lines more were stored to persistent memory, if there is any.
    pub fn cut_after(&self, lines: u64) {
        if let Self::Array(media) = self {
            media.cut_after(lines);
        }
    }

    /// Power fails in place of a fence of persistent memory, if there is any.
    pub fn cut_at_fence(&self, fence: u64) {
        if let Self::Array(media) = self {
            media.cut_at_fence(fence);
        }
    }

    /// More drives are away than the redundancy bears: operations may fail.
    pub fn is_broken(&self) -> bool {
        match self {
            Self::Reference(_) => false,
            Self::Array(media) => media.is_broken(),
        }
    }

    /// There may be no space behind the drives in this life.
    pub fn is_scarce(&self) -> bool {
        match self {
            Self::Reference(_) => false,
            Self::Array(media) => media.is_scarce(),
        }
    }

    /// There was no space behind some drive then, or later.
    pub fn has_lacked_space(&self, since: Nanos) -> bool {
        match self {
            Self::Reference(_) => false,
            Self::Array(media) => media.has_lacked_space(since),
        }
    }

    /// What happened to the media since this was last asked.
    pub fn said(&self) -> Vec<String> {
        match self {
            Self::Reference(_) => Vec::new(),
            Self::Array(media) => media.said(),
        }
    }

    /// What came of drives that were slow, and of scrubs.
    pub fn seen(&self) -> Seen {
        match self {
            Self::Reference(_) => Seen::default(),
            Self::Array(media) => media.seen(),
        }
    }

    /// False from the moment power fails: what happens after did not.
    pub fn is_on(&self) -> bool {
        match self {
            Self::Reference(_) => true,
            Self::Array(media) => media.is_on(),
        }
    }
}
