//! Commits, as HTTP and WebSocket both take them: what is asked for, whether the caller may, and what comes of it.

mod elsewhere;
mod pledges;

use crate::answers;
use crate::auth::{AccessRequest, Action, Caller};
use crate::error::ApiError;
use crate::gateway::App;
use crate::incoming;
use crate::rate::ConnectionRate;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use prombus_core::document::WriteError;
use prombus_core::{Append, CommitError, DocumentWrite, Json, JsonError, TopicName, WriteOp};
use prombus_engine::commits::{CommitAnswer, CommitRefused, CommitRequest, LeaseOf};
use prombus_engine::groups::{ElsewhereShare, LeaseToken, MAX_BATCH};
use prombus_engine::{BusError, CommitSize, Hub};
use prombus_wire::{CommitEventRequest, Object, WriteRequest};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The most leases that one commit, request or frame may name: as many as a delivery may have.
pub(crate) const MAX_SETTLED: usize = MAX_BATCH;
/// The most documents that one commit may write.
const MAX_WRITES: usize = 10_000;

/// A commit that a caller asks for.
#[derive(Debug)]
pub(crate) struct CommitCall {
    request: CommitRequest,
    /// A lease that is none, where there is one.
    not_a_lease: Option<String>,
    /// What was asked, as it came.
    asked: Bytes,
    /// About how much memory it takes.
    pub bytes: usize,
}

impl CommitCall {
    /// What `request`, which was parsed from `body`, asks for, where that is no more than `max_bytes`.
    pub fn parse(
        request: prombus_wire::CommitRequest<'_>,
        body: &Bytes,
        max_bytes: usize,
    ) -> Result<Self, ApiError> {
        let leases = request.ack.unwrap_or_default();
        let (writes, publish) = (request.writes.unwrap_or_default(), request.publish.unwrap_or_default());
        let most = [("ack", leases.len(), MAX_SETTLED), ("writes", writes.len(), MAX_WRITES)];
        if let Some((name, _, limit)) = most.into_iter().find(|(_, count, limit)| count > limit) {
            return Err(ApiError::too_many(name, limit));
        }
        let mut size = CommitSize::new(max_bytes);
        let publish = parse_events(publish, body, &mut size)?;
        let writes = parse_writes(writes, body, &mut size)?;
        let parsed: Vec<Option<LeaseToken>> = leases.iter().map(|lease| lease.parse().ok()).collect();
        let not_a_lease = parsed.iter().position(Option::is_none).map(|at| leases[at].to_string());
        let request = CommitRequest {
            caller: None,
            commit_id: request.commit_id.map(|id| id.to_string()),
            acks: parsed.into_iter().flatten().collect(),
            writes,
            publish,
        };
        if not_a_lease.is_none() {
            request.check_not_empty()?;
        }
        Ok(Self { request, not_a_lease, asked: body.clone(), bytes: size.bytes() })
    }

    /// Refuses what the caller may not do, as far as that shows without knowing whose the leases are.
    pub fn check(&self, caller: &Caller) -> Result<(), ApiError> {
        let publish = |topic| caller.check(AccessRequest::on(Action::Publish, topic));
        self.request.writes.iter().try_for_each(|write| publish(&write.collection))?;
        self.request.publish.iter().try_for_each(|append| publish(append.topic.as_str()))?;
        if self.request.acks.is_empty() && self.not_a_lease.is_none() {
            return Ok(());
        }
        // Nobody else can have a lease to settle, or learn from an old commit what came of one.
        caller.check_somewhere(Action::Subscribe)
    }

