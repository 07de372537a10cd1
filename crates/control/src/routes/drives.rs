//! The paths of drives of pools.

use std::sync::Arc;

use api::v1::{
    Drive, DriveRemoval, DriveReplacement, Job, Losses, NewDrives, Problem, RateLimit, Rebuild,
    Rejoin,
};
use api::value::{Name, PoolDrive};
use array::jobs::Work;
use array::node::Node;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::jobs::answer;
use super::{Shared, part, removed};
use crate::extract::{Answer, Asked, Document, Path, Query, blocking};

/// All paths of drives.
pub fn api() -> OpenApiRouter<Arc<Node>> {
    OpenApiRouter::new()
        .routes(routes!(list_drives))
        .routes(routes!(show_drive, remove_drive))
        .routes(routes!(add_drives))
        .routes(routes!(show_rebuild, begin_rebuild, limit_rebuild))
        .routes(routes!(pause_rebuild))
        .routes(routes!(resume_rebuild))
        .routes(routes!(stop_rebuild))
        .routes(routes!(show_rejoin, limit_rejoin))
        .routes(routes!(pause_rejoin))
        .routes(routes!(resume_rejoin))
        .routes(routes!(evacuate_drive))
        .routes(routes!(fail_drive))
        .routes(routes!(rejoin_drive))
        .routes(routes!(replace_drive))
}

/// Reads a drive's place in the path.
fn drive_part((pool, index): &(String, String)) -> Answer<PoolDrive> {
    part(&format!("{pool}/{index}"))
}

/// Does something to a drive, and answers with how it is then.
async fn change(node: Arc<Node>, of: PoolDrive, work: Work, asked: Asked) -> Answer<Response> {
    let there = Arc::clone(&node);
    answer(node, work, asked, async move |_| {
        let drive = blocking(move || there.drive(&of)).await?;
        Ok(Json(drive).into_response())
    })
    .await
}

#[utoipa::path(get, path = "/v1/drives", tag = "drive", responses((status = 200, body = Vec<Drive>)))]
async fn list_drives(State(node): Shared) -> Answer<Json<Vec<Drive>>> {
    blocking(move || node.drives()).await.map(Json)
}

#[utoipa::path(
    get, path = "/v1/pools/{pool}/drives/{index}", tag = "drive",
    params(("pool" = Name, Path), ("index" = u16, Path)),
    responses((status = 200, body = Drive), (status = "4XX", body = Problem))
)]
async fn show_drive(State(node): Shared, Path(of): Path<(String, String)>) -> Answer<Json<Drive>> {
    let of = drive_part(&of)?;
    blocking(move || node.drive(&of)).await.map(Json)
}

/// Takes a drive out of its pool for good: emptied first if it works, and made blank where it is there. Its place is
/// vacant then.
#[utoipa::path(
    delete, path = "/v1/pools/{pool}/drives/{index}", tag = "drive",
    params(("pool" = Name, Path), ("index" = u16, Path), DriveRemoval),
    responses(
        (status = 204), (status = 200, body = Losses), (status = 202, body = Job),
        (status = "4XX", body = Problem)
    )
)]
async fn remove_drive(
    State(node): Shared,
    asked: Asked,
    Path(of): Path<(String, String)>,
    Query(how): Query<DriveRemoval>,
) -> Answer<Response> {
    let (of, consent) = (drive_part(&of)?, how.consent());
    if consent.dry_run {
        return removed(node, consent, move |node| node.losses_of_drive(&of)).await;
    }
    let work = Work::RemoveDrive(of, RateLimit { limit: how.limit }.into(), consent);
    answer(node, work, asked, async |_| Ok(StatusCode::NO_CONTENT.into_response())).await
}

/// Makes a pool wider: new segments use the drives at once.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/drives", tag = "drive", params(("pool" = Name, Path)),
    request_body = NewDrives,
    responses(
        (status = 200, body = Vec<Drive>), (status = 202, body = Job), (status = "4XX", body = Problem)
    )
)]
async fn add_drives(
    State(node): Shared,
    asked: Asked,
    Path(pool): Path<String>,
    Document(new): Document<NewDrives>,
) -> Answer<Response> {
    let pool: Name = part(&pool)?;
    let (name, of) = (pool.clone(), Arc::clone(&node));
    answer(node, Work::AddDrives(pool, new), asked, async move |_| {
        let pool = blocking(move || of.pool(&name)).await?;
        let drives = pool.status.map(|status| status.drives).unwrap_or_default();
        Ok(Json(drives).into_response())
    })
    .await
}

