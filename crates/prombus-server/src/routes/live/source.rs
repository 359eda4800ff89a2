//! Where the events of a stream come from: one topic, several, or one that does not exist yet.

use prombus_core::{Event, Sequence, TopicName, Watched};
use prombus_engine::{Filter, Follower, From, Hub, Query, QueryError, TopicsFollower};

/// What is followed.
pub(crate) enum Source {
    /// One topic.
    Topic(Box<Follower>),
    /// One topic that does not exist yet.
    Awaited(Box<Awaited>),
    /// All topics that match.
    Topics(Box<TopicsFollower>),
}

/// A topic that does not exist yet.
pub(crate) struct Awaited {
    hub: Hub,
    topic: TopicName,
    query: Query,
    seen: Sequence,
}

impl Awaited {
    /// Waits for `topic`. All that comes is new then, so `latest` starts with its first event, too.
    pub fn new(hub: Hub, topic: TopicName, query: Query) -> Self {
        let from = if query.from == From::Latest { From::Earliest } else { query.from };
        Self { hub, topic, query: Query { from, ..query }, seen: Sequence(0) }
    }

    /// The topic, where it is there now.
    async fn follower(&self) -> Result<Option<Follower>, QueryError> {
        if self.hub.topic(&self.topic).await?.is_none() {
            return Ok(None);
        }
        self.hub.follow(&self.topic, self.query.clone(), None).await.map(Some)
    }
}

impl Source {
    /// The next events, which may be none; `None` where there is nothing more to read yet. Nothing is lost if it is
    /// abandoned.
    pub async fn next_events(&mut self) -> Result<Option<Vec<Event>>, QueryError> {
        if let Self::Awaited(awaited) = self {
            match awaited.follower().await? {
                Some(follower) => *self = Self::Topic(Box::new(follower)),
                None => return Ok(None),
            }
        }
        match self {
            Self::Topic(follower) => follower.next_events().await,
            Self::Topics(follower) => follower.next_events().await,
            Self::Awaited(_) => Ok(None),
        }
    }

    /// Waits until there may be more events. It must be asked for them before.
    pub async fn changed(&mut self) -> Result<(), QueryError> {
        match self {
            Self::Topic(follower) => follower.changed().await,
            Self::Topics(follower) => follower.changed().await,
            Self::Awaited(awaited) => {
                let topic = Watched::Topic(awaited.topic.clone());
                awaited.seen = awaited.hub.changed(&topic, awaited.seen).await;
                Ok(())
            }
        }
    }

    /// About how much memory it takes for as long as it is there.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Topic(follower) => follower.held_bytes(),
            Self::Topics(follower) => follower.held_bytes(),
            Self::Awaited(_) => 0,
        }
    }

    /// The filter, if there is one.
    pub fn filter(&self) -> Option<&Filter> {
        match self {
            Self::Topic(follower) => follower.filter(),
            Self::Topics(follower) => follower.filter(),
            Self::Awaited(awaited) => awaited.query.filter.as_ref(),
        }
    }

    /// The token with which one goes on before the first event, if there is one: who starts at the latest event and
    /// breaks off in silence would miss what comes until the next connection.
    pub fn token(&self) -> Option<String> {
        match self {
            Self::Topics(follower) => Some(follower.token()),
            Self::Topic(_) | Self::Awaited(_) => None,
        }
    }

    /// The token with which one goes on after `event`, which must be of what was handed out last.
    pub fn token_after(&self, event: &Event) -> String {
        match self {
            Self::Topic(follower) => follower.token_after(event),
            Self::Topics(follower) => follower.token_after(event),
            // It has no events.
            Self::Awaited(_) => String::new(),
        }
    }
}
