//! Parts of lists: which of them, from which on, and how many.

use api::v1::{JobState, Severity};
use api::value::{Name, Nqn, Period, VolumePath};
use axum::Json;
use axum::http::HeaderName;
use serde::Deserialize;
use utoipa::IntoParams;

/// How many there are in all, of which a part is in the answer.
const TOTAL: HeaderName = HeaderName::from_static("x-total-count");

/// A list as it is answered.
pub type List<T> = ([(HeaderName, String); 1], Json<Vec<T>>);

/// The part of `all` that was asked for.
pub fn part_of<T>(all: Vec<T>, offset: usize, limit: Option<usize>) -> List<T> {
    let total = all.len().to_string();
    let part = all.into_iter().skip(offset).take(limit.unwrap_or(usize::MAX)).collect();
    ([(TOTAL, total)], Json(part))
}

/// A part of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// How many to leave out at the beginning.
    #[serde(default)]
    pub offset: usize,
    /// How many at most; all without it. The header `x-total-count` tells how many there are.
    pub limit: Option<usize>,
}

/// Which volumes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VolumesAsked {
    /// Of this pool.
    pub pool: Option<Name>,
    /// Mapped in this subsystem.
    pub subsystem: Option<Nqn>,
    /// How many to leave out at the beginning.
    #[serde(default)]
    pub offset: usize,
    /// How many at most; all without it. The header `x-total-count` tells how many there are.
    pub limit: Option<usize>,
}

/// Which snapshots.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SnapshotsAsked {
    /// Of the volumes of this pool.
    pub pool: Option<Name>,
    /// Of this volume.
    pub volume: Option<VolumePath>,
    /// How many to leave out at the beginning.
    #[serde(default)]
    pub offset: usize,
    /// How many at most; all without it. The header `x-total-count` tells how many there are.
    pub limit: Option<usize>,
}

/// Which groups.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GroupsAsked {
    /// Of this pool.
    pub pool: Option<Name>,
    /// How many to leave out at the beginning.
    #[serde(default)]
    pub offset: usize,
    /// How many at most; all without it. The header `x-total-count` tells how many there are.
    pub limit: Option<usize>,
}

/// Which schedules.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SchedulesAsked {
    /// Of the volumes of this pool.
    pub pool: Option<Name>,
    /// How many to leave out at the beginning.
    #[serde(default)]
    pub offset: usize,
    /// How many at most; all without it. The header `x-total-count` tells how many there are.
    pub limit: Option<usize>,
}

/// Which rules of a schedule are to run.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RunAsked {
    /// The one with this period; all without it.
    pub every: Option<Period>,
}

/// Which changes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChangesAsked {
    /// Since this snapshot of the same volume, which is older; without it, all that has data is told.
    pub from: Option<Name>,
    /// From this byte of the volume on: what an answer before said as `next`.
    #[serde(default)]
    pub start: u64,
    /// How many at most: 1 to 65536; 10000 without it. An answer may have fewer and a `next`: what is looked through for
    /// it is bounded.
    pub limit: Option<usize>,
}

/// Which controllers.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ControllersAsked {
    /// Of this subsystem.
    pub subsystem: Option<String>,
    /// Of this host.
    pub host: Option<String>,
    /// How many to leave out at the beginning.
    #[serde(default)]
    pub offset: usize,
    /// How many at most; all without it. The header `x-total-count` tells how many there are.
    pub limit: Option<usize>,
}

/// Which jobs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobsAsked {
    /// In this state.
    pub state: Option<JobState>,
    /// About this pool or volume.
    pub target: Option<String>,
    /// How many to leave out at the beginning.
    #[serde(default)]
    pub offset: usize,
    /// How many at most; all without it. The header `x-total-count` tells how many there are.
    pub limit: Option<usize>,
}

/// Which events.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsAsked {
    /// Lowest id wanted.
    #[serde(default)]
    pub from: u64,
    /// Those that matter so much or more.
    pub severity: Option<Severity>,
    /// Seconds to wait until there is one, 300 at most; the answer is empty then.
    #[serde(default)]
    pub wait: u64,
    /// How many at most, the oldest first; all without it. The header `x-total-count` tells how many there are.
    pub limit: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_list_tells_how_long_the_list_is() {
        let part = |offset, limit| {
            let ([(_, total)], Json(part)) = part_of((0..5).collect(), offset, limit);
            (total, part)
        };
        assert_eq!(part(0, None), ("5".to_owned(), vec![0, 1, 2, 3, 4]));
        assert_eq!(part(1, Some(2)), ("5".to_owned(), vec![1, 2]));
        assert_eq!(part(9, Some(2)), ("5".to_owned(), vec![]));
        assert_eq!(part(0, Some(0)).1, [0; 0]);
    }
}
