//! Groups that normalize: what they deliver is raised to the latest version of the topic's schema when it is delivered, and
//! their filter sees it so. What cannot be raised becomes a dead letter, which has the event as it is.

use super::GroupError;
use super::group::Group;
use super::settling::SettleCall;
use super::state::{Delivery, GivenBack, Settle};
use crate::filter::{self, Filter};
use crate::schemas::raise::{RaiseTurn, Raiser};
use prombus_core::{Event, Offset, Page, Partition, TopicState};
use std::collections::HashSet;
use std::sync::Arc;

/// How a pull raises what it delivers.
///
/// While it was waiting, another version may have been registered, and an event of that version read, by this pull or
/// another one. A raiser of before does not know that version. Only one that was made after the event was read can tell
/// that there is none.
#[derive(Default)]
pub(super) struct Raising {
    /// What raises the events; `None` where they are delivered as they are.
    pub raiser: Option<Arc<Raiser>>,
    /// Events of versions that an earlier raiser did not know. They were read before the present one was made.
    unknown: HashSet<(Partition, Offset)>,
}

/// What came of deliveries.
pub(super) struct Raised {
    /// Those that are handed out.
    pub deliveries: Vec<Delivery>,
    /// Whether the first of those that went back is of a version that the raiser does not know: a newer one is needed.
    pub is_outdated: bool,
}

impl Group {
    /// What raises the events of the topic as it is, where the group normalizes. Refused where some could not be raised
    /// because nothing leads on from their version.
    pub(super) async fn raiser(&self, topic: &TopicState) -> Result<Option<Arc<Raiser>>, GroupError> {
        match self.options().normalize {
            true => Ok(self.hub.raisers.of(topic).await?),
            false => Ok(None),
        }
    }

    /// Deliveries as those of the latest version. Those that cannot be raised are settled as dead, and those for which there
    /// is no time now, or for which the raiser may be too old, go back. Nothing waits here, so that what was taken is
    /// handed out.
    pub(super) fn raised(
        self: &Arc<Self>,
        raising: &mut Raising,
        raiser: &Raiser,
        turn: RaiseTurn,
        deliveries: Vec<Delivery>,
    ) -> Raised {
        let (mut raised, mut dead) = (Vec::with_capacity(deliveries.len()), Vec::new());
        let mut is_outdated = false;
        let unknown = &raising.unknown;
        let rest = raiser.raise_some(deliveries, turn, |raiser, delivery| {
            let Delivery { event, lease, attempt, deadline } = delivery;
            let (lease, attempt, deadline) = (*lease, *attempt, *deadline);
            match raiser.raise(event) {
                Ok(event) => raised.push(Delivery { event, lease, attempt, deadline }),
                Err(_) if !raiser.knows_version_of(event) && !unknown.contains(&place(event)) => {
                    is_outdated = true;
                    return false;
                }
                Err(why) => dead.push(Some(Settle::Bury { lease, reason: not_normalized(&why) })),
            }
            true
        });
        if !dead.is_empty() {
            // It is so from here on; nobody waits until it is written.
            drop(self.settle(SettleCall { settles: dead }));
        }
        if !rest.is_empty() {
            let leases: Vec<_> = rest.iter().map(|delivery| delivery.lease).collect();
            self.give_back(&leases, GivenBack::Unused);
        }
        if is_outdated {
            let unknown = rest.iter().map(|delivery| &delivery.event);
            raising.unknown.extend(unknown.filter(|event| !raiser.knows_version_of(event)).map(place));
        }
        Raised { deliveries: raised, is_outdated }
    }

    /// What of a page is to be delivered. An event that cannot be raised is, whatever the filter says: it becomes a dead
    /// letter when its turn comes.
    pub(super) async fn filtered(
        &self,
        (filter, turn): (&Filter, filter::Turn),
        raiser: Option<&Raiser>,
        page: Page,
    ) -> Page {
        let Page { events, mut next, end } = page;
        let (events, unfit) = match raiser {
            None => (events, Vec::new()),
            Some(raiser) => {
                let (mut raised, mut unfit) = (Vec::with_capacity(events.len()), Vec::new());
                let rest = raiser.raise_some(events, raiser.turn().await, |raiser, event| {
                    match raiser.raise(event) {
                        Ok(event) => raised.push(event),
                        Err(_) => unfit.push(event.clone()),
                    }
                    true
                });
                next = rest.first().map_or(next, |event| event.offset);
                (raised, unfit)
            }
        };
        let failures = filter.failures();
        let (mut events, stopped) = filter.keep(events, turn);
        self.counters.filter_errors.add(filter.failures() - failures);
        let next = stopped.map_or(next, |(_, offset)| offset.plus(1));
        if !unfit.is_empty() {
            events.extend(unfit.into_iter().filter(|event| event.offset < next));
            events.sort_unstable_by_key(|event| event.offset);
        }
        Page { events, next, end }
    }

    /// Whether a filter wants an event, as it would be delivered.
    pub(super) async fn is_wanted(&self, filter: &Filter, raiser: Option<&Raiser>, event: &Event) -> bool {
        let turn = filter::Turn::at_filter(filter).await;
        let (next, end) = (event.offset.plus(1), event.offset.plus(1));
        let page = Page { events: vec![event.clone()], next, end };
        !self.filtered((filter, turn), raiser, page).await.events.is_empty()
    }
}

fn place(event: &Event) -> (Partition, Offset) {
    (event.partition, event.offset)
}

/// Why an event that could not be raised is dead.
pub(crate) fn not_normalized(why: &str) -> String {
    format!("the event cannot be normalized: {why}")
}
