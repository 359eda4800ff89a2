//! Indexes: how they are made of what is there, and what unique ones refuse, and when.

use super::{
    all, body, built, by, collection, commit, delete, index, indexed, is, keys_of, put, set, unique, when,
    wrote,
};
use crate::Subject;
use crate::subject::{must, refusal};
use prombus_core::collection::{IndexFailure, IndexState, Progress};
use prombus_core::{CommitError, ConfigChange, DocumentWrite};

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

/// Why a change of settings made no unique index: it was refused, or the index has failed; nobody waits for it then.
async fn clash(s: &Subject, change: ConfigChange) -> [String; 2] {
    let mut keys = match s.configure(change).await {
        Err(CommitError::NotUnique { index: 0, key, other, .. }) => [key, other],
        Err(error) => panic!("a unique index over the same values clashes, and is not {error:?}"),
        Ok(_) => match built(s, "c").await.indexes.iter().find_map(|index| failure(&index.progress)) {
            Some(keys) => keys,
            None => panic!("a unique index over the same values is never ready"),
        },
    };
    keys.sort();
    keys
}

fn failure(progress: &Progress) -> Option<[String; 2]> {
    match progress {
        Progress::Failed(IndexFailure::SameValues { keys }) => Some(keys.clone()),
        Progress::Failed(_) | Progress::Ready | Progress::Building { .. } => None,
    }
}

async fn revision(s: &Subject) -> u64 {
    collection(s, "c").await.map_or(0, |state| state.revision)
}

