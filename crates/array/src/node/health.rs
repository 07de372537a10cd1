//! How the node is, and its pools: in one word, one line why, and what to do about it.

use std::collections::BTreeMap;

use api::v1::{Health, HealthReport};

use super::owner::View;
use crate::Result;

impl View {
    /// How the node is, and each of its pools.
    ///
    /// # Errors
    /// `Stopping`.
    pub(super) fn health(&self) -> Result<(HealthReport, BTreeMap<String, HealthReport>)> {
        let serving = self.serving()?;
        let pools = serving.pools.health();
        let absent = serving.absences(&self.state.current);
        let waits = absent.into_iter().map(|why| HealthReport {
            health: Health::Degraded,
            why: Some(why),
            help: Some("it is served when it is there: put it back, or remove it".to_owned()),
        });
        // Of what is as bad, pools first: what waits for them is not there for that.
        let all = pools.values().cloned().chain(waits);
        let worst = all.reduce(|worst, next| if next.health > worst.health { next } else { worst });
        Ok((worst.unwrap_or_default(), pools))
    }
}
