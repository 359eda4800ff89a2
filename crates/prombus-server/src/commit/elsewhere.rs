//! Commits with leases of topics at home on other hubs. They are done at the home of most of them, and the others are pledged to
//! them there first.

use super::pledges::PledgeAt;
use super::{CommitCall, CommitOutcome, CommittedAnswer, Requester};
use crate::cluster::{Cluster, Forward, Patience, Question, Step, put_question};
use crate::error::ApiError;
use crate::media::JSON;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use prombus_core::{HubId, TopicName};
use prombus_engine::groups::{ElsewhereShare, LeaseToken};
use prombus_engine::homes::Place;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest answer: a commit is told again with all that it has made.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// What a frame has beside the fields of a request.
const OF_FRAMES: [&str; 2] = ["op", "corr"];

/// The leases of one topic, and where that is at home.
struct Located {
    topic: TopicName,
    leases: Vec<LeaseToken>,
    place: Place,
}

impl Located {
    /// The hub; `None` for this one.
    fn hub(&self) -> Option<&HubId> {
        match &self.place {
            Place::Here => None,
            Place::At(hub) => Some(&hub.id),
        }
    }
}

/// Where leases are at home, by topic. Those whose topic is gone are nowhere.
async fn locate(leases: &[LeaseToken], by: &Requester) -> Result<Vec<Located>, ApiError> {
    let hub = by.app.hub()?;
    let mut located: Vec<Located> = Vec::new();
    for topic in hub.topics_of(leases).await? {
        let is_of = |lease: &&LeaseToken| lease.topic() == topic.number;
        let leases = leases.iter().filter(is_of).copied().collect();
        located.push(Located { place: hub.place(&topic.name), topic: topic.name, leases });
    }
    Ok(located)
}

/// The leases of a commit that is done here which are at home elsewhere.
pub(super) async fn shares_of(call: &CommitCall, by: &Requester) -> Result<Vec<ElsewhereShare>, ApiError> {
    let Some(cluster) = &by.app.cluster else { return Ok(Vec::new()) };
    let located = locate(&call.request.acks, by).await?;
    let elsewhere = located.into_iter().filter(|one| one.place != Place::Here);
    let share = |Located { topic, leases, .. }| {
        let at = PledgeAt::new(cluster.clone(), by, (&topic, &leases))?;
        Ok(ElsewhereShare { topic, leases, at: Arc::new(at) })
    };
    elsewhere.map(share).collect()
}

/// A commit for another hub.
pub(super) struct Elsewhere {
    cluster: Arc<Cluster>,
    /// A topic that is at home there.
    topic: TopicName,
    /// A request, or a frame.
    asked: Bytes,
    acks: Vec<LeaseToken>,
    published: usize,
    /// One that has an id is done once, however often it is asked for.
    may_repeat: bool,
}

impl Elsewhere {
    /// What becomes of a commit that another hub is to do, because it is the home of most of its leases; `None` for one that is
    /// done here.
    pub async fn of(call: &CommitCall, by: &Requester) -> Result<Option<Self>, ApiError> {
        let Some(cluster) = by.app.cluster.clone().filter(|_| !by.is_forwarded) else { return Ok(None) };
        let CommitCall { request, asked, .. } = call;
        let located = locate(&request.acks, by).await?;
        let mut counts: BTreeMap<Option<&HubId>, usize> = BTreeMap::new();
        located.iter().for_each(|one| *counts.entry(one.hub()).or_default() += one.leases.len());
        // Of those that have as many, this hub if it is among them.
        let most = counts.iter().max_by_key(|(hub, count)| (**count, hub.is_none()));
        let Some((Some(home), _)) = most else { return Ok(None) };
        let first = located.iter().find(|one| one.hub() == Some(home));
        Ok(first.map(|one| Self {
            cluster,
            topic: one.topic.clone(),
            asked: asked.clone(),
            acks: request.acks.clone(),
            published: request.publish.len(),
            may_repeat: request.commit_id.is_some(),
        }))
    }

    /// Has it done. `None`: it is to be done here by now.
    pub async fn forward(self, by: &Requester) -> Result<Option<CommitOutcome>, ApiError> {
        by.rate.admit(self.published)?;
        let answered = self.ask(by).await;
        if !matches!(answered, Ok(Some(_))) {
            by.rate.put_back(self.published);
        }
        let answer = answered?.map(CommittedAnswer::There);
        Ok(answer.map(|answer| CommitOutcome { answer, settled: Vec::new(), elsewhere: self.acks }))
    }

    /// The fields of the answer.
    async fn ask(&self, by: &Requester) -> Result<Option<Bytes>, ApiError> {
        let hub = by.app.hub()?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        let forward = Forward {
            method: &Method::POST,
            target: "/v1/commit",
            headers: &headers,
            body: body_of(&self.asked)?,
            caller: &by.caller,
        };
        let question = Question { topic: &self.topic, forward, may_repeat: self.may_repeat };
        let mut patience = Patience::default();
        let answer = loop {
            let error = match put_question(&self.cluster, hub, &question).await {
                Step::Answered(answer) => break answer,
                Step::Failed(error) => return Err(error),
                Step::Again(error) => error,
                Step::Here => return Ok(None),
            };
            patience.wait(hub, error).await?;
        };
        let status = answer.status();
        let whole = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await.map_err(|error| {
            let error = ApiError::unavailable(format!("the answer of the home was cut off: {error}"));
            error.with("outcome", "unknown")
        })?;
        let whole = whole.to_bytes();
        if status != StatusCode::OK {
            return Err(ApiError::from_answer(status, &whole));
        }
        let fields = whole.trim_ascii().strip_prefix(b"{").and_then(|text| text.strip_suffix(b"}"));
        Ok(Some(fields.map(|fields| whole.slice_ref(fields)).unwrap_or_default()))
    }
}

/// The request of a frame.
fn body_of(asked: &Bytes) -> Result<Bytes, ApiError> {
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_slice(asked)?;
    fields.retain(|name, _| !OF_FRAMES.contains(&name.as_str()));
    Ok(serde_json::to_vec(&fields)?.into())
}
