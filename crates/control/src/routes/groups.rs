//! The paths of groups of volumes.

use std::sync::Arc;

use api::v1::{
    Changed, Consent, Group, GroupChange, Job, Losses, NewGroup, NewGroupClone, NewGroupSnapshot,
    NewRollback, Problem, RolledBack, Snapshot,
};
use api::value::{GroupPath, GroupSnapshotPath, Name};
use array::jobs::Work;
use array::node::Node;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::jobs::answer;
use super::lists::{GroupsAsked, List, part_of};
use super::{Shared, part, removed};
use crate::extract::{Answer, Asked, Document, Path, Query, blocking};

/// All paths of groups.
pub fn api() -> OpenApiRouter<Arc<Node>> {
    OpenApiRouter::new()
        .routes(routes!(list_groups, create_group))
        .routes(routes!(show_group, change_group, delete_group))
        .routes(routes!(take_group_snapshots))
        .routes(routes!(delete_group_snapshots))
        .routes(routes!(roll_group_back))
        .routes(routes!(clone_group))
}

/// Reads a group's name in the path.
fn group_part(pool: &str, group: &str) -> Answer<GroupPath> {
    Ok(GroupPath { pool: part(pool)?, group: part(group)? })
}

/// The groups of the pools that are open, or of one pool.
#[utoipa::path(
    get, path = "/v1/groups", tag = "group", params(GroupsAsked),
    responses((status = 200, body = Vec<Group>), (status = "4XX", body = Problem))
)]
async fn list_groups(State(node): Shared, Query(asked): Query<GroupsAsked>) -> Answer<List<Group>> {
    let GroupsAsked { pool, offset, limit } = asked;
    let all = blocking(move || node.groups(pool.as_ref())).await?;
    Ok(part_of(all, offset, limit))
}

/// Makes a group of some volumes of a pool. Hosts notice nothing.
#[utoipa::path(
    post, path = "/v1/groups", tag = "group", request_body = NewGroup,
    responses((status = 201, body = Group), (status = "4XX", body = Problem))
)]
async fn create_group(
    State(node): Shared,
    Document(new): Document<NewGroup>,
) -> Answer<(StatusCode, Json<Group>)> {
    let made = blocking(move || node.create_group(&new)).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

#[utoipa::path(
    get, path = "/v1/pools/{pool}/groups/{group}", tag = "group",
    params(("pool" = Name, Path), ("group" = Name, Path)),
    responses((status = 200, body = Group), (status = "4XX", body = Problem))
)]
async fn show_group(
    State(node): Shared,
    Path((pool, group)): Path<(String, String)>,
) -> Answer<Json<Group>> {
    let path = group_part(&pool, &group)?;
    blocking(move || node.group(&path)).await.map(Json)
}

/// Adds volumes to a group, takes some out of it, or gives it another name: all of it, or nothing.
#[utoipa::path(
    patch, path = "/v1/pools/{pool}/groups/{group}", tag = "group",
    params(("pool" = Name, Path), ("group" = Name, Path)), request_body = GroupChange,
    responses((status = 200, body = Group), (status = "4XX", body = Problem))
)]
async fn change_group(
    State(node): Shared,
    Path((pool, group)): Path<(String, String)>,
    Document(change): Document<GroupChange>,
) -> Answer<Json<Group>> {
    let path = group_part(&pool, &group)?;
    blocking(move || node.change_group(&path, &change)).await.map(Json)
}

/// Deletes a group. Its volumes stay, and so do their snapshots; its schedule is lost, if it has one.
#[utoipa::path(
    delete, path = "/v1/pools/{pool}/groups/{group}", tag = "group",
    params(("pool" = Name, Path), ("group" = Name, Path), Consent),
    responses((status = 204), (status = 200, body = Losses), (status = "4XX", body = Problem))
)]
async fn delete_group(
    State(node): Shared,
    Path((pool, group)): Path<(String, String)>,
    Query(consent): Query<Consent>,
) -> Answer<Response> {
    let path = group_part(&pool, &group)?;
    removed(node, consent, move |node| node.delete_group(&path, consent)).await
}

