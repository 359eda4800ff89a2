//! Collections as a whole: how they come and go, who owns them, and how large they are.

use super::{
    all, body, collection, commit, delete, found, inc, index, indexed, keys_of, put, set, unique, write,
    wrote,
};
use crate::Subject;
use crate::build::{event, json, partitions};
use crate::subject::{must, refusal};
use prombus_core::{
    CollectionConfig, Commit, CommitError, CommitLimits, ConfigChange, DocumentWrite, Owner, ScanRequest,
    WriteOp,
};
use std::sync::Arc;

fn owned(owner: &Owner) -> CollectionConfig {
    CollectionConfig { owner: owner.clone(), ..CollectionConfig::default() }
}

/// A collection comes into being with its first write and belongs to the writer; nobody else writes it.
pub async fn a_collection_belongs_to_its_first_writer(s: Subject) {
    let projection = Owner::projection("p");
    let by = |owner: &Owner, name: &str| DocumentWrite {
        owner: owner.clone(),
        ..write(name, "k", WriteOp::Set(json("{}")))
    };
    assert_eq!(collection(&s, "mine").await, None, "a collection is not there before its first write");
    wrote(&s, vec![by(&projection, "mine"), by(&Owner::COMMITS, "free")]).await;
    let s = s.reopened().await;
    let mine = collection(&s, "mine").await.map(|state| (state.revision, state.config));
    assert_eq!(mine, Some((1, owned(&projection).into())), "it belongs to the writer");
    assert_eq!(collection(&s, "free").await.map(|state| state.config), Some(Arc::default()));
    let others = [
        (Owner::COMMITS, "mine", Some("p")),
        (Owner::projection("q"), "mine", Some("p")),
        (projection.clone(), "free", None),
    ];
    for (owner, name, wanted) in others {
        let refused = refusal(commit(&s, vec![set("k", "{}"), by(&owner, name)]).await);
        let owner = wanted.map(str::to_owned);
        assert_eq!(refused, CommitError::NotOwner { collection: name.into(), owner });
        assert_eq!(s.document("c", "k").await, None, "a refused commit writes nothing");
        assert_eq!(collection(&s, "c").await, None, "and makes no collection");
    }
    let refused =
        refusal(commit(&s, vec![DocumentWrite { op: WriteOp::Delete, ..by(&Owner::COMMITS, "mine") }]).await);
    assert_eq!(refused, CommitError::NotOwner { collection: "mine".into(), owner: Some("p".into()) });
    wrote(&s, vec![by(&projection, "mine"), by(&Owner::COMMITS, "free")]).await;
    must(s.configure(put("mine", 1, owned(&Owner::COMMITS))).await, "the owner is a setting");
    wrote(&s, vec![by(&Owner::COMMITS, "mine")]).await;
}

/// Settings change only from the revision that they were made from.
pub async fn a_collection_changes_only_from_its_revision(s: Subject) {
    let changed = CommitError::CollectionChanged("c".into());
    let config = || indexed(vec![index(&["v"])]);
    assert_eq!(refusal(s.configure(put("c", 1, config())).await), changed, "there is none yet");
    must(s.configure(put("c", 0, config())).await, "0 means that there is none");
    let made = collection(&s, "c").await;
    assert_eq!(made.as_ref().map(|state| (state.revision, &*state.config)), Some((1, &config())));
    for stale in [0, 2] {
        assert_eq!(refusal(s.configure(put("c", stale, indexed(Vec::new()))).await), changed);
        assert_eq!(collection(&s, "c").await, made, "a refused change changes nothing");
    }
    wrote(&s, vec![set("a", "{}")]).await;
    let topic = crate::build::topic("feed");
    let with_feed = CollectionConfig { changefeed: Some(topic), ..config() };
    must(s.configure(put("c", 1, with_feed.clone())).await, "writes do not change the revision");
    let s = s.reopened().await;
    let state = collection(&s, "c").await.map(|state| (state.revision, state.config, state.documents));
    assert_eq!(
        state,
        Some((2, with_feed.into(), 1)),
        "the settings are the new ones, and the documents stay"
    );
}

