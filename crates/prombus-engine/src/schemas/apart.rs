//! Topics with schemas, and topics that the hub itself publishes to: none is both, because what the hub publishes
//! passes no check of the topic that it goes to.
//!
//! It is asked at the gate, by whoever gives a topic schemas and by whoever has the hub publish there. Both hold that topic,
//! or the one that copies come from, until what they do can be seen. So whoever is second finds the other.

use super::known::SchemaCache;
use prombus_core::{Documents, EventLog, ReadError, TopicName, TopicState};

/// The topic whose copies go to this one, if it has any: the one of which this is [`of_version`](TopicName::of_version).
pub(crate) fn copied_from(copies: &TopicName) -> Option<TopicName> {
    let (first, version) = copies.as_str().rsplit_once(".v")?;
    let (first, version) = (TopicName::parse(first).ok()?, version.parse().ok()?);
    (first.of_version(version).as_ref() == Some(copies)).then_some(first)
}

/// Why a topic cannot have schemas; `None` where it can.
pub(crate) async fn why_no_schemas(
    log: &dyn EventLog,
    documents: &dyn Documents,
    topic: &TopicName,
) -> Result<Option<String>, ReadError> {
    let is_source =
        |other: &&TopicState| other.config.snapshot.as_ref().is_some_and(|snapshot| snapshot.topic == *topic);
    if let Some(source) = log.topics().await?.iter().find(is_source) {
        let source = &source.name;
        return Ok(Some(format!("topic {topic} holds the snapshots of {source}, so it cannot have schemas")));
    }
    for collection in documents.collections().await? {
        if collection.config.changefeed.as_ref() == Some(topic) {
            let name = collection.name;
            return Ok(Some(format!(
                "topic {topic} is the changefeed of collection {name}, so it cannot have schemas"
            )));
        }
    }
    let Some(first) = copied_from(topic) else { return Ok(None) };
    let is_copied = log.topic(&first).await?.is_some_and(|first| first.config.dual_write);
    Ok(is_copied.then(|| {
        format!(
            "topic {topic} gets the copies of topic {first}, which are checked against the schemas of that one, so it cannot \
             have schemas of its own; turn dual_write off for topic {first} first"
        )
    }))
}

/// Why events of a topic cannot be copied to the topics of their versions; `None` where they can.
pub(crate) async fn why_no_copies(
    log: &dyn EventLog,
    known: &SchemaCache,
    topic: &TopicName,
) -> Result<Option<String>, ReadError> {
    for copies in log.topics().await? {
        if copied_from(&copies.name).as_ref() == Some(topic) && known.head(&copies).await?.is_some() {
            let copies = copies.name;
            return Ok(Some(format!(
                "topic {copies} has schemas of its own, which copies of events of topic {topic} would not be checked against; \
                 delete topic {copies}, or leave dual_write of topic {topic} off"
            )));
        }
    }
    Ok(None)
}
