//! Topics with schemas, and topics that the hub itself publishes to: none is both, because what the hub publishes
//! passes no check of the topic that it goes to.
//!
//! It is asked at the gate, by whoever gives a topic schemas and by whoever has the hub publish there. Both hold that topic until
//! what they do can be seen. So whoever is second finds the other.

use prombus_core::{Documents, EventLog, ReadError, TopicName, TopicState};

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
    Ok(None)
}
