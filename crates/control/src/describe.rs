//! What every operation of the API's description has to say, said in one place: a summary, what each answer is, and the
//! answers that all have.

use utoipa::openapi::path::{HttpMethod, Operation, OperationBuilder, PathItem};
use utoipa::openapi::{Content, OpenApi, Ref, RefOr, Response, ResponseBuilder};

/// Completes what is generated from the handlers.
pub fn complete(mut description: OpenApi) -> OpenApi {
    for item in description.paths.paths.values_mut() {
        operations(item).for_each(complete_operation);
    }
    let paths = &mut description.paths.paths;
    paths.insert(
        "/metrics".to_owned(),
        text("metrics", "Counters as Prometheus text", "text/plain"),
    );
    let itself = text("openapi", "This description", "application/json");
    paths.insert("/openapi.json".to_owned(), itself);
    description
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, patch, delete, .. } = item;
    [get, put, post, patch, delete].into_iter().flatten()
}

fn complete_operation(operation: &mut Operation) {
    if operation.summary.is_none() {
        let words = operation.operation_id.as_deref().unwrap_or_default().replace('_', " ");
        let mut letters = words.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        operation.summary = Some(first.into_iter().chain(letters).collect());
    }
    let answers = &mut operation.responses.responses;
    for (status, what) in [("500", "It failed"), ("503", "The daemon is stopping")] {
        answers.entry(status.to_owned()).or_insert_with(|| RefOr::T(problem(what)));
    }
    for (status, answer) in answers {
        if let RefOr::T(answer) = answer
            && answer.description.is_empty()
        {
            what(status).clone_into(&mut answer.description);
        }
    }
}

/// What an answer with this status is.
fn what(status: &str) -> &'static str {
    match status {
        "200" => "As it is; with `dry_run`, what would be lost",
        "201" => "It is made",
        "202" => "The job that does it is under way",
        "204" => "It is done",
        "404" => "There is no such thing",
        _ => "It is refused, and nothing has changed",
    }
}

fn problem(what: &str) -> Response {
    let content = Content::new(Some(Ref::from_schema_name("Problem")));
    ResponseBuilder::new().description(what).content("application/json", content).build()
}

/// A path that has a text.
fn text(id: &str, summary: &str, media_type: &str) -> PathItem {
    let content = Content::new::<RefOr<utoipa::openapi::Schema>>(None);
    let answer = ResponseBuilder::new().description(summary).content(media_type, content).build();
    let operation = OperationBuilder::new()
        .operation_id(Some(id))
        .tag("node")
        .summary(Some(summary))
        .response("200", answer)
        .build();
    PathItem::new(HttpMethod::Get, operation)
}
