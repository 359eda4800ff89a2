//! Holds the events of a commit against the schemas of their topics.

use super::known::SchemaCache;
use super::stored::Head;
use super::violation::{SchemaViolation, ViolatedPlace, ViolatedVersion};
use super::work;
use prombus_core::{Append, Json, NewEvent, ReadError, SchemaMode, TopicConfig, TopicName};
use prombus_schema::{Fault, Validator};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// The header that says which version of its schema an event is of.
pub const VERSION_HEADER: &str = "x-schema-version";
/// So many steps are taken where a publisher calls; what may take more goes to a thread of its own.
const FEW_STEPS: u64 = 50_000;
/// So many bytes are read there.
const FEW_BYTES: usize = 256 << 10;
/// So many events are checked before what is wrong with them is put away.
const JOBS_AT_ONCE: usize = 1_000;

/// A topic with schemas, and what they do.
#[derive(Debug, Clone)]
pub(crate) struct TopicSchemas {
    pub head: Arc<Head>,
    pub mode: SchemaMode,
    /// Whether events without a payload end their key there.
    pub has_tombstones: bool,
    /// The settings of the topic, where its events are copied to topics of their versions.
    pub copied: Option<TopicConfig>,
}

/// What became of the events of a commit.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// For each event the version that it is of; `None` where none is known, it is refused, or its topic has no schemas.
    pub versions: Vec<Option<u32>>,
    /// Violations that are let pass.
    pub let_pass: Vec<SchemaViolation>,
    /// The events that are refused unless they are duplicates, in their order, up to the first that has no id to be one by.
    pub refused: Vec<usize>,
    /// Why the first of them is.
    pub first_refused: Option<SchemaViolation>,
}

impl Judged {
    fn refuse(&mut self, violation: SchemaViolation) {
        self.versions[violation.index] = None;
        self.refused.push(violation.index);
        if self.first_refused.as_ref().is_none_or(|first| violation.index < first.index) {
            self.first_refused = Some(violation);
        }
    }
}

/// An event to hold against a schema.
struct Job {
    index: usize,
    mode: SchemaMode,
    version: u32,
    payload: Json,
    validator: Validator,
}

/// Holds events against the schemas of those topics that have some.
pub(crate) async fn judge(
    known: &SchemaCache,
    events: &[Append],
    governed: &HashMap<TopicName, TopicSchemas>,
) -> Result<Judged, ReadError> {
    let mut judged = Judged { versions: vec![None; events.len()], ..Judged::default() };
    let (mut jobs, mut validators) = (Vec::new(), HashMap::<(&TopicName, u32), Validator>::new());
    for (index, append) in events.iter().enumerate() {
        let Some(TopicSchemas { head, mode, has_tombstones, .. }) = governed.get(&append.topic) else {
            continue;
        };
        let version = match version_of(&append.event, head) {
            Ok(version) => version,
            Err(named) => {
                let violation = unregistered(index, &append.topic, named);
                if *mode != SchemaMode::Enforce {
                    judged.let_pass.push(violation);
                    continue;
                }
                judged.refuse(violation);
                // What is before it is looked at all the same.
                if append.event.id.is_none() {
                    break;
                }
                continue;
            }
        };
        judged.versions[index] = Some(version);
        if *has_tombstones && append.event.key.is_some() && append.event.payload.is_null() {
            continue;
        }
        let validator = match validators.get(&(&append.topic, version)) {
            Some(validator) => validator.clone(),
            None => {
                let lost = || ReadError::Corrupt(format!("version {version} of a schema is not there"));
                let validator = known.validator(head, version).await?.ok_or_else(lost)?;
                validators.insert((&append.topic, version), validator.clone());
                validator
            }
        };
        // What may be a duplicate is no reason to leave it at that.
        let mode = if append.event.id.is_some() { SchemaMode::Warn } else { *mode };
        jobs.push(Job { index, mode, version, payload: append.event.payload.clone(), validator });
    }
    let mut jobs = jobs.into_iter();
    // All that is wrong with many events could take a lot of memory.
    while jobs.len() > 0 {
        let some: Vec<Job> = jobs.by_ref().take(JOBS_AT_ONCE).collect();
        for (index, version, _, faults) in faults_of(some).await? {
            let unchecked = faults.iter().any(Fault::is_unchecked);
            let version = if unchecked {
                ViolatedVersion::Unchecked(version)
            } else {
                ViolatedVersion::Version(version)
            };
            let places = faults.into_iter().map(ViolatedPlace::from).collect();
            let Append { topic, event, .. } = &events[index];
            let violation = SchemaViolation { index, topic: topic.clone(), version, places };
            match governed.get(topic).is_some_and(|topic| topic.mode == SchemaMode::Enforce) {
                false => judged.let_pass.push(violation),
                true => {
                    judged.refuse(violation);
                    if event.id.is_none() {
                        jobs = Vec::new().into_iter();
                    }
                }
            }
        }
        if jobs.len() > 0 {
            tokio::task::yield_now().await;
        }
    }
    judged.refused.sort_unstable();
    Ok(judged)
}

