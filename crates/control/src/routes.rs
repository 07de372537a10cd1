//! The paths of the API, version 1.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{
    Changed, Consent, Controller, Event, Host, Kind, Listener, ListenerChange, Losses, Metrics,
    Namespace, NamespaceChange, NewHost, NewListener, NewNamespace, NewSubsystem, NodeHealth,
    Problem, Referral, Severity, Status, Subsystem, SubsystemChange,
};
use api::value::{Address, Nqn, Refused};
use array::node::Node;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::extract::{Answer, Document, Path, Query, Refusal, blocking};
use crate::limits::EVENT_WAIT;
use crate::metrics::scrape::Scrapes;

use lists::{ControllersAsked, EventsAsked, List, Page, part_of};

mod configuration;
mod drives;
mod groups;
mod jobs;
mod lists;
mod pools;
mod schedules;
mod scrub;
mod snapshots;
mod spares;

type Shared = State<Arc<Node>>;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Flashloom management API",
        description = "What the daemon serves, and how to change it. A change is taken as a whole \
                       or not at all, and is kept over restarts.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/", description = "HTTP/1.1 over the Unix socket api.sock in the state directory")),
    tags(
        (name = "node", description = "The daemon: status, events, counters"),
        (name = "subsystem", description = "NVM subsystems"),
        (name = "namespace", description = "Namespaces of a subsystem"),
        (name = "host", description = "Hosts that may connect to a subsystem"),
        (name = "listener", description = "Addresses listened on"),
        (name = "pool", description = "Pools of drives"),
        (name = "drive", description = "Drives of pools: taken out, taken back, replaced"),
        (name = "volume", description = "Volumes of a pool, and the namespaces they are mapped as"),
        (name = "snapshot", description = "Snapshots of volumes, and the namespaces they are mapped as"),
        (name = "group", description = "Consistency groups: volumes of which snapshots are taken at one instant"),
        (name = "schedule", description = "Schedules: snapshots that are taken by themselves, and deleted once there are enough"),
        (name = "configuration", description = "What is served as a whole, now and before"),
        (name = "job", description = "Work that takes long: listed, waited for, cancelled"),
    ),
)]
struct Description;

/// All documented paths.
pub fn api() -> OpenApiRouter<Arc<Node>> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(status))
        .routes(routes!(health))
        .routes(routes!(events))
        .routes(routes!(counters))
        .routes(routes!(controllers))
        .routes(routes!(list_subsystems, add_subsystem))
        .routes(routes!(show_subsystem, change_subsystem, remove_subsystem))
        .routes(routes!(list_namespaces, add_namespace))
        .routes(routes!(show_namespace, change_namespace, remove_namespace))
        .routes(routes!(list_hosts, add_host))
        .routes(routes!(remove_host))
        .routes(routes!(list_listeners, add_listener))
        .routes(routes!(change_listener, remove_listener))
        .routes(routes!(list_referrals, add_referral))
        .routes(routes!(remove_referral))
        .merge(pools::api())
        .merge(drives::api())
        .merge(scrub::api())
        .merge(snapshots::api())
        .merge(groups::api())
        .merge(schedules::api())
        .merge(spares::api())
        .merge(jobs::api())
        .merge(configuration::api())
}

/// `/metrics` alone: it changes nothing, and is for whoever reaches it.
pub fn metrics() -> Router<Arc<Node>> {
    let scrapes = Scrapes::default();
    Router::new()
        .route("/metrics", routing::get(async move |node: Shared| scrapes.answer(node).await))
}

/// The description itself, and `/metrics`.
pub fn plain(description: utoipa::openapi::OpenApi) -> Router<Arc<Node>> {
    // Made once, and shared: each connection has its own routes.
    let description = Bytes::from(serde_json::to_vec(&description).unwrap_or_default());
    let described = async move || ([(CONTENT_TYPE, "application/json")], description.clone());
    metrics().route("/openapi.json", routing::get(described))
}

pub async fn unknown() -> Refusal {
    Refusal::new(Kind::NotFound, "there is no such path; /openapi.json describes those there are")
}

pub async fn wrong_method() -> impl IntoResponse {
    let message = "this path does not take that method; /openapi.json describes those it takes";
    let problem = Problem { kind: Kind::Malformed, message: message.to_owned(), help: None };
    (StatusCode::METHOD_NOT_ALLOWED, Json(problem))
}

/// Reads a part of the path.
fn part<T: FromStr<Err = Refused>>(text: &str) -> Answer<T> {
    Ok(text.parse()?)
}

