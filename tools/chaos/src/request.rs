//! Requests and their outcomes.

use super::draft::Draft;
use super::plan::Topic;
use prombus_client::Published;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::Arc;
use uuid::Uuid;

/// How events are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The payload as the body, everything else beside it.
    Raw,
    /// One object.
    Single,
    /// An array, which is taken whole or not at all.
    Array,
    /// Lines, which are taken in commits.
    Lines,
}

/// A publish.
#[derive(Debug, Clone)]
pub struct Request {
    /// Where to.
    pub topic: Arc<Topic>,
    /// In which form.
    pub form: Form,
    /// What.
    pub drafts: Vec<Arc<Draft>>,
    /// Where its event already is, if it repeats one of an earlier round.
    pub known: Option<Position>,
}

/// A request and the outcome.
#[derive(Debug)]
pub struct Sent {
    /// Who sent it.
    pub connection: usize,
    /// The request.
    pub request: Request,
    /// The outcome.
    pub outcome: Outcome,
}

/// Where an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The partition.
    pub partition: u32,
    /// The offset.
    pub offset: u64,
}

impl Position {
    /// Where the hub says that an event is.
    pub fn of(published: &Published) -> Self {
        Self { partition: published.partition, offset: published.offset }
    }
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Outcome {
    /// Taken, and where each event is.
    Published(Vec<Published>),
    /// Taken.
    Accepted,
    /// `412`, and what the latest event of the key is.
    NotExpected { actual: Option<Uuid> },
    /// `409`.
    Conflict,
    /// `503`, and nothing of it happened.
    Unavailable,
    /// Nobody knows.
    Unanswered,
}

/// An event as a request has it.
#[derive(Serialize)]
struct EventBody<'a> {
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Value>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expect: Option<Value>,
}

impl Request {
    /// The request for a hub at `base`.
    pub fn build(&self, client: &reqwest::Client, base: &str) -> Result<reqwest::RequestBuilder, String> {
        let topic = &self.topic.name;
        if let (Form::Raw, [draft]) = (self.form, self.drafts.as_slice()) {
            let post = client.post(format!("{base}/publish/{topic}")).query(&parameters(draft));
            let post = draft.note.iter().fold(post, |post, note| post.header("x-event-note", note));
            return Ok(post.body(sent_payload(draft).to_owned()));
        }
        let bodies = self.drafts.iter().map(|draft| event_body(draft)).collect::<Result<Vec<_>, _>>()?;
        let (kind, body) = match self.form {
            Form::Lines => ("application/x-ndjson", bodies.join("\n")),
            Form::Array => ("application/json", format!("[{}]", bodies.join(","))),
            Form::Raw | Form::Single => ("application/json", bodies.concat()),
        };
        Ok(client.post(format!("{base}/v1/topics/{topic}/events")).header("content-type", kind).body(body))
    }

    /// What an answer means. One that no request should get is an error.
    pub fn understand(&self, status: u16, body: &str) -> Result<Outcome, String> {
        let wrong = |why: &str| format!("answer {status} {body:?}: {why}");
        match status {
            200 | 201 => self.taken(status, body).map_err(|why| wrong(&why)),
            409 => Ok(Outcome::Conflict),
            412 => {
                let body: Value = serde_json::from_str(body).map_err(|error| wrong(&error.to_string()))?;
                let actual = body.get("actual").and_then(|actual| actual.get("last_id"));
                let actual =
                    actual.cloned().ok_or_else(|| wrong("it does not say what the latest event is"))?;
                let actual = serde_json::from_value(actual).map_err(|error| wrong(&error.to_string()))?;
                Ok(Outcome::NotExpected { actual })
            }
            _ => Err(wrong("no request of this load should get it")),
        }
    }

    /// What a `503` means: only what is said to be unknown may have happened, or what is more than one commit.
    pub fn unavailable(&self, body: &str) -> Outcome {
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        match (body["outcome"].as_str(), self.form) {
            (Some("unknown"), _) | (_, Form::Lines) => Outcome::Unanswered,
            _ => Outcome::Unavailable,
        }
    }

    fn taken(&self, status: u16, body: &str) -> Result<Outcome, String> {
        #[derive(Deserialize)]
        struct Batch {
            count: usize,
            #[serde(default)]
            events: Option<Vec<Published>>,
        }
        let published = match self.form {
            Form::Raw | Form::Single => vec![serde_json::from_str(body).map_err(|error| error.to_string())?],
            Form::Array | Form::Lines => {
                let batch: Batch = serde_json::from_str(body).map_err(|error| error.to_string())?;
                if batch.count != self.drafts.len() {
                    return Err(format!("it counts {} of {} events", batch.count, self.drafts.len()));
                }
                match (self.form, batch.events) {
                    (Form::Lines, _) => return Ok(Outcome::Accepted),
                    (_, Some(events)) => events,
                    (_, None) => return Err("it does not say where the events are".to_owned()),
                }
            }
        };
        if published.len() != self.drafts.len() {
            return Err(format!("it places {} of {} events", published.len(), self.drafts.len()));
        }
        let all_repeated = published.iter().all(|published| published.duplicate);
        if all_repeated != (status == 200) {
            return Err("200 is for duplicates, and 201 for everything else".to_owned());
        }
        Ok(Outcome::Published(published))
    }

