//! What readers see of versions, writes of several fields at once, receipts that are kept, and etags.

use super::{all, body, commit, delete, found, keys_of, set, when, write, wrote};
use crate::Subject;
use crate::build::{event, json, partitions};
use crate::subject::{must, refusal};
use prombus_core::document::{self, WriteError};
use prombus_core::{
    Commit, CommitError, Document, DocumentWrite, Json, KeptReceipt, Owner, Versioning, WriteOp,
};
use serde_json::{Map, Value, json};

async fn revision(s: &Subject, key: &str) -> Option<i64> {
    s.document("c", key).await.and_then(|document| document.revision)
}

fn text(json: &Json) -> String {
    String::from_utf8_lossy(json.as_bytes()).into_owned()
}

/// `_v` counts writes where that is asked for, and is not there where it is not.
pub async fn counted_versions_are_shown(s: Subject) {
    let counted = |write| DocumentWrite { versioning: Versioning::Count, ts: 5, ..write };
    wrote(&s, vec![counted(set("a", "{}")), counted(set("a", r#"{"x":1}"#)), set("b", "{}")]).await;
    let s = s.reopened().await;
    assert_eq!((revision(&s, "a").await, revision(&s, "b").await), (Some(2), None));
    let shown = s.document("c", "a").await.map(|document| text(&document.to_json()));
    assert_eq!(shown.as_deref(), Some(r#"{"_key":"a","_ts":5,"_v":2,"x":1}"#), "readers see it");
    wrote(&s, vec![delete("a"), counted(set("a", "{}"))]).await;
    assert_eq!(revision(&s, "a").await, Some(1), "a deleted document starts over");
}

/// A write with a version of its own happens only where that is greater, and the receipt says what is there.
pub async fn only_a_newer_version_is_written(s: Subject) {
    let newer =
        |revision, op| DocumentWrite { versioning: Versioning::Newer(revision), ..write("c", "a", op) };
    let put = |n: i64| newer(n, WriteOp::Set(json(&format!("{{\"n\":{n}}}"))));
    assert_eq!(wrote(&s, vec![put(-5)]).await, [1], "the first one is always newer");
    assert_eq!(wrote(&s, vec![put(10)]).await, [2]);
    let s = s.reopened().await;
    for old in [10, 9, -5, i64::MIN] {
        assert_eq!(wrote(&s, vec![put(old)]).await, [2], "the receipt has the version that is there");
        assert_eq!(wrote(&s, vec![newer(old, WriteOp::Delete)]).await, [2], "an old delete is left out too");
        assert_eq!(
            (body(&s, "a").await.as_deref(), revision(&s, "a").await),
            (Some(r#"{"n":10}"#), Some(10))
        );
    }
    assert_eq!(wrote(&s, vec![put(12), put(11), put(i64::MAX)]).await, [3, 3, 4], "within a commit as well");
    assert_eq!(revision(&s, "a").await, Some(i64::MAX));
    let conflict = DocumentWrite { if_version: Some(9), ..put(1) };
    let refused = refusal(commit(&s, vec![conflict]).await);
    let expected = CommitError::VersionConflict { collection: "c".into(), key: "a".into(), actual: 4 };
    assert_eq!(refused, expected, "a demanded version is looked at first");
    assert_eq!(keys_of(&s, when(all("c"), "_v", super::is("9223372036854775807"))).await, ["a"]);
}

/// Versions and owners are looked at before any document is changed: so what is refused for them is refused for them, whatever
/// else is wrong with the commit.
pub async fn what_decides_without_reading_is_looked_at_first(s: Subject) {
    wrote(&s, vec![set("a", r#"{"n":"text"}"#), set("b", "{}")]).await;
    let wrong = || write("c", "a", WriteOp::Inc(json(r#"{"n":1}"#)));
    let refused = refusal(commit(&s, vec![wrong()]).await);
    assert!(matches!(refused, CommitError::BadWrite { index: 0, .. }), "{refused:?}");
    let at = |version, write| DocumentWrite { if_version: Some(version), ..write };
    let last = vec![wrong(), at(1, set("b", "{}")), at(2, delete("b")), at(3, set("b", "{}"))];
    let conflict = CommitError::VersionConflict { collection: "c".into(), key: "b".into(), actual: 0 };
    assert_eq!(refusal(commit(&s, last).await), conflict, "as if those before it had been made");
    let owner = Owner::projection("p");
    let others = DocumentWrite { owner, ..set("b", "{}") };
    let refused = refusal(commit(&s, vec![wrong(), others]).await);
    assert_eq!(refused, CommitError::NotOwner { collection: "c".into(), owner: None });
    assert_eq!(body(&s, "b").await.as_deref(), Some("{}"));
}

/// An update sets some fields, adds to others, and leaves the rest.
pub async fn update_sets_and_adds(s: Subject) {
    let fields = |value: Value| match value {
        Value::Object(fields) => fields,
        other => panic!("{other} is no object"),
    };
    let update =
        |set: Value, inc: Value| write("c", "a", WriteOp::Update { set: fields(set), inc: fields(inc) });
    wrote(&s, vec![update(json!({"x": {"y": 1}}), json!({"n": 2}))]).await;
    assert_eq!(
        body(&s, "a").await.as_deref(),
        Some(r#"{"n":2,"x":{"y":1}}"#),
        "an update can make a document"
    );
    assert_eq!(wrote(&s, vec![update(json!({"x": null, "z": "é"}), json!({"n": 0.5, "m": -1}))]).await, [2]);
    let s = s.reopened().await;
    let updated = r#"{"m":-1,"n":2.5,"x":null,"z":"é"}"#;
    assert_eq!(body(&s, "a").await.as_deref(), Some(updated), "values are replaced, and null is one");
    let refused = refusal(commit(&s, vec![update(json!({}), json!({"z": 1}))]).await);
    let error = WriteError::NotANumber("z".into());
    assert_eq!(refused, CommitError::BadWrite { index: 0, key: "a".into(), error });
    assert_eq!(
        wrote(&s, vec![write("c", "a", WriteOp::Update { set: Map::new(), inc: Map::new() })]).await,
        [3]
    );
    assert_eq!(
        body(&s, "a").await.as_deref(),
        Some(updated),
        "an empty update changes nothing but the version"
    );
}

/// A kept receipt has the digest that it was given, and the events and the versions of its own commit.
pub async fn a_receipt_can_be_kept(s: Subject) {
    let topic = s.create("receipts", partitions(1)).await;
    wrote(&s, vec![set("b", "{}")]).await;
    let events = s.place(&topic, [event("1").ts(7), event("2").ts(8)]);
    let keep = write("c~receipts", "id", WriteOp::Receipt(u128::MAX - 6));
    let documents = vec![set("a", "{}"), set("b", "{}"), delete("none"), keep];
    let receipt = must(s.commit(Commit { events, documents, ..Commit::default() }).await, "it happens");
    assert_eq!(receipt.versions, [1, 2, 0, 1]);
    let s = s.reopened().await;
    let Some(kept) = s.document("c~receipts", "id").await else { panic!("a receipt is kept") };
    let Some(KeptReceipt { request, receipt: kept }) = KeptReceipt::parse(&kept.body) else {
        panic!("it can be read")
    };
    assert_eq!((request, kept.durability), (u128::MAX - 6, receipt.durability));
    assert_eq!((kept.events, kept.versions), (receipt.events, vec![1, 2, 0]));
}

/// A receipt is bounded by its commit, and not by what a document may take.
pub async fn a_receipt_may_be_larger_than_a_document(s: Subject) {
    let topic = s.create("receipts.large", partitions(1)).await;
    // An event takes at least the text of its id.
    let count = document::MAX_BODY_BYTES / 36 + 1;
    let events = s.place(&topic, (0..count).map(|_| event("1")));
    let documents = vec![write("c~receipts", "large", WriteOp::Receipt(7))];
    let receipt = must(s.commit(Commit { events, documents, ..Commit::default() }).await, "it happens");
    let s = s.reopened().await;
    let Some(kept) = s.document("c~receipts", "large").await else { panic!("a receipt is kept") };
    assert!(kept.body.len() > document::MAX_BODY_BYTES, "{}", kept.body.len());
    let kept = KeptReceipt::parse(&kept.body).map(|kept| (kept.request, kept.receipt.events));
    assert_eq!(kept, Some((7, receipt.events)));
}

/// An etag is another one whenever readers see another document, and only then.
pub async fn an_etag_tells_documents_apart(s: Subject) {
    let versions = [
        DocumentWrite { ts: 1, ..set("a", r#"{"n":1}"#) },
        DocumentWrite { ts: 1, ..set("a", r#"{"n":2}"#) },
        DocumentWrite { ts: 2, ..set("a", r#"{"n":1}"#) },
        DocumentWrite { ts: 1, versioning: Versioning::Newer(0), ..set("a", r#"{"n":1}"#) },
        DocumentWrite { ts: 1, versioning: Versioning::Newer(1), ..set("a", r#"{"n":1}"#) },
        DocumentWrite { ts: 1, ..set("b", r#"{"n":1}"#) },
    ];
    let mut seen: Vec<(String, u128)> = Vec::new();
    for round in 0..2 {
        for write in &versions {
            wrote(&s, vec![delete(&write.key), write.clone()]).await;
            let Some(Document { etag, .. }) = s.document("c", &write.key).await else {
                panic!("a document that was written is there")
            };
            let found = found(&s, when(all("c"), "_key", super::is(&write.key))).await.documents;
            assert_eq!(found.first().map(|document| document.etag), Some(etag), "a search gives the same");
            let shown = found.first().map(|document| text(&document.to_json())).unwrap_or_default();
            for (other, other_etag) in &seen {
                assert_eq!(*other == shown, *other_etag == etag, "{other} and {shown} (round {round})");
            }
            seen.push((shown, etag));
        }
    }
    let before = s.document("c", "b").await;
    let s = s.reopened().await;
    assert_eq!(s.document("c", "b").await, before, "it stays what it was");
}
