//! Leases of topics at home here that are pledged to a commit of another hub.
//!
//! They are kept for that commit until the hub tells what came of it. If it never does, because it is gone or takes too long, the
//! groups are read anew under a later epoch: a commit that has happened is known then, and one that has not can happen no more.

use super::Cluster;
use super::heard::Forwarded;
use crate::answers::json_of;
use crate::auth::{AccessRequest, Action, Caller};
use crate::body::json_body;
use crate::error::ApiError;
use crate::gateway::App;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use parking_lot::Mutex;
use prombus_core::{
    CursorKey, CursorMove, CursorTarget, Epoch, HubId, LiveHub, Offset, Partition, TopicName, TopicNumber,
};
use prombus_engine::Hub;
use prombus_engine::commits::CommitRefused;
use prombus_engine::groups::{LeaseToken, PledgeOutcome, PledgedLeases};
use prombus_engine::homes::Place;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Where hubs ask each other to pledge leases.
pub(crate) const PLEDGE: &str = "/cluster/pledges";
/// Where they tell what came of that.
pub(crate) const TELL: &str = "/cluster/pledges/outcome";
/// A hub has so long to tell: longer than a commit waits for the database and is tried again.
const PATIENCE: Duration = Duration::from_secs(20);
/// A hub that is gone has so long to tell what it was about to.
const GRACE: Duration = Duration::from_secs(1);

/// Leases of one topic, to be pledged to a commit.
#[derive(Serialize, Deserialize)]
pub(crate) struct AskedPledge {
    /// What the commit is told by.
    pub id: String,
    /// The hub that does it.
    pub from: String,
    pub topic: TopicName,
    pub leases: Vec<String>,
}

/// What comes of it.
#[derive(Serialize, Deserialize)]
pub(crate) enum Pledged {
    /// They are pledged, and this settles them.
    Moves(Vec<MoveText>),
    /// One of them is not open.
    Expired(String),
    NotAllowed,
}

/// What came of the commit.
#[derive(Serialize, Deserialize)]
pub(crate) struct Told {
    pub id: String,
    /// Whether it has happened; `None` where that is not known.
    pub done: Option<bool>,
}

/// A move of a cursor.
#[derive(Serialize, Deserialize)]
pub(crate) struct MoveText {
    topic: TopicName,
    reader: String,
    partition: Partition,
    incarnation: Option<TopicNumber>,
    version: u64,
    epoch: Epoch,
    /// Where it goes, with the detail in base64.
    to: Option<(Offset, String)>,
}

impl From<CursorMove> for MoveText {
    fn from(CursorMove { key, incarnation, expect_version, epoch, to }: CursorMove) -> Self {
        let CursorKey { topic, reader, partition } = key;
        let to = to.map(|CursorTarget { next, detail }| (next, STANDARD_NO_PAD.encode(detail)));
        Self { topic, reader, partition, incarnation, version: expect_version, epoch, to }
    }
}

impl MoveText {
    /// The move; `None` where it is none.
    pub fn read(self) -> Option<CursorMove> {
        let Self { topic, reader, partition, incarnation, version, epoch, to } = self;
        let to = match to {
            None => None,
            Some((next, detail)) => {
                Some(CursorTarget { next, detail: STANDARD_NO_PAD.decode(detail).ok()?.into() })
            }
        };
        let key = CursorKey { topic, reader, partition };
        Some(CursorMove { key, incarnation, expect_version: version, epoch, to })
    }
}

/// The pledges that wait for what comes of their commits, by what these are told by.
#[derive(Default)]
pub(super) struct Pledges(Mutex<HashMap<String, oneshot::Sender<PledgeOutcome>>>);

/// Waits until a hub has not been there for a while.
pub(crate) async fn until_gone(hub: &Hub, id: &HubId) {
    let is_gone = |hubs: &Arc<[LiveHub]>| hubs.iter().all(|one| one.id != *id);
    if hub.hubs().wait_for(is_gone).await.is_err() {
        return std::future::pending().await;
    }
    // There is nothing to wait for but the time.
    tokio::time::sleep(GRACE).await;
}