/// Takes a snapshot of each volume of a group, all at one instant. Copies nothing; hosts notice nothing.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/groups/{group}/snapshots", tag = "group",
    params(("pool" = Name, Path), ("group" = Name, Path)), request_body = NewGroupSnapshot,
    responses((status = 201, body = Vec<Snapshot>), (status = "4XX", body = Problem))
)]
async fn take_group_snapshots(
    State(node): Shared,
    Path((pool, group)): Path<(String, String)>,
    Document(new): Document<NewGroupSnapshot>,
) -> Answer<(StatusCode, Json<Vec<Snapshot>>)> {
    let path = group_part(&pool, &group)?;
    let taken = blocking(move || node.take_group_snapshots(&path, &new)).await?;
    Ok((StatusCode::CREATED, Json(taken)))
}

/// Deletes the snapshot of this name of each volume of a group that has one: all of them, or none. Where one of them is
/// mapped, none is deleted.
#[utoipa::path(
    delete, path = "/v1/pools/{pool}/groups/{group}/snapshots/{snapshot}", tag = "group",
    params(("pool" = Name, Path), ("group" = Name, Path), ("snapshot" = Name, Path), Consent),
    responses((status = 204), (status = 200, body = Losses), (status = "4XX", body = Problem))
)]
async fn delete_group_snapshots(
    State(node): Shared,
    Path((pool, group, snapshot)): Path<(String, String, String)>,
    Query(consent): Query<Consent>,
) -> Answer<Response> {
    let (path, name): (_, Name) = (group_part(&pool, &group)?, part(&snapshot)?);
    removed(node, consent, move |node| node.delete_group_snapshots(&path, &name, consent)).await
}

/// Gives each volume of a group what its snapshot of this name has: all of them, or none. What they had until then is kept in
/// snapshots, at one instant, unless told otherwise.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/groups/{group}/snapshots/{snapshot}/rollback", tag = "group",
    params(("pool" = Name, Path), ("group" = Name, Path), ("snapshot" = Name, Path), Consent),
    request_body = NewRollback,
    responses((status = 200, body = Changed<Vec<RolledBack>>), (status = "4XX", body = Problem))
)]
async fn roll_group_back(
    State(node): Shared,
    Path((pool, group, snapshot)): Path<(String, String, String)>,
    Query(consent): Query<Consent>,
    Document(new): Document<NewRollback>,
) -> Answer<Json<Changed<Vec<RolledBack>>>> {
    let (path, name): (_, Name) = (group_part(&pool, &group)?, part(&snapshot)?);
    let done = blocking(move || match consent.dry_run {
        true => node.losses_of_group_rollback(&path, &name, &new).map(Changed::WouldLose),
        false => node.roll_group_back(&path, &name, &new, consent).map(Changed::Made),
    });
    done.await.map(Json)
}

/// Makes a clone of each volume of a group, of its snapshot of this name, and a group of the clones: all of them, or none.
/// Copies nothing.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/groups/{group}/snapshots/{snapshot}/clone", tag = "group",
    params(("pool" = Name, Path), ("group" = Name, Path), ("snapshot" = Name, Path)),
    request_body = NewGroupClone,
    responses((status = 201, body = Group), (status = 202, body = Job), (status = "4XX", body = Problem))
)]
async fn clone_group(
    State(node): Shared,
    asked: Asked,
    Path((pool, group, snapshot)): Path<(String, String, String)>,
    Document(new): Document<NewGroupClone>,
) -> Answer<Response> {
    let of = GroupSnapshotPath { group: group_part(&pool, &group)?, snapshot: part(&snapshot)? };
    let (made, at) = (new.name.clone(), Arc::clone(&node));
    answer(node, Work::CloneGroup(of, new), asked, async move |_| {
        let made = blocking(move || at.group(&made)).await?;
        Ok((StatusCode::CREATED, Json(made)).into_response())
    })
    .await
}
