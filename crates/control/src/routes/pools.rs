//! The paths of pools, their drives and their volumes.

use std::sync::Arc;

use api::v1::{
    Drive, FoundPool, LogMove, LogMoved, NewMapping, NewPool, NewVolume, Pool, PoolImport, Problem,
    Volume, VolumeChange, VolumeDeletion,
};
use api::value::{Name, VolumePath};
use array::node::Node;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Shared, part};
use crate::door::{Answer, Document, Path, Query, blocking};

/// All paths of pools.
pub fn api() -> OpenApiRouter<Arc<Node>> {
    OpenApiRouter::new()
        .routes(routes!(list_pools, create_pool))
        .routes(routes!(show_pool))
        .routes(routes!(import_pool))
        .routes(routes!(find_pools))
        .routes(routes!(export_pool))
        .routes(routes!(move_log))
        .routes(routes!(list_drives))
        .routes(routes!(list_all_volumes))
        .routes(routes!(list_volumes, create_volume))
        .routes(routes!(show_volume, change_volume, delete_volume))
        .routes(routes!(map_volume, unmap_volume))
}

/// Reads a volume's name in the path.
fn volume_part(pool: &str, volume: &str) -> Answer<VolumePath> {
    Ok(VolumePath { pool: part(pool)?, volume: part(volume)? })
}

#[utoipa::path(get, path = "/v1/pools", tag = "pool", responses((status = 200, body = Vec<Pool>)))]
async fn list_pools(State(node): Shared) -> Answer<Json<Vec<Pool>>> {
    blocking(move || node.pools()).await.map(Json)
}

#[utoipa::path(
    post, path = "/v1/pools", tag = "pool", request_body = NewPool,
    responses((status = 201, body = Pool), (status = "4XX", body = Problem))
)]
async fn create_pool(
    State(node): Shared,
    Document(new): Document<NewPool>,
) -> Answer<(StatusCode, Json<Pool>)> {
    let made = blocking(move || node.create_pool(&new)).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

#[utoipa::path(
    get, path = "/v1/pools/{pool}", tag = "pool", params(("pool" = Name, Path)),
    responses((status = 200, body = Pool), (status = 404, body = Problem))
)]
async fn show_pool(State(node): Shared, Path(pool): Path<String>) -> Answer<Json<Pool>> {
    let pool = part(&pool)?;
    blocking(move || node.pool(&pool)).await.map(Json)
}

#[utoipa::path(
    post, path = "/v1/pool-imports", tag = "pool", request_body = PoolImport,
    responses((status = 201, body = Pool), (status = "4XX", body = Problem))
)]
async fn import_pool(
    State(node): Shared,
    Document(from): Document<PoolImport>,
) -> Answer<(StatusCode, Json<Pool>)> {
    let opened = blocking(move || node.import_pool(&from)).await?;
    Ok((StatusCode::CREATED, Json(opened)))
}

/// Looks at what an import would find, and changes nothing.
#[utoipa::path(
    post, path = "/v1/pool-imports/look", tag = "pool", request_body = PoolImport,
    responses((status = 200, body = Vec<FoundPool>), (status = "4XX", body = Problem))
)]
async fn find_pools(
    State(node): Shared,
    Document(from): Document<PoolImport>,
) -> Answer<Json<Vec<FoundPool>>> {
    blocking(move || node.find_pools(&from)).await.map(Json)
}

#[utoipa::path(
    post, path = "/v1/pools/{pool}/export", tag = "pool", params(("pool" = Name, Path)),
    responses((status = 204), (status = "4XX", body = Problem))
)]
async fn export_pool(State(node): Shared, Path(pool): Path<String>) -> Answer<StatusCode> {
    let pool = part(&pool)?;
    blocking(move || node.export_pool(&pool)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Moves the commit log of an open pool to other places, while hosts write.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/log/move", tag = "pool", params(("pool" = Name, Path)),
    request_body = LogMove,
    responses((status = 200, body = LogMoved), (status = "4XX", body = Problem))
)]
async fn move_log(
    State(node): Shared,
    Path(pool): Path<String>,
    Document(change): Document<LogMove>,
) -> Answer<Json<LogMoved>> {
    let pool = part(&pool)?;
    blocking(move || node.move_log(&pool, &change)).await.map(Json)
}

