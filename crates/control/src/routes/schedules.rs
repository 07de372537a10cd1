//! The paths of schedules of snapshots.

use std::sync::Arc;

use api::v1::{Consent, Losses, NewSchedule, Problem, Schedule, ScheduleChange};
use api::value::Name;
use array::node::Node;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::lists::{List, RunAsked, SchedulesAsked, part_of};
use super::pools::volume_part;
use super::{Shared, removed};
use crate::extract::{Answer, Document, Path, Query, blocking};

/// All paths of schedules.
pub fn api() -> OpenApiRouter<Arc<Node>> {
    OpenApiRouter::new()
        .routes(routes!(list_schedules, create_schedule))
        .routes(routes!(show_schedule, change_schedule, delete_schedule))
        .routes(routes!(run_schedule))
}

/// All schedules, or those of a pool.
#[utoipa::path(
    get, path = "/v1/schedules", tag = "schedule", params(SchedulesAsked),
    responses((status = 200, body = Vec<Schedule>))
)]
async fn list_schedules(
    State(node): Shared,
    Query(asked): Query<SchedulesAsked>,
) -> Answer<List<Schedule>> {
    let SchedulesAsked { pool, offset, limit } = asked;
    let all = blocking(move || node.schedules(pool.as_ref())).await?;
    Ok(part_of(all, offset, limit))
}

/// Makes a schedule: snapshots of its volumes, or of a group's, are taken at one instant when they are due, and deleted once there are enough.
#[utoipa::path(
    post, path = "/v1/schedules", tag = "schedule", request_body = NewSchedule,
    responses((status = 201, body = Schedule), (status = "4XX", body = Problem))
)]
async fn create_schedule(
    State(node): Shared,
    Document(new): Document<NewSchedule>,
) -> Answer<(StatusCode, Json<Schedule>)> {
    let made = blocking(move || node.create_schedule(&new)).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// The schedule that a volume has, or a group that is named in its place.
#[utoipa::path(
    get, path = "/v1/pools/{pool}/volumes/{volume}/schedule", tag = "schedule",
    params(("pool" = Name, Path), ("volume" = Name, Path)),
    responses((status = 200, body = Schedule), (status = 404, body = Problem))
)]
async fn show_schedule(
    State(node): Shared,
    Path((pool, volume)): Path<(String, String)>,
) -> Answer<Json<Schedule>> {
    let path = volume_part(&pool, &volume)?;
    blocking(move || node.schedule(&path)).await.map(Json)
}

/// Changes the rules of the schedule that a volume or a group has, or what its snapshots are called.
#[utoipa::path(
    patch, path = "/v1/pools/{pool}/volumes/{volume}/schedule", tag = "schedule",
    params(("pool" = Name, Path), ("volume" = Name, Path)), request_body = ScheduleChange,
    responses((status = 200, body = Schedule), (status = "4XX", body = Problem))
)]
async fn change_schedule(
    State(node): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Document(change): Document<ScheduleChange>,
) -> Answer<Json<Schedule>> {
    let path = volume_part(&pool, &volume)?;
    blocking(move || node.alter_schedule(&path, &change)).await.map(Json)
}

/// Deletes the schedule that a volume or a group has, of all its volumes. The snapshots that it made stay.
#[utoipa::path(
    delete, path = "/v1/pools/{pool}/volumes/{volume}/schedule", tag = "schedule",
    params(("pool" = Name, Path), ("volume" = Name, Path), Consent),
    responses((status = 204), (status = 200, body = Losses), (status = "4XX", body = Problem))
)]
async fn delete_schedule(
    State(node): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Query(consent): Query<Consent>,
) -> Answer<Response> {
    let path = volume_part(&pool, &volume)?;
    removed(node, consent, move |node| node.delete_schedule(&path, consent)).await
}

/// Runs the schedule that a volume or a group has now: all its rules, or one.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/volumes/{volume}/schedule/run", tag = "schedule",
    params(("pool" = Name, Path), ("volume" = Name, Path), RunAsked),
    responses((status = 200, body = Schedule), (status = "4XX", body = Problem))
)]
async fn run_schedule(
    State(node): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Query(asked): Query<RunAsked>,
) -> Answer<Json<Schedule>> {
    let path = volume_part(&pool, &volume)?;
    blocking(move || node.run_schedule(&path, asked.every)).await.map(Json)
}
