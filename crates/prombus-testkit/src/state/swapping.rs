//! Giving a collection the name of another one.

use super::{
    all, body, collection, commit, found, index, indexed, is, keys_of, put, set, unique, when, write, wrote,
};
use crate::Subject;
use crate::build::json;
use crate::subject::{must, refusal};
use prombus_core::{Commit, CommitError, ConfigChange, DocumentWrite, WriteOp};

fn swap(from: &str, to: &str) -> ConfigChange {
    ConfigChange::SwapCollection { from: from.into(), to: to.into() }
}

fn shadow(key: &str, body: &str) -> DocumentWrite {
    write("c~new", key, WriteOp::Set(json(body)))
}

/// A swapped collection has the other name, with its documents, indexes, settings and counts; the other one is gone.
pub async fn a_swapped_collection_has_the_other_name(s: Subject) {
    must(s.configure(put("c", 0, indexed(vec![index(&["old"])]))).await, "a collection can be made");
    wrote(&s, vec![set("a", r#"{"old":1}"#), set("b", r#"{"old":2}"#)]).await;
    must(s.configure(put("c~new", 0, indexed(vec![unique(&["v"])]))).await, "a collection can be made");
    wrote(&s, vec![shadow("a", r#"{"v":1}"#), shadow("d", r#"{"v":2}"#), shadow("e", r#"{"v":3}"#)]).await;
    let built = collection(&s, "c~new").await;
    must(s.configure(swap("c~new", "c")).await, "a collection can get another's name");
    let s = s.reopened().await;
    assert_eq!(collection(&s, "c~new").await, None, "the old name is free");
    assert_eq!(s.document("c~new", "a").await, None);
    let now = collection(&s, "c").await;
    let all_but_name = built.map(|built| prombus_core::CollectionState { name: "c".into(), ..built });
    assert_eq!(now, all_but_name, "settings, counts and all are those of the one that was swapped in");
    assert_eq!(keys_of(&s, super::by(all("c"), "_key")).await, ["a", "d", "e"], "so are the documents");
    assert_eq!(body(&s, "a").await.as_deref(), Some(r#"{"v":1}"#));
    assert_eq!(keys_of(&s, when(all("c"), "v", is("2"))).await, ["d"], "so are the indexes");
    let refused = refusal(commit(&s, vec![set("f", r#"{"v":3}"#)]).await);
    assert!(matches!(refused, CommitError::NotUnique { .. }), "{refused:?}");
    assert_eq!(wrote(&s, vec![set("d", r#"{"v":9}"#)]).await, [2], "versions go on");
    wrote(&s, vec![shadow("a", "{}")]).await;
    assert_eq!(keys_of(&s, all("c~new")).await, ["a"], "the old name can be used again");
}

/// A collection can get a name that nobody has; one that is not there cannot be swapped.
pub async fn only_what_is_there_can_be_swapped(s: Subject) {
    wrote(&s, vec![set("a", "{}")]).await;
    let missing = CommitError::CollectionNotFound("c~new".into());
    assert_eq!(refusal(s.configure(swap("c~new", "c")).await), missing);
    assert_eq!(refusal(s.configure(swap("c~new", "c~new")).await), missing, "not even with itself");
    assert_eq!(keys_of(&s, all("c")).await, ["a"], "a refused swap takes nothing");
    must(s.configure(swap("c", "d")).await, "the other name may be free");
    assert_eq!(collection(&s, "c").await, None);
    assert_eq!(keys_of(&s, all("d")).await, ["a"]);
}

/// A collection that gets the name that it has stays as it is.
pub async fn a_collection_swapped_with_itself_stays(s: Subject) {
    wrote(&s, vec![set("a", "{}")]).await;
    let before = collection(&s, "c").await;
    must(s.configure(swap("c", "c")).await, "a collection can get the name that it has");
    let s = s.reopened().await;
    assert_eq!(keys_of(&s, all("c")).await, ["a"], "it keeps its documents");
    assert_eq!(collection(&s, "c").await, before, "and all that it is");
}

/// The documents of a commit go where the names lead after its swaps.
pub async fn writes_of_a_commit_follow_its_swap(s: Subject) {
    wrote(&s, vec![set("a", r#"{"n":1}"#), set("gone", "{}"), shadow("a", r#"{"n":10}"#)]).await;
    let config = vec![swap("c~new", "c"), put("c", 1, indexed(vec![index(&["n"])]))];
    let documents = vec![super::inc("a", r#"{"n":1}"#), set("b", r#"{"n":2}"#), shadow("z", "{}")];
    let receipt = must(s.commit(Commit { config, documents, ..Commit::default() }).await, "it happens");
    assert_eq!(receipt.versions, [2, 1, 1], "writes see what was swapped in");
    let s = s.reopened().await;
    assert_eq!(body(&s, "a").await.as_deref(), Some(r#"{"n":11}"#));
    assert_eq!(keys_of(&s, super::by(all("c"), "n")).await, ["b", "a"]);
    assert_eq!(keys_of(&s, all("c~new")).await, ["z"], "the old name is another collection now");
    let numbers = (collection(&s, "c").await, collection(&s, "c~new").await);
    assert_ne!(numbers.0.map(|c| c.number), numbers.1.map(|c| c.number));
    assert_eq!(found(&s, when(all("c"), "n", is("11"))).await.documents.len(), 1);
}
