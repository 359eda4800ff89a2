//! The judge is tested: every kind of violated guarantee must be detected.

use super::super::ledger::Ledger;
use super::super::plan::Topic;
use super::super::reader::Observed;
use super::*;
use std::sync::Arc;
use uuid::Uuid;

fn topic() -> Arc<Topic> {
    Arc::new(Topic { name: "t".into(), partitions: 1, durability: "sync" })
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_0000 + number)
}

fn draft(number: u128) -> Draft {
    Draft { payload: format!("{{\"d\":1.10,\"n\":{number}}}"), id: Some(id(number)), ..Draft::default() }
}

fn request(form: Form, drafts: &[Draft]) -> Request {
    Request { topic: topic(), form, drafts: drafts.iter().cloned().map(Arc::new).collect(), known: None }
}

fn sent(request: Request, outcome: Outcome) -> Sent {
    Sent { connection: 0, request, outcome }
}

fn published(number: u128, offset: u64) -> Published {
    Published {
        id: id(number).to_string(),
        topic: "t".into(),
        partition: 0,
        offset,
        ts: 5,
        durability: "sync".into(),
        duplicate: false,
    }
}

fn line(number: u128, offset: u64) -> String {
    let (id, payload) = (id(number), draft(number).payload);
    format!(
        "{{\"id\":\"{id}\",\"ts\":5,\"topic\":\"t\",\"partition\":0,\"offset\":{offset},\"payload\":{payload}}}\n"
    )
}

/// The outcome when `sent` was sent and an export says `lines`.
fn judged(sent: &[Sent], lines: &str) -> Result<(), String> {
    judged_with(sent, lines, Observed::new())
}

fn judged_with(sent: &[Sent], lines: &str, observed: Observed) -> Result<(), String> {
    let mut ledger = Ledger::default();
    let mut evidence = Evidence::new(sent, observed, &ledger);
    evidence.absorb(&mut ledger, (&topic(), 0), lines.as_bytes())?;
    evidence.nothing_seen_is_gone()?;
    each(sent, &evidence)?;
    in_order(sent)?;
    once(sent.iter())
}

fn finds(what: &str, judged: Result<(), String>) {
    let why = judged.expect_err(what);
    assert!(why.contains(what), "{why}");
}

fn two_answered() -> Vec<Sent> {
    let one = |number, offset| {
        sent(request(Form::Single, &[draft(number)]), Outcome::Published(vec![published(number, offset)]))
    };
    vec![one(1, 0), one(2, 1)]
}

#[test]
fn what_is_right_passes() {
    judged(&two_answered(), &(line(1, 0) + &line(2, 1))).unwrap();
}

#[test]
fn lost_events_are_found() {
    finds("an answered event is gone", judged(&two_answered(), &line(1, 0)));
    let accepted = [sent(request(Form::Lines, &[draft(1), draft(2)]), Outcome::Accepted)];
    finds("an answered event is gone", judged(&accepted, &line(1, 0)));
}

#[test]
fn gaps_repeats_and_strangers_are_found() {
    finds("the offset should be 1", judged(&two_answered(), &(line(1, 0) + &line(2, 2))));
    finds("there twice", judged(&two_answered(), &(line(1, 0) + &line(1, 1))));
    finds("nobody sent", judged(&two_answered(), &(line(1, 0) + &line(2, 1) + &line(3, 2))));
    finds("middle of a line", judged(&two_answered(), line(1, 0).trim_end()));
}

#[test]
fn changed_events_are_found() {
    finds("nobody sent", judged(&two_answered(), &(line(1, 0).replace("1.10", "1.1") + &line(2, 1))));
    let lines = line(1, 0) + &line(2, 1);
    finds(
        "key is not what was sent",
        judged(&two_answered(), &lines.replace("\"partition\"", "\"key\":\"k\",\"partition\"")),
    );
    finds(
        "id is not what was sent",
        judged(&two_answered(), &lines.replace(&id(2).to_string(), &id(9).to_string())),
    );
    finds("the event is at", judged(&two_answered(), &lines.replace("\"ts\":5", "\"ts\":6")));
    finds("the event is at", judged(&two_answered(), &(line(2, 0) + &line(1, 1))));
}

#[test]
fn half_an_array_is_found() {
    let unanswered = [sent(request(Form::Array, &[draft(1), draft(2)]), Outcome::Unanswered)];
    judged(&unanswered, "").unwrap();
    judged(&unanswered, &(line(1, 0) + &line(2, 1))).unwrap();
    finds("half of a request", judged(&unanswered, &line(1, 0)));
    finds("half of a request", judged(&unanswered, &line(2, 0)));
}

