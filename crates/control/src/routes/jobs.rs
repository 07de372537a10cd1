//! The paths of jobs, and how requests for them are answered.

use std::sync::Arc;
use std::time::Duration;

use api::v1::{Job, Problem};
use array::jobs::Work;
use array::node::Node;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::lists::{JobsAsked, List, part_of};
use super::{Shared, number};
use crate::extract::{Answer, Asked, Path, Query, Refusal, blocking};
use crate::limits::JOB_WAIT;

/// All paths of jobs.
pub fn api() -> OpenApiRouter<Arc<Node>> {
    OpenApiRouter::new()
        .routes(routes!(list_jobs))
        .routes(routes!(show_job))
        .routes(routes!(cancel_job))
}

/// Begins a job. Answers with what `done` makes of it once it is over; with the job, if that is preferred and it is not
/// over in the time that the caller waits.
pub async fn answer(
    node: Arc<Node>,
    work: Work,
    Asked { key, is_async, wait }: Asked,
    done: impl AsyncFnOnce(Job) -> Answer<Response>,
) -> Answer<Response> {
    let submitting = Arc::clone(&node);
    let at_once = is_async && wait.is_zero();
    let mut job = blocking(move || submitting.submit(work, key, at_once)).await?;
    if is_async {
        if !at_once && !job.state.is_over() {
            let node = Arc::clone(&node);
            job = blocking(move || node.wait_or_keep_job(job.id, wait.min(JOB_WAIT))).await?;
        }
        if at_once || !job.state.is_over() {
            let headers = [(LOCATION, format!("/v1/jobs/{}", job.id))];
            let applied = [("preference-applied", "respond-async")];
            return Ok((StatusCode::ACCEPTED, headers, applied, Json(job)).into_response());
        }
    }
    while !job.state.is_over() {
        let (node, id) = (Arc::clone(&node), job.id);
        job = blocking(move || node.wait_for_job(id, JOB_WAIT)).await?;
    }
    match job.error {
        Some(problem) => Err(Refusal(problem)),
        None => done(job).await,
    }
}

fn id_part(text: &str) -> Answer<u64> {
    number(text, "the number of a job")
}

/// The jobs that are under way, and the latest that are over.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "job", params(JobsAsked),
    responses((status = 200, body = Vec<Job>))
)]
async fn list_jobs(State(node): Shared, Query(asked): Query<JobsAsked>) -> List<Job> {
    let JobsAsked { state, target, offset, limit } = asked;
    let mut all = node.jobs();
    all.retain(|job| state.is_none_or(|state| job.state == state));
    all.retain(|job| target.as_ref().is_none_or(|target| job.target == *target));
    part_of(all, offset, limit)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Wait {
    /// Seconds to wait for it to be over, 300 at most; the answer tells how far it is then.
    #[serde(default)]
    wait: u64,
}

#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "job", params(("id" = u64, Path), Wait),
    responses((status = 200, body = Job), (status = 404, body = Problem))
)]
async fn show_job(
    State(node): Shared,
    Path(id): Path<String>,
    Query(Wait { wait }): Query<Wait>,
) -> Answer<Json<Job>> {
    let (id, limit) = (id_part(&id)?, Duration::from_secs(wait).min(JOB_WAIT));
    blocking(move || node.wait_for_job(id, limit)).await.map(Json)
}

/// Asks a job to stop before it changes anything.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/cancel", tag = "job", params(("id" = u64, Path)),
    responses((status = 200, body = Job), (status = "4XX", body = Problem))
)]
async fn cancel_job(State(node): Shared, Path(id): Path<String>) -> Answer<Json<Job>> {
    let id = id_part(&id)?;
    blocking(move || node.cancel_job(id)).await.map(Json)
}
