//! Holds the events of a commit against the schemas of their topics.

use super::known::SchemaCache;
use super::stored::Head;
use super::violation::{SchemaViolation, ViolatedPlace, ViolatedVersion};
use super::work;
use prombus_core::{Append, Json, NewEvent, ReadError, SchemaMode, TopicConfig, TopicName};
use prombus_schema::{Fault, Validator};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The header that says which version of its schema an event is of.
pub const VERSION_HEADER: &str = "x-schema-version";
/// How many steps are taken where a publisher calls; what may take more goes to a thread of its own.
const FEW_STEPS: u64 = 50_000;
/// How many bytes are read there.
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
    /// For each event the version that it is of; `None` where none is known, it is refused, or its topic has no schemas.
    pub versions: Vec<Option<u32>>,
    /// Violations that are let pass.
    pub let_pass: LetPass,
    /// The events that are refused unless they are duplicates, in their order, up to the first that has no id to be one by.
    pub refused: Vec<usize>,
    /// Why the first of them is.
    pub first_refused: Option<SchemaViolation>,
}

impl Judged {
    fn refuse(&mut self, index: usize) {
        self.versions[index] = None;
        self.refused.push(index);
    }

    fn tell_refused(&mut self, violation: SchemaViolation) {
        if self.first_refused.as_ref().is_none_or(|first| violation.index < first.index) {
            self.first_refused = Some(violation);
        }
    }
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
    is_enforced: bool,
    /// Whether it has an id, by which it may be a duplicate.
    may_repeat: bool,
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
    // Most events are for the topic of the one before, and of its version.
    let mut of_last: Option<(&TopicName, Option<&TopicSchemas>)> = None;
    let mut checked_last: Option<(&TopicName, u32, Validator)> = None;
    let mut bytes = 0;
    for (index, append) in events.iter().enumerate() {
        let schemas = match of_last {
            Some((topic, schemas)) if *topic == append.topic => schemas,
            _ => of_last.insert((&append.topic, governed.get(&append.topic))).1,
        };
        let Some(TopicSchemas { head, mode, has_tombstones, .. }) = schemas else { continue };
        let version = match version_of(&append.event, head) {
            Ok(version) => version,
            Err(named) => {
                let violation = unregistered(index, &append.topic, named);
                if *mode != SchemaMode::Enforce {
                    judged.let_pass.count(&append.topic);
                    judged.let_pass.first.get_or_insert(violation);
                    continue;
                }
                judged.refuse(index);
                judged.tell_refused(violation);
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
        let is_last = |last: &(&TopicName, u32, Validator)| *last.0 == append.topic && last.1 == version;
        let validator = match checked_last.take_if(|last| is_last(last)) {
            Some((_, _, validator)) => validator,
            None => match validators.get(&(&append.topic, version)) {
                Some(validator) => validator.clone(),
                None => {
                    let lost = || ReadError::Corrupt(format!("version {version} of a schema is not there"));
                    let validator = known.validator(head, version).await?.ok_or_else(lost)?;
                    validators.insert((&append.topic, version), validator.clone());
                    validator
                }
            },
        };
        let (_, _, validator) = checked_last.insert((&append.topic, version, validator));
        // What is plain is looked at right here, and need not be kept for later.
        bytes += append.event.payload.len();
        if bytes <= FEW_BYTES && validator.takes_plainly(append.event.payload.as_bytes()) {
            continue;
        }
        let (is_enforced, may_repeat) = (*mode == SchemaMode::Enforce, append.event.id.is_some());
        let payload = append.event.payload.clone();
        let validator = validator.clone();
        jobs.push(Job { index, is_enforced, may_repeat, version, payload, validator });
    }
    let Faulty { refused, first_refused, let_pass, first_let_pass } =
        faults_of(jobs, judged.let_pass.first.is_none()).await?;
    refused.into_iter().for_each(|index| judged.refuse(index));
    if let Some(faulty) = first_refused {
        judged.tell_refused(faulty.violation(events));
    }
    let_pass.iter().for_each(|index| judged.let_pass.count(&events[*index].topic));
    if let Some(faulty) = first_let_pass {
        judged.let_pass.first.get_or_insert(faulty.violation(events));
    }
    judged.refused.sort_unstable();
    Ok(judged)
}

/// The events of a commit that their schemas refuse. Of all but the first of a kind only the index is kept: the places of all of
/// them would be thousands of times as large as the events.
#[derive(Default)]
struct Faulty {
    /// Those that this counts for, up to the first that cannot be a duplicate. Those after it were not looked at.
    refused: Vec<usize>,
    first_refused: Option<FaultyEvent>,
    /// Those that are let pass.
    let_pass: Vec<usize>,
    /// The first of them, if it is wanted.
    first_let_pass: Option<FaultyEvent>,
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
        let version =
            if unchecked { ViolatedVersion::Unchecked(version) } else { ViolatedVersion::Version(version) };
        let places = faults.into_iter().map(ViolatedPlace::from).collect();
        SchemaViolation { index, topic: events[index].topic.clone(), version, places }
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

fn look(jobs: Vec<Job>, tells: bool) -> Faulty {
    let mut found = Faulty::default();
    for Job { index, is_enforced, may_repeat, version, payload, validator } in jobs {
        let is_told = match is_enforced {
            true => found.first_refused.is_none(),
            false => tells && found.first_let_pass.is_none(),
        };
        let faults = if is_told { validator.faults_in(payload.as_bytes()) } else { Vec::new() };
        let is_faulty = if is_told { !faults.is_empty() } else { !validator.is_valid_in(payload.as_bytes()) };
        if !is_faulty {
            continue;
        }
        let told = is_told.then_some(FaultyEvent { index, version, faults });
        match is_enforced {
            true => {
                found.refused.push(index);
                found.first_refused = found.first_refused.or(told);
                if !may_repeat {
                    break;
                }
            }
            false => {
                found.let_pass.push(index);
                found.first_let_pass = found.first_let_pass.or(told);
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
