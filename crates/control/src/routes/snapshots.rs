//! The paths of snapshots.

use std::sync::Arc;

use api::v1::{
    Changed, Consent, Kind, Losses, NewMapping, NewRollback, NewSnapshots, Problem, RolledBack,
    Snapshot, SnapshotChanges,
};
use api::value::{Name, SnapshotPath};
use array::node::Node;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::lists::{ChangesAsked, List, SnapshotsAsked, part_of};
use super::pools::volume_part;
use super::{Shared, part, removed};
use crate::extract::{Answer, Document, Path, Query, Refusal, blocking};

/// Extents of an answer that says nothing of how many.
const CHANGES: usize = 10_000;

/// Extents of an answer at most.
const CHANGES_MOST: usize = 65_536;

/// All paths of snapshots.
pub fn api() -> OpenApiRouter<Arc<Node>> {
    OpenApiRouter::new()
        .routes(routes!(list_snapshots, take_snapshots))
        .routes(routes!(show_snapshot, delete_snapshot))
        .routes(routes!(snapshot_changes))
        .routes(routes!(roll_back))
        .routes(routes!(map_snapshot, unmap_snapshot))
}

/// Reads a snapshot's name in the path.
fn snapshot_part(pool: &str, volume: &str, snapshot: &str) -> Answer<SnapshotPath> {
    Ok(SnapshotPath { volume: volume_part(pool, volume)?, snapshot: part(snapshot)? })
}

/// The snapshots of all volumes, or of some; those of a volume, the oldest first.
#[utoipa::path(
    get, path = "/v1/snapshots", tag = "snapshot", params(SnapshotsAsked),
    responses((status = 200, body = Vec<Snapshot>), (status = "4XX", body = Problem))
)]
async fn list_snapshots(
    State(node): Shared,
    Query(asked): Query<SnapshotsAsked>,
) -> Answer<List<Snapshot>> {
    let SnapshotsAsked { pool, volume, offset, limit } = asked;
    let all = blocking(move || node.snapshots(pool.as_ref(), volume.as_ref())).await?;
    Ok(part_of(all, offset, limit))
}

/// Takes snapshots of volumes of a pool, all at one instant. Copies nothing; hosts notice nothing.
#[utoipa::path(
    post, path = "/v1/snapshots", tag = "snapshot", request_body = NewSnapshots,
    responses((status = 201, body = Vec<Snapshot>), (status = "4XX", body = Problem))
)]
async fn take_snapshots(
    State(node): Shared,
    Document(new): Document<NewSnapshots>,
) -> Answer<(StatusCode, Json<Vec<Snapshot>>)> {
    let taken = blocking(move || node.take_snapshots(&new)).await?;
    Ok((StatusCode::CREATED, Json(taken)))
}

#[utoipa::path(
    get, path = "/v1/pools/{pool}/volumes/{volume}/snapshots/{snapshot}", tag = "snapshot",
    params(("pool" = Name, Path), ("volume" = Name, Path), ("snapshot" = Name, Path)),
    responses((status = 200, body = Snapshot), (status = "4XX", body = Problem))
)]
async fn show_snapshot(
    State(node): Shared,
    Path((pool, volume, snapshot)): Path<(String, String, String)>,
) -> Answer<Json<Snapshot>> {
    let path = snapshot_part(&pool, &volume, &snapshot)?;
    blocking(move || node.snapshot(&path)).await.map(Json)
}

/// What a snapshot has otherwise than an older one of its volume, or all that it has: for whoever copies volumes.
#[utoipa::path(
    get, path = "/v1/pools/{pool}/volumes/{volume}/snapshots/{snapshot}/changes", tag = "snapshot",
    params(("pool" = Name, Path), ("volume" = Name, Path), ("snapshot" = Name, Path), ChangesAsked),
    responses((status = 200, body = SnapshotChanges), (status = "4XX", body = Problem))
)]
async fn snapshot_changes(
    State(node): Shared,
    Path((pool, volume, snapshot)): Path<(String, String, String)>,
    Query(asked): Query<ChangesAsked>,
) -> Answer<Json<SnapshotChanges>> {
    let path = snapshot_part(&pool, &volume, &snapshot)?;
    let ChangesAsked { from, start, limit } = asked;
    let most = limit.unwrap_or(CHANGES);
    if !(1..=CHANGES_MOST).contains(&most) {
        let what = format!("an answer has 1 to {CHANGES_MOST} extents, not {most}");
        return Err(Refusal::new(Kind::Invalid, what));
    }
    blocking(move || node.snapshot_changes(&path, from.as_ref(), start, most)).await.map(Json)
}

