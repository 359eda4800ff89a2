//! Moving everything out of a memory store, and into one.

use crate::MemoryStore;
use crate::state::State;
use async_trait::async_trait;
use prombus_core::transfer::{Counters, CursorsRequest, RememberedPage, RememberedRequest};
use prombus_core::{
    CommitError, Cursor, CursorKey, KnownEvent, Piece, ReadError, TopicName, TopicNumber, Transfer,
};
use std::sync::Arc;

#[async_trait]
impl Transfer for MemoryStore {
    async fn counters(&self) -> Result<Counters, ReadError> {
        let state = self.state.read();
        Ok(Counters {
            next_topic: TopicNumber(state.next_topic),
            next_collection: state.collections.next_number,
            recorded_ts: state.last_recorded_ts,
        })
    }

    async fn remembered(&self, request: RememberedRequest) -> Result<RememberedPage, ReadError> {
        let state = self.state.read();
        let mut events = Vec::new();
        for (name, topic) in &state.topics {
            let since = request.now_ms.saturating_sub(topic.state.config.dedupe_window_ms);
            // The last one of an id is what it is recognised by.
            let last = topic.ids.values().filter_map(|all| all.last().copied());
            let is_meant = |known: &KnownEvent| known.recorded_ts >= since && topic.at(known.at()).is_none();
            events.extend(last.filter(is_meant).map(|known| (name.clone(), known)));
        }
        Ok(RememberedPage { events, next: None })
    }

    async fn cursors(&self, request: CursorsRequest) -> Result<Vec<(CursorKey, Cursor)>, ReadError> {
        let state = self.state.read();
        let (from, is_after) = request.from();
        let all = state.cursors.range(from.clone()..).skip_while(|(key, _)| is_after && **key == from);
        let some = all.take_while(|(key, _)| key.topic == request.topic).take(request.limit);
        Ok(some.map(|(key, cursor)| (key.clone(), cursor.clone())).collect())
    }

    async fn put(&self, pieces: Vec<Piece>) -> Result<(), CommitError> {
        let mut state = self.state.write();
        pieces.into_iter().try_for_each(|piece| put(&mut state, piece))
    }

    async fn complete(&self) -> Result<(), CommitError> {
        Ok(())
    }
}

fn put(state: &mut State, piece: Piece) -> Result<(), CommitError> {
    match piece {
        Piece::Topic(topic) => state.put_topic(Arc::new(topic)),
        Piece::Events(events) => {
            for event in events {
                let Some(topic) = state.topics.get_mut(&event.topic) else { continue };
                if topic.at((event.partition, event.offset)).is_none() {
                    topic.push(event);
                }
            }
        }
        Piece::Kept { topic, partition, kept } => {
            let logs = state.topics.get_mut(&topic).map(|topic| &mut topic.logs);
            if let Some(log) = logs.and_then(|logs| logs.get_mut(partition.0 as usize)) {
                log.set_kept(kept);
            }
        }
        Piece::Remembered(events) => {
            for (topic, known) in events {
                remember(state, &topic, known);
            }
        }
        Piece::Cursors(cursors) => state.cursors.extend(cursors),
        Piece::Collection(collection) => {
            state.collections.states.insert(collection.name.clone(), collection);
        }
        Piece::Documents { collection, documents } => {
            for document in &documents {
                let put = state.collections.put_document(&collection, document);
                put.map_err(|error| CommitError::Unavailable(error.to_string()))?;
            }
        }
        Piece::Counters(counters) => {
            state.next_topic = counters.next_topic.0;
            state.collections.next_number = counters.next_collection;
            state.last_recorded_ts = counters.recorded_ts;
        }
    }
    Ok(())
}

fn remember(state: &mut State, topic: &TopicName, known: KnownEvent) {
    let Some(topic) = state.topics.get_mut(topic) else { return };
    let all = topic.ids.entry(known.first.id).or_default();
    if !all.contains(&known) {
        all.push(known);
        all.sort_by_key(|known| known.recorded_ts);
    }
}
