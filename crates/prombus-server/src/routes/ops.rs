//! How the hub is doing, and requests that lead nowhere.

use crate::answers::json_of;
use crate::error::ApiError;
use crate::gateway::App;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Whether the process is alive.
pub(crate) async fn healthz() -> Response {
    json_of(StatusCode::OK, &json!({"status": "ok"}))
}

/// Whether publishes are taken.
pub(crate) async fn readyz(State(app): State<App>) -> Result<Response, ApiError> {
    match app.hub()?.status().failed {
        None => Ok(json_of(StatusCode::OK, &json!({"status": "ready"}))),
        Some(why) => Err(ApiError::unavailable(format!("the store takes no commits: {why}"))),
    }
}

/// Everything that is counted.
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let store = app.hub().ok().map(|hub| hub.status());
    let text = app.metrics.text(app.options.version, store.as_ref());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// The answer on paths that do not exist.
pub(crate) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::not_found(format!("there is nothing at {}", uri.path()))
}

/// The answer on paths that do not know the method; which ones they know is added by the router.
pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::method_not_allowed(format!("{} does not take {method}; see the allow header", uri.path()))
}
