//! What a state is: from one event to the next.

use super::TimeTravelError;
use super::merge::Merged;
use prombus_core::{Event, Json};
use std::marker::PhantomData;

/// A state after an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Reduced<S> {
    /// The state; `None` where the event has ended it.
    pub state: Option<S>,
    /// Whether this event alone decides it, whatever was before.
    pub is_whole: bool,
}

/// What it takes to apply an event.
pub enum Effort {
    /// Next to nothing.
    Little,
    /// As much as there is to it: events are parsed, and what comes of them may be large.
    BySize,
    /// Expressions are evaluated, for which there are turns.
    Evaluates {
        /// Whether that may take long.
        is_costly: bool,
    },
}

/// Makes a state of events, in order. It may be asked about the same events again, from the first one on.
pub trait Reducer: Sync {
    /// The state.
    type State: Send;

    /// What it takes.
    fn effort(&self) -> Effort;

    /// Whether each event alone decides the state, so that earlier ones need not be applied.
    fn needs_last_only(&self) -> bool;

    /// What `event` makes of the state before.
    fn apply(
        &self,
        before: Option<Self::State>,
        event: &Event,
    ) -> Result<Reduced<Self::State>, TimeTravelError>;
}

/// The last payload. A tombstone ends the entity.
#[derive(Debug, Clone, Copy)]
pub struct Replace;

impl Reducer for Replace {
    type State = Json;

    fn effort(&self) -> Effort {
        Effort::Little
    }

    fn needs_last_only(&self) -> bool {
        true
    }

    fn apply(&self, _: Option<Json>, event: &Event) -> Result<Reduced<Json>, TimeTravelError> {
        let state = (!event.payload.is_null()).then(|| event.payload.clone());
        Ok(Reduced { state, is_whole: true })
    }
}

/// All payloads, merged in order by RFC 7396. A tombstone ends the entity, and what follows it starts anew.
#[derive(Debug, Clone, Copy)]
pub struct Merge;

impl Reducer for Merge {
    type State = Merged;

    fn effort(&self) -> Effort {
        Effort::BySize
    }

    fn needs_last_only(&self) -> bool {
        false
    }

    fn apply(&self, before: Option<Merged>, event: &Event) -> Result<Reduced<Merged>, TimeTravelError> {
        if event.payload.is_null() {
            return Ok(Reduced { state: None, is_whole: true });
        }
        let is_whole = !event.payload.as_bytes().starts_with(b"{");
        Ok(Reduced { state: Some(Merged::after(before, &event.payload)?), is_whole })
    }
}

/// Whatever a function makes of events.
pub struct ByFunction<F, S>(F, PhantomData<fn() -> S>);

impl<F, S> ByFunction<F, S> {
    /// This function.
    pub fn new(function: F) -> Self {
        Self(function, PhantomData)
    }
}

impl<S: Send, F: Fn(Option<S>, &Event) -> Option<S> + Sync> Reducer for ByFunction<F, S> {
    type State = S;

    fn effort(&self) -> Effort {
        Effort::BySize
    }

    fn needs_last_only(&self) -> bool {
        false
    }

    fn apply(&self, before: Option<S>, event: &Event) -> Result<Reduced<S>, TimeTravelError> {
        Ok(match event.payload.is_null() {
            true => Reduced { state: None, is_whole: true },
            false => Reduced { state: (self.0)(before, event), is_whole: false },
        })
    }
}
