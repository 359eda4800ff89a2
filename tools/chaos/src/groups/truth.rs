//! What is in the topics and their dead letters: read over HTTP, and compared with what producers sent.

use super::history::{Event, EventPosition, Letter, Published};
use crate::api::Api;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// The events of a topic by where they are.
pub type Events = BTreeMap<EventPosition, Event>;

#[derive(Deserialize)]
struct EventLine {
    id: Uuid,
    partition: u32,
    offset: u64,
    key: Option<String>,
    payload: Payload,
}

#[derive(Deserialize)]
struct Payload {
    p: String,
    n: u64,
}

#[derive(Deserialize)]
struct LetterLine {
    offset: u64,
    #[serde(default)]
    caused_by: Vec<Uuid>,
    payload: LetterPayload,
}

#[derive(Deserialize)]
struct LetterPayload {
    topic: String,
    group: String,
    original: EventLine,
    err: String,
    attempts: u32,
}

/// How far a topic was read: the next offset of each partition.
pub type Read = Vec<u64>;

/// What was published and is not known yet: the events of a topic.
pub struct Unread<'a> {
    /// The topic.
    pub topic: &'a str,
    /// How far it was read before. It moves on.
    pub read: &'a mut Read,
    /// What was sent to it since.
    pub published: &'a Published,
}

/// The lines of all partitions of a topic from where it was read to, which moves on.
async fn lines<T: DeserializeOwned>(api: &Api, topic: &str, read: &mut Read) -> Result<Vec<T>, String> {
    let listed = api.topics().await?;
    let partitions = listed.iter().find(|listed| listed.topic == topic).map_or(0, |l| l.bounds.len());
    read.resize(partitions, 0);
    let mut found = Vec::new();
    for (partition, next) in (0..).zip(read) {
        let text = api.export(topic, partition, *next).await?;
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let parsed = serde_json::from_slice(line)
                .map_err(|error| format!("{topic}: {error}: {}", String::from_utf8_lossy(line)))?;
            found.push(parsed);
            *next += 1;
        }
    }
    Ok(found)
}

/// The events of a topic that were not read yet.
pub async fn events(api: &Api, unread: Unread<'_>) -> Result<Events, String> {
    let Unread { topic, read, published } = unread;
    let mut events = Events::new();
    for EventLine { id, partition, offset, key, payload } in lines(api, topic, read).await? {
        let (producer, number) = (payload.p, payload.n);
        let Some((since, _)) = published.get(&(producer.clone(), number)) else {
            return Err(format!("{topic}/{partition}: nobody published {producer} {number}"));
        };
        let spot = (partition, offset);
        events.insert(spot, Event { spot, id, key, producer, number, since: *since });
    }
    all_are_there(topic, &events, published)?;
    keys_are_in_order(topic, &events, published)?;
    Ok(events)
}

fn all_are_there(topic: &str, events: &Events, published: &Published) -> Result<(), String> {
    let mut there: HashMap<(&str, u64), EventPosition> = HashMap::new();
    for event in events.values() {
        if let Some(other) = there.insert((&event.producer, event.number), event.spot) {
            return Err(format!("{topic}: one event is at {other:?} and at {:?}", event.spot));
        }
    }
    let missing = published.iter().find(|((producer, number), (_, answered))| {
        *answered && !there.contains_key(&(&**producer, *number))
    });
    missing.map_or(Ok(()), |(event, _)| Err(format!("{topic}: {event:?} was answered and is gone")))
}

/// A key moves to a new partition only, when a topic grows: what a producer sent one after the other lies in the
/// order of partitions and offsets. What was not answered may come later than what was sent after it.
fn keys_are_in_order(topic: &str, events: &Events, published: &Published) -> Result<(), String> {
    let mut last: HashMap<(&str, &str), u64> = HashMap::new();
    for event in events.values() {
        let Some(key) = &event.key else { continue };
        let sent = published.get(&(event.producer.clone(), event.number));
        if sent.is_some_and(|(_, is_answered)| !is_answered) {
            continue;
        }
        let before = last.insert((&event.producer, key), event.number);
        if before.is_some_and(|before| before > event.number) {
            return Err(format!("{topic}: {event:?} lies after number {before:?} of its key"));
        }
    }
    Ok(())
}

/// The dead letters of a topic that were not read yet.
pub async fn letters(api: &Api, topic: &str, read: &mut Read) -> Result<Vec<Letter>, String> {
    let letters = lines::<LetterLine>(api, &format!("dlq.{topic}"), read).await?;
    let letter = |line: LetterLine| {
        let LetterPayload { topic: about, group, original, err, attempts } = line.payload;
        if about != topic {
            return Err(format!("dlq.{topic}: the letter at {} is about {about}", line.offset));
        }
        let spot = (original.partition, original.offset);
        Ok(Letter { group, spot, id: original.id, caused_by: line.caused_by, attempts, err })
    };
    letters.into_iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(spot: EventPosition, number: u64) -> (EventPosition, Event) {
        let (key, producer) = (Some("k".to_owned()), "p".to_owned());
        (spot, Event { spot, id: Uuid::from_u128(number.into()), key, producer, number, since: 0 })
    }

    #[test]
    fn what_is_gone_or_twice_there_is_found() {
        let published: Published =
            [(("p".to_owned(), 0), (0, true)), (("p".to_owned(), 1), (0, false))].into();
        let check = |events: &[(EventPosition, Event)]| {
            all_are_there("t", &events.iter().cloned().collect(), &published)
        };
        assert!(check(&[event((0, 0), 0)]).is_ok());
        assert!(check(&[event((0, 0), 1)]).is_err());
        assert!(check(&[event((0, 0), 0), event((0, 1), 0)]).is_err());
    }

    #[test]
    fn a_key_that_goes_back_is_found() {
        let mut published: Published = [0, 1].map(|n| (("p".to_owned(), n), (0, true))).into();
        let check = |events: &[(EventPosition, Event)], published: &Published| {
            keys_are_in_order("t", &events.iter().cloned().collect(), published)
        };
        assert!(check(&[event((0, 5), 0), event((1, 0), 1)], &published).is_ok());
        let backwards = [event((0, 5), 1), event((1, 0), 0)];
        assert!(check(&backwards, &published).is_err());
        published.insert(("p".to_owned(), 0), (0, false));
        assert!(check(&backwards, &published).is_ok(), "it may have come late");
    }
}