/// Gives a volume what one of its snapshots has, and the size it had then: copies nothing, and later snapshots stay. What the
/// volume had until then is kept in a snapshot, unless told otherwise.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/volumes/{volume}/snapshots/{snapshot}/rollback", tag = "snapshot",
    params(("pool" = Name, Path), ("volume" = Name, Path), ("snapshot" = Name, Path), Consent),
    request_body = NewRollback,
    responses((status = 200, body = Changed<RolledBack>), (status = "4XX", body = Problem))
)]
async fn roll_back(
    State(node): Shared,
    Path((pool, volume, snapshot)): Path<(String, String, String)>,
    Query(consent): Query<Consent>,
    Document(new): Document<NewRollback>,
) -> Answer<Json<Changed<RolledBack>>> {
    let path = snapshot_part(&pool, &volume, &snapshot)?;
    let done = blocking(move || match consent.dry_run {
        true => node.losses_of_rollback(&path, &new).map(Changed::WouldLose),
        false => node.roll_back(&path, &new, consent).map(Changed::Made),
    });
    done.await.map(Json)
}

/// Deletes a snapshot. The space of what it alone had comes back behind that; clones of it stay.
#[utoipa::path(
    delete, path = "/v1/pools/{pool}/volumes/{volume}/snapshots/{snapshot}", tag = "snapshot",
    params(("pool" = Name, Path), ("volume" = Name, Path), ("snapshot" = Name, Path), Consent),
    responses((status = 204), (status = 200, body = Losses), (status = "4XX", body = Problem))
)]
async fn delete_snapshot(
    State(node): Shared,
    Path((pool, volume, snapshot)): Path<(String, String, String)>,
    Query(consent): Query<Consent>,
) -> Answer<Response> {
    let path = snapshot_part(&pool, &volume, &snapshot)?;
    removed(node, consent, move |node| node.delete_snapshot(&path, consent)).await
}

/// Maps a snapshot: hosts read the namespace, and cannot change it.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/volumes/{volume}/snapshots/{snapshot}/mapping", tag = "snapshot",
    params(("pool" = Name, Path), ("volume" = Name, Path), ("snapshot" = Name, Path)),
    request_body = NewMapping,
    responses((status = 201, body = Snapshot), (status = "4XX", body = Problem))
)]
async fn map_snapshot(
    State(node): Shared,
    Path((pool, volume, snapshot)): Path<(String, String, String)>,
    Document(new): Document<NewMapping>,
) -> Answer<(StatusCode, Json<Snapshot>)> {
    let path = snapshot_part(&pool, &volume, &snapshot)?;
    let mapped = blocking(move || node.map_snapshot(&path, new)).await?;
    Ok((StatusCode::CREATED, Json(mapped)))
}

#[utoipa::path(
    delete, path = "/v1/pools/{pool}/volumes/{volume}/snapshots/{snapshot}/mapping", tag = "snapshot",
    params(("pool" = Name, Path), ("volume" = Name, Path), ("snapshot" = Name, Path), Consent),
    responses((status = 204), (status = 200, body = Losses), (status = "4XX", body = Problem))
)]
async fn unmap_snapshot(
    State(node): Shared,
    Path((pool, volume, snapshot)): Path<(String, String, String)>,
    Query(consent): Query<Consent>,
) -> Answer<Response> {
    let path = snapshot_part(&pool, &volume, &snapshot)?;
    removed(node, consent, move |node| node.unmap_snapshot(&path, consent)).await
}
