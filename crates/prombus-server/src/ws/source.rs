//! Where the deliveries of a subscription come from: a group on this hub, or, where its topic is at home elsewhere, a
//! subscription of this hub in the name of its client.

use super::session::Key;
use super::upstream::{Remote, Upstreams};
use crate::auth::Caller;
use crate::cluster::Patience;
use crate::error::ApiError;
use crate::gateway::App;
use prombus_engine::Hub;
use prombus_engine::groups::{GivenBack, Group, GroupCall, LeaseToken, OptionsPatch, Pull};
use prombus_engine::homes::Place;
use prombus_wire::ErrorCode;
use std::sync::Arc;

/// Where deliveries come from.
#[derive(Clone)]
pub(super) enum Source {
    Here(Arc<Group>),
    There(Arc<Remote>),
}

impl Source {
    /// Whether it is the very same.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Here(one), Self::Here(other)) => Arc::ptr_eq(one, other),
            (Self::There(one), Self::There(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Gives deliveries back. What another hub has given goes back with the subscription there, or with the connection.
    pub fn give_back(&self, leases: &[LeaseToken], why: GivenBack) {
        match self {
            Self::Here(group) => group.give_back(leases, why),
            Self::There(remote) if why == GivenBack::Unused => remote.leave(),
            Self::There(_) => {}
        }
    }
}

/// Finds sources for the client of one connection.
#[derive(Clone)]
pub(super) struct Sources {
    pub app: App,
    pub hub: Hub,
    pub upstreams: Arc<Upstreams>,
    /// Whether the client is another hub, which looks elsewhere by itself.
    pub is_forwarded: bool,
}

/// What a client subscribes to, and how it consumes that.
#[derive(Clone)]
pub(super) struct Wanted {
    pub call: Arc<GroupCall>,
    pub pull: Pull,
    pub caller: Caller,
}

/// Whether a subscription is a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    First,
    /// It was there, and the options of its group may have changed since.
    Again,
}

impl Sources {
    /// The source of a subscription: that of the home of its topic, which may be about to move.
    pub async fn find(&self, key: &Key, wanted: &Wanted, turn: Turn) -> Result<Source, ApiError> {
        let (mut patience, mut wanted) = (Patience::default(), wanted.clone());
        loop {
            let error = match (&self.app.cluster, self.hub.place(&key.topic)) {
                (Some(cluster), Place::At(home)) if !self.is_forwarded => {
                    match self.upstreams.subscribe((cluster, &self.hub, &home), key, &wanted).await {
                        Ok(remote) => return Ok(Source::There(remote)),
                        Err(error) if error.is_passing() => error,
                        // The options were changed since, and those hold.
                        Err(error) if turn == Turn::Again && error.code() == ErrorCode::GroupOptions => {
                            let (from, options) = (wanted.call.from, OptionsPatch::default());
                            wanted.call = Arc::new(GroupCall { from, options });
                            continue;
                        }
                        Err(error) => return Err(error),
                    }
                }
                _ => match self.here(key, &wanted.call, turn).await {
                    Ok(group) => return Ok(Source::Here(group)),
                    Err(error) if error.is_moved() && !self.is_forwarded => error,
                    Err(error) => return Err(error),
                },
            };
            patience.wait(&self.hub, error).await?;
        }
    }

    async fn here(&self, key: &Key, call: &GroupCall, turn: Turn) -> Result<Arc<Group>, ApiError> {
        Ok(match turn {
            Turn::First => self.hub.group(&key.topic, &key.group, call).await?.0,
            Turn::Again => self.hub.groups().rejoin(&key.topic, &key.group, call).await?,
        })
    }
}
