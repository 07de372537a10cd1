//! The paths of pools' scrubs.

use std::sync::Arc;

use api::v1::{Job, Problem, RateLimit, Scrub};
use api::value::Name;
use array::jobs::Work;
use array::node::Node;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::jobs::answer;
use super::{Shared, part};
use crate::extract::{Answer, Asked, Document, Path, blocking};

/// All paths of scrubs.
pub fn api() -> OpenApiRouter<Arc<Node>> {
    OpenApiRouter::new()
        .routes(routes!(show_scrub, begin_scrub, limit_scrub))
        .routes(routes!(pause_scrub))
        .routes(routes!(stop_scrub))
}

#[utoipa::path(
    get, path = "/v1/pools/{pool}/scrub", tag = "pool", params(("pool" = Name, Path)),
    responses((status = 200, body = Scrub), (status = "4XX", body = Problem))
)]
async fn show_scrub(State(node): Shared, Path(pool): Path<String>) -> Answer<Json<Scrub>> {
    let pool: Name = part(&pool)?;
    blocking(move || node.scrub(&pool)).await.map(Json)
}

/// Checks what a pool's drives hold, and puts right what is damaged; goes on with a scrub that is paused. Without a limit
/// as fast as the last one.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/scrub", tag = "pool", params(("pool" = Name, Path)),
    request_body = RateLimit,
    responses(
        (status = 200, body = Scrub), (status = 202, body = Job), (status = "4XX", body = Problem)
    )
)]
async fn begin_scrub(
    State(node): Shared,
    asked: Asked,
    Path(pool): Path<String>,
    Document(how): Document<RateLimit>,
) -> Answer<Response> {
    let pool: Name = part(&pool)?;
    let (name, of) = (pool.clone(), Arc::clone(&node));
    answer(node, Work::Scrub(pool, how), asked, async move |_| {
        let done = blocking(move || of.scrub(&name)).await?;
        Ok(Json(done).into_response())
    })
    .await
}

/// Changes how fast that goes.
#[utoipa::path(
    patch, path = "/v1/pools/{pool}/scrub", tag = "pool", params(("pool" = Name, Path)),
    request_body = RateLimit,
    responses((status = 200, body = Scrub), (status = "4XX", body = Problem))
)]
async fn limit_scrub(
    State(node): Shared,
    Path(pool): Path<String>,
    Document(how): Document<RateLimit>,
) -> Answer<Json<Scrub>> {
    let pool: Name = part(&pool)?;
    blocking(move || node.limit_scrub(&pool, how)).await.map(Json)
}

/// Has a scrub wait where it is until it is begun again.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/scrub/pause", tag = "pool", params(("pool" = Name, Path)),
    responses((status = 200, body = Scrub), (status = "4XX", body = Problem))
)]
async fn pause_scrub(State(node): Shared, Path(pool): Path<String>) -> Answer<Json<Scrub>> {
    let pool: Name = part(&pool)?;
    blocking(move || node.pause_scrub(&pool)).await.map(Json)
}

/// Ends a scrub, one that is paused too: the next one checks everything anew.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/scrub/stop", tag = "pool", params(("pool" = Name, Path)),
    responses((status = 200, body = Scrub), (status = "4XX", body = Problem))
)]
async fn stop_scrub(State(node): Shared, Path(pool): Path<String>) -> Answer<Json<Scrub>> {
    let pool: Name = part(&pool)?;
    blocking(move || node.stop_scrub(&pool)).await.map(Json)
}
