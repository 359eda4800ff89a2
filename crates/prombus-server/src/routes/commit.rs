//! `POST /v1/commit`: acks, writes and publishes in one transaction.

use crate::answers;
use crate::auth::Caller;
use crate::body::json_body;
use crate::cluster::Forwarded;
use crate::commit::{CommitCall, Requester};
use crate::error::ApiError;
use crate::gateway::App;
use crate::serve::Via;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use prombus_wire::parse_object;

/// `POST /v1/commit`.
pub(crate) async fn commit(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let rate = Via::rate_of(request.extensions());
    let is_forwarded = request.extensions().get::<Forwarded>().is_some();
    let body = json_body(&app, request).await?;
    let asked = CommitCall::parse(parse_object(&body)?, &body, app.hub()?.limits().commit_bytes)?;
    asked.check(&caller)?;
    let committed = asked.enqueue(Requester { app, rate, caller, is_forwarded }).await?.await?;
    Ok(answers::committed(&committed.answer))
}