pub(super) fn only_hubs(
    app: &App,
    forwarded: Option<Extension<Forwarded>>,
) -> Result<Arc<Cluster>, ApiError> {
    let cluster = app.cluster.clone().filter(|_| forwarded.is_some());
    cluster.ok_or_else(|| ApiError::forbidden("this path is for hubs that have the same cluster.secret"))
}

/// `POST /cluster/pledges`: pledges leases to a commit of another hub.
pub(crate) async fn pledge(
    State(app): State<App>,
    forwarded: Option<Extension<Forwarded>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let cluster = only_hubs(&app, forwarded)?;
    let asked: AskedPledge = serde_json::from_slice(&json_body(&app, request).await?)?;
    let hub = app.hub()?;
    if let Place::At(home) = hub.place(&asked.topic) {
        let message = format!("topic {} is at home on hub {}", asked.topic, home.id);
        return Err(ApiError::unavailable(message).moved());
    }
    let outcome = match pledge_for(hub, &caller, &asked).await? {
        Ok(pledged) => {
            let moves = pledged.moves().into_iter().map(MoveText::from).collect();
            keep(&app, &cluster, asked, pledged);
            Pledged::Moves(moves)
        }
        Err(refused) => refused,
    };
    Ok(json_of(StatusCode::OK, &outcome))
}

async fn pledge_for(
    hub: &Hub,
    caller: &Caller,
    asked: &AskedPledge,
) -> Result<Result<PledgedLeases, Pledged>, ApiError> {
    let mut leases = Vec::with_capacity(asked.leases.len());
    for lease in &asked.leases {
        match lease.parse::<LeaseToken>() {
            Ok(lease) => leases.push(lease),
            Err(_) => return Ok(Err(Pledged::Expired(lease.clone()))),
        }
    }
    let pledged = async {
        for of in hub.leases(&leases)? {
            let (topic, group) = (of.topic.as_str(), Some(of.group.as_str()));
            if !caller.may(AccessRequest { action: Action::Subscribe, topic, group }) {
                return Err(CommitRefused::NotAllowed);
            }
        }
        hub.pledge(&leases).await
    };
    match pledged.await {
        Ok(pledged) => Ok(Ok(pledged)),
        Err(CommitRefused::LeaseExpired(lease)) => Ok(Err(Pledged::Expired(lease.to_string()))),
        Err(CommitRefused::NotAllowed) => Ok(Err(Pledged::NotAllowed)),
        Err(error) => Err(error.into()),
    }
}

/// Keeps leases for the commit until it is known what came of that.
fn keep(app: &App, cluster: &Arc<Cluster>, asked: AskedPledge, pledged: PledgedLeases) {
    let (tell, told) = oneshot::channel();
    let (app, cluster, AskedPledge { id, from, .. }) = (app.clone(), cluster.clone(), asked);
    cluster.pledges.0.lock().insert(id.clone(), tell);
    tokio::spawn(async move {
        let from = HubId(from.into());
        let gone = async {
            match app.hub() {
                Ok(hub) => until_gone(hub, &from).await,
                Err(_) => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            told = told => told.unwrap_or(PledgeOutcome::Unknown),
            () = gone => PledgeOutcome::Unknown,
            // A hub that is stalled tells nothing, and nobody tells that of it.
            () = tokio::time::sleep(PATIENCE) => PledgeOutcome::Unknown,
        };
        cluster.pledges.0.lock().remove(&id);
        if outcome == PledgeOutcome::Unknown {
            tracing::warn!(hub = %from, "another hub does not say what came of a commit; its leases are void");
        }
        pledged.settle(outcome);
    });
}

/// `POST /cluster/pledges/outcome`: what came of a commit that leases were pledged to. What is not known is settled already.
pub(crate) async fn tell(
    State(app): State<App>,
    forwarded: Option<Extension<Forwarded>>,
    request: Request,
) -> Result<Response, ApiError> {
    let cluster = only_hubs(&app, forwarded)?;
    let Told { id, done } = serde_json::from_slice(&json_body(&app, request).await?)?;
    let outcome = match done {
        Some(true) => PledgeOutcome::Done,
        Some(false) => PledgeOutcome::NotDone,
        None => PledgeOutcome::Unknown,
    };
    if let Some(waits) = cluster.pledges.0.lock().remove(&id) {
        let _ = waits.send(outcome);
    }
    Ok(json_of(StatusCode::OK, &serde_json::json!({})))
}
