//! Unique indexes: what they refuse, and when.

use super::{
    all, body, collection, commit, delete, index, indexed, is, keys_of, put, set, unique, when, wrote,
};
use crate::Subject;
use crate::subject::{must, refusal};
use prombus_core::CommitError;

fn not_unique(index: usize, key: &str, other: &str, fields: &[&str]) -> CommitError {
    let fields = fields.iter().map(|field| (*field).to_owned()).collect();
    CommitError::NotUnique { index, collection: "c".into(), key: key.into(), other: other.into(), fields }
}

async fn make(s: &Subject, fields: &[&str]) {
    let config = indexed(vec![index(&["n"]), unique(fields)]);
    must(s.configure(put("c", 0, config)).await, "a collection can be made with a unique index");
}

/// No two documents have the same values in all fields of a unique index.
pub async fn a_unique_index_refuses_the_same_values(s: Subject) {
    make(&s, &["host", "o.port"]).await;
    wrote(&s, vec![set("a", r#"{"host":"x","o":{"port":1},"n":1}"#)]).await;
    let same = || set("b", r#"{"host":"x","o":{"port":1.0},"n":2}"#);
    let refused = refusal(commit(&s, vec![set("z", "{}"), same()]).await);
    assert_eq!(refused, not_unique(1, "b", "a", &["host", "o.port"]), "1.0 is the same as 1");
    assert_eq!(s.document("c", "z").await, None, "a refused commit writes nothing");
    let others = [
        set("b", r#"{"host":"x","o":{"port":2},"n":1}"#),
        set("d", r#"{"host":"y","o":{"port":1},"n":1}"#),
        set("e", r#"{"host":"x","o":{"port":"1"},"n":1}"#),
        set("a", r#"{"host":"x","o":{"port":1},"n":7}"#),
    ];
    assert_eq!(wrote(&s, others.into()).await, [1, 1, 1, 2], "another value in one field is enough");
    let s = s.reopened().await;
    assert_eq!(refusal(commit(&s, vec![same()]).await), not_unique(0, "b", "a", &["host", "o.port"]));
    assert_eq!(keys_of(&s, when(when(all("c"), "host", is("x")), "n", is("7"))).await, ["a"]);
}

/// The writes of one commit are compared with each other too.
pub async fn a_unique_index_sees_the_earlier_writes_of_a_commit(s: Subject) {
    make(&s, &["v"]).await;
    let refused = refusal(commit(&s, vec![set("a", r#"{"v":1}"#), set("b", r#"{"v":1}"#)]).await);
    assert_eq!(refused, not_unique(1, "b", "a", &["v"]));
    assert_eq!(s.document("c", "a").await, None, "a refused commit writes nothing");
    wrote(&s, vec![set("a", r#"{"v":1}"#), set("b", r#"{"v":2}"#)]).await;
    let refused = refusal(commit(&s, vec![set("a", r#"{"v":2}"#), set("b", r#"{"v":1}"#)]).await);
    assert_eq!(refused, not_unique(0, "a", "b", &["v"]), "each write must be right when it happens");
    let turn = [set("a", r#"{"v":3}"#), set("b", r#"{"v":1}"#), set("a", r#"{"v":2}"#)];
    wrote(&s, turn.into()).await;
    assert_eq!(
        (body(&s, "a").await.as_deref(), body(&s, "b").await.as_deref()),
        (Some(r#"{"v":2}"#), Some(r#"{"v":1}"#))
    );
}

/// Values are free again once no document has them.
pub async fn a_unique_index_frees_what_is_gone(s: Subject) {
    make(&s, &["v"]).await;
    wrote(&s, vec![set("a", r#"{"v":"é"}"#)]).await;
    wrote(&s, vec![delete("a"), set("b", r#"{"v":"é"}"#)]).await;
    wrote(&s, vec![set("b", r#"{"v":"other"}"#)]).await;
    let s = s.reopened().await;
    wrote(&s, vec![set("d", r#"{"v":"é"}"#)]).await;
    let refused = refusal(commit(&s, vec![set("a", r#"{"v":"é"}"#)]).await);
    assert_eq!(refused, not_unique(0, "a", "d", &["v"]), "and taken again by whoever has them");
}

/// Documents that lack a field of a unique index are as many as there may be; null is a value.
pub async fn what_lacks_a_field_is_not_compared(s: Subject) {
    make(&s, &["v", "w"]).await;
    let lacking = [set("a", "{}"), set("b", "{}"), set("d", r#"{"v":1}"#), set("e", r#"{"v":1}"#)];
    wrote(&s, lacking.into()).await;
    wrote(&s, vec![set("f", r#"{"v":1,"w":null}"#)]).await;
    let refused = refusal(commit(&s, vec![set("e", r#"{"v":1,"w":null}"#)]).await);
    assert_eq!(refused, not_unique(0, "e", "f", &["v", "w"]));
}

/// A unique index cannot be made over documents that have the same values, and nothing changes then.
pub async fn a_unique_index_over_equal_values_is_refused(s: Subject) {
    wrote(&s, vec![set("a", r#"{"v":1}"#), set("b", r#"{"v":1}"#), set("d", "{}"), set("e", "{}")]).await;
    let before = collection(&s, "c").await;
    let config = || indexed(vec![index(&["v"]), unique(&["v"])]);
    let refused = refusal(s.configure(put("c", 1, config())).await);
    let fits = |key: &str, other: &str| refused == not_unique(0, key, other, &["v"]);
    assert!(fits("a", "b") || fits("b", "a"), "the equal documents are named, but: {refused:?}");
    assert_eq!(collection(&s, "c").await, before, "a refused change leaves the settings as they were");
    wrote(&s, vec![set("f", r#"{"v":1}"#)]).await;
    wrote(&s, vec![set("b", r#"{"v":2}"#), delete("f")]).await;
    must(s.configure(put("c", 1, config())).await, "what lacks the field is in nobody's way");
    let s = s.reopened().await;
    assert_eq!(refusal(commit(&s, vec![set("b", r#"{"v":1}"#)]).await), not_unique(0, "b", "a", &["v"]));
}

/// An index that becomes unique, or no longer is, holds for what is there and for what comes.
pub async fn an_index_can_become_unique(s: Subject) {
    must(s.configure(put("c", 0, indexed(vec![index(&["v"])]))).await, "a collection can be made");
    wrote(&s, vec![set("a", r#"{"v":1}"#), set("b", r#"{"v":2}"#)]).await;
    must(s.configure(put("c", 1, indexed(vec![unique(&["v"])]))).await, "an index can become unique");
    assert_eq!(refusal(commit(&s, vec![set("b", r#"{"v":1}"#)]).await), not_unique(0, "b", "a", &["v"]));
    must(s.configure(put("c", 2, indexed(Vec::new()))).await, "an index can be removed");
    wrote(&s, vec![set("b", r#"{"v":1}"#)]).await;
    refusal(s.configure(put("c", 3, indexed(vec![unique(&["v"])]))).await);
    wrote(&s, vec![delete("a")]).await;
    must(s.configure(put("c", 3, indexed(vec![unique(&["v"])]))).await, "and made again");
    let s = s.reopened().await;
    assert_eq!(keys_of(&s, when(all("c"), "v", is("1"))).await, ["b"]);
}