/// A dropped collection is gone with its documents, and one that is made again is empty and another.
pub async fn a_dropped_collection_is_gone(s: Subject) {
    let drop = || ConfigChange::DropCollection { name: "c".into() };
    must(s.configure(drop()).await, "what is not there can be dropped");
    must(s.configure(put("c", 0, indexed(vec![unique(&["v"])]))).await, "a collection can be made");
    wrote(&s, vec![set("a", r#"{"v":1}"#), write("cc", "a", WriteOp::Set(json("{}")))]).await;
    let number = collection(&s, "c").await.map(|state| state.number);
    must(s.configure(drop()).await, "a collection can be dropped");
    let s = s.reopened().await;
    assert_eq!(collection(&s, "c").await, None);
    assert_eq!(s.document("c", "a").await, None, "its documents are gone");
    assert_eq!(found(&s, all("c")).await.documents, []);
    assert!(s.document("cc", "a").await.is_some(), "other collections stay");
    assert_eq!(
        wrote(&s, vec![set("b", r#"{"v":1}"#), set("d", r#"{"v":1}"#)]).await,
        [1, 1],
        "so are its indexes"
    );
    let again = collection(&s, "c").await.map(|state| (state.revision, state.documents, state.config));
    assert_eq!(again, Some((1, 2, Arc::default())), "it starts over");
    assert_ne!(collection(&s, "c").await.map(|state| state.number), number, "no number is used twice");
    let anew = Commit { config: vec![drop()], documents: vec![set("e", "{}")], ..Commit::default() };
    must(s.commit(anew).await, "a commit can drop a collection and write it anew");
    assert_eq!(keys_of(&s, all("c")).await, ["e"], "only what was written after the drop is there");
    assert_eq!(collection(&s, "c").await.map(|state| state.documents), Some(1));
}

/// A collection knows how many documents it has, and what their keys and bodies take.
pub async fn a_collection_knows_its_size(s: Subject) {
    wrote(&s, vec![set("a", r#"{"v":1}"#), set("é", "{}"), set("a", r#"{"v":100}"#), delete("none")]).await;
    assert_size(&s, 2).await;
    wrote(&s, vec![inc("a", r#"{"n":1}"#), delete("é"), set("b", r#"{"x":"y"}"#), set("d", "{}")]).await;
    assert_size(&s, 3).await;
    refusal(commit(&s, vec![set("f", "{}"), set("f", "[]")]).await);
    assert_size(&s, 3).await;
    let s = s.reopened().await;
    assert_size(&s, 3).await;
    wrote(&s, vec![delete("a"), delete("b"), delete("d")]).await;
    assert_size(&s, 0).await;
}

async fn assert_size(s: &Subject, documents: u64) {
    let request = ScanRequest { collection: "c".into(), after: None, limit: 100 };
    let all = must(s.documents().scan(request).await, "a collection can be scanned");
    let bytes = all.iter().map(|document| (document.key.len() + document.body.len()) as u64).sum();
    let state = collection(s, "c").await.map(|state| (state.documents, state.bytes));
    assert_eq!(state, Some((documents, bytes)), "a collection knows its size");
}

/// All collections are listed, by name.
pub async fn collections_are_listed_by_name(s: Subject) {
    for name in ["b", "a.b", "a", "a-b", "c~shadow"] {
        wrote(&s, vec![write(name, "k", WriteOp::Set(json("{}")))]).await;
    }
    must(s.configure(put("empty", 0, CollectionConfig::default())).await, "a collection can be made");
    let s = s.reopened().await;
    let listed = must(s.documents().collections().await, "collections can be listed");
    let names: Vec<&str> = listed.iter().map(|state| &*state.name).collect();
    assert_eq!(names, ["a", "a-b", "a.b", "b", "c~shadow", "empty"]);
    for state in &listed {
        assert_eq!(collection(&s, &state.name).await.as_ref(), Some(state), "a list has what a look-up has");
    }
}

/// Keys and the names of fields are any text.
pub async fn keys_and_fields_are_any_text(s: Subject) {
    let texts =
        ["", " ", "\0", "a\0b", "\"\\", "a/b?c=d&e", "ключ", "é", "e\u{301}", "😀", "\u{ffff}", "null", "_x"];
    let body = |text: &str| json(&serde_json::json!({text: {text: text}}).to_string());
    must(
        s.configure(put("c", 0, indexed(vec![index(&["😀.😀"]), index(&["ключ"])]))).await,
        "it can be made",
    );
    wrote(&s, texts.map(|text| write("c", text, WriteOp::Set(body(text)))).into()).await;
    let s = s.reopened().await;
    for text in texts {
        let document = s.document("c", text).await;
        assert_eq!(document.as_ref().map(|document| &document.body), Some(&body(text)), "{text:?}");
        assert_eq!(keys_of(&s, super::when(all("c"), "_key", super::is(text))).await, [text]);
        if !text.is_empty() {
            let path = text.replace('\\', "\\\\");
            let find = super::when(all("c"), &format!("{path}.{path}"), super::is(text));
            assert_eq!(keys_of(&s, find).await, [text], "{text:?}");
        }
    }
}

/// Whatever part about collections is refused, nothing of the commit happens.
pub async fn a_refused_collection_takes_all_with_it(s: Subject) {
    must(s.configure(put("c", 0, indexed(vec![unique(&["v"])]))).await, "a collection can be made");
    wrote(&s, vec![set("a", r#"{"v":1}"#)]).await;
    let before = collection(&s, "c").await;
    let topic = s.create("collections.refused", partitions(1)).await;
    let missing = || "missing".into();
    let breakages: [(&str, ConfigChange, DocumentWrite); 4] = [
        ("a stale revision", put("c", 7, CollectionConfig::default()), set("b", "{}")),
        (
            "a missing collection",
            ConfigChange::SwapCollection { from: missing(), to: "c".into() },
            set("b", "{}"),
        ),
        ("equal values", ConfigChange::DropCollection { name: missing() }, set("b", r#"{"v":1}"#)),
        (
            "another owner",
            put("c", 1, CollectionConfig::default()),
            DocumentWrite { owner: Owner::projection("p"), ..set("b", "{}") },
        ),
    ];
    for (what, change, write) in breakages {
        let events = s.place(&topic, [event("1")]);
        let config = vec![put("made", 0, CollectionConfig::default()), change];
        let documents = vec![set("z", "{}"), delete("a"), set("a", r#"{"v":1,"n":2}"#), write];
        refusal(s.commit(Commit { config, events, documents, ..Commit::default() }).await);
        assert_eq!(collection(&s, "made").await, None, "no collection is made ({what})");
        assert_eq!(collection(&s, "c").await, before, "none is changed ({what})");
        assert_eq!(body(&s, "a").await.as_deref(), Some(r#"{"v":1}"#), "no document is changed ({what})");
        assert_eq!(keys_of(&s, all("c")).await, ["a"], "none is written ({what})");
        s.assert_holds(&topic, 0, &[]).await;
    }
}

/// There are no more collections than the commit allows, whoever makes them; those of the hub's own do not count.
pub async fn there_are_only_so_many_collections(s: Subject) {
    let limits = CommitLimits { collections: 3, ..CommitLimits::default() };
    let write = |name: &str| super::write(name, "k", WriteOp::Set(json("{}")));
    let limited = |config: Vec<ConfigChange>, names: &[&str]| {
        let documents = names.iter().map(|name| write(name)).collect();
        s.commit(Commit { config, documents, limits, ..Commit::default() })
    };
    must(
        limited(Vec::new(), &["hub~a", "hub~b", "hub~c", "hub~d", "one"]).await,
        "the hub's own do not count",
    );
    let too_many = CommitError::TooManyCollections { limit: 3 };
    assert_eq!(refusal(limited(Vec::new(), &["two", "one", "three", "four"]).await), too_many);
    assert!(collection(&s, "two").await.is_none(), "nothing has happened");
    let made = put("two", 0, CollectionConfig::default());
    must(limited(vec![made], &["three", "two"]).await, "there is room for those");
    assert_eq!(refusal(limited(Vec::new(), &["four"]).await), too_many);
    assert_eq!(refusal(limited(vec![put("four", 0, CollectionConfig::default())], &[]).await), too_many);
    must(
        limited(vec![put("two", 1, CollectionConfig::default())], &["one", "hub~e"]).await,
        "those are there",
    );
    let drop = ConfigChange::DropCollection { name: "two".into() };
    must(limited(vec![drop], &["four"]).await, "one that goes makes room");
    wrote(&s, vec![write("more")]).await;
    assert_eq!(refusal(limited(Vec::new(), &["five"]).await), too_many, "though there are too many already");
}