/// Makes a change that may take something away, and answers with how things are `then`; or with what would be lost.
async fn changed<T: Send + 'static>(
    node: Arc<Node>,
    consent: Consent,
    change: impl FnOnce(&Node) -> array::Result<Losses> + Send + 'static,
    then: impl FnOnce(&Node) -> array::Result<T> + Send + 'static,
) -> Answer<Json<Changed<T>>> {
    let work = move || {
        let losses = change(&node)?;
        Ok(match consent.dry_run {
            true => Changed::WouldLose(losses),
            false => Changed::Made(then(&node)?),
        })
    };
    blocking(work).await.map(Json)
}

/// Removes what may be missed, and answers with nothing; or with what would be lost.
async fn removed(
    node: Arc<Node>,
    consent: Consent,
    remove: impl FnOnce(&Node) -> array::Result<Losses> + Send + 'static,
) -> Answer<Response> {
    let losses = blocking(move || remove(&node)).await?;
    Ok(match consent.dry_run {
        true => Json(losses).into_response(),
        false => StatusCode::NO_CONTENT.into_response(),
    })
}

/// Reads a number in the path.
fn number<T: FromStr>(text: &str, what: &str) -> Answer<T> {
    text.parse().map_err(|_| Refusal::new(Kind::Invalid, format!("\"{text}\" is not {what}")))
}

/// Reads an NSID in the path.
fn nsid_part(text: &str) -> Answer<u32> {
    number(text, "an NSID")
}

#[utoipa::path(get, path = "/v1/status", tag = "node", responses((status = 200, body = Status)))]
async fn status(State(node): Shared) -> Answer<Json<Status>> {
    blocking(move || node.status()).await.map(Json)
}

/// What needs to be looked at, and what to do about it, the worst first.
#[utoipa::path(get, path = "/v1/health", tag = "node", responses((status = 200, body = NodeHealth)))]
async fn health(State(node): Shared) -> Answer<Json<NodeHealth>> {
    blocking(move || node.health()).await.map(Json)
}

#[utoipa::path(
    get, path = "/v1/events", tag = "node", params(EventsAsked),
    responses((status = 200, body = Vec<Event>))
)]
async fn events(State(node): Shared, Query(asked): Query<EventsAsked>) -> Answer<List<Event>> {
    let EventsAsked { from, severity, wait, limit } = asked;
    let (least, wait) = (severity.unwrap_or(Severity::Info), Duration::from_secs(wait));
    let waiting = move || Ok(node.wait_for_events(from, least, wait.min(EVENT_WAIT)));
    Ok(part_of(blocking(waiting).await?, 0, limit))
}

#[utoipa::path(get, path = "/v1/counters", tag = "node", responses((status = 200, body = Metrics)))]
async fn counters(State(node): Shared) -> Answer<Json<Metrics>> {
    blocking(move || Ok(node.metrics())).await.map(Json)
}

#[utoipa::path(
    get, path = "/v1/controllers", tag = "host", params(ControllersAsked),
    responses((status = 200, body = Vec<Controller>))
)]
async fn controllers(
    State(node): Shared,
    Query(asked): Query<ControllersAsked>,
) -> Answer<List<Controller>> {
    let ControllersAsked { subsystem, host, offset, limit } = asked;
    let mut all = blocking(move || node.controllers()).await?;
    all.retain(|one| subsystem.as_ref().is_none_or(|nqn| one.subsystem == *nqn));
    all.retain(|one| host.as_ref().is_none_or(|nqn| one.host == *nqn));
    Ok(part_of(all, offset, limit))
}

#[utoipa::path(
    get, path = "/v1/subsystems", tag = "subsystem", params(Page),
    responses((status = 200, body = Vec<Subsystem>))
)]
async fn list_subsystems(
    State(node): Shared,
    Query(Page { offset, limit }): Query<Page>,
) -> Answer<List<Subsystem>> {
    Ok(part_of(blocking(move || node.subsystems()).await?, offset, limit))
}

#[utoipa::path(
    post, path = "/v1/subsystems", tag = "subsystem", request_body = NewSubsystem,
    responses((status = 201, body = Subsystem), (status = "4XX", body = Problem))
)]
async fn add_subsystem(
    State(node): Shared,
    Document(new): Document<NewSubsystem>,
) -> Answer<(StatusCode, Json<Subsystem>)> {
    let added = blocking(move || node.add_subsystem(new)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

#[utoipa::path(
    get, path = "/v1/subsystems/{nqn}", tag = "subsystem", params(("nqn" = Nqn, Path)),
    responses((status = 200, body = Subsystem), (status = 404, body = Problem))
)]
async fn show_subsystem(State(node): Shared, Path(nqn): Path<String>) -> Answer<Json<Subsystem>> {
    let nqn = part(&nqn)?;
    blocking(move || node.subsystem(&nqn)).await.map(Json)
}

