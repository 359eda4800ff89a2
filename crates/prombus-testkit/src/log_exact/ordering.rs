//! A commit in two steps: its place in the order, and what comes of it.

use crate::Subject;
use crate::build::{event, numbered, partitions, producer_id, topic};
use crate::subject::{must, refusal};
use crate::tasks::joined;
use prombus_core::{Commit, CommitError, ConfigChange, Event, Receipt, Ticket};
use std::sync::Arc;

/// How many commits are under way at once.
const MANY: usize = 100;

async fn enqueued(s: &Subject, commit: Commit) -> Ticket {
    must(s.log.enqueue(Arc::new(commit)).await, "an open store takes commits")
}

async fn happened(ticket: Ticket) -> Receipt {
    must(ticket.await, "a commit that nothing speaks against happens")
}

/// Commits happen in the order in which they were enqueued, in every partition and over all of them, whoever waits for
/// which of them first.
pub async fn commits_happen_in_the_order_in_which_they_were_enqueued(s: Subject) {
    let (a, b) = (s.create("order.a", partitions(2)).await, s.create("order.b", partitions(1)).await);
    let mut tickets = Vec::new();
    for n in 0..MANY {
        let mut events = s.place(&a, [numbered(n).in_partition((n % 2) as u32)]);
        if n % 3 == 0 {
            events.extend(s.place(&b, [numbered(n)]));
        }
        tickets.push(enqueued(&s, Commit { events, ..Commit::default() }).await);
    }
    let mut later = None;
    for ticket in tickets.into_iter().rev() {
        let sequence = happened(ticket).await.sequence;
        assert!(later.is_none_or(|later| sequence < later), "what was enqueued before happens before");
        later = Some(sequence);
    }
    let holds = async |topic, partition, of: fn(&usize) -> bool| {
        let payloads = |events: Vec<Event>| events.into_iter().map(|event| event.payload).collect::<Vec<_>>();
        let wanted: Vec<_> = (0..MANY).filter(of).map(|n| numbered(n).event.payload).collect();
        assert_eq!(payloads(s.all(topic, partition).await), wanted, "each partition is in that order");
    };
    holds(&a, 0, |n| n % 2 == 0).await;
    holds(&a, 1, |n| n % 2 == 1).await;
    holds(&b, 0, |n| n % 3 == 0).await;
}

/// What was enqueued before is seen by all checks, though nobody has waited for it: topics, ids and expectations.
pub async fn checks_see_what_was_enqueued_before(s: Subject) {
    let name = topic("order.checks");
    let made = ConfigChange::CreateTopic { name: name.clone(), config: partitions(1) };
    let made = enqueued(&s, Commit { config: vec![made], ..Commit::default() }).await;
    let publish = |draft| Commit { events: s.place(&name, [draft]), ..Commit::default() };
    let draft = || event("1").key("k").id(producer_id(1));
    let first = enqueued(&s, publish(draft())).await;
    let again = enqueued(&s, publish(draft())).await;
    let clash = enqueued(&s, publish(event("2").key("k").id(producer_id(1)))).await;
    let late = enqueued(&s, publish(event("2").key("k").expecting(None))).await;
    let next = enqueued(&s, publish(event("3").key("k").expecting(Some(producer_id(1))))).await;
    happened(next).await;
    assert!(matches!(refusal(late.await), CommitError::ExpectationFailed { .. }));
    assert!(matches!(refusal(clash.await), CommitError::IdConflict { .. }));
    assert!(happened(again).await.events[0].duplicate, "the id was there before");
    assert!(!happened(first).await.events[0].duplicate);
    happened(made).await;
    s.assert_holds(&name, 0, &["1", "3"]).await;
}

/// Tickets can be awaited anywhere; each is answered for its own commit.
pub async fn a_ticket_can_be_awaited_anywhere(s: Subject) {
    let name = s.create("order.anywhere", partitions(1)).await;
    let mut tasks = Vec::new();
    for n in 0..MANY {
        let ticket =
            enqueued(&s, Commit { events: s.place(&name, [numbered(n)]), ..Commit::default() }).await;
        tasks.push(tokio::spawn(happened(ticket)));
    }
    for (n, task) in tasks.into_iter().enumerate() {
        let receipt = joined(task).await;
        assert_eq!(receipt.events[0].offset.0, n as u64, "each ticket is that of its commit");
    }
}

/// A commit goes on where its ticket is dropped, or kept and not awaited: it is seen by those who come after it.
pub async fn a_commit_needs_nobody_to_wait_for_it(s: Subject) {
    let name = s.create("order.dropped", partitions(1)).await;
    let commit = |payload| Commit { events: s.place(&name, [event(payload)]), ..Commit::default() };
    drop(enqueued(&s, commit("1")).await);
    let kept = enqueued(&s, commit("2")).await;
    happened(enqueued(&s, commit("3")).await).await;
    s.assert_holds(&name, 0, &["1", "2", "3"]).await;
    assert_eq!(happened(kept).await.events[0].offset.0, 1, "it can still be asked for");
}

/// What is wrong with a commit is the answer of its ticket: it has its place, holds up nobody, and the store has let go
/// of it then, so that whoever tries again has it for himself.
pub async fn a_refusal_is_the_answer_of_its_ticket(s: Subject) {
    let name = s.create("order.refused", partitions(1)).await;
    s.published(&name, [event("0").key("k")]).await;
    for round in 0..MANY {
        let events = s.place(&name, [numbered(round), event("1").key("k").expecting(None)]);
        let commit = Arc::new(Commit { events, ..Commit::default() });
        let refused = must(s.log.enqueue(commit.clone()).await, "what is wrong shows when its turn comes");
        assert!(matches!(refusal(refused.await), CommitError::ExpectationFailed { index: 1, .. }));
        assert_eq!(Arc::strong_count(&commit), 1, "the store has let go of it");
    }
    s.published(&name, [event("2")]).await;
    s.assert_holds(&name, 0, &["0", "2"]).await;
}