#[utoipa::path(
    get, path = "/v1/pools/{pool}/rebuild", tag = "pool", params(("pool" = Name, Path)),
    responses((status = 200, body = Rebuild), (status = "4XX", body = Problem))
)]
async fn show_rebuild(State(node): Shared, Path(pool): Path<String>) -> Answer<Json<Rebuild>> {
    let pool: Name = part(&pool)?;
    blocking(move || node.rebuild(&pool)).await.map(Json)
}

/// Moves what drives had that are gone onto the others.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/rebuild", tag = "pool", params(("pool" = Name, Path)),
    request_body = RateLimit,
    responses(
        (status = 200, body = Rebuild), (status = 202, body = Job), (status = "4XX", body = Problem)
    )
)]
async fn begin_rebuild(
    State(node): Shared,
    asked: Asked,
    Path(pool): Path<String>,
    Document(how): Document<RateLimit>,
) -> Answer<Response> {
    let pool: Name = part(&pool)?;
    let (name, of) = (pool.clone(), Arc::clone(&node));
    answer(node, Work::Rebuild(pool, how.into()), asked, async move |_| {
        let done = blocking(move || of.rebuild(&name)).await?;
        Ok(Json(done).into_response())
    })
    .await
}

/// Changes how fast that goes.
#[utoipa::path(
    patch, path = "/v1/pools/{pool}/rebuild", tag = "pool", params(("pool" = Name, Path)),
    request_body = RateLimit,
    responses((status = 200, body = Rebuild), (status = "4XX", body = Problem))
)]
async fn limit_rebuild(
    State(node): Shared,
    Path(pool): Path<String>,
    Document(how): Document<RateLimit>,
) -> Answer<Json<Rebuild>> {
    let pool: Name = part(&pool)?;
    blocking(move || node.limit_rebuild(&pool, how)).await.map(Json)
}

/// Has a rebuild or an evacuation wait until it is resumed: nothing of the pool is moved by itself meanwhile, and what
/// was moved stays where it is.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/rebuild/pause", tag = "pool", params(("pool" = Name, Path)),
    responses((status = 200, body = Rebuild), (status = "4XX", body = Problem))
)]
async fn pause_rebuild(State(node): Shared, Path(pool): Path<String>) -> Answer<Json<Rebuild>> {
    let pool: Name = part(&pool)?;
    blocking(move || node.pause_rebuild(&pool)).await.map(Json)
}

/// Goes on with a rebuild or an evacuation that was paused, as fast as it went before.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/rebuild/resume", tag = "pool", params(("pool" = Name, Path)),
    responses(
        (status = 200, body = Rebuild), (status = 202, body = Job), (status = "4XX", body = Problem)
    )
)]
async fn resume_rebuild(
    State(node): Shared,
    asked: Asked,
    Path(pool): Path<String>,
) -> Answer<Response> {
    let pool: Name = part(&pool)?;
    let (name, of) = (pool.clone(), Arc::clone(&node));
    let paused = Arc::clone(&node);
    let work = blocking(move || paused.resumed_rebuild(&pool)).await?;
    answer(node, work, asked, async move |_| {
        let done = blocking(move || of.rebuild(&name)).await?;
        Ok(Json(done).into_response())
    })
    .await
}

/// Ends a rebuild or an evacuation, one that is paused too: what was moved stays where it is.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/rebuild/stop", tag = "pool", params(("pool" = Name, Path)),
    responses((status = 204), (status = "4XX", body = Problem))
)]
async fn stop_rebuild(State(node): Shared, Path(pool): Path<String>) -> Answer<Response> {
    let pool: Name = part(&pool)?;
    blocking(move || node.stop_rebuild(&pool)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// How drives of a pool are made whole that were away, or are new in their places.
#[utoipa::path(
    get, path = "/v1/pools/{pool}/rejoin", tag = "pool", params(("pool" = Name, Path)),
    responses((status = 200, body = Rejoin), (status = "4XX", body = Problem))
)]
async fn show_rejoin(State(node): Shared, Path(pool): Path<String>) -> Answer<Json<Rejoin>> {
    let pool: Name = part(&pool)?;
    blocking(move || node.rejoin(&pool)).await.map(Json)
}