#[utoipa::path(
    patch, path = "/v1/subsystems/{nqn}", tag = "subsystem", params(("nqn" = Nqn, Path), Consent),
    request_body = SubsystemChange,
    responses((status = 200, body = Changed<Subsystem>), (status = "4XX", body = Problem))
)]
async fn change_subsystem(
    State(node): Shared,
    Path(nqn): Path<String>,
    Query(consent): Query<Consent>,
    Document(change): Document<SubsystemChange>,
) -> Answer<Json<Changed<Subsystem>>> {
    let nqn: Nqn = part(&nqn)?;
    let of = nqn.clone();
    let change = move |node: &Node| node.change_subsystem(&nqn, &change, consent);
    changed(node, consent, change, move |node| node.subsystem(&of)).await
}

#[utoipa::path(
    delete, path = "/v1/subsystems/{nqn}", tag = "subsystem", params(("nqn" = Nqn, Path), Consent),
    responses((status = 204), (status = 200, body = Losses), (status = "4XX", body = Problem))
)]
async fn remove_subsystem(
    State(node): Shared,
    Path(nqn): Path<String>,
    Query(consent): Query<Consent>,
) -> Answer<Response> {
    let nqn: Nqn = part(&nqn)?;
    removed(node, consent, move |node| node.remove_subsystem(&nqn, consent)).await
}

#[utoipa::path(
    get, path = "/v1/subsystems/{nqn}/namespaces", tag = "namespace",
    params(("nqn" = Nqn, Path), Page),
    responses((status = 200, body = Vec<Namespace>), (status = 404, body = Problem))
)]
async fn list_namespaces(
    State(node): Shared,
    Path(nqn): Path<String>,
    Query(Page { offset, limit }): Query<Page>,
) -> Answer<List<Namespace>> {
    let nqn = part(&nqn)?;
    Ok(part_of(blocking(move || node.subsystem(&nqn)).await?.namespaces, offset, limit))
}

#[utoipa::path(
    post, path = "/v1/subsystems/{nqn}/namespaces", tag = "namespace", params(("nqn" = Nqn, Path)),
    request_body = NewNamespace,
    responses((status = 201, body = Namespace), (status = "4XX", body = Problem))
)]
async fn add_namespace(
    State(node): Shared,
    Path(nqn): Path<String>,
    Document(new): Document<NewNamespace>,
) -> Answer<(StatusCode, Json<Namespace>)> {
    let nqn = part(&nqn)?;
    let added = blocking(move || node.add_namespace(&nqn, new)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

#[utoipa::path(
    get, path = "/v1/subsystems/{nqn}/namespaces/{nsid}", tag = "namespace",
    params(("nqn" = Nqn, Path), ("nsid" = u32, Path)),
    responses((status = 200, body = Namespace), (status = 404, body = Problem))
)]
async fn show_namespace(
    State(node): Shared,
    Path((nqn, nsid)): Path<(String, String)>,
) -> Answer<Json<Namespace>> {
    let (nqn, nsid) = (part(&nqn)?, nsid_part(&nsid)?);
    blocking(move || node.namespace(&nqn, nsid)).await.map(Json)
}

#[utoipa::path(
    patch, path = "/v1/subsystems/{nqn}/namespaces/{nsid}", tag = "namespace",
    params(("nqn" = Nqn, Path), ("nsid" = u32, Path), Consent), request_body = NamespaceChange,
    responses((status = 200, body = Changed<Namespace>), (status = "4XX", body = Problem))
)]
async fn change_namespace(
    State(node): Shared,
    Path((nqn, nsid)): Path<(String, String)>,
    Query(consent): Query<Consent>,
    Document(change): Document<NamespaceChange>,
) -> Answer<Json<Changed<Namespace>>> {
    let (nqn, nsid): (Nqn, _) = (part(&nqn)?, nsid_part(&nsid)?);
    let of = nqn.clone();
    let change = move |node: &Node| node.resize_namespace(&nqn, nsid, &change, consent);
    changed(node, consent, change, move |node| node.namespace(&of, nsid)).await
}

#[utoipa::path(
    delete, path = "/v1/subsystems/{nqn}/namespaces/{nsid}", tag = "namespace",
    params(("nqn" = Nqn, Path), ("nsid" = u32, Path), Consent),
    responses((status = 204), (status = 200, body = Losses), (status = "4XX", body = Problem))
)]
async fn remove_namespace(
    State(node): Shared,
    Path((nqn, nsid)): Path<(String, String)>,
    Query(consent): Query<Consent>,
) -> Answer<Response> {
    let (nqn, nsid): (Nqn, _) = (part(&nqn)?, nsid_part(&nsid)?);
    removed(node, consent, move |node| node.remove_namespace(&nqn, nsid, consent)).await
}