/// A unique index over documents that have the same values is refused, or fails and names them. Either way it is not
/// enforced, and it can be put again.
pub async fn a_unique_index_over_equal_values_is_refused_or_fails(s: Subject) {
    wrote(&s, vec![set("a", r#"{"v":1}"#), set("b", r#"{"v":1}"#), set("d", "{}"), set("e", "{}")]).await;
    let config = || indexed(vec![index(&["v"]), unique(&["v"])]);
    assert_eq!(clash(&s, put("c", 1, config())).await, ["a", "b"], "the equal documents are named");
    let s = s.reopened().await;
    assert_eq!(keys_of(&s, by(when(all("c"), "v", is("1")), "_key")).await, ["a", "b"]);
    wrote(&s, vec![set("f", r#"{"v":1}"#)]).await;
    wrote(&s, vec![set("b", r#"{"v":2}"#), delete("f")]).await;
    let again = put("c", revision(&s).await, config());
    must(s.configure(again).await, "what lacks the field is in nobody's way");
    assert!(built(&s, "c").await.indexes.iter().all(IndexState::is_ready), "it is begun anew, and holds");
    let s = s.reopened().await;
    assert_eq!(refusal(commit(&s, vec![set("b", r#"{"v":1}"#)]).await), not_unique(0, "b", "a", &["v"]));
}

/// An index that becomes unique, or no longer is, holds for what is there and for what comes.
pub async fn an_index_can_become_unique(s: Subject) {
    must(s.configure(put("c", 0, indexed(vec![index(&["v"])]))).await, "a collection can be made");
    wrote(&s, vec![set("a", r#"{"v":1}"#), set("b", r#"{"v":2}"#)]).await;
    must(s.configure(put("c", 1, indexed(vec![unique(&["v"])]))).await, "an index can become unique");
    built(&s, "c").await;
    assert_eq!(refusal(commit(&s, vec![set("b", r#"{"v":1}"#)]).await), not_unique(0, "b", "a", &["v"]));
    must(s.configure(put("c", 2, indexed(Vec::new()))).await, "an index can be removed");
    wrote(&s, vec![set("b", r#"{"v":1}"#)]).await;
    assert_eq!(clash(&s, put("c", 3, indexed(vec![unique(&["v"])]))).await, ["a", "b"]);
    wrote(&s, vec![delete("a")]).await;
    let again = put("c", revision(&s).await, indexed(vec![unique(&["v"])]));
    must(s.configure(again).await, "and made again");
    let s = s.reopened().await;
    assert_eq!(keys_of(&s, when(all("c"), "v", is("1"))).await, ["b"]);
    assert!(built(&s, "c").await.indexes[0].is_ready());
    assert_eq!(keys_of(&s, when(all("c"), "v", is("1"))).await, ["b"]);
}

/// How many documents are there when an index is made of them.
const MANY: usize = 60;

fn numbered(n: usize, v: usize) -> DocumentWrite {
    set(&format!("k{n:02}"), &format!(r#"{{"v":{v},"n":{n}}}"#))
}

/// Many documents, three of them for each value of `v`, and an index on it that was just added.
async fn with_new_index(s: &Subject) {
    wrote(s, (0..MANY).map(|n| numbered(n, n % (MANY / 3))).collect()).await;
    must(s.configure(put("c", 1, indexed(vec![index(&["v"])]))).await, "an index can be added");
}

/// While an index is made, and across restarts, queries find the same as without it; then it is ready.
pub async fn queries_are_right_while_an_index_is_made(s: Subject) {
    with_new_index(&s).await;
    let mut s = s;
    for n in 0..MANY / 3 {
        let key = |n: usize| format!("k{n:02}");
        let expected = [key(n), key(n + MANY / 3), key(n + 2 * MANY / 3)];
        assert_eq!(keys_of(&s, by(when(all("c"), "v", is(&n.to_string())), "n")).await, expected);
        if n % 8 == 7 {
            s = s.reopened().await;
        }
    }
    let state = built(&s, "c").await;
    assert!(state.indexes[0].is_ready(), "an index that nothing speaks against is ready in the end");
    assert_eq!((state.revision, state.documents), (2, MANY as u64), "making it is no change of settings");
    assert_eq!(keys_of(&s, by(when(all("c"), "v", is("1")), "n")).await, ["k01", "k21", "k41"]);
}

/// What is written while an index is made is in it, wherever the making is.
pub async fn writes_while_an_index_is_made_are_in_it(s: Subject) {
    with_new_index(&s).await;
    for n in (0..MANY).step_by(2) {
        // From both ends, so that some are written before they are gone over and some after.
        wrote(&s, vec![numbered(n, 100 + n % 4), delete(&format!("k{:02}", MANY - 1 - n))]).await;
        wrote(&s, vec![set(&format!("new{n:02}"), r#"{"v":200}"#)]).await;
    }
    built(&s, "c").await;
    let s = s.reopened().await;
    let count = async |v: &str| keys_of(&s, when(all("c"), "v", is(v))).await.len();
    assert_eq!((count("100").await, count("102").await), (MANY / 4, MANY / 4));
    assert_eq!((count("200").await, count("1").await, count("2").await), (MANY / 2, 0, 0));
    assert_eq!(keys_of(&s, all("c")).await.len(), MANY);
}

/// An index that is removed while it is made, and made again, has no trace of the first one.
pub async fn an_index_can_be_removed_while_it_is_made(s: Subject) {
    with_new_index(&s).await;
    must(s.configure(put("c", 2, indexed(Vec::new()))).await, "an index can be removed at any time");
    wrote(&s, (0..MANY).map(|n| numbered(n, 7)).collect()).await;
    must(s.configure(put("c", 3, indexed(vec![index(&["v"])]))).await, "and made again");
    let s = s.reopened().await;
    assert!(built(&s, "c").await.indexes[0].is_ready());
    assert_eq!(keys_of(&s, when(all("c"), "v", is("1"))).await, Vec::<String>::new());
    assert_eq!(keys_of(&s, when(all("c"), "v", is("7"))).await.len(), MANY);
}

/// Whatever comes while a unique index is made: no two documents have the same values once it is ready, and if it
/// fails there are two that have.
pub async fn a_unique_index_is_never_ready_over_equal_values(s: Subject) {
    for round in 0..4 {
        wrote(&s, (0..MANY).map(|n| numbered(n, n)).collect()).await;
        let change = put("c", revision(&s).await, indexed(vec![unique(&["v"])]));
        must(s.configure(change).await, "a unique index can be added");
        // The first or the last has the value of another one that may have been gone over or not.
        let (n, v) = [(0, MANY - 1), (MANY - 1, 0), (MANY / 2, 0), (0, MANY / 2)][round];
        let clash = commit(&s, vec![numbered(n, v)]).await;
        let state = built(&s, "c").await;
        let same = keys_of(&s, by(when(all("c"), "v", is(&v.to_string())), "n")).await;
        match (&clash, failure(&state.indexes[0].progress)) {
            (Err(CommitError::NotUnique { .. }), None) => assert_eq!(same.len(), 1),
            (Ok(_), Some(mut keys)) => {
                keys.sort();
                assert_eq!(same, keys, "the two that clash are named");
            }
            (clash, failed) => {
                panic!("either the write is refused or the index fails: {clash:?}, {failed:?}")
            }
        }
        let change = put("c", state.revision, indexed(Vec::new()));
        must(s.configure(change).await, "an index can be removed, also one that failed");
    }
}