    /// Whether sending it again cannot make a second event of any of its own.
    pub fn is_repeatable(&self) -> bool {
        self.drafts.iter().all(|draft| draft.id.is_some())
    }
}

fn sent_payload(draft: &Draft) -> &str {
    draft.spaced.as_deref().unwrap_or(&draft.payload)
}

fn parameters(draft: &Draft) -> Vec<(&'static str, String)> {
    let mut parameters = Vec::new();
    let mut add = |name, value: Option<String>| parameters.extend(value.map(|value| (name, value)));
    add("key", draft.key.clone());
    add("id", draft.id.map(|id| id.to_string()));
    add("ts", draft.ts.map(|ts| ts.to_string()));
    add("sid", draft.sid.clone());
    add("partition", draft.partition.map(|partition| partition.to_string()));
    draft.tags.iter().for_each(|tag| add("tag", Some(tag.clone())));
    parameters
}

fn event_body(draft: &Draft) -> Result<String, String> {
    // White space around a raw value is not part of it, so serde takes only what is within.
    let payload = serde_json::from_str(sent_payload(draft)).map_err(|error| error.to_string())?;
    let body = EventBody {
        payload,
        key: draft.key.as_deref(),
        id: draft.id,
        ts: draft.ts,
        sid: draft.sid.as_deref(),
        headers: draft.note.as_ref().map(|note| serde_json::json!({ "x-note": note })),
        tags: &draft.tags,
        partition: draft.partition,
        expect: draft.expect.map(|last_id| serde_json::json!({ "last_id": last_id })),
    };
    serde_json::to_string(&body).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(form: Form, drafts: usize) -> Request {
        let topic = Arc::new(Topic { name: "t".into(), partitions: 1, durability: "sync" });
        let draft = Arc::new(Draft { payload: "1".into(), ..Draft::default() });
        Request { topic, form, drafts: vec![draft; drafts], known: None }
    }

    const ID: &str = "0198c0de-0000-7000-8000-000000000001";

    fn answer(duplicate: bool) -> String {
        format!(
            r#"{{"id":"{ID}","topic":"t","partition":0,"offset":7,"ts":5,"durability":"sync","duplicate":{duplicate}}}"#
        )
    }

    #[test]
    fn bodies_carry_what_was_drafted() {
        let id: Uuid = ID.parse().unwrap();
        let draft = Draft {
            payload: "{\"d\":1.10}".into(),
            spaced: Some(" { \"d\" : 1.10 } ".into()),
            key: Some("k\"".into()),
            expect: Some(Some(id)),
            ..Draft::default()
        };
        let expected = format!(r#"{{"payload":{{ "d" : 1.10 }},"key":"k\"","expect":{{"last_id":"{ID}"}}}}"#);
        assert_eq!(event_body(&draft).unwrap(), expected);
        let none = Draft { expect: Some(None), payload: "1".into(), ..Draft::default() };
        assert_eq!(event_body(&none).unwrap(), r#"{"payload":1,"expect":{"last_id":null}}"#);
    }

    #[test]
    fn answers_are_understood() {
        let single = request(Form::Single, 1);
        assert!(matches!(single.understand(201, &answer(false)), Ok(Outcome::Published(_))));
        assert!(matches!(single.understand(200, &answer(true)), Ok(Outcome::Published(_))));
        assert!(matches!(single.understand(409, ""), Ok(Outcome::Conflict)));
        let refused = format!(r#"{{"error":"expectation_failed","actual":{{"last_id":"{ID}"}}}}"#);
        assert!(matches!(single.understand(412, &refused), Ok(Outcome::NotExpected { actual: Some(_) })));
        let lines = request(Form::Lines, 2);
        assert!(matches!(lines.understand(201, r#"{"count":2}"#), Ok(Outcome::Accepted)));
    }

    #[test]
    fn answers_that_make_no_sense_are_errors() {
        let single = request(Form::Single, 1);
        for (status, body) in
            [(201, answer(true)), (200, answer(false)), (500, "{}".into()), (412, "{}".into())]
        {
            assert!(single.understand(status, &body).is_err(), "{status} {body}");
        }
        assert!(request(Form::Lines, 2).understand(201, r#"{"count":1}"#).is_err());
        let short = format!(r#"{{"count":2,"events":[{}]}}"#, answer(false));
        assert!(request(Form::Array, 2).understand(201, &short).is_err());
    }
}
