//! What each hub knows of its own topics, put together: lists that show all of them.

use super::Cluster;
use super::peers::{Forward, Sent};
use crate::auth::Caller;
use axum::http::{HeaderMap, Method, StatusCode};
use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt, Limited};
use prombus_core::{HubId, LiveHub};
use prombus_engine::Hub;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// How long a hub may take for its part.
const TIME: Duration = Duration::from_secs(5);
/// The largest part.
const MAX_BYTES: usize = 32 << 20;

/// The part of one hub; `None` where it does not answer.
pub(crate) struct Part<T> {
    pub hub: HubId,
    pub part: Option<T>,
}

/// Asks all other hubs the same. What each answers is its own part.
pub(crate) async fn gather<T: DeserializeOwned>(
    cluster: &Cluster,
    hub: &Hub,
    (target, caller): (&str, &Caller),
) -> Vec<Part<T>> {
    let own = hub.id().clone();
    let others: Vec<LiveHub> = hub.hubs().borrow().iter().filter(|one| one.id != own).cloned().collect();
    let asked = others.iter().map(|other| async move {
        let answered = tokio::time::timeout(TIME, ask(cluster, hub, other, (target, caller))).await;
        let part = answered.ok().flatten().and_then(|text| serde_json::from_slice(&text).ok());
        if part.is_none() {
            tracing::warn!(hub = %other.id, target, "a hub did not answer with its part of a list");
        }
        Part { hub: other.id.clone(), part }
    });
    join_all(asked).await
}

async fn ask(
    cluster: &Cluster,
    hub: &Hub,
    other: &LiveHub,
    (target, caller): (&str, &Caller),
) -> Option<Bytes> {
    let headers = HeaderMap::new();
    let forward = Forward { method: &Method::GET, target, headers: &headers, body: Bytes::new(), caller };
    let Sent::Answered(answer) = cluster.send(hub, other, forward).await else { return None };
    if answer.status() != StatusCode::OK {
        return None;
    }
    Some(Limited::new(answer.into_body(), MAX_BYTES).collect().await.ok()?.to_bytes())
}
