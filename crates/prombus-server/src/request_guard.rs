//! What happens around every request: its caller is checked, it goes to its handler or its home, it is counted, a panic
//! becomes a `500`, and the answer counts as connection memory until it is sent.
//!
//! All of that is one middleware. Each of its own would cost every request two allocations and several copies of its head.

use crate::auth;
use crate::error::ApiError;
use crate::gateway::App;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use std::panic::AssertUnwindSafe;

/// Lets the request through to its handler if its caller may, counts it, and answers `500` where its handler panics.
pub(crate) async fn around(State(app): State<App>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    // Shared state is behind locks that a panic does not poison.
    let response = match AssertUnwindSafe(auth::guard(&app, request, next)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => ApiError::internal("the request failed because of an internal error").into_response(),
    };
    app.metrics.count_request(route.as_ref().map(MatchedPath::as_str), response.status());
    let (head, body) = response.into_parts();
    Response::from_parts(head, app.memory.cover(body).await)
}
