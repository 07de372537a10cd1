//! The paths of pools, their drives and their volumes.

use std::sync::Arc;

use api::v1::{
    Changed, Consent, FoundPool, Job, LogChange, LogMove, LogMoved, Losses, NewMapping, NewPool,
    NewVolume, Pool, PoolImport, PoolPlan, Problem, Volume, VolumeChange,
};
use api::value::{Name, Nqn, VolumePath};
use array::jobs::Work;
use array::node::Node;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::jobs::answer;
use super::lists::{List, VolumesAsked, part_of};
use super::{Shared, part, removed};
use crate::extract::{Answer, Asked, Document, Path, Query, blocking};

/// All paths of pools.
pub fn api() -> OpenApiRouter<Arc<Node>> {
    OpenApiRouter::new()
        .routes(routes!(list_pools, create_pool))
        .routes(routes!(show_pool, delete_pool))
        .routes(routes!(import_pool))
        .routes(routes!(find_pools))
        .routes(routes!(export_pool))
        .routes(routes!(move_log))
        .routes(routes!(change_log))
        .routes(routes!(list_all_volumes))
        .routes(routes!(list_volumes, create_volume))
        .routes(routes!(show_volume, change_volume, delete_volume))
        .routes(routes!(detach_volume))
        .routes(routes!(map_volume, unmap_volume))
}

/// Reads a volume's name in the path.
pub fn volume_part(pool: &str, volume: &str) -> Answer<VolumePath> {
    Ok(VolumePath { pool: part(pool)?, volume: part(volume)? })
}

#[utoipa::path(get, path = "/v1/pools", tag = "pool", responses((status = 200, body = Vec<Pool>)))]
async fn list_pools(State(node): Shared) -> Answer<Json<Vec<Pool>>> {
    blocking(move || node.pools()).await.map(Json)
}

#[utoipa::path(
    post, path = "/v1/pools", tag = "pool", request_body = NewPool,
    responses(
        (status = 201, body = Pool), (status = 200, body = PoolPlan), (status = 202, body = Job),
        (status = "4XX", body = Problem)
    )
)]
async fn create_pool(
    State(node): Shared,
    asked: Asked,
    Document(new): Document<NewPool>,
) -> Answer<Response> {
    if new.dry_run {
        let plan = blocking(move || node.plan_pool(&new)).await?;
        return Ok(Json(plan).into_response());
    }
    let (name, of) = (new.name.clone(), Arc::clone(&node));
    answer(node, Work::CreatePool(new), asked, async move |_| {
        let made = blocking(move || of.pool(&name)).await?;
        Ok((StatusCode::CREATED, Json(made)).into_response())
    })
    .await
}

#[utoipa::path(
    get, path = "/v1/pools/{pool}", tag = "pool", params(("pool" = Name, Path)),
    responses((status = 200, body = Pool), (status = 404, body = Problem))
)]
async fn show_pool(State(node): Shared, Path(pool): Path<String>) -> Answer<Json<Pool>> {
    let pool = part(&pool)?;
    blocking(move || node.pool(&pool)).await.map(Json)
}

/// Ends a pool with all its volumes, and makes its drives blank.
#[utoipa::path(
    delete, path = "/v1/pools/{pool}", tag = "pool", params(("pool" = Name, Path), Consent),
    responses(
        (status = 204), (status = 200, body = Losses), (status = 202, body = Job),
        (status = "4XX", body = Problem)
    )
)]
async fn delete_pool(
    State(node): Shared,
    asked: Asked,
    Path(pool): Path<String>,
    Query(consent): Query<Consent>,
) -> Answer<Response> {
    let name = part(&pool)?;
    if consent.dry_run {
        return removed(node, consent, move |node| node.losses_of_pool(&name)).await;
    }
    let work = Work::DeletePool(name, consent);
    answer(node, work, asked, async |_| Ok(StatusCode::NO_CONTENT.into_response())).await
}

