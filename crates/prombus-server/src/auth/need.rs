//! Which rights a route requires of its callers.

use super::{AccessRequest, Action, Caller};
use crate::error::ApiError;
use crate::media::{self, AnswerType};
use crate::path::PathNames;
use axum::http::HeaderMap;

/// The rights that a route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// None: anyone may call it.
    Nothing,
    /// A valid token; the route omits what its caller may not see.
    Token,
    /// A valid token, now or in the first frame of the connection.
    TokenOrLater,
    /// The action on the topic that the path names.
    OnTopic(Action),
    /// To consume as the group that the path names.
    OnGroup,
    /// To consume the topic in the path with some group; the route omits the others.
    OnSomeGroup,
    /// To read the topic that the path names, or to subscribe to it where its events are followed.
    ReadOrFollow,
    /// The action on the dead letters of the topic that the path names.
    OnDeadLetters(Action),
    /// The action on the collection that the path names.
    OnCollection(Action),
    /// To see the topic that the path names.
    SeeTopic,
    /// The action on everything, without exception.
    Everywhere(Action),
    /// The action on anything; the route omits what its caller may not see.
    Somewhere(Action),
}

impl Need {
    /// Refuses callers without the rights.
    pub fn check(self, caller: &Caller, names: &PathNames, headers: &HeaderMap) -> Result<(), ApiError> {
        let on_topic = |action, group| {
            // An invalid topic name is refused before rights are checked.
            let topic = names.topic()?;
            caller.check(AccessRequest { action, topic: topic.as_str(), group })
        };
        match self {
            Self::Nothing | Self::Token | Self::TokenOrLater => Ok(()),
            Self::OnTopic(action) => on_topic(action, None),
            Self::OnGroup => on_topic(Action::Subscribe, Some(names.get("group"))),
            Self::OnSomeGroup if caller.may_as_some_group(&names.topic()?) => Ok(()),
            Self::OnSomeGroup => on_topic(Action::Subscribe, None),
            Self::ReadOrFollow => {
                let live = media::answer_type(headers).is_ok_and(|answer| answer == AnswerType::Live);
                on_topic(if live { Action::Subscribe } else { Action::Read }, None)
            }
            Self::OnDeadLetters(action) => {
                let topic = names.topic()?;
                let letters = topic.dead_letters();
                let topic = letters.as_ref().unwrap_or(&topic).as_str();
                caller.check(AccessRequest::on(action, topic))
            }
            Self::OnCollection(action) => caller.check(AccessRequest::on(action, names.collection()?)),
            Self::SeeTopic if caller.may_see(&names.topic()?) => Ok(()),
            Self::SeeTopic => on_topic(Action::Read, None),
            Self::Everywhere(action) => caller.check_everywhere(action),
            Self::Somewhere(action) => caller.check_somewhere(action),
        }
    }
}