    /// Gives it its place in the order; what comes of it is then waited for. The caller must have passed [`Self::check`].
    pub async fn enqueue(
        self,
        by: Requester,
    ) -> Result<BoxFuture<'static, Result<CommitOutcome, ApiError>>, ApiError> {
        match elsewhere::Elsewhere::of(&self, &by).await? {
            None => {
                let elsewhere = elsewhere::shares_of(&self, &by).await?;
                self.enqueue_here(by, elsewhere).await
            }
            Some(there) => {
                let committed = async move {
                    match there.forward(&by).await? {
                        Some(committed) => Ok(committed),
                        // Its topic has come here meanwhile.
                        None => {
                            let elsewhere = elsewhere::shares_of(&self, &by).await?;
                            self.enqueue_here(by, elsewhere).await?.await
                        }
                    }
                };
                // Its place in the order is where it is forwarded to; what comes after it here waits until it is done.
                let committed = committed.await;
                Ok(std::future::ready(committed).boxed())
            }
        }
    }

    /// Has it done here, with those of its leases that are `elsewhere`.
    async fn enqueue_here(
        self,
        by: Requester,
        elsewhere: Vec<ElsewhereShare>,
    ) -> Result<BoxFuture<'static, Result<CommitOutcome, ApiError>>, ApiError> {
        let Self { request, not_a_lease, .. } = self;
        let hub = by.app.hub()?;
        let settled = groups_of(hub, &request.acks);
        let may_settle = |LeaseOf { topic, group }: &LeaseOf| {
            let (topic, group) = (topic.as_str(), Some(group.as_str()));
            by.caller.may(AccessRequest { action: Action::Subscribe, topic, group })
        };
        if !settled.iter().flatten().all(may_settle) {
            // A lease can be guessed, so whose it is must not be told.
            return Err(CommitRefused::NotAllowed.into());
        }
        if let Some(lease) = not_a_lease {
            return Err(ApiError::lease_expired(&lease));
        }
        let leases = request.acks.clone();
        let taken = RateCharge::admit(&by, &request.publish)?;
        let request = CommitRequest { caller: by.caller.name().map(str::to_owned), ..request };
        // One that the hub does not know is for the hub to refuse, which may have done this commit before.
        let there: Vec<LeaseToken> = elsewhere.iter().flat_map(|share| share.leases.clone()).collect();
        let answer = hub.enqueue_commit_across(request, elsewhere).await;
        let answer = answer.map_err(|error| taken.refused(&by, error))?;
        let committed = async move {
            let answer = answer.await.map_err(|error| taken.refused(&by, error))?;
            if answer.repeated {
                taken.put_back(&by);
            }
            answer.published().into_iter().for_each(|(topic, new)| by.app.metrics.add_published(topic, new));
            let settled = settled.into_iter().zip(leases);
            let settled = settled.filter_map(|(of, lease)| Some((of?, lease))).collect();
            Ok(CommitOutcome { answer: CommittedAnswer::Here(answer), settled, elsewhere: there })
        };
        Ok(committed.boxed())
    }
}

/// Who has a commit done, and over which connection.
pub(crate) struct Requester {
    pub app: App,
    pub rate: ConnectionRate,
    pub caller: Caller,
    /// Whether another hub asks for it, which has looked where it belongs.
    pub is_forwarded: bool,
}

/// What came of a commit.
#[derive(Debug)]
pub(crate) struct CommitOutcome {
    /// What is answered.
    pub answer: CommittedAnswer,
    /// The leases that it has settled.
    pub settled: Vec<(LeaseOf, LeaseToken)>,
    /// Those that it has settled at another hub.
    pub elsewhere: Vec<LeaseToken>,
}

/// What is answered to a commit.
#[derive(Debug)]
pub(crate) enum CommittedAnswer {
    Here(CommitAnswer),
    /// What another hub has answered: the fields of an object.
    There(Bytes),
}

impl CommittedAnswer {
    /// Writes the fields.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Here(answer) => answers::write_committed(answer, out),
            Self::There(fields) => out.extend_from_slice(fields),
        }
    }
}

/// The group of each lease; `None` for those that the hub does not know.
fn groups_of(hub: &Hub, leases: &[LeaseToken]) -> Vec<Option<LeaseOf>> {
    match hub.leases(leases) {
        Ok(groups) => groups.into_iter().map(Some).collect(),
        // One of them is not known: the rights on the others count all the same.
        Err(_) => {
            let of =
                |lease: &LeaseToken| hub.leases(std::slice::from_ref(lease)).ok().and_then(|mut of| of.pop());
            leases.iter().map(of).collect()
        }
    }
}

fn parse_events(
    events: Vec<Object<CommitEventRequest<'_>>>,
    body: &Bytes,
    size: &mut CommitSize,
) -> Result<Vec<Append>, ApiError> {
    let mut parsed = Vec::with_capacity(events.len());
    for (index, Object(event)) in events.into_iter().enumerate() {
        let (topic, event) = event.into_event();
        let parse = || incoming::from_request(TopicName::parse(&topic)?, event, body);
        let append = parse().map_err(|error: ApiError| error.at_index(Some(index)))?;
        size.add(append.event.size())?;
        parsed.push(append);
    }
    Ok(parsed)
}