#[utoipa::path(
    post, path = "/v1/pool-imports", tag = "pool", request_body = PoolImport,
    responses(
        (status = 201, body = Pool), (status = 202, body = Job), (status = "4XX", body = Problem)
    )
)]
async fn import_pool(
    State(node): Shared,
    asked: Asked,
    Document(from): Document<PoolImport>,
) -> Answer<Response> {
    let of = Arc::clone(&node);
    answer(node, Work::ImportPool(from), asked, async move |job| {
        let name = part(&job.target)?;
        let opened = blocking(move || of.pool(&name)).await?;
        Ok((StatusCode::CREATED, Json(opened)).into_response())
    })
    .await
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
    responses((status = 204), (status = 202, body = Job), (status = "4XX", body = Problem))
)]
async fn export_pool(
    State(node): Shared,
    asked: Asked,
    Path(pool): Path<String>,
) -> Answer<Response> {
    let work = Work::ExportPool(part(&pool)?);
    answer(node, work, asked, async |_| Ok(StatusCode::NO_CONTENT.into_response())).await
}

/// Moves the commit log of an open pool to other places, while hosts write.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/log/move", tag = "pool", params(("pool" = Name, Path)),
    request_body = LogMove,
    responses(
        (status = 200, body = LogMoved), (status = 202, body = Job), (status = "4XX", body = Problem)
    )
)]
async fn move_log(
    State(node): Shared,
    asked: Asked,
    Path(pool): Path<String>,
    Document(change): Document<LogMove>,
) -> Answer<Response> {
    let pool = part(&pool)?;
    if change.dry_run {
        let would = blocking(move || node.move_log(&pool, &change)).await?;
        return Ok(Json(would).into_response());
    }
    let work = Work::MoveLog(pool, change);
    answer(node, work, asked, async |job| Ok(Json(job.log_moved).into_response())).await
}

/// Changes what becomes of writes while the commit log of an open pool has fewer devices than it is to have.
#[utoipa::path(
    patch, path = "/v1/pools/{pool}/log", tag = "pool", params(("pool" = Name, Path)),
    request_body = LogChange,
    responses((status = 200, body = Pool), (status = "4XX", body = Problem))
)]
async fn change_log(
    State(node): Shared,
    Path(pool): Path<String>,
    Document(change): Document<LogChange>,
) -> Answer<Json<Pool>> {
    let pool: Name = part(&pool)?;
    blocking(move || node.change_log(&pool, &change)).await.map(Json)
}

#[utoipa::path(
    get, path = "/v1/volumes", tag = "volume", params(VolumesAsked),
    responses((status = 200, body = Vec<Volume>))
)]
async fn list_all_volumes(
    State(node): Shared,
    Query(asked): Query<VolumesAsked>,
) -> Answer<List<Volume>> {
    let VolumesAsked { pool, subsystem, offset, limit } = asked;
    let mut all = blocking(move || node.volumes()).await?;
    let is_in = |volume: &Volume, nqn: &Nqn| {
        volume.mapping.as_ref().is_some_and(|mapping| mapping.subsystem == *nqn)
    };
    all.retain(|volume| pool.as_ref().is_none_or(|pool| volume.name.pool == *pool));
    all.retain(|volume| subsystem.as_ref().is_none_or(|nqn| is_in(volume, nqn)));
    Ok(part_of(all, offset, limit))
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

/// Makes a volume, empty or a clone of a snapshot of the same pool.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/volumes", tag = "volume", params(("pool" = Name, Path)),
    request_body = NewVolume,
    responses(
        (status = 201, body = Volume), (status = 202, body = Job), (status = "4XX", body = Problem)
    )
)]
async fn create_volume(
    State(node): Shared,
    asked: Asked,
    Path(pool): Path<String>,
    Document(new): Document<NewVolume>,
) -> Answer<Response> {
    let pool: Name = part(&pool)?;
    let (path, of) = (volume_part(pool.as_str(), new.name.as_str())?, Arc::clone(&node));
    answer(node, Work::CreateVolume(pool, new), asked, async move |_| {
        let made = blocking(move || of.volume(&path)).await?;
        Ok((StatusCode::CREATED, Json(made)).into_response())
    })
    .await
}

