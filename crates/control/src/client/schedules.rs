//! Requests about schedules of snapshots.

use api::v1::{Consent, Losses, NewSchedule, Schedule, ScheduleChange};
use api::value::{Name, Period, VolumePath};
use hyper::Method;

use super::pools::volume;
use super::{Client, Result, json};

impl Client {
    /// All schedules, or those of a pool.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn schedules(&self, pool: Option<&Name>) -> Result<Vec<Schedule>> {
        let of = pool.map_or_else(String::new, |pool| format!("?pool={pool}"));
        self.get(&format!("/v1/schedules{of}")).await
    }

    /// The schedule of a volume.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn schedule(&self, path: &VolumePath) -> Result<Schedule> {
        self.get(&volume(path, "/schedule")).await
    }

    /// Makes a schedule.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn create_schedule(&self, new: &NewSchedule) -> Result<Schedule> {
        self.post("/v1/schedules", new).await
    }

    /// Runs a schedule now, or one rule of it.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn run_schedule(&self, path: &VolumePath, every: Option<Period>) -> Result<Schedule> {
        let every = every.map_or_else(String::new, |every| format!("?every={every}"));
        let path = volume(path, &format!("/schedule/run{every}"));
        self.request(Method::POST, &path, Vec::new()).await
    }

    /// Changes a schedule.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn change_schedule(
        &self,
        path: &VolumePath,
        change: &ScheduleChange,
    ) -> Result<Schedule> {
        self.request(Method::PATCH, &volume(path, "/schedule"), json(change)?).await
    }

    /// Deletes the schedule of a volume; the snapshots that it made stay.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn delete_schedule(&self, path: &VolumePath, consent: Consent) -> Result<Losses> {
        self.remove(&volume(path, "/schedule"), consent).await
    }
}