fn parse_writes(
    writes: Vec<Object<WriteRequest<'_>>>,
    body: &Bytes,
    size: &mut CommitSize,
) -> Result<Vec<DocumentWrite>, ApiError> {
    let mut parsed = Vec::with_capacity(writes.len());
    for (index, Object(write)) in writes.into_iter().enumerate() {
        let write = parse_write(&write, body).map_err(|message| {
            ApiError::bad_request(format!("writes[{index}]: {message}")).with("write", index)
        })?;
        size.add(write.size())?;
        parsed.push(write);
    }
    Ok(parsed)
}

fn parse_write(write: &WriteRequest<'_>, body: &Bytes) -> Result<DocumentWrite, String> {
    // What it does comes last: it is the dearest to look at.
    let named = DocumentWrite::new(&write.collection, &*write.key, WriteOp::Delete);
    named.check_names()?;
    let op = match (write.set, write.merge, write.inc, write.delete) {
        (Some(set), None, None, None) => operation(("set", WriteOp::set), set, body)?,
        (None, Some(merge), None, None) => operation(("merge", WriteOp::merge), merge, body)?,
        (None, None, Some(inc), None) => operation(("inc", WriteOp::inc), inc, body)?,
        (None, None, None, Some(delete)) if delete.get() == "true" => WriteOp::Delete,
        (None, None, None, Some(_)) => return Err("delete must be true".into()),
        _ => return Err("it needs exactly one of set, merge, inc and delete".into()),
    };
    Ok(DocumentWrite { op, if_version: write.if_version, ..named })
}

/// What makes an operation of an object, and its name.
type Operation = (&'static str, fn(Value) -> Result<WriteOp, WriteError>);

fn operation((name, make): Operation, raw: &RawValue, body: &Bytes) -> Result<WriteOp, String> {
    let bad = |what: &dyn std::fmt::Display| format!("{name}: {what}");
    let json = Json::from_raw(raw, body).map_err(|error: JsonError| bad(&error))?;
    if json.as_bytes().first() != Some(&b'{') {
        return Err(bad(&"it must be an object"));
    }
    if name == "inc" {
        check_amounts(raw).map_err(|error| bad(&error))?;
    }
    // It is JSON, so all that can be wrong is a number that is too great, or that it is too deep.
    let value = json.to_value().map_err(|error| match error.to_string() {
        text if text.starts_with("number out of range") => bad(&WriteError::NumberOutOfRange),
        text => bad(&text),
    })?;
    make(value).map_err(|error| bad(&error))
}

/// Refuses an amount that is written as an integer and is none of 64 bits: as a double, it would turn a counter into one, which
/// later increments no longer change.
fn check_amounts(raw: &RawValue) -> Result<(), WriteError> {
    let Ok(amounts) = serde_json::from_str::<BTreeMap<String, &RawValue>>(raw.get()) else { return Ok(()) };
    let is_out_of_range = |text: &str| {
        text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit())
            && text.parse::<i64>().is_err()
            && text.parse::<u64>().is_err()
    };
    match amounts.into_iter().find(|(_, amount)| is_out_of_range(amount.get())) {
        Some((field, _)) => Err(WriteError::SumOutOfRange(field)),
        None => Ok(()),
    }
}

/// What a commit has taken from the rates of its topics.
struct RateCharge(Vec<(TopicName, usize)>);

impl RateCharge {
    fn admit(by: &Requester, publish: &[Append]) -> Result<Self, ApiError> {
        let mut counts: BTreeMap<&TopicName, usize> = BTreeMap::new();
        publish.iter().for_each(|append| *counts.entry(&append.topic).or_default() += 1);
        let mut taken = Self(Vec::with_capacity(counts.len()));
        for (topic, count) in counts {
            if let Err(error) = by.app.rates.admit(&by.rate, topic, count) {
                taken.put_back(by);
                return Err(error);
            }
            taken.0.push((topic.clone(), count));
        }
        Ok(taken)
    }

    /// The commit was refused, and this is what the caller is told.
    fn refused(&self, by: &Requester, error: CommitRefused) -> ApiError {
        self.put_back(by);
        let may_read = |topic: &str| by.caller.may(AccessRequest::on(Action::Read, topic));
        match &error {
            CommitRefused::Bus(BusError::Commit(CommitError::NotUnique {
                collection, key, fields, ..
            })) if !may_read(collection) => {
                // Which document it is that has these values would be news to the caller.
                ApiError::not_unique(collection, key, fields)
            }
            _ => error.into(),
        }
    }

    fn put_back(&self, by: &Requester) {
        self.0.iter().for_each(|(topic, count)| by.app.rates.put_back(&by.rate, topic, *count));
    }
}

#[cfg(test)]
mod tests;
