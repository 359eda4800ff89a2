//! Values that are longer than an index takes of a document: what is refused, what fails, and what is found.

use super::{
    all, body, built, by, collection, commit, delete, found, index, indexed, keys_of, put, set, unique, when,
    write, wrote,
};
use crate::Subject;
use crate::build::json;
use crate::subject::{must, refusal};
use prombus_core::collection::{
    IndexFailure, IndexState, MAX_INDEX_VALUE_BYTES, MAX_INDEXES, Operand, Progress, Test,
};
use prombus_core::commit::DEFAULT_RESULT_BYTES;
use prombus_core::{CommitError, WriteOp};
use serde_json::Value;

/// What the encoding of a string takes beside its text.
const STRING: usize = 3;

/// A string that takes so many bytes in an index.
fn text(bytes: usize) -> String {
    "x".repeat(bytes - STRING)
}

/// A string that is too long by so many bytes.
fn long(by: usize) -> String {
    text(MAX_INDEX_VALUE_BYTES + by)
}

fn with_v(v: &str) -> String {
    format!(r#"{{"v":"{v}"}}"#)
}

fn too_long(index: usize, key: &str, fields: &[&str], bytes: usize) -> CommitError {
    let fields = fields.iter().map(|field| (*field).to_owned()).collect();
    CommitError::IndexValueTooLong { index, collection: "c".into(), key: key.into(), fields, bytes }
}

fn equals(value: impl Into<Value>) -> Test {
    Test::Eq(Operand::value(value.into()))
}

/// The values that a document has in an index, all together, have a longest length; what is in no index has not.
pub async fn values_too_long_for_an_index_are_refused(s: Subject) {
    let config = indexed(vec![index(&["n"]), index(&["v", "o.w"]), unique(&["u"])]);
    must(s.configure(put("c", 0, config)).await, "a collection can be made with indexes");
    let half = MAX_INDEX_VALUE_BYTES / 2;
    let pair = |v: usize, w: usize| format!(r#"{{"v":"{}","o":{{"w":"{}"}}}}"#, text(v), text(w));
    wrote(&s, vec![set("a", &pair(half, half))]).await;
    let refused = refusal(commit(&s, vec![set("z", "{}"), set("b", &pair(half, half + 1))]).await);
    assert_eq!(refused, too_long(1, "b", &["v", "o.w"], MAX_INDEX_VALUE_BYTES + 1));
    assert_eq!(s.document("c", "z").await, None, "a refused commit writes nothing");
    let unique = set("b", &format!(r#"{{"u":"{}"}}"#, long(7)));
    assert_eq!(refusal(commit(&s, vec![unique]).await), too_long(0, "b", &["u"], MAX_INDEX_VALUE_BYTES + 7));
    let patch = write("c", "a", WriteOp::Merge(json(&with_v(&text(half + 1)))));
    let s = s.reopened().await;
    let refused = refusal(commit(&s, vec![patch]).await);
    assert_eq!(
        refused,
        too_long(0, "a", &["v", "o.w"], MAX_INDEX_VALUE_BYTES + 1),
        "the whole document counts"
    );
    let array = format!(r#"{{"n":[{}]}}"#, vec!["1"; MAX_INDEX_VALUE_BYTES].join(","));
    let refused = refusal(commit(&s, vec![set("b", &array)]).await);
    assert!(
        matches!(refused, CommitError::IndexValueTooLong { bytes, .. } if bytes > 10 * MAX_INDEX_VALUE_BYTES)
    );
    wrote(&s, vec![set("b", &format!(r#"{{"free":"{}","o":{{"x":"{}"}}}}"#, long(9_999), long(9_999)))])
        .await;
    assert_eq!(
        keys_of(&s, when(all("c"), "v", equals(text(half)))).await,
        ["a"],
        "what fits is in the index"
    );
}

/// Each write of a commit must be right when it happens, so that the one is named that is to blame.
pub async fn each_write_of_a_commit_is_short_enough_for_indexes(s: Subject) {
    must(s.configure(put("c", 0, indexed(vec![index(&["v"])]))).await, "a collection can be made");
    let add = || write("c", "a", WriteOp::Inc(json(r#"{"n":1}"#)));
    let writes = vec![add(), set("a", &with_v(&long(1))), add(), set("a", "{}")];
    let refused = refusal(commit(&s, writes).await);
    assert_eq!(refused, too_long(1, "a", &["v"], MAX_INDEX_VALUE_BYTES + 1));
    wrote(&s, vec![add(), set("a", &with_v(&text(MAX_INDEX_VALUE_BYTES))), add(), add()]).await;
    assert!(body(&s, "a").await.is_some_and(|body| body.contains("\"n\":2")));
}

/// How many documents are there when an index is made of them.
const MANY: usize = 30;

/// Many documents, of which one in the middle has a value that is too long.
async fn with_a_long_one(s: &Subject) {
    let long = set("k15", &with_v(&long(5)));
    let documents =
        (0..MANY).filter(|n| *n != 15).map(|n| set(&format!("k{n:02}"), &format!(r#"{{"v":{n}}}"#)));
    wrote(s, documents.chain([long]).collect()).await;
}

/// An index over a value that is too long fails, names its document and disturbs nobody. Once the value is shorter, it
/// can be put again.
pub async fn an_index_over_values_that_are_too_long_fails(s: Subject) {
    with_a_long_one(&s).await;
    let config = || indexed(vec![index(&["n"]), unique(&["v"]), index(&["n", "v"])]);
    must(s.configure(put("c", 1, config())).await, "the settings of a collection can be changed");
    let state = built(&s, "c").await;
    let bytes = |more: usize| MAX_INDEX_VALUE_BYTES + 5 + more;
    let failed = |bytes| Progress::Failed(IndexFailure::TooLong { key: "k15".into(), bytes });
    assert_eq!(state.indexes[0].progress, Progress::Ready, "other indexes are made");
    assert_eq!(state.indexes[1].progress, failed(bytes(0)));
    assert_eq!(state.indexes[2].progress, failed(bytes(1)), "that there is no value takes a byte");
    let s = s.reopened().await;
    let again = must(collection(&s, "c").await.ok_or("none"), "the collection is there");
    assert_eq!(again.indexes, state.indexes, "it stays so");
    wrote(&s, vec![set("k15", &with_v(&long(6))), set("new", &with_v(&long(7)))]).await;
    assert_eq!(keys_of(&s, when(all("c"), "v", equals(long(6)))).await, ["k15"], "it is not enforced");
    assert_eq!(keys_of(&s, when(all("c"), "v", equals(7))).await, ["k07"]);
    wrote(&s, vec![set("k15", r#"{"v":"short"}"#), delete("new")]).await;
    must(s.configure(put("c", state.revision, config())).await, "the settings can be put again");
    assert!(built(&s, "c").await.indexes.iter().all(IndexState::is_ready), "it is begun anew, and holds");
    let refused = refusal(commit(&s, vec![set("new", &with_v(&long(7)))]).await);
    assert_eq!(refused, too_long(0, "new", &["v"], bytes(2)));
    assert_eq!(keys_of(&s, when(all("c"), "v", equals("short"))).await, ["k15"]);
}

/// While an index is made, what is too long for it is refused already, wherever the making is.
pub async fn values_too_long_for_an_index_are_refused_while_it_is_made(s: Subject) {
    wrote(&s, (0..MANY).map(|n| set(&format!("k{n:02}"), &format!(r#"{{"v":{n}}}"#))).collect()).await;
    must(s.configure(put("c", 1, indexed(vec![index(&["v"])]))).await, "an index can be added");
    for key in ["k00", "k29", "a", "z"] {
        let refused = refusal(commit(&s, vec![set(key, &with_v(&long(1)))]).await);
        assert_eq!(refused, too_long(0, key, &["v"], MAX_INDEX_VALUE_BYTES + 1));
    }
    assert!(built(&s, "c").await.indexes[0].is_ready(), "a write that was refused leaves no trace");
    assert_eq!(keys_of(&s, by(all("c"), "v")).await.len(), MANY);
}

/// Whoever looks for a value that is too long for an index finds what has it, or nothing.
pub async fn a_search_for_a_value_too_long_for_an_index_is_answered(s: Subject) {
    with_a_long_one(&s).await;
    let config = indexed(vec![index(&["n"]), index(&["n", "v"]), unique(&["w"])]);
    must(s.configure(put("c", 1, config)).await, "indexes can be added");
    built(&s, "c").await;
    // One has it and no index on it; of others nothing is so long.
    for path in ["v", "n", "w", "_key", "_ts", "_v"] {
        let expected: &[&str] = if path == "v" { &["k15"] } else { &[] };
        let test = |test: fn(Operand) -> Test| when(all("c"), path, test(Operand::value(long(5).into())));
        assert_eq!(keys_of(&s, test(Test::Eq)).await, expected, "{path}");
        let some = Test::In(vec![Operand::value(long(5).into()), Operand::value(long(6).into())]);
        assert_eq!(keys_of(&s, when(all("c"), path, some)).await, expected, "{path}");
        assert_eq!(found(&s, test(Test::Ne)).await.documents.len(), MANY - expected.len(), "{path}");
        assert_eq!(keys_of(&s, test(Test::Gte)).await, expected, "{path}");
        let less = if path == "_key" { MANY } else { 0 };
        assert_eq!(keys_of(&s, test(Test::Lt)).await.len(), less, "{path}");
    }
    let both = when(when(all("c"), "n", Test::Ne(Operand::value(1.into()))), "v", equals(long(5)));
    assert_eq!(keys_of(&s, both).await, ["k15"]);
}

/// What a commit makes of indexes counts with the rest: small documents may have many long rows.
pub async fn what_a_commit_makes_of_indexes_is_bounded(s: Subject) {
    let others: Vec<String> = (1..MAX_INDEXES).map(|n| format!("f{n}")).collect();
    let indexes = others.iter().map(|other| index(&["v", other])).chain([index(&["v"])]);
    must(s.configure(put("c", 0, indexed(indexes.collect()))).await, "a collection can have many indexes");
    // Eleven bytes in each index for each digit.
    let body = format!(r#"{{"v":[{}]}}"#, vec!["1"; 300].join(","));
    let all = DEFAULT_RESULT_BYTES / (MAX_INDEXES * 11 * 300) + 1;
    let documents = |count: usize| (0..count).map(|n| set(&format!("k{n}"), &body)).collect();
    match refusal(commit(&s, documents(all)).await) {
        CommitError::TooLarge { bytes, limit } => {
            assert_eq!(limit, DEFAULT_RESULT_BYTES);
            assert!(bytes <= limit + 2 * MAX_INDEXES * MAX_INDEX_VALUE_BYTES, "{bytes} were counted");
        }
        other => panic!("it makes too much, but: {other:?}"),
    }
    assert_eq!(s.document("c", "k0").await, None, "a refused commit writes nothing");
    wrote(&s, documents(10)).await;
    let again: Vec<_> = (0..all).map(|_| set("k0", &body)).collect();
    wrote(&s, again).await;
    assert_eq!(
        keys_of(&s, by(super::all("c"), "v")).await.len(),
        10,
        "a document that is written often counts once"
    );
}
