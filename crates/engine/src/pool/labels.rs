//! What drives say of the pools that they are of, looked at side by side.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use media::Drive;
use reactor::{join_all, sleep, timeout};

use super::open::lasting_label;
use crate::area;
use crate::error::{Error, Result};
use crate::format::Bad;
use crate::format::label::Label;
use crate::limits::{LABEL_ATTEMPTS, LABEL_PATIENCE, LABEL_PAUSE, LABEL_SILENCE};

/// Why it is not known what a drive is of.
#[derive(Debug)]
pub enum Unknown {
    /// It carries no label, or none that is whole.
    Unlabelled(Bad),
    /// It did not answer in time.
    Silent,
    /// It answered, with an error, however often it was asked.
    Refused(Error),
    /// It takes no writes: what is read of it may be gone after a loss of power.
    Fleeting(Error),
}

impl Unknown {
    /// Whether the drive is at fault, whatever it carries.
    #[must_use]
    pub const fn is_faulty(&self) -> bool {
        !matches!(self, Self::Unlabelled(_))
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlabelled(Bad::Blank) => f.write_str("carries no label of a pool"),
            Self::Unlabelled(bad) => write!(f, "carries no label of a pool that is whole: {bad}"),
            Self::Silent => {
                write!(f, "does not answer: nothing came in {} s", LABEL_PATIENCE.as_secs())
            }
            Self::Refused(error) => write!(f, "cannot be read: {error}"),
            Self::Fleeting(error) => write!(f, "does not make durable what it holds: {error}"),
        }
    }
}

/// What a drive's label says, so that it lasts if that is wanted.
async fn look(
    drive: &Drive,
    lasts: &impl Fn(&Label) -> bool,
) -> std::result::Result<Label, Unknown> {
    let label = read_label(drive).await.map_err(Unknown::Refused)?;
    let label = label.map_err(Unknown::Unlabelled)?;
    if !lasts(&label) {
        return Ok(label);
    }
    let label = lasting_label(drive).await.map_err(Unknown::Fleeting)?;
    label.map_err(Unknown::Unlabelled)
}

/// Reads a label, again where that fails: one error may pass.
async fn read_label(drive: &Drive) -> Result<std::result::Result<Label, Bad>> {
    let mut attempt = 1;
    loop {
        match area::read_label(drive).await {
            Err(_) if attempt < LABEL_ATTEMPTS => attempt += 1,
            done => return done,
        }
        sleep(LABEL_PAUSE).await;
    }
}

/// What the labels of these drives say, of each what it gave within [`LABEL_PATIENCE`]. `lasts` tells of which labels
/// that has to last, which takes a flush: nothing is asked of another's drive but what it holds. `waits` is told once
/// which ones keep the others waiting.
pub async fn look_at_labels(
    drives: &[Arc<Drive>],
    lasts: impl Fn(&Label) -> bool,
    waits: impl FnOnce(&BTreeSet<usize>),
) -> Vec<std::result::Result<Label, Unknown>> {
    let silent = RefCell::new((0..drives.len()).collect::<BTreeSet<_>>());
    let looks = drives.iter().enumerate().map(|(n, drive)| {
        let (silent, lasts) = (&silent, &lasts);
        async move {
            let seen = timeout(LABEL_PATIENCE, look(drive, lasts)).await;
            silent.borrow_mut().remove(&n);
            seen.unwrap_or(Err(Unknown::Silent))
        }
    });
    let mut all = pin!(join_all(looks));
    if let Ok(seen) = timeout(LABEL_SILENCE, all.as_mut()).await {
        return seen;
    }
    waits(&silent.borrow());
    all.await
}