type FaultyEvent = (usize, u32, SchemaMode, Vec<Fault>);

/// Those events that are refused, up to the first one that this counts for.
async fn faults_of(jobs: Vec<Job>) -> Result<Vec<FaultyEvent>, ReadError> {
    let steps = jobs.iter().fold(0u64, |steps, Job { payload, validator, .. }| {
        steps.saturating_add(validator.steps_for(payload.values(), payload.len()))
    });
    let bytes: usize = jobs.iter().map(|job| job.payload.len()).sum();
    match steps <= FEW_STEPS && bytes <= FEW_BYTES {
        true => Ok(look(jobs)),
        false => work::run(move || look(jobs)).await,
    }
}

fn look(jobs: Vec<Job>) -> Vec<FaultyEvent> {
    let mut found = Vec::new();
    for Job { index, mode, version, payload, validator } in jobs {
        let faults = validator.faults_in(payload.as_bytes());
        if !faults.is_empty() {
            found.push((index, version, mode, faults));
            if mode == SchemaMode::Enforce {
                break;
            }
        }
    }
    found
}

fn unregistered(index: usize, topic: &TopicName, named: String) -> SchemaViolation {
    let message =
        format!("{VERSION_HEADER} is {named:?}, and no such version is registered for topic {topic}");
    let places = vec![ViolatedPlace { path: String::new(), message }];
    SchemaViolation { index, topic: topic.clone(), version: ViolatedVersion::Unregistered(named), places }
}

/// The version that an event is of: the one that it names, or the latest. What it names may not be registered.
fn version_of(event: &NewEvent, head: &Head) -> Result<u32, String> {
    match event.headers.as_deref().and_then(named_version) {
        Some(named) => {
            let version = named.parse().ok().filter(|version: &u32| version.to_string() == named);
            version.filter(|version| head.version(*version).is_some()).ok_or(named)
        }
        None => head.latest().ok_or_else(String::new),
    }
}

/// The version that headers name.
pub(crate) fn named_version(headers: &Json) -> Option<String> {
    #[derive(Deserialize)]
    struct Headers<'a> {
        #[serde(borrow, rename = "x-schema-version")]
        version: Option<Cow<'a, str>>,
    }
    // Most events have no such header, and no name that is written with escapes.
    let text = headers.as_bytes();
    if memchr::memmem::find(text, VERSION_HEADER.as_bytes()).is_none()
        && memchr::memchr(b'\\', text).is_none()
    {
        return None;
    }
    let headers: Headers<'_> = serde_json::from_slice(headers.as_bytes()).ok()?;
    headers.version.map(Cow::into_owned)
}

/// Headers that name a version, where they did not.
pub(crate) fn stamped(headers: Option<&Json>, version: u32) -> Json {
    let mut text = format!("{{\"{VERSION_HEADER}\":\"{version}\"").into_bytes();
    match headers.map(Json::as_bytes) {
        None | Some(b"{}") => text.push(b'}'),
        Some(others) => {
            text.push(b',');
            text.extend_from_slice(&others[1..]);
        }
    }
    Json::from_stored(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::from_stored(text.to_owned().into())
    }

    #[test]
    fn headers_name_a_version_once() {
        let cases = [
            (None, r#"{"x-schema-version":"3"}"#),
            (Some("{}"), r#"{"x-schema-version":"3"}"#),
            (Some(r#"{"x-a":"b"}"#), r#"{"x-schema-version":"3","x-a":"b"}"#),
        ];
        for (before, after) in cases {
            let headers = stamped(before.map(json).as_ref(), 3);
            assert_eq!(headers, json(after));
            assert_eq!(named_version(&headers).as_deref(), Some("3"));
        }
        assert_eq!(named_version(&json(r#"{"x-a":"x-schema-version"}"#)), None);
        // An escape is another way to write the same name.
        assert_eq!(named_version(&json(r#"{"x-schem\u0061-version":"4"}"#)).as_deref(), Some("4"));
    }
}
