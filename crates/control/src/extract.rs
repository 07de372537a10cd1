//! Where requests come in and answers go out: the node's errors become HTTP here and nowhere else.

use std::time::Duration;

use api::v1::{Kind, Problem};
use api::value::Refused;
use array::events::on_behalf_of;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{self, ConnectInfo, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use crate::bounded::Caller;

/// A refusal on its way out.
#[derive(Debug)]
pub struct Refusal(pub Problem);

/// What a handler answers with.
pub type Answer<T> = Result<T, Refusal>;

impl Refusal {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Problem { kind, message: message.into(), help: None })
    }
}

const fn http_status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Malformed => StatusCode::BAD_REQUEST,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Conflict | Kind::Limit => StatusCode::CONFLICT,
        Kind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        Kind::Stopping => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (http_status(self.0.kind), Json(self.0)).into_response()
    }
}

impl From<array::Error> for Refusal {
    fn from(error: array::Error) -> Self {
        Self(error.problem())
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self(array::Error::from(refused).problem())
    }
}

/// A request's document. One that does not fit is refused as a [`Problem`], like all else.
pub struct Document<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Document<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(document)) => Ok(Self(document)),
            Err(rejection) => Err(refuse(&rejection)),
        }
    }
}

/// A request's text, likewise.
pub struct Text(pub String);

impl<S: Send + Sync> FromRequest<S> for Text {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        match String::from_request(request, state).await {
            Ok(text) => Ok(Self(text)),
            Err(rejection) => Err(Refusal::new(Kind::Malformed, rejection.body_text())),
        }
    }
}

/// Parts of a request's path, likewise.
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(extract::Path(path)) => Ok(Self(path)),
            Err(rejection) => Err(Refusal::new(Kind::Malformed, rejection.body_text())),
        }
    }
}

fn refuse(rejection: &JsonRejection) -> Refusal {
    use std::error::Error;
    let kind = match rejection {
        JsonRejection::JsonDataError(_) => Kind::Invalid,
        _ => Kind::Malformed,
    };
    // axum wraps the reason, which is what helps, in a sentence that does not.
    let reason = match rejection {
        JsonRejection::JsonDataError(_) | JsonRejection::JsonSyntaxError(_) => {
            rejection.source().map(ToString::to_string)
        }
        _ => None,
    };
    let message = reason.unwrap_or_else(|| rejection.body_text());
    // serde_path_to_error puts "member: " in front; a document as a whole is ".".
    Refusal::new(kind, message.trim_start_matches(".: "))
}

/// What follows a path's question mark, likewise.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match extract::Query::<T>::from_request_parts(parts, state).await {
            Ok(extract::Query(query)) => Ok(Self(query)),
            Err(rejection) => {
                use std::error::Error;
                let reason = rejection.source().map(ToString::to_string);
                let reason = reason.unwrap_or_else(|| rejection.body_text());
                let what = format!("behind the question mark: {reason}");
                Err(Refusal::new(Kind::Malformed, what))
            }
        }
    }
}

tokio::task_local! {
    /// Who asked for what is being answered.
    static CALLER: String;
}

/// Has what a request does be done on behalf of who asked for it.
pub async fn name_caller(request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<ConnectInfo<Caller>>();
    match caller.map(|ConnectInfo(Caller(who))| who.clone()) {
        Some(who) => CALLER.scope(who, next.run(request)).await,
        None => next.run(request).await,
    }
}

/// How a request for a job is to be answered.
pub struct Asked {
    /// `Idempotency-Key`: the same request again is the same job.
    pub key: Option<String>,
    /// `Prefer: respond-async` (RFC 7240, 4.1): with the job, not with what came of it.
    pub is_async: bool,
    /// `wait=SECONDS` beside it (4.3): only if the job is not over by then.
    pub wait: Duration,
}

impl<S: Send + Sync> FromRequestParts<S> for Asked {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let key = match parts.headers.get("idempotency-key").map(HeaderValue::to_str) {
            None => None,
            Some(Ok(key)) => Some(key.to_owned()),
            Some(Err(_)) => {
                let what = "Idempotency-Key has characters that are not visible ASCII";
                return Err(Refusal::new(Kind::Malformed, what));
            }
        };
        let prefer = parts.headers.get_all("prefer").iter().filter_map(|all| all.to_str().ok());
        let preferences: Vec<_> = prefer.flat_map(|all| all.split(',')).map(str::trim).collect();
        let is_async = preferences.iter().any(|one| one.eq_ignore_ascii_case("respond-async"));
        // What is not understood is no preference.
        let seconds = preferences.iter().find_map(|one| one.strip_prefix("wait=")?.parse().ok());
        Ok(Self { key, is_async, wait: Duration::from_secs(seconds.unwrap_or(0)) })
    }
}

/// Runs `work`, which may wait for drives and reactors, off the server's thread.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> array::Result<T> + Send + 'static,
) -> Answer<T> {
    let who = CALLER.try_with(Clone::clone).ok();
    match tokio::task::spawn_blocking(move || on_behalf_of(who, work)).await {
        Ok(result) => Ok(result?),
        Err(error) => Err(Refusal::new(Kind::Failed, format!("the request was given up: {error}"))),
    }
}
