//! What a request is about, and so which hub it is for.

use crate::auth::Caller;
use crate::gateway::App;
use crate::params::Params;
use crate::path::PathNames;
use axum::http::Method;
use axum::http::request::Parts;
use prombus_core::TopicName;
use serde::Deserialize;

/// What a request is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum About {
    /// Nothing that has a home: any hub serves it.
    #[default]
    Nothing,
    /// The topic in its path.
    Topic,
    /// The topic of the projection in its path, or in its body where that defines it.
    Projection,
    /// The topic that the replay in its path reads, or the one that its body defines.
    Replay,
    /// What the projection of the collection in its path has seen, where it waits for that.
    Seen,
}

/// A request whose place is looked for.
pub(crate) struct Asked<'a> {
    pub parts: &'a Parts,
    pub names: &'a PathNames,
    pub body: &'a [u8],
}

/// The one field of a projection's definition, or of a range, that says where it belongs.
#[derive(Deserialize)]
struct DefinedTopic {
    topic: TopicName,
}

/// The one field of a replay's definition that says so.
#[derive(Deserialize)]
struct DefinedSource {
    source: DefinedTopic,
}

impl About {
    /// The topic whose home serves the request. What makes no sense has none: whoever gets it says what is wrong.
    pub async fn topic(self, app: &App, asked: Asked<'_>) -> Option<TopicName> {
        let hub = app.hub().ok()?;
        let Asked { parts, names, body } = asked;
        match self {
            Self::Nothing => None,
            Self::Topic => names.topic().ok(),
            Self::Projection => {
                let defined = (parts.method == Method::PUT).then(|| serde_json::from_slice(body).ok());
                if let Some(DefinedTopic { topic }) = defined.flatten() {
                    return Some(topic);
                }
                hub.projections().topic_of(names.get("name")).await
            }
            Self::Replay => match names.get("name") {
                "" => Some(serde_json::from_slice::<DefinedSource>(body).ok()?.source.topic),
                name => Some(hub.replays().get(name).await.ok()?.definition.source.topic),
            },
            Self::Seen => {
                let waits = Params::parse(parts.uri.query()).and_then(|mut params| params.one("min_offset"));
                match waits {
                    Ok(Some(_)) => hub.projections().topic_behind(names.get("collection")).await,
                    _ => None,
                }
            }
        }
    }
}

/// Whether a request may be sent twice without harm, where it is not known whether the first one arrived.
pub(crate) fn may_be_repeated(method: &Method, route: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD) || route.ends_with("/pull") || route.ends_with("/ack")
}

/// Whose request it is.
pub(crate) fn caller_of(parts: &Parts) -> Caller {
    parts.extensions.get().cloned().unwrap_or_else(Caller::anyone)
}