/// Changes how fast that goes, from now on.
#[utoipa::path(
    patch, path = "/v1/pools/{pool}/rejoin", tag = "pool", params(("pool" = Name, Path)),
    request_body = RateLimit,
    responses((status = 200, body = Rejoin), (status = "4XX", body = Problem))
)]
async fn limit_rejoin(
    State(node): Shared,
    Path(pool): Path<String>,
    Document(how): Document<RateLimit>,
) -> Answer<Json<Rejoin>> {
    let pool: Name = part(&pool)?;
    blocking(move || node.limit_rejoin(&pool, how)).await.map(Json)
}

/// Has drives wait to be made whole until that is resumed, over restarts too.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/rejoin/pause", tag = "pool", params(("pool" = Name, Path)),
    responses((status = 200, body = Rejoin), (status = "4XX", body = Problem))
)]
async fn pause_rejoin(State(node): Shared, Path(pool): Path<String>) -> Answer<Json<Rejoin>> {
    let pool: Name = part(&pool)?;
    blocking(move || node.pause_rejoin(&pool, true)).await.map(Json)
}

/// Has them go on.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/rejoin/resume", tag = "pool", params(("pool" = Name, Path)),
    responses((status = 200, body = Rejoin), (status = "4XX", body = Problem))
)]
async fn resume_rejoin(State(node): Shared, Path(pool): Path<String>) -> Answer<Json<Rejoin>> {
    let pool: Name = part(&pool)?;
    blocking(move || node.pause_rejoin(&pool, false)).await.map(Json)
}

/// Moves what a drive has onto the others; it is out of use then, and its place vacant.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/drives/{index}/evacuate", tag = "drive",
    params(("pool" = Name, Path), ("index" = u16, Path)), request_body = RateLimit,
    responses(
        (status = 200, body = Drive), (status = 202, body = Job), (status = "4XX", body = Problem)
    )
)]
async fn evacuate_drive(
    State(node): Shared,
    asked: Asked,
    Path(of): Path<(String, String)>,
    Document(how): Document<RateLimit>,
) -> Answer<Response> {
    let of = drive_part(&of)?;
    change(node, of.clone(), Work::EvacuateDrive(of, how.into()), asked).await
}

/// Takes a drive out of use, if the others have all that it has. It is not taken back before that is asked for.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/drives/{index}/fail", tag = "drive",
    params(("pool" = Name, Path), ("index" = u16, Path)),
    responses(
        (status = 200, body = Drive), (status = 202, body = Job), (status = "4XX", body = Problem)
    )
)]
async fn fail_drive(
    State(node): Shared,
    asked: Asked,
    Path(of): Path<(String, String)>,
) -> Answer<Response> {
    let of = drive_part(&of)?;
    change(node, of.clone(), Work::FailDrive(of), asked).await
}

/// Takes a drive back that is out, where it is found, and makes it whole.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/drives/{index}/rejoin", tag = "drive",
    params(("pool" = Name, Path), ("index" = u16, Path)),
    responses(
        (status = 200, body = Drive), (status = 202, body = Job), (status = "4XX", body = Problem)
    )
)]
async fn rejoin_drive(
    State(node): Shared,
    asked: Asked,
    Path(of): Path<(String, String)>,
) -> Answer<Response> {
    let of = drive_part(&of)?;
    change(node, of.clone(), Work::RejoinDrive(of), asked).await
}

/// Puts another drive in a place, and makes it whole. The one that was there is taken out first if it works.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/drives/{index}/replace", tag = "drive",
    params(("pool" = Name, Path), ("index" = u16, Path)), request_body = DriveReplacement,
    responses(
        (status = 200, body = Drive), (status = 202, body = Job), (status = "4XX", body = Problem)
    )
)]
async fn replace_drive(
    State(node): Shared,
    asked: Asked,
    Path(of): Path<(String, String)>,
    Document(new): Document<DriveReplacement>,
) -> Answer<Response> {
    let of = drive_part(&of)?;
    change(node, of.clone(), Work::ReplaceDrive(of, new), asked).await
}