#[utoipa::path(
    get, path = "/v1/subsystems/{nqn}/hosts", tag = "host", params(("nqn" = Nqn, Path)),
    responses((status = 200, body = Vec<Host>), (status = 404, body = Problem))
)]
async fn list_hosts(State(node): Shared, Path(nqn): Path<String>) -> Answer<Json<Vec<Host>>> {
    let nqn = part(&nqn)?;
    blocking(move || node.hosts(&nqn)).await.map(Json)
}

#[utoipa::path(
    post, path = "/v1/subsystems/{nqn}/hosts", tag = "host", params(("nqn" = Nqn, Path)),
    request_body = NewHost, responses((status = 201, body = Host), (status = "4XX", body = Problem))
)]
async fn add_host(
    State(node): Shared,
    Path(nqn): Path<String>,
    Document(new): Document<NewHost>,
) -> Answer<(StatusCode, Json<Host>)> {
    let nqn = part(&nqn)?;
    let added = blocking(move || node.add_host(&nqn, new)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

#[utoipa::path(
    delete, path = "/v1/subsystems/{nqn}/hosts/{host}", tag = "host",
    params(("nqn" = Nqn, Path), ("host" = Nqn, Path), Consent),
    responses((status = 204), (status = 200, body = Losses), (status = "4XX", body = Problem))
)]
async fn remove_host(
    State(node): Shared,
    Path((nqn, host)): Path<(String, String)>,
    Query(consent): Query<Consent>,
) -> Answer<Response> {
    let (nqn, host): (Nqn, Nqn) = (part(&nqn)?, part(&host)?);
    removed(node, consent, move |node| node.remove_host(&nqn, &host, consent)).await
}

#[utoipa::path(
    get, path = "/v1/listeners", tag = "listener", responses((status = 200, body = Vec<Listener>))
)]
async fn list_listeners(State(node): Shared) -> Answer<Json<Vec<Listener>>> {
    blocking(move || Ok(node.listeners())).await.map(Json)
}

#[utoipa::path(
    post, path = "/v1/listeners", tag = "listener", request_body = NewListener,
    responses((status = 201, body = Listener), (status = "4XX", body = Problem))
)]
async fn add_listener(
    State(node): Shared,
    Document(new): Document<NewListener>,
) -> Answer<(StatusCode, Json<Listener>)> {
    let added = blocking(move || node.add_listener(new)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

#[utoipa::path(
    patch, path = "/v1/listeners/{address}", tag = "listener",
    params(("address" = Address, Path), Consent), request_body = ListenerChange,
    responses((status = 200, body = Changed<Listener>), (status = "4XX", body = Problem))
)]
async fn change_listener(
    State(node): Shared,
    Path(address): Path<String>,
    Query(consent): Query<Consent>,
    Document(change): Document<ListenerChange>,
) -> Answer<Json<Changed<Listener>>> {
    let address = part(&address)?;
    let change = move |node: &Node| node.change_listener(address, &change, consent);
    changed(node, consent, change, move |node| node.listener(address)).await
}

#[utoipa::path(
    delete, path = "/v1/listeners/{address}", tag = "listener",
    params(("address" = Address, Path), Consent),
    responses((status = 204), (status = 200, body = Losses), (status = "4XX", body = Problem))
)]
async fn remove_listener(
    State(node): Shared,
    Path(address): Path<String>,
    Query(consent): Query<Consent>,
) -> Answer<Response> {
    let address = part(&address)?;
    removed(node, consent, move |node| node.remove_listener(address, consent)).await
}

#[utoipa::path(
    get, path = "/v1/referrals", tag = "listener", responses((status = 200, body = Vec<Referral>))
)]
async fn list_referrals(State(node): Shared) -> Answer<Json<Vec<Referral>>> {
    blocking(move || Ok(node.referrals())).await.map(Json)
}

#[utoipa::path(
    post, path = "/v1/referrals", tag = "listener", request_body = Referral,
    responses((status = 201, body = Referral), (status = "4XX", body = Problem))
)]
async fn add_referral(
    State(node): Shared,
    Document(new): Document<Referral>,
) -> Answer<(StatusCode, Json<Referral>)> {
    let added = blocking(move || node.add_referral(new)).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

#[utoipa::path(
    delete, path = "/v1/referrals/{address}", tag = "listener",
    params(("address" = Address, Path)),
    responses((status = 204), (status = "4XX", body = Problem))
)]
async fn remove_referral(State(node): Shared, Path(address): Path<String>) -> Answer<StatusCode> {
    let address = part(&address)?;
    blocking(move || node.remove_referral(address)).await?;
    Ok(StatusCode::NO_CONTENT)
}
