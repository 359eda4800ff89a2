//! Compares answers with what is stored.

use super::draft::Draft;
use super::evidence::{Evidence, FoundEvent, Mark, mark};
use super::request::{Form, Outcome, Position, Request, Sent};
use prombus_client::Published;
use std::collections::HashMap;

/// Maximum number of lines that are one commit, however many there are.
const COMMIT_LINES: usize = 1_000;

/// Checks every request on its own.
pub fn each(sent: &[Sent], evidence: &Evidence) -> Result<(), String> {
    for one in sent {
        judge(one, evidence).map_err(|why| {
            let Sent { connection, request, outcome } = one;
            let (name, form, count) = (&request.topic.name, request.form, request.drafts.len());
            let known = request.known;
            let drafts: String = request.drafts.iter().take(5).map(|draft| format!("\n  {draft:?}")).collect();
            format!(
                "{why}: connection {connection}, {form:?} of {count} events to {name} (already there: {known:?}), answered {outcome:?}{drafts}"
            )
        })?;
    }
    Ok(())
}

fn judge(sent: &Sent, evidence: &Evidence) -> Result<(), String> {
    let Sent { request, outcome, .. } = sent;
    match outcome {
        Outcome::Published(published) => request
            .drafts
            .iter()
            .zip(published)
            .try_for_each(|(draft, published)| placed(request, draft, published, evidence)),
        // Whether what repeats an older event was taken makes no difference.
        _ if request.known.is_some() => match outcome {
            Outcome::Conflict | Outcome::NotExpected { .. } => {
                Err("a repeated publish was refused".to_owned())
            }
            _ => Ok(()),
        },
        Outcome::Accepted => {
            let missing = marks(request).find(|(mark, _)| !evidence.found.contains_key(mark));
            missing.map_or(Ok(()), |(_, draft)| Err(format!("an answered event is gone ({})", draft.payload)))
        }
        Outcome::NotExpected { actual } => {
            let Some(expected) = request.drafts.first().and_then(|draft| draft.expect) else {
                return Err("it expected nothing".to_owned());
            };
            if expected == *actual {
                return Err("it expected what was there".to_owned());
            }
            if actual.is_some_and(|actual| !evidence.chain_ids.contains(&actual)) {
                return Err("the event that stood in its way is gone".to_owned());
            }
            nothing_of(request, evidence)
        }
        Outcome::Conflict => conflict(request, evidence),
        Outcome::Unavailable => nothing_of(request, evidence),
        Outcome::Unanswered => whole_or_not(request, evidence),
    }
}

fn marks(request: &Request) -> impl Iterator<Item = (Mark, &Draft)> {
    request.drafts.iter().map(|draft| (mark(&request.topic.name, &draft.payload), &**draft))
}

/// An event is where the answer says.
fn placed(
    request: &Request,
    draft: &Draft,
    published: &Published,
    evidence: &Evidence,
) -> Result<(), String> {
    if *published.topic != *request.topic.name || published.durability != request.topic.durability {
        return Err("the answer names another topic or durability".to_owned());
    }
    if published.duplicate && draft.id.is_none() {
        return Err("an event without an id of its own cannot be a duplicate".to_owned());
    }
    if let Some(known) = request.known {
        let same = published.duplicate && Position::of(published) == known;
        return if same { Ok(()) } else { Err("it repeats an event and was not recognised".to_owned()) };
    }
    let Some(FoundEvent { place, id, ts }) = evidence.found.get(&mark(&request.topic.name, &draft.payload))
    else {
        return Err("an answered event is gone".to_owned());
    };
    if (Position::of(published), &published.id, published.ts) != (*place, &id.to_string(), *ts) {
        return Err(format!("the event is at {place:?}, with id {id} and ts {ts}"));
    }
    Ok(())
}

/// What was refused is not there.
fn nothing_of(request: &Request, evidence: &Evidence) -> Result<(), String> {
    let there = marks(request).find(|(mark, draft)| !draft.shared && evidence.found.contains_key(mark));
    there.map_or(Ok(()), |(_, draft)| Err(format!("a refused event is there ({})", draft.payload)))
}

/// Another event has the id.
fn conflict(request: &Request, evidence: &Evidence) -> Result<(), String> {
    let stands_in_the_way = |(mark, draft): (Mark, &Draft)| {
        let holder = draft.id.and_then(|id| evidence.by_id.get(&(request.topic.name.clone(), id)));
        draft.shared && holder.is_some_and(|holder| *holder != mark)
    };
    match marks(request).any(stands_in_the_way) {
        true => nothing_of(request, evidence),
        false => Err("no other event has its id".to_owned()),
    }
}

/// What was not answered is there as a whole, or not at all; lines are there commit by commit.
fn whole_or_not(request: &Request, evidence: &Evidence) -> Result<(), String> {
    let there = |mark: &Mark| evidence.found.contains_key(mark);
    let own: Vec<Mark> = marks(request).filter(|(_, draft)| !draft.shared).map(|(mark, _)| mark).collect();
    let count = own.iter().filter(|mark| there(mark)).count();
    let commit = if request.form == Form::Lines { COMMIT_LINES } else { own.len().max(1) };
    let is_prefix = own.iter().take(count).all(there);
    if !is_prefix || (count != own.len() && !count.is_multiple_of(commit)) {
        return Err(format!("half of a request is there: {count} of {} events", own.len()));
    }
    let all_there = !own.is_empty() && count == own.len();
    if all_there && !marks(request).all(|(mark, _)| there(&mark)) {
        return Err("half of a request is there: an event that others send too is missing".to_owned());
    }
    Ok(())
}

#[derive(Default)]
struct Takes {
    new: usize,
    duplicate: usize,
    unknown: usize,
}

/// Of all requests with an event of the same id, exactly one was new.
pub fn once<'a>(sent: impl Iterator<Item = &'a Sent>) -> Result<(), String> {
    let mut takes: HashMap<Mark, Takes> = HashMap::new();
    for Sent { request, outcome, .. } in sent.filter(|sent| sent.request.known.is_none()) {
        for (index, (mark, draft)) in marks(request).enumerate() {
            let takes = takes.entry(mark).or_default();
            match outcome {
                Outcome::Published(published) if published[index].duplicate => takes.duplicate += 1,
                Outcome::Published(_) => takes.new += 1,
                Outcome::Accepted | Outcome::Unanswered => takes.unknown += 1,
                Outcome::NotExpected { .. } | Outcome::Conflict | Outcome::Unavailable => {}
            }
            if takes.new > 1 {
                return Err(format!("two requests were told that they are the first with {draft:?}"));
            }
        }
    }
    let only_duplicates = |takes: &&Takes| takes.duplicate > 0 && takes.new + takes.unknown == 0;
    match takes.values().filter(only_duplicates).count() {
        0 => Ok(()),
        count => Err(format!("{count} events were only ever answered as duplicates")),
    }
}

/// What a connection publishes to a partition lies there in the order in which it was published.
pub fn in_order(sent: &[Sent]) -> Result<(), String> {
    let mut last: HashMap<(usize, &str, u32), u64> = HashMap::new();
    for Sent { connection, request, outcome } in sent {
        let Outcome::Published(published) = outcome else { continue };
        for published in published.iter().filter(|published| !published.duplicate) {
            let spot = (*connection, request.topic.name.as_str(), published.partition);
            let before = last.insert(spot, published.offset);
            if before.is_some_and(|before| before >= published.offset) {
                return Err(format!("{spot:?}: {} was answered after {before:?}", published.offset));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