#[utoipa::path(get, path = "/v1/drives", tag = "pool", responses((status = 200, body = Vec<Drive>)))]
async fn list_drives(State(node): Shared) -> Answer<Json<Vec<Drive>>> {
    blocking(move || node.drives()).await.map(Json)
}

#[utoipa::path(
    get, path = "/v1/volumes", tag = "volume", responses((status = 200, body = Vec<Volume>))
)]
async fn list_all_volumes(State(node): Shared) -> Answer<Json<Vec<Volume>>> {
    blocking(move || node.volumes()).await.map(Json)
}

#[utoipa::path(
    get, path = "/v1/pools/{pool}/volumes", tag = "volume", params(("pool" = Name, Path)),
    responses((status = 200, body = Vec<Volume>), (status = 404, body = Problem))
)]
async fn list_volumes(State(node): Shared, Path(pool): Path<String>) -> Answer<Json<Vec<Volume>>> {
    let pool: Name = part(&pool)?;
    let of_pool = move || {
        node.pool(&pool)?;
        let all = node.volumes()?;
        Ok(all.into_iter().filter(|volume| volume.name.pool == pool).collect())
    };
    blocking(of_pool).await.map(Json)
}

#[utoipa::path(
    post, path = "/v1/pools/{pool}/volumes", tag = "volume", params(("pool" = Name, Path)),
    request_body = NewVolume,
    responses((status = 201, body = Volume), (status = "4XX", body = Problem))
)]
async fn create_volume(
    State(node): Shared,
    Path(pool): Path<String>,
    Document(new): Document<NewVolume>,
) -> Answer<(StatusCode, Json<Volume>)> {
    let pool = part(&pool)?;
    let made = blocking(move || node.create_volume(&pool, &new)).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

#[utoipa::path(
    get, path = "/v1/pools/{pool}/volumes/{volume}", tag = "volume",
    params(("pool" = Name, Path), ("volume" = Name, Path)),
    responses((status = 200, body = Volume), (status = 404, body = Problem))
)]
async fn show_volume(
    State(node): Shared,
    Path((pool, volume)): Path<(String, String)>,
) -> Answer<Json<Volume>> {
    let path = volume_part(&pool, &volume)?;
    blocking(move || node.volume(&path)).await.map(Json)
}

#[utoipa::path(
    patch, path = "/v1/pools/{pool}/volumes/{volume}", tag = "volume",
    params(("pool" = Name, Path), ("volume" = Name, Path)), request_body = VolumeChange,
    responses((status = 200, body = Volume), (status = "4XX", body = Problem))
)]
async fn change_volume(
    State(node): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Document(change): Document<VolumeChange>,
) -> Answer<Json<Volume>> {
    let path = volume_part(&pool, &volume)?;
    blocking(move || node.change_volume(&path, &change)).await.map(Json)
}

#[utoipa::path(
    delete, path = "/v1/pools/{pool}/volumes/{volume}", tag = "volume",
    params(("pool" = Name, Path), ("volume" = Name, Path), VolumeDeletion),
    responses((status = 204), (status = "4XX", body = Problem))
)]
async fn delete_volume(
    State(node): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Query(how): Query<VolumeDeletion>,
) -> Answer<StatusCode> {
    let path = volume_part(&pool, &volume)?;
    blocking(move || node.delete_volume(&path, how)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/pools/{pool}/volumes/{volume}/mapping", tag = "volume",
    params(("pool" = Name, Path), ("volume" = Name, Path)), request_body = NewMapping,
    responses((status = 201, body = Volume), (status = "4XX", body = Problem))
)]
async fn map_volume(
    State(node): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Document(new): Document<NewMapping>,
) -> Answer<(StatusCode, Json<Volume>)> {
    let path = volume_part(&pool, &volume)?;
    let mapped = blocking(move || node.map_volume(&path, new)).await?;
    Ok((StatusCode::CREATED, Json(mapped)))
}

#[utoipa::path(
    delete, path = "/v1/pools/{pool}/volumes/{volume}/mapping", tag = "volume",
    params(("pool" = Name, Path), ("volume" = Name, Path)),
    responses((status = 204), (status = "4XX", body = Problem))
)]
async fn unmap_volume(
    State(node): Shared,
    Path((pool, volume)): Path<(String, String)>,
) -> Answer<StatusCode> {
    let path = volume_part(&pool, &volume)?;
    blocking(move || node.unmap_volume(&path)).await?;
    Ok(StatusCode::NO_CONTENT)
}
