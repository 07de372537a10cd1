//! The paths of the configuration as a whole.

use std::sync::Arc;

use api::v1::{Consent, KeptConfiguration, Losses, Problem};
use array::node::Node;
use axum::Json;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use crate::extract::{Answer, Path, Query, Text, blocking};
use crate::limits::CONFIGURATION_BYTES;

/// Media type of a configuration file.
const TOML: &str = "application/toml";

/// All paths of the configuration.
pub fn api() -> OpenApiRouter<Arc<Node>> {
    OpenApiRouter::new()
        .routes(routes!(export_configuration, import_configuration))
        .routes(routes!(configuration_history))
        .routes(routes!(kept_configuration))
        .layer(DefaultBodyLimit::max(CONFIGURATION_BYTES))
}

/// A configuration file that asks for what is served, without settings of the node.
#[utoipa::path(
    get, path = "/v1/configuration", tag = "configuration",
    responses((status = 200, body = String, content_type = "application/toml"))
)]
async fn export_configuration(State(node): Shared) -> Answer<impl IntoResponse> {
    let text = blocking(move || node.export_configuration()).await?;
    Ok(([(CONTENT_TYPE, TOML)], text))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Import {
    /// It is meant: without this, what takes something away is refused.
    #[serde(default)]
    force: bool,
    /// Change nothing, and answer with what would be lost.
    #[serde(default)]
    dry_run: bool,
    /// What it is called in events, and where its faults are told.
    #[serde(default)]
    name: Option<String>,
}

/// Serves what a configuration file asks for, and nothing else. What was served is kept.
#[utoipa::path(
    put, path = "/v1/configuration", tag = "configuration", params(Import),
    request_body(content = String, content_type = "application/toml"),
    responses((status = 200, body = Losses), (status = "4XX", body = Problem))
)]
async fn import_configuration(
    State(node): Shared,
    Query(Import { force, dry_run, name }): Query<Import>,
    Text(text): Text,
) -> Answer<Json<Losses>> {
    let name = name.unwrap_or_else(|| "configuration".to_owned());
    let consent = Consent { force, dry_run };
    blocking(move || node.import_configuration(&name, &text, consent)).await.map(Json)
}

/// What was served before, the newest first: each is kept before something of it goes.
#[utoipa::path(
    get, path = "/v1/configuration/history", tag = "configuration",
    responses((status = 200, body = Vec<KeptConfiguration>))
)]
async fn configuration_history(State(node): Shared) -> Answer<Json<Vec<KeptConfiguration>>> {
    blocking(move || Ok(node.configuration_history())).await.map(Json)
}

/// A configuration file that asks for what was served before.
#[utoipa::path(
    get, path = "/v1/configuration/history/{id}", tag = "configuration", params(("id" = u64, Path)),
    responses(
        (status = 200, body = String, content_type = "application/toml"),
        (status = "4XX", body = Problem)
    )
)]
async fn kept_configuration(
    State(node): Shared,
    Path(id): Path<String>,
) -> Answer<impl IntoResponse> {
    let id = super::number(&id, "the number of a configuration")?;
    let text = blocking(move || node.kept_configuration(id)).await?;
    Ok(([(CONTENT_TYPE, TOML)], text))
}
