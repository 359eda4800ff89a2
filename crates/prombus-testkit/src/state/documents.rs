//! Documents: what writes make of them, and their versions.

use super::{body, commit, inc, set, write, wrote};
use crate::Subject;
use crate::build::{event, json, partitions};
use crate::subject::{must, refusal};
use crate::tasks::together;
use prombus_core::commit::DEFAULT_RESULT_BYTES;
use prombus_core::document::{MAX_BODY_BYTES, MAX_VALUES, WriteError};
use prombus_core::{Commit, CommitError, Document, DocumentWrite, Durability, WriteOp};
use std::sync::Arc;

/// `set` makes or replaces a document, whose text is carried byte for byte, with the writer's time.
pub async fn set_replaces_the_document(s: Subject) {
    assert_eq!(s.document("c", "d").await, None, "a document that was never written is not there");
    for (n, text) in
        (1..).zip([r#"{"b":1.10,"a":{"z":[]}}"#, "{}", r#"{"a":"\u00e9","big":12345678901234567890123}"#])
    {
        let versions = wrote(&s, vec![DocumentWrite { ts: 100 - n, ..set("d", text) }]).await;
        assert_eq!(versions, [n], "the receipt has the version that was written");
        let document = Document::new("d".into(), n, None, 100 - n, json(text));
        assert_eq!(s.document("c", "d").await, Some(document), "a document is what was set");
    }
}

/// `merge` goes by RFC 7396.
pub async fn merge_patches_the_document(s: Subject) {
    let merge = |patch: &str| write("c", "d", WriteOp::Merge(json(patch)));
    wrote(&s, vec![merge(r#"{"a":{"b":1,"c":2},"x":null}"#)]).await;
    assert_eq!(body(&s, "d").await.as_deref(), Some(r#"{"a":{"b":1,"c":2}}"#), "a merge can make a document");
    let versions = wrote(&s, vec![merge(r#"{"a":{"b":null,"d":[1,null]},"e":5}"#)]).await;
    assert_eq!(versions, [2]);
    let merged = r#"{"a":{"c":2,"d":[1,null]},"e":5}"#;
    assert_eq!(
        body(&s, "d").await.as_deref(),
        Some(merged),
        "null removes, objects merge, the rest replaces"
    );
}

/// `inc` adds to numbers, absent ones counting as 0, and integers stay exact.
pub async fn inc_adds_to_numbers(s: Subject) {
    wrote(&s, vec![inc("d", r#"{"n":9007199254740993}"#)]).await;
    wrote(&s, vec![inc("d", r#"{"n":1,"m":-2}"#)]).await;
    assert_eq!(
        body(&s, "d").await.as_deref(),
        Some(r#"{"m":-2,"n":9007199254740994}"#),
        "integers stay exact"
    );
    wrote(&s, vec![inc("d", r#"{"m":0.5}"#)]).await;
    assert_eq!(body(&s, "d").await.as_deref(), Some(r#"{"m":-1.5,"n":9007199254740994}"#));
}

/// A sum of integers that does not fit 64 bits is refused, and doubles are added as doubles.
pub async fn integers_stay_exact_or_are_refused(s: Subject) {
    let (most, least) = (i64::MAX, i64::MIN);
    wrote(&s, vec![set("d", &format!(r#"{{"most":{most},"least":{least},"half":0.5}}"#))]).await;
    for (field, amount) in [("most", "1"), ("least", "-1"), ("most", "9223372036854775808")] {
        let writes = vec![set("new", "{}"), inc("d", &format!(r#"{{"half":1,"{field}":{amount}}}"#))];
        let refused = refusal(commit(&s, writes).await);
        let error = WriteError::SumOutOfRange(field.into());
        assert_eq!(refused, CommitError::BadWrite { index: 1, key: "d".into(), error });
        assert_eq!(s.document("c", "new").await, None, "a refused commit writes nothing");
    }
    let before = format!(r#"{{"most":{most},"least":{least},"half":0.5}}"#);
    assert_eq!(body(&s, "d").await, Some(before), "a refused commit writes nothing");
    wrote(&s, vec![inc("d", r#"{"most":-1,"least":1,"half":1}"#), inc("d", r#"{"most":1,"least":-1}"#)])
        .await;
    let after = format!(r#"{{"half":1.5,"least":{least},"most":{most}}}"#);
    assert_eq!(body(&s, "d").await, Some(after), "what fits is exact");
    wrote(&s, vec![inc("d", r#"{"most":1.0}"#)]).await;
    let Some(document) = s.document("c", "d").await else { panic!("it is there") };
    let most = must(document.body.to_value(), "a document is JSON")["most"].as_f64();
    assert_eq!(most, Some(9_223_372_036_854_775_808.0), "with a double it is a double");
    let refused = refusal(commit(&s, vec![inc("d", r#"{"most":1}"#)]).await);
    let error = WriteError::InexactSum("most".into());
    assert_eq!(
        refused,
        CommitError::BadWrite { index: 0, key: "d".into(), error },
        "it would stay what it is"
    );
    wrote(&s, vec![set("z", r#"{"n":9007199254740993}"#), inc("z", r#"{"n":-0}"#)]).await;
    assert_eq!(body(&s, "z").await.as_deref(), Some(r#"{"n":9007199254740993}"#), "-0 is an integer");
}

/// A document as large as can be.
fn large(key: &str) -> DocumentWrite {
    set(key, &format!(r#"{{"pad":"{}"}}"#, "x".repeat(MAX_BODY_BYTES - 100)))
}

/// Many writes to one large document are one change of it, whose cost is that of the document.
pub async fn many_writes_to_a_large_document_are_one_change(s: Subject) {
    const WRITES: u64 = 1_100;
    wrote(&s, vec![large("d")]).await;
    let one = || inc("d", r#"{"n":1}"#);
    let versions = wrote(&s, (0..WRITES).map(|_| one()).collect()).await;
    assert_eq!(versions, (2..WRITES + 2).collect::<Vec<_>>(), "versions count each write");
    let s = s.reopened().await;
    let Some(document) = s.document("c", "d").await else { panic!("it is there") };
    assert_eq!(document.version, WRITES + 1);
    assert_eq!(must(document.body.to_value(), "a document is JSON")["n"], WRITES);
}

/// A document holds only so many values, however it comes to them; what is beyond that is refused before it is read.
pub async fn a_document_holds_only_so_many_values(s: Subject) {
    // The document itself and the list are values, too.
    let many = |count: usize| format!(r#"{{"a":[{}]}}"#, vec!["0"; count - 2].join(","));
    let bad = |count| {
        let error = WriteError::TooManyValues(count);
        CommitError::BadWrite { index: 0, key: "d".into(), error }
    };
    for op in [WriteOp::Set, WriteOp::Merge] {
        let refused = commit(&s, vec![write("c", "d", op(json(&many(MAX_VALUES + 1))))]).await;
        assert_eq!(refusal(refused), bad(MAX_VALUES + 1));
    }
    assert_eq!(s.document("c", "d").await, None, "a refused commit writes nothing");
    wrote(&s, vec![set("d", &many(MAX_VALUES))]).await;
    assert_eq!(refusal(commit(&s, vec![inc("d", r#"{"n":1}"#)]).await), bad(MAX_VALUES + 1));
    let merge = |patch: &str| write("c", "d", WriteOp::Merge(json(patch)));
    wrote(&s, vec![merge(r#"{"a":null}"#), inc("d", r#"{"n":1}"#), merge(&many(1_000))]).await;
    // What takes the place of other values is not counted twice.
    wrote(&s, (0..MAX_VALUES / 1_000 + 1).map(|_| merge(&many(1_000))).collect()).await;
}

/// A commit counts documents that it reads and changes by their values, because that is what they cost.
pub async fn many_small_values_are_counted_as_what_they_cost(s: Subject) {
    let body = format!(r#"{{"a":[{}]}}"#, vec!["0"; MAX_VALUES - 10].join(","));
    let keys: Vec<String> = (0..20).map(|n| format!("d{n}")).collect();
    wrote(&s, keys.iter().map(|key| set(key, &body)).collect()).await;
    let incs = |count: usize| keys[..count].iter().map(|key| inc(key, r#"{"n":1}"#)).collect();
    let refused = refusal(commit(&s, incs(20)).await);
    assert!(matches!(refused, CommitError::TooLarge { .. }), "{refused:?}");
    wrote(&s, incs(10)).await;
}

/// A commit that makes more than the limit is refused, with what was counted, and leaves nothing.
pub async fn what_a_commit_makes_is_bounded(s: Subject) {
    let keys: Vec<String> = (0..=DEFAULT_RESULT_BYTES / MAX_BODY_BYTES).map(|n| format!("d{n}")).collect();
    for key in &keys {
        wrote(&s, vec![large(key)]).await;
    }
    let topic = s.create("bounded", partitions(1)).await;
    let ops = [WriteOp::Merge(json(r#"{"pad":null}"#)), WriteOp::Inc(json(r#"{"n":1}"#)), WriteOp::Delete];
    let events = s.place(&topic, [event("1")]);
    let documents =
        keys.iter().zip(ops.iter().cycle()).map(|(key, op)| write("c", key, op.clone())).collect();
    match refusal(s.commit(Commit { events, documents, ..Commit::default() }).await) {
        CommitError::TooLarge { bytes, limit } => {
            assert_eq!(limit, DEFAULT_RESULT_BYTES);
            assert!(bytes > limit && bytes <= limit + 2 * MAX_BODY_BYTES, "{bytes} were counted");
        }
        other => panic!("it makes too much, but: {other:?}"),
    }
    s.assert_holds(&topic, 0, &[]).await;
    let Some(first) = s.document("c", &keys[0]).await else { panic!("it is there") };
    assert_eq!(first.version, 1, "a refused commit writes nothing");
    assert_eq!(wrote(&s, vec![inc(&keys[0], r#"{"n":1}"#)]).await, [2], "and less is done");
}

/// `delete` removes a document, and one that is written after that starts over.
pub async fn a_deleted_document_starts_over(s: Subject) {
    let delete = || write("c", "d", WriteOp::Delete);
    assert_eq!(wrote(&s, vec![delete()]).await, [0], "what is not there can be deleted");
    assert_eq!(wrote(&s, vec![set("d", "{}")]).await, [1]);
    assert_eq!(wrote(&s, vec![set("d", "{}")]).await, [2]);
    assert_eq!(wrote(&s, vec![delete()]).await, [0], "a deleted document has version 0");
    assert_eq!(s.document("c", "d").await, None, "a deleted document is gone");
    assert_eq!(wrote(&s, vec![inc("d", r#"{"n":1}"#)]).await, [1], "versions start over");
    assert_eq!(body(&s, "d").await.as_deref(), Some(r#"{"n":1}"#), "nothing of the deleted one is left");
}

/// A write on a condition happens just when the document has that version, 0 meaning that there is none.
pub async fn a_version_can_be_demanded(s: Subject) {
    let demand =
        |version: u64, op: WriteOp| vec![DocumentWrite { if_version: Some(version), ..write("c", "d", op) }];
    let put = |n: u64| WriteOp::Set(json(&format!("{{\"n\":{n}}}")));
    let conflict = |actual| CommitError::VersionConflict { collection: "c".into(), key: "d".into(), actual };
    assert_eq!(refusal(commit(&s, demand(1, put(0))).await), conflict(0), "there is no document");
    assert_eq!(wrote(&s, demand(0, put(1))).await, [1], "0 means that there is none");
    for wrong in [0, 2, u64::MAX] {
        assert_eq!(refusal(commit(&s, demand(wrong, put(9))).await), conflict(1), "it has version 1");
        assert_eq!(refusal(commit(&s, demand(wrong, WriteOp::Delete)).await), conflict(1));
    }
    assert_eq!(wrote(&s, demand(1, put(2))).await, [2]);
    assert_eq!(body(&s, "d").await.as_deref(), Some(r#"{"n":2}"#));
    assert_eq!(wrote(&s, demand(2, WriteOp::Delete)).await, [0], "a delete can be conditional too");
    assert_eq!(wrote(&s, demand(0, put(3))).await, [1], "a deleted document is none");
}

/// The writes of one commit happen in order, each on top of the earlier ones.
pub async fn writes_of_a_commit_see_each_other(s: Subject) {
    let demand = |version, write| DocumentWrite { if_version: Some(version), ..write };
    let writes = vec![
        demand(0, set("d", r#"{"n":1}"#)),
        demand(1, inc("d", r#"{"n":2}"#)),
        set("e", "{}"),
        inc("d", r#"{"n":3}"#),
        write("c", "e", WriteOp::Delete),
        demand(0, set("e", r#"{"again":true}"#)),
    ];
    let versions = wrote(&s, writes).await;
    assert_eq!(versions, [1, 2, 1, 3, 0, 1], "the versions of a receipt are in the order of the writes");
    assert_eq!(body(&s, "d").await.as_deref(), Some(r#"{"n":6}"#));
    assert_eq!(body(&s, "e").await.as_deref(), Some(r#"{"again":true}"#));
    let error = refusal(commit(&s, vec![set("d", "{}"), demand(3, set("d", "{}"))]).await);
    let conflict = CommitError::VersionConflict { collection: "c".into(), key: "d".into(), actual: 4 };
    assert_eq!(error, conflict, "a condition sees the earlier writes of its commit");
    assert_eq!(body(&s, "d").await.as_deref(), Some(r#"{"n":6}"#), "a refused commit writes nothing");
}

/// A write that makes no sense is refused, with all that came with it.
pub async fn a_write_that_makes_no_sense_is_refused(s: Subject) {
    wrote(&s, vec![set("d", r#"{"text":"x"}"#)]).await;
    let not_object = WriteError::NotAnObject;
    let bad = [
        (WriteOp::Set(json("[1]")), not_object.clone()),
        (WriteOp::Set(json("null")), not_object.clone()),
        (WriteOp::Merge(json("1")), not_object.clone()),
        (WriteOp::Inc(json("1")), not_object),
        (WriteOp::Inc(json(r#"{"text":1}"#)), WriteError::NotANumber("text".into())),
        (WriteOp::Inc(json(r#"{"n":"1"}"#)), WriteError::NotANumber("n".into())),
    ];
    for (op, error) in bad {
        let writes =
            vec![set("new", "{}"), set("d", r#"{"text":"y"}"#), write("c", "d", op.clone()), set("d", "{}")];
        let refused = refusal(commit(&s, writes).await);
        assert_eq!(refused, CommitError::BadWrite { index: 2, key: "d".into(), error }, "{op:?}");
        assert_eq!(
            body(&s, "d").await.as_deref(),
            Some(r#"{"text":"x"}"#),
            "a refused commit writes nothing"
        );
        assert_eq!(s.document("c", "new").await, None, "a refused commit writes nothing");
    }
}

/// Collections do not share documents.
pub async fn collections_are_apart(s: Subject) {
    wrote(&s, vec![set("d", r#"{"in":"c"}"#), write("e", "d", WriteOp::Set(json(r#"{"in":"e"}"#)))]).await;
    wrote(&s, vec![write("e", "d", WriteOp::Delete)]).await;
    assert_eq!(s.document("e", "d").await, None);
    assert_eq!(body(&s, "d").await.as_deref(), Some(r#"{"in":"c"}"#), "a collection has its own documents");
    for other in ["", "cc", "C"] {
        assert_eq!(s.document(other, "d").await, None, "{other:?} is another collection");
    }
}

/// An increment that was answered counts, from however many tasks they come.
pub async fn concurrent_increments_all_count(s: Subject) {
    let s = Arc::new(s);
    together(8, |_| {
        let s = s.clone();
        async move {
            for _ in 0..20 {
                wrote(&s, vec![inc("d", r#"{"n":1}"#)]).await;
            }
        }
    })
    .await;
    assert_eq!(body(&s, "d").await.as_deref(), Some(r#"{"n":160}"#), "each increment counts once");
    assert_eq!(s.document("c", "d").await.map(|document| document.version), Some(160), "each is a version");
}

/// Of writes that demand the same version, one wins.
pub async fn of_equal_versions_one_wins(s: Subject) {
    let s = Arc::new(s);
    for version in 0..15 {
        let answers = together(6, |n| {
            let write = DocumentWrite { if_version: Some(version), ..set("d", &format!("{{\"n\":{n}}}")) };
            let s = s.clone();
            async move { commit(&s, vec![write]).await }
        })
        .await;
        let winners: Vec<usize> = (0..6).filter(|n| answers[*n].is_ok()).collect();
        assert_eq!(winners.len(), 1, "of writes that demand the same version one wins");
        assert_eq!(
            body(&s, "d").await,
            Some(format!("{{\"n\":{}}}", winners[0])),
            "the one that was answered"
        );
        for error in answers.into_iter().filter_map(Result::err) {
            let actual = version + 1;
            assert_eq!(
                error,
                CommitError::VersionConflict { collection: "c".into(), key: "d".into(), actual }
            );
        }
    }
}

/// A commit of documents is always flushed.
pub async fn documents_are_always_flushed(s: Subject) {
    let receipt = must(commit(&s, vec![set("d", "{}")]).await, "documents can be written");
    assert_eq!(receipt.durability, Durability::Sync, "documents belong to no topic and are always flushed");
}