#[test]
fn lines_are_there_commit_by_commit() {
    let drafts: Vec<Draft> = (0..1_500).map(draft).collect();
    let unanswered = [sent(request(Form::Lines, &drafts), Outcome::Unanswered)];
    let lines = |count: u64| (0..count).map(|offset| line(offset.into(), offset)).collect::<String>();
    for whole in [0, 1_000, 1_500] {
        judged(&unanswered, &lines(whole)).unwrap();
    }
    finds("half of a request", judged(&unanswered, &lines(999)));
}

#[test]
fn one_of_equal_ids_is_new() {
    let repeat = |duplicate| Outcome::Published(vec![Published { duplicate, ..published(1, 0) }]);
    let both = |first, second| {
        [
            sent(request(Form::Single, &[draft(1)]), repeat(first)),
            sent(request(Form::Single, &[draft(1)]), repeat(second)),
        ]
    };
    judged(&both(false, true), &line(1, 0)).unwrap();
    finds("only ever answered as duplicates", judged(&both(true, true), &line(1, 0)));
    let mut second_connection = both(false, false);
    second_connection[1].connection = 1;
    finds("two requests were told", judged(&second_connection, &line(1, 0)));
}

#[test]
fn a_refusal_has_a_reason_that_is_there() {
    let shared =
        |number: u128, payload: &str| Draft { payload: payload.into(), shared: true, ..draft(number) };
    let first = sent(request(Form::Single, &[draft(1)]), Outcome::Unanswered);
    let second = sent(request(Form::Single, &[shared(1, "2")]), Outcome::Conflict);
    let sent = [first, second];
    judged(&sent, &line(1, 0)).unwrap();
    finds("no other event has its id", judged(&sent, ""));
}

#[test]
fn old_events_are_recognised() {
    let old = |published: Published| {
        let request = Request {
            known: Some(Position { partition: 0, offset: 7 }),
            ..request(Form::Single, &[draft(1)])
        };
        [sent(request, Outcome::Published(vec![published]))]
    };
    judged(&old(Published { duplicate: true, ..published(1, 7) }), "").unwrap();
    finds("not recognised", judged(&old(Published { duplicate: true, ..published(1, 8) }), ""));
    finds("not recognised", judged(&old(published(1, 7)), ""));
    finds("nobody sent", judged(&old(published(1, 7)), &line(1, 0)));
}

#[test]
fn chains_have_one_history() {
    let link = |number, expect| Draft { key: Some("k".into()), expect: Some(expect), ..draft(number) };
    let keyed = |number, offset| line(number, offset).replace("\"partition\"", "\"key\":\"k\",\"partition\"");
    let unanswered = |draft| sent(request(Form::Single, &[draft]), Outcome::Unanswered);
    let sent_links =
        [unanswered(link(1, None)), unanswered(link(2, Some(id(1)))), unanswered(link(3, Some(id(1))))];
    judged(&sent_links, &(keyed(1, 0) + &keyed(3, 1))).unwrap();
    finds("to be the latest event", judged(&sent_links, &(keyed(1, 0) + &keyed(2, 1) + &keyed(3, 2))));
    let refused = |actual| [sent(request(Form::Single, &[link(2, None)]), Outcome::NotExpected { actual })];
    finds("expected what was there", judged(&refused(None), ""));
    finds("stood in its way is gone", judged(&refused(Some(id(1))), ""));
}

#[test]
fn what_a_reader_saw_stays() {
    let seen =
        |line: &str| Observed::from([(("t".to_owned(), 0, 0), xxhash_rust::xxh3::xxh3_64(line.as_bytes()))]);
    let lines = line(1, 0) + &line(2, 1);
    judged_with(&two_answered(), &lines, seen(&line(1, 0))).unwrap();
    finds("something else", judged_with(&two_answered(), &lines, seen(&line(2, 0))));
    let unanswered = [sent(request(Form::Single, &[draft(1)]), Outcome::Unanswered)];
    finds("that are gone", judged_with(&unanswered, "", seen(&line(1, 0))));
}

#[test]
fn what_came_later_lies_later() {
    let mut sent = two_answered();
    sent.swap(0, 1);
    finds("was answered after", judged(&sent, &(line(1, 0) + &line(2, 1))));
}