#[utoipa::path(
    get, path = "/v1/pools/{pool}/volumes/{volume}", tag = "volume",
    params(("pool" = Name, Path), ("volume" = Name, Path)),
    responses((status = 200, body = Volume), (status = "4XX", body = Problem))
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
    params(("pool" = Name, Path), ("volume" = Name, Path), Consent), request_body = VolumeChange,
    responses(
        (status = 200, body = Changed<Volume>), (status = 202, body = Job), (status = "4XX", body = Problem)
    )
)]
async fn change_volume(
    State(node): Shared,
    asked: Asked,
    Path((pool, volume)): Path<(String, String)>,
    Query(consent): Query<Consent>,
    Document(change): Document<VolumeChange>,
) -> Answer<Response> {
    let (path, of) = (volume_part(&pool, &volume)?, Arc::clone(&node));
    if consent.dry_run {
        let would = blocking(move || node.losses_of_change(&path, &change)).await?;
        return Ok(Json(would).into_response());
    }
    let name = change.name.clone().unwrap_or_else(|| path.volume.clone());
    let changed = VolumePath { volume: name, ..path.clone() };
    answer(node, Work::ChangeVolume(path, change, consent), asked, async move |_| {
        let changed = blocking(move || of.volume(&changed)).await?;
        Ok(Json(changed).into_response())
    })
    .await
}

/// Gives a clone, or a volume that was rolled back, what it shares with what it was made of as its own, by reference: then
/// reads ask nothing else, it is as deep as a new volume, and what it was made of goes when that is deleted. It is used as
/// ever meanwhile. Cancelling the job leaves it as it is by then.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/volumes/{volume}/detach", tag = "volume",
    params(("pool" = Name, Path), ("volume" = Name, Path)),
    responses(
        (status = 200, body = Volume), (status = 202, body = Job), (status = "4XX", body = Problem)
    )
)]
async fn detach_volume(
    State(node): Shared,
    asked: Asked,
    Path((pool, volume)): Path<(String, String)>,
) -> Answer<Response> {
    let (path, of) = (volume_part(&pool, &volume)?, Arc::clone(&node));
    let work = Work::DetachVolume(path.clone());
    answer(node, work, asked, async move |job| {
        // Whatever it is called by then.
        let path = job.target.parse().unwrap_or(path);
        let detached = blocking(move || of.volume(&path)).await?;
        Ok(Json(detached).into_response())
    })
    .await
}

/// Deletes a volume. What clones have of it stays for them.
#[utoipa::path(
    delete, path = "/v1/pools/{pool}/volumes/{volume}", tag = "volume",
    params(("pool" = Name, Path), ("volume" = Name, Path), Consent),
    responses(
        (status = 204), (status = 200, body = Losses), (status = 202, body = Job),
        (status = "4XX", body = Problem)
    )
)]
async fn delete_volume(
    State(node): Shared,
    asked: Asked,
    Path((pool, volume)): Path<(String, String)>,
    Query(consent): Query<Consent>,
) -> Answer<Response> {
    let path = volume_part(&pool, &volume)?;
    if consent.dry_run {
        return removed(node, consent, move |node| node.losses_of_deletion(&path)).await;
    }
    let work = Work::DeleteVolume(path, consent);
    answer(node, work, asked, async |_| Ok(StatusCode::NO_CONTENT.into_response())).await
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
    params(("pool" = Name, Path), ("volume" = Name, Path), Consent),
    responses((status = 204), (status = 200, body = Losses), (status = "4XX", body = Problem))
)]
async fn unmap_volume(
    State(node): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Query(consent): Query<Consent>,
) -> Answer<Response> {
    let path = volume_part(&pool, &volume)?;
    removed(node, consent, move |node| node.unmap_volume(&path, consent)).await
}
