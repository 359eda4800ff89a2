//! Keeps changes of a topic and events on their way to it apart.
//!
//! Events are checked against a topic as it was looked up. Whoever does that passes here first, and has its place in the
//! order of the log before it leaves; whoever changes the topic waits until nobody is passing, and leaves once that can be
//! seen. So what was looked up is never outdated by the same hub. What other hubs change, the store notices.
//!
//! All topics of a commit are passed at once, under one lock, and nobody waits in here while holding a pass that others wait
//! for, except a change for those that were passing before it.

use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use parking_lot::Mutex;
use prombus_core::TopicName;
use std::sync::Arc;
use tokio::sync::Notify;

/// The gate of all topics.
#[derive(Default)]
pub(crate) struct Gate {
    topics: Mutex<HashMap<TopicName, GateEntry>>,
    /// Somebody has left.
    left: Notify,
}

/// Who is at a topic.
#[derive(Debug, Default, PartialEq, Eq)]
struct GateEntry {
    /// How many look at it.
    looking: usize,
    /// Whether somebody changes it, or waits until nobody looks at it any more.
    changing: bool,
}

/// Topics that are passed; they are left when it is dropped.
pub(crate) struct GatePass {
    gate: Arc<Gate>,
    looked_at: Vec<TopicName>,
    changed: Vec<TopicName>,
}

impl Gate {
    /// Passes topics that are looked at, and topics that are changed. None is among both, and none is there twice.
    pub async fn pass(self: &Arc<Self>, looked_at: Vec<TopicName>, changed: Vec<TopicName>) -> GatePass {
        let mut entering = Some((looked_at, changed));
        let pass = loop {
            // Before the look, so that nobody who leaves in between is missed.
            let left = self.left.notified();
            if let Some(pass) = self.enter(&mut entering) {
                break pass;
            }
            left.await;
        };
        loop {
            let left = self.left.notified();
            if self.is_alone(&pass) {
                return pass;
            }
            left.await;
        }
    }

    fn enter(self: &Arc<Self>, entering: &mut Option<(Vec<TopicName>, Vec<TopicName>)>) -> Option<GatePass> {
        let mut topics = self.topics.lock();
        let is_changing = |name: &TopicName| topics.get(name).is_some_and(|entry| entry.changing);
        let (looked_at, changed) =
            entering.take_if(|(looked_at, changed)| !looked_at.iter().chain(&*changed).any(is_changing))?;
        for name in &looked_at {
            topics.entry(name.clone()).or_default().looking += 1;
        }
        for name in &changed {
            topics.entry(name.clone()).or_default().changing = true;
        }
        Some(GatePass { gate: self.clone(), looked_at, changed })
    }

    fn is_alone(&self, pass: &GatePass) -> bool {
        if !pass.is_change() {
            return true;
        }
        let topics = self.topics.lock();
        pass.changed.iter().all(|name| topics.get(name).is_none_or(|entry| entry.looking == 0))
    }
}

impl GatePass {
    /// Whether it changes a topic.
    pub fn is_change(&self) -> bool {
        !self.changed.is_empty()
    }
}

impl Drop for GatePass {
    fn drop(&mut self) {
        // Those who look wait for nobody else who does.
        let mut is_waited_for = self.is_change();
        let mut topics = self.gate.topics.lock();
        for name in &self.looked_at {
            is_waited_for |= leave(&mut topics, name, |entry| entry.looking -= 1);
        }
        for name in &self.changed {
            leave(&mut topics, name, |entry| entry.changing = false);
        }
        drop(topics);
        if is_waited_for {
            self.gate.left.notify_waiters();
        }
    }
}

/// Notes that somebody is no longer at a topic; whether somebody changes it, or waits to.
fn leave(
    topics: &mut HashMap<TopicName, GateEntry>,
    name: &TopicName,
    note: impl FnOnce(&mut GateEntry),
) -> bool {
    let EntryRef::Occupied(mut entry) = topics.entry_ref(name) else { return false };
    note(entry.get_mut());
    if *entry.get() == GateEntry::default() {
        entry.remove();
        return false;
    }
    entry.get().changing
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn names(names: &[&str]) -> Vec<TopicName> {
        names.iter().map(|name| TopicName::parse(name).unwrap()).collect()
    }

    #[test]
    fn a_change_is_alone_at_its_topic() {
        let gate = Arc::new(Gate::default());
        let now =
            |looked_at: &[&str], changed: &[&str]| gate.pass(names(looked_at), names(changed)).now_or_never();
        let first = now(&["a", "b"], &[]).expect("nobody is there");
        let second = now(&["a"], &[]).expect("any number may look");
        assert!(now(&[], &["a"]).is_none(), "somebody looks");
        assert!(now(&[], &["c"]).is_some(), "others are not waited for");
        drop((first, second));
        let changing = now(&["b"], &["a"]).expect("nobody is there");
        for (looked_at, changed) in [(&["a"][..], &[][..]), (&[], &["a"]), (&[], &["b"])] {
            assert!(now(looked_at, changed).is_none(), "{looked_at:?} {changed:?}");
        }
        drop(changing);
        assert!(now(&["a"], &["b"]).is_some());
        assert!(gate.topics.lock().is_empty(), "nobody is left");
    }

    #[tokio::test]
    async fn who_waits_for_a_change_lets_nobody_else_in() {
        let gate = Arc::new(Gate::default());
        let looking = gate.pass(names(&["a"]), Vec::new()).await;
        let mut change = Box::pin(gate.pass(Vec::new(), names(&["a"])));
        assert!((&mut change).now_or_never().is_none());
        let mut late = Box::pin(gate.pass(names(&["a"]), Vec::new()));
        assert!((&mut late).now_or_never().is_none(), "the change comes first");
        drop(looking);
        let changing = change.await;
        assert!((&mut late).now_or_never().is_none());
        drop(changing);
        late.await;
        assert!(gate.topics.lock().is_empty());
    }
}
