//! Holds the events of a commit against the schemas of their topics.

use super::known::SchemaCache;
use super::stored::Head;
use super::violation::{Against, SchemaViolation, ViolatedPlace};
use super::work;
use prombus_core::{Append, EventLog, Json, NewEvent, ReadError, SchemaMode, TopicConfig, TopicName};
use prombus_schema::{Fault, Validator};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The header that says which version of its schema an event is of.
pub const VERSION_HEADER: &str = "x-schema-version";
/// So many steps are taken where a publisher calls; what may take more goes to a thread of its own.
const FEW_STEPS: u64 = 50_000;
/// So many bytes are read there.
const FEW_BYTES: usize = 256 << 10;

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
    /// For each event the version that it is of; `None` where none is known, or its topic has no schemas.
    pub versions: Vec<Option<u32>>,
    /// Violations that are let pass.
    pub let_pass: LetPass,
}

/// Violations that are let pass. There may be as many as there are events, so only one of them is kept with its places.
#[derive(Debug, Default)]
pub(crate) struct LetPass {
    /// How many there are of each topic.
    pub by_topic: BTreeMap<TopicName, u64>,
    /// The one that can be logged.
    pub first: Option<SchemaViolation>,
}

impl LetPass {
    fn count(&mut self, topic: &TopicName) {
        if let Some(count) = self.by_topic.get_mut(topic) {
            *count += 1;
        } else {
            self.by_topic.insert(topic.clone(), 1);
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

/// Versions that events are held against, by their index, although they name none and are not of the latest.
pub(crate) type Repeated = HashMap<usize, u32>;

/// Holds events against the schemas of those topics that have some. The first violation that counts is an error.
pub(crate) async fn judge(
    known: &SchemaCache,
    events: &[Append],
    governed: &HashMap<TopicName, TopicSchemas>,
    repeated: &Repeated,
) -> Result<Result<Judged, SchemaViolation>, ReadError> {
    let mut judged = Judged { versions: vec![None; events.len()], ..Judged::default() };
    let (mut jobs, mut validators) = (Vec::new(), HashMap::<(&TopicName, u32), Validator>::new());
    // The first that is refused without a look at its payload: what is before it is looked at all the same.
    let mut refused = None;
    for (index, append) in events.iter().enumerate() {
        let Some(TopicSchemas { head, mode, has_tombstones, .. }) = governed.get(&append.topic) else {
            continue;
        };
        let version = match repeated.get(&index).map_or_else(|| version_of(&append.event, head), |of| Ok(*of))
        {
            Ok(version) => version,
            Err(named) => {
                let violation = unregistered(index, &append.topic, named);
                if *mode == SchemaMode::Enforce {
                    refused = Some(violation);
                    break;
                }
                judged.let_pass.count(&append.topic);
                judged.let_pass.first.get_or_insert(violation);
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
        jobs.push(Job { index, mode: *mode, version, payload: append.event.payload.clone(), validator });
    }
    let tells = judged.let_pass.first.is_none();
    let Faulty { enforced, first_let_pass, let_pass } = faults_of(jobs, tells).await?;
    if let Some(faulty) = enforced {
        return Ok(Err(faulty.violation(events)));
    }
    let_pass.iter().for_each(|index| judged.let_pass.count(&events[*index].topic));
    if let Some(faulty) = first_let_pass {
        judged.let_pass.first.get_or_insert(faulty.violation(events));
    }
    Ok(refused.map_or(Ok(judged), Err))
}

/// The events of a commit that their schemas refuse.
#[derive(Default)]
struct Faulty {
    /// The first one that this counts for. Those after it were not looked at.
    enforced: Option<FaultyEvent>,
    /// The first one that is let pass, if it is wanted.
    first_let_pass: Option<FaultyEvent>,
    /// All that are let pass, by their index.
    let_pass: Vec<usize>,
}

struct FaultyEvent {
    index: usize,
    version: u32,
    faults: Vec<Fault>,
}

impl FaultyEvent {
    fn violation(self, events: &[Append]) -> SchemaViolation {
        let Self { index, version, faults } = self;
        let unchecked = faults.iter().any(Fault::is_unchecked);
        let against = if unchecked { Against::Unchecked(version) } else { Against::Version(version) };
        let places = faults.into_iter().map(ViolatedPlace::from).collect();
        SchemaViolation { index, topic: events[index].topic.clone(), against, places }
    }
}

/// Those events that are refused; `tells` if the first one that is let pass shall be told.
async fn faults_of(jobs: Vec<Job>, tells: bool) -> Result<Faulty, ReadError> {
    let steps = jobs.iter().fold(0u64, |steps, Job { payload, validator, .. }| {
        steps.saturating_add(validator.steps_for(payload.values(), payload.len()))
    });
    let bytes: usize = jobs.iter().map(|job| job.payload.len()).sum();
    match steps <= FEW_STEPS && bytes <= FEW_BYTES {
        true => Ok(look(jobs, tells)),
        false => work::run(move || look(jobs, tells)).await,
    }
}

fn look(jobs: Vec<Job>, mut tells: bool) -> Faulty {
    let mut found = Faulty::default();
    for Job { index, mode, version, payload, validator } in jobs {
        let is_enforced = mode == SchemaMode::Enforce;
        // Whatever is let pass after the first is only counted: the places of all of them would be thousands of times as large
        // as the events.
        if !is_enforced && !tells {
            if !validator.is_valid_in(payload.as_bytes()) {
                found.let_pass.push(index);
            }
            continue;
        }
        let faults = validator.faults_in(payload.as_bytes());
        if faults.is_empty() {
            continue;
        }
        let faulty = FaultyEvent { index, version, faults };
        if is_enforced {
            found.enforced = Some(faulty);
            break;
        }
        found.let_pass.push(index);
        found.first_let_pass = Some(faulty);
        tells = false;
    }
    found
}

fn unregistered(index: usize, topic: &TopicName, named: String) -> SchemaViolation {
    let message =
        format!("{VERSION_HEADER} is {named:?}, and no such version is registered for topic {topic}");
    let places = vec![ViolatedPlace { path: String::new(), message }];
    SchemaViolation { index, topic: topic.clone(), against: Against::Unregistered(named), places }
}

/// The version that an event is of: the one that it names, or the latest. What it names may not be registered.
fn version_of(event: &NewEvent, head: &Head) -> Result<u32, String> {
    match event.headers.as_deref().and_then(named_version) {
        Some(named) => registered(named, head),
        None => head.latest().ok_or_else(String::new),
    }
}

/// The version of that name.
fn registered(named: String, head: &Head) -> Result<u32, String> {
    let version = named.parse().ok().filter(|version: &u32| version.to_string() == named);
    version.filter(|version| head.version(*version).is_some()).ok_or(named)
}

/// Those of these events, from `first` on, whose ids are there already, with the versions that they are of there; nothing if
/// the first of them is not there. A publish that is repeated is what it was when it was taken. So it is checked as that,
/// and no id lets in what is not checked.
pub(crate) async fn repeated(
    log: &dyn EventLog,
    events: &[Append],
    first: usize,
    governed: &HashMap<TopicName, TopicSchemas>,
) -> Result<Repeated, ReadError> {
    let mut repeated = Repeated::new();
    for (index, Append { topic, event, .. }) in events.iter().enumerate().skip(first) {
        let names_version = event.headers.as_deref().and_then(named_version).is_some();
        if let (Some(id), Some(schemas), false) = (event.id, governed.get(topic), names_version)
            && let Some(there) = log.by_id(&topic.into(), id).await?
            && let Some(named) = there.headers.as_deref().and_then(named_version)
            && let Ok(version) = registered(named, &schemas.head)
        {
            repeated.insert(index, version);
        }
        if repeated.is_empty() {
            break;
        }
    }
    Ok(repeated)
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
