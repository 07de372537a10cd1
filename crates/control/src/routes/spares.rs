//! The paths of pools' spares.

use std::sync::Arc;

use api::v1::{NewDrives, Problem, Spare};
use api::value::Name;
use array::node::Node;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Shared, number, part};
use crate::extract::{Answer, Document, Path, blocking};

/// All paths of spares.
pub fn api() -> OpenApiRouter<Arc<Node>> {
    OpenApiRouter::new()
        .routes(routes!(list_all_spares))
        .routes(routes!(list_spares, add_spares))
        .routes(routes!(remove_spare))
}

#[utoipa::path(get, path = "/v1/spares", tag = "drive", responses((status = 200, body = Vec<Spare>)))]
async fn list_all_spares(State(node): Shared) -> Answer<Json<Vec<Spare>>> {
    blocking(move || node.all_spares()).await.map(Json)
}

#[utoipa::path(
    get, path = "/v1/pools/{pool}/spares", tag = "drive", params(("pool" = Name, Path)),
    responses((status = 200, body = Vec<Spare>), (status = "4XX", body = Problem))
)]
async fn list_spares(State(node): Shared, Path(pool): Path<String>) -> Answer<Json<Vec<Spare>>> {
    let pool: Name = part(&pool)?;
    blocking(move || node.spares(&pool)).await.map(Json)
}

/// Gives a pool drives that stand by: one takes the place of a drive by itself that fails, or has been gone for long.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/spares", tag = "drive", params(("pool" = Name, Path)),
    request_body = NewDrives,
    responses((status = 201, body = Vec<Spare>), (status = "4XX", body = Problem))
)]
async fn add_spares(
    State(node): Shared,
    Path(pool): Path<String>,
    Document(new): Document<NewDrives>,
) -> Answer<Response> {
    let pool: Name = part(&pool)?;
    let spares = blocking(move || node.add_spares(&pool, &new)).await?;
    Ok((StatusCode::CREATED, Json(spares)).into_response())
}

/// Takes a spare back from its pool, and makes it blank where it is there.
#[utoipa::path(
    delete, path = "/v1/pools/{pool}/spares/{spare}", tag = "drive",
    params(("pool" = Name, Path), ("spare" = String, Path)),
    responses((status = 204), (status = "4XX", body = Problem))
)]
async fn remove_spare(
    State(node): Shared,
    Path((pool, spare)): Path<(String, String)>,
) -> Answer<Response> {
    let pool: Name = part(&pool)?;
    let spare = number(&spare, "the identity of a spare")?;
    blocking(move || node.remove_spare(&pool, spare)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
