//! Leases that another hub is asked to pledge to a commit which is done here.

use super::Requester;
use crate::auth::Caller;
use crate::cluster::{
    AskedPledge, Cluster, Forward, PLEDGE, Patience, Pledged, Sent, TELL, ToldOutcome, until_gone,
};
use crate::error::ApiError;
use crate::gateway::App;
use crate::media::JSON;
use async_trait::async_trait;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use parking_lot::Mutex;
use prombus_core::{CommitError, CursorMove, LiveHub, TopicName};
use prombus_engine::commits::CommitRefused;
use prombus_engine::groups::{LeaseToken, LeasesElsewhere, PledgeOutcome};
use prombus_engine::homes::Place;
use prombus_engine::{BusError, Hub};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// The largest answer: the cursors of a thousand groups fit.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// How often a hub is told what came of a commit, and how long it may take to hear it each time.
const TELL_TRIES: usize = 3;
const TELL_TIME: Duration = Duration::from_secs(2);

/// Leases of a topic that is at home on another hub, for one commit.
pub(super) struct PledgeAt {
    app: App,
    cluster: Arc<Cluster>,
    topic: TopicName,
    leases: Vec<LeaseToken>,
    caller: Caller,
    /// What the commit is told by.
    id: String,
    /// The hub that was asked.
    asked: Mutex<Option<LiveHub>>,
}

impl PledgeAt {
    pub fn new(
        cluster: Arc<Cluster>,
        by: &Requester,
        (topic, leases): (&TopicName, &[LeaseToken]),
    ) -> Result<Self, ApiError> {
        let id = Cluster::random_name()?;
        let (app, caller) = (by.app.clone(), by.caller.clone());
        let (topic, leases) = (topic.clone(), leases.to_vec());
        Ok(Self { app, cluster, topic, leases, caller, id, asked: Mutex::default() })
    }

    fn hub(&self) -> Result<&Hub, CommitRefused> {
        self.app.hub().map_err(|error| unavailable(error.message()))
    }

    async fn send(&self, hub: &Hub, to: &LiveHub, target: &str, body: &impl Serialize) -> Sent {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        // It has text keys only, so writing it cannot fail.
        let body = Bytes::from(serde_json::to_vec(body).unwrap_or_default());
        let forward =
            Forward { method: &Method::POST, target, headers: &headers, body, caller: &self.caller };
        tokio::select! {
            sent = self.cluster.send(hub, to, forward) => sent,
            () = until_gone(hub, &to.id) => {
                Sent::Unknown(ApiError::unavailable(format!("hub {} does not answer", to.id)))
            }
        }
    }
}

fn unavailable(why: &str) -> CommitRefused {
    BusError::Commit(CommitError::Unavailable(why.to_owned())).into()
}

/// What a hub has answered that was asked to pledge leases.
async fn read(answer: Response<Body>) -> Result<Vec<CursorMove>, CommitRefused> {
    let status = answer.status();
    let whole = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
    let whole = whole.map_err(|error| unavailable(&error.to_string()))?.to_bytes();
    if status != StatusCode::OK {
        return Err(unavailable(ApiError::from_answer(status, &whole).message()));
    }
    let nonsense = || unavailable("what the home of a lease has answered makes no sense");
    match serde_json::from_slice(&whole).map_err(|_| nonsense())? {
        Pledged::Moves(moves) => moves.into_iter().map(|one| one.read().ok_or_else(nonsense)).collect(),
        Pledged::Expired(lease) => {
            Err(lease.parse().map_or_else(|_| nonsense(), CommitRefused::LeaseExpired))
        }
        Pledged::NotAllowed => Err(CommitRefused::NotAllowed),
    }
}

#[async_trait]
impl LeasesElsewhere for PledgeAt {
    async fn pledge(&self) -> Result<Vec<CursorMove>, CommitRefused> {
        let hub = self.hub()?;
        let body = AskedPledge {
            id: self.id.clone(),
            from: hub.id().to_string(),
            topic: self.topic.clone(),
            leases: self.leases.iter().map(LeaseToken::to_string).collect(),
        };
        let mut patience = Patience::default();
        loop {
            let Place::At(home) = hub.place(&self.topic) else {
                // It has come here meanwhile, and with that its leases are void.
                let spent = self.leases.first().copied().map(CommitRefused::LeaseExpired);
                return Err(spent.unwrap_or_else(|| unavailable("the topic has moved")));
            };
            *self.asked.lock() = Some(home.clone());
            match self.send(hub, &home, PLEDGE, &body).await {
                Sent::Answered(answer) => return read(answer).await,
                // If they are pledged, that hub is told, and nothing was committed.
                Sent::Unknown(error) => return Err(unavailable(error.message())),
                Sent::NotBegun(error) => {
                    patience.wait(hub, error).await.map_err(|error| unavailable(error.message()))?;
                }
            }
        }
    }

    async fn tell(&self, outcome: PledgeOutcome) {
        let Some(to) = self.asked.lock().clone() else { return };
        let Ok(hub) = self.hub() else { return };
        let done = match outcome {
            PledgeOutcome::Done => Some(true),
            PledgeOutcome::NotDone => Some(false),
            PledgeOutcome::Unknown => None,
        };
        let told = ToldOutcome { id: self.id.clone(), done };
        for _ in 0..TELL_TRIES {
            let sent = tokio::time::timeout(TELL_TIME, self.send(hub, &to, TELL, &told)).await;
            if matches!(sent, Ok(Sent::Answered(_))) {
                return;
            }
        }
        tracing::warn!(hub = %to.id, topic = %self.topic, "a hub could not be told what came of a commit; it looks what is stored");
    }
}
