//! Searching a collection: conditions, order and pages.

use super::{all, by, commit, delete, found, index, indexed, is, keys_of, put, set, wrote};
use super::{when, write};
use crate::Subject;
use crate::build::json;
use crate::subject::must;
use prombus_core::collection::{Operand, Test};
use prombus_core::{DocumentWrite, Find, Versioning, WriteOp};
use serde_json::{Value, json};

/// Documents of many kinds: keys, times and bodies.
const MIXED: [(&str, u64, &str); 12] = [
    ("a", 5, r#"{"v":80,"o":{"x":1},"l":[1,2]}"#),
    ("b", 5, r#"{"v":"80","o":{"x":2},"p.q":1}"#),
    ("c", 3, r#"{"v":80.0,"o":{"x":"1"}}"#),
    ("d", 9, r#"{"v":null,"l":["1"]}"#),
    ("e", 1, "{}"),
    ("f", 2, r#"{"v":true,"o":1}"#),
    ("g", 7, r#"{"v":9007199254740993}"#),
    ("h", 7, r#"{"v":9007199254740992}"#),
    ("i", 7, r#"{"v":[1,{"x":"y"}]}"#),
    ("é\u{0}", 8, r#"{"v":"é","ключ":"значение"}"#),
    ("😀", 0, r#"{"v":"😀","o":{"x":-1.5}}"#),
    ("", 6, r#"{"v":"","o":{"x":1}}"#),
];

fn mixed(collection: &str) -> Vec<DocumentWrite> {
    let one = |(key, ts, body): &(&str, u64, &str)| {
        let versioning = if *ts > 6 { Versioning::Count } else { Versioning::None };
        DocumentWrite { ts: *ts, versioning, ..write(collection, key, WriteOp::Set(json(body))) }
    };
    MIXED.iter().map(one).collect()
}

fn value(value: Value) -> Operand {
    Operand::value(value)
}

/// A text stands for whatever it may mean, and a value for itself alone.
pub async fn a_text_means_the_type_of_what_is_stored(s: Subject) {
    wrote(&s, mixed("c")).await;
    let expected: [(&str, Test, &[&str]); 24] = [
        ("v", is("80"), &["b", "a", "c"]),
        ("v", Test::Eq(value(json!(80))), &["a", "c"]),
        ("v", Test::Eq(value(json!("80"))), &["b"]),
        ("v", is("null"), &["d"]),
        ("v", is("true"), &["f"]),
        ("v", is("9007199254740993"), &["g"]),
        ("v", Test::Eq(value(json!(9007199254740992.0))), &["h"]),
        ("v", is(r#"[1,{"x":"y"}]"#), &["i"]),
        ("v", is("😀"), &["😀"]),
        ("v", is(""), &[""]),
        ("v", is("nothing"), &[]),
        (
            "v",
            Test::In(vec![Operand::text("80"), Operand::text("é"), Operand::text("80")]),
            &["é\u{0}", "b", "a", "c"],
        ),
        ("v", Test::In(Vec::new()), &[]),
        ("v", Test::Gt(Operand::text("80")), &["é\u{0}", "h", "g", "😀"]),
        ("v", Test::Gte(value(json!(80))), &["h", "g", "a", "c"]),
        ("v", Test::Lt(Operand::text("81")), &["", "b", "a", "c"]),
        ("v", Test::Lte(value(json!("80"))), &["", "b"]),
        ("v", Test::Gte(value(json!(null))), &[]),
        ("o.x", is("1"), &["", "a", "c"]),
        ("l.0", is("1"), &["d", "a"]),
        ("p\\.q", is("1"), &["b"]),
        ("ключ", is("значение"), &["é\u{0}"]),
        ("_ts", Test::Gte(Operand::text("8")), &["d", "é\u{0}"]),
        ("_key", Test::Gt(Operand::text("i")), &["é\u{0}", "😀"]),
    ];
    for (path, test, keys) in expected {
        let mut keys: Vec<&str> = keys.to_vec();
        let find = when(all("c"), path, test.clone());
        keys.sort_by_key(|key| {
            std::cmp::Reverse(MIXED.iter().find(|(k, ..)| k == key).map(|(k, ts, _)| (ts, k)))
        });
        assert_eq!(keys_of(&s, find).await, keys, "{path} {test:?}");
    }
}

/// What is not equal may be of another type, or not there.
pub async fn what_is_not_equal_may_be_absent(s: Subject) {
    wrote(&s, vec![set("a", r#"{"v":1}"#), set("b", r#"{"v":"1"}"#), set("c", r#"{"v":2}"#), set("d", "{}")])
        .await;
    let ne = |operand: Operand| by(when(all("c"), "v", Test::Ne(operand)), "_key");
    assert_eq!(keys_of(&s, ne(Operand::text("1"))).await, ["c", "d"]);
    assert_eq!(keys_of(&s, ne(value(json!(1)))).await, ["b", "c", "d"]);
    assert_eq!(keys_of(&s, when(ne(Operand::text("1")), "v", Test::Ne(value(json!(2))))).await, ["d"]);
}

/// All conditions must hold, also those on one field.
pub async fn all_conditions_must_hold(s: Subject) {
    wrote(&s, mixed("c")).await;
    let both = when(when(all("c"), "v", is("80")), "o.x", is("1"));
    assert_eq!(keys_of(&s, both).await, ["a", "c"]);
    let between =
        when(when(all("c"), "_ts", Test::Gt(Operand::text("5"))), "_ts", Test::Lte(Operand::text("7")));
    assert_eq!(keys_of(&s, between.clone()).await, ["i", "h", "g", ""]);
    assert_eq!(keys_of(&s, when(between, "v", is("80"))).await, [""; 0]);
    let versioned = when(when(all("c"), "_v", is("1")), "_key", is("g"));
    assert_eq!(keys_of(&s, versioned).await, ["g"], "the fields that the hub sets are fields");
}

/// Values of all types have one order, and ties go by time and key in the direction of the last sort key.
pub async fn all_values_have_one_order(s: Subject) {
    wrote(&s, mixed("c")).await;
    let upwards = ["e", "d", "f", "c", "a", "h", "g", "", "b", "é\u{0}", "😀", "i"];
    assert_eq!(keys_of(&s, by(all("c"), "v")).await, upwards);
    let downwards: Vec<&str> = upwards.into_iter().rev().collect();
    assert_eq!(keys_of(&s, by(all("c"), "-v")).await, downwards);
    let newest = ["d", "é\u{0}", "i", "h", "g", "", "b", "a", "c", "f", "e", "😀"];
    assert_eq!(keys_of(&s, all("c")).await, newest, "newest first, unless something else is asked for");
    assert_eq!(keys_of(&s, by(all("c"), "-_ts")).await, newest);
    let two = by(by(when(all("c"), "_ts", is("7")), "o.x"), "-v");
    assert_eq!(keys_of(&s, two).await, ["i", "g", "h"]);
}

/// Pages follow each other without gaps, and the last one says that it is.
pub async fn a_search_goes_in_pages(s: Subject) {
    wrote(&s, mixed("c")).await;
    for find in [all("c"), by(all("c"), "v"), when(all("c"), "_ts", Test::Gt(Operand::text("2")))] {
        let whole = keys_of(&s, find.clone()).await;
        for limit in [1, 5, 12, 100] {
            let mut paged: Vec<String> = Vec::new();
            loop {
                let page = found(&s, Find { offset: paged.len(), limit, ..find.clone() }).await;
                paged.extend(page.documents.iter().map(|document| document.key.clone()));
                assert_eq!(page.more, paged.len() < whole.len(), "a page says whether there are more");
                if !page.more {
                    break;
                }
                assert_eq!(page.documents.len(), limit, "a page is full where there are more");
            }
            assert_eq!(paged, whole, "pages of {limit} follow each other");
        }
        let beyond = found(&s, Find { offset: 1_000, limit: 1, ..find }).await;
        assert!(beyond.documents.is_empty() && !beyond.more, "after the end there is nothing");
    }
}

/// A page ends once it has the bytes that were asked for, however few documents those are, and says that there are more.
pub async fn a_page_has_an_end_in_bytes(s: Subject) {
    let body = format!(r#"{{"text":"{}"}}"#, "x".repeat(1_000));
    wrote(&s, ["a", "b", "c", "d", "e"].map(|key| set(key, &body)).to_vec()).await;
    // By an index, and in an order that none has.
    for find in [by(all("c"), "_key"), by(by(all("c"), "text"), "_key")] {
        for (max_bytes, expected) in [(1, 1), (1_000, 1), (1_100, 2), (3_100, 4), (usize::MAX, 5)] {
            let page = found(&s, Find { max_bytes, ..find.clone() }).await;
            assert_eq!((page.documents.len(), page.more), (expected, expected < 5), "{max_bytes} bytes");
        }
        let last = found(&s, Find { max_bytes: 1, offset: 4, ..find.clone() }).await;
        assert_eq!(
            (last.documents[0].key.as_str(), last.more),
            ("e", false),
            "the last page says that it is"
        );
    }
}

/// A search gives documents as they are, sees each commit that was answered, and nothing of an unknown collection.
pub async fn a_search_sees_what_is_there(s: Subject) {
    assert_eq!(found(&s, all("c")).await.documents, [], "an unknown collection has no documents");
    wrote(&s, vec![set("a", r#"{"n":1.10}"#), set("b", r#"{"n":2}"#)]).await;
    wrote(&s, vec![write("other", "x", WriteOp::Set(json(r#"{"n":2}"#)))]).await;
    let documents = found(&s, by(all("c"), "_key")).await.documents;
    assert_eq!(documents.first(), s.document("c", "a").await.as_ref(), "documents are given as they are");
    wrote(&s, vec![set("a", r#"{"n":2}"#), delete("b")]).await;
    assert_eq!(keys_of(&s, when(all("c"), "n", is("2"))).await, ["a"], "a search sees the last commit");
    must(commit(&s, vec![delete("a")]).await, "a document can be deleted");
    assert_eq!(found(&s, all("c")).await.documents, []);
}

/// Whatever indexes a collection has, and whenever they were made, a search finds the same.
pub async fn an_index_changes_no_answer(s: Subject) {
    let indexes = || vec![index(&["v"]), index(&["o.x", "v"]), index(&["_ts"]), index(&["ключ", "_key"])];
    must(s.configure(put("early", 0, indexed(indexes()))).await, "a collection can be made");
    for name in ["plain", "early", "late"] {
        wrote(&s, mixed(name)).await;
    }
    must(s.configure(put("late", 1, indexed(indexes()))).await, "indexes can be made later");
    assert_same_answers(&s).await;
    let change = |name: &str| {
        let gone = DocumentWrite { ts: 9, ..write(name, "a", WriteOp::Delete) };
        vec![gone, DocumentWrite { ts: 4, ..write(name, "b", WriteOp::Set(json(r#"{"v":-1,"o":{"x":1}}"#))) }]
    };
    for name in ["plain", "early", "late"] {
        wrote(&s, change(name)).await;
    }
    assert_same_answers(&s).await;
    let s = s.reopened().await;
    assert_same_answers(&s).await;
    for name in ["early", "late"] {
        let revision = super::collection(&s, name).await.map_or(0, |state| state.revision);
        must(s.configure(put(name, revision, indexed(Vec::new()))).await, "indexes can be removed");
    }
    assert_same_answers(&s).await;
}

async fn assert_same_answers(s: &Subject) {
    let text = Operand::text;
    let tests = [
        ("v", is("80")),
        ("v", Test::In(vec![text("80"), text("é"), text("null")])),
        ("v", Test::Ne(text("80"))),
        ("v", Test::Gte(text("80"))),
        ("v", Test::Lt(text("9007199254740993"))),
        ("o.x", is("1")),
        ("o.x", Test::Lte(text("1"))),
        ("_ts", Test::Gte(text("5"))),
        ("_key", Test::Lt(text("g"))),
        ("ключ", is("значение")),
    ];
    let sorts: [&[&str]; 8] =
        [&[], &["_ts"], &["v"], &["-v"], &["o.x", "v"], &["-o.x", "-v"], &["_key"], &["v", "-_key"]];
    for (n, (path, test)) in tests.iter().enumerate() {
        for (second, other) in [None, Some(n + 1), Some(n + 4)]
            .map(|n| n.map(|n| &tests[n % tests.len()]))
            .into_iter()
            .enumerate()
        {
            for sort in sorts {
                let find = |name: &str| {
                    let mut find = when(all(name), path, test.clone());
                    if let Some((path, test)) = other {
                        find = when(find, path, test.clone());
                    }
                    let find = sort.iter().fold(find, |find, key| by(find, key));
                    Find { offset: second, limit: 4, ..find }
                };
                let plain = found(s, find("plain")).await;
                for name in ["early", "late"] {
                    let answer = found(s, find(name)).await;
                    assert_eq!(answer, plain, "{name}: {:?}", find(name));
                }
            }
        }
    }
}
