//! Going through a collection.

use super::{commit, set, write};
use crate::Subject;
use crate::subject::must;
use prombus_core::{Document, ScanRequest, WriteOp};

async fn scan(s: &Subject, after: Option<&str>, limit: usize) -> Vec<Document> {
    let request = ScanRequest { collection: "c".into(), after: after.map(str::to_owned), limit };
    must(s.documents().scan(request).await, "a collection can be scanned")
}

fn keys(documents: &[Document]) -> Vec<&str> {
    documents.iter().map(|document| document.key.as_str()).collect()
}

/// A collection is scanned in the order of the bytes of its keys, in pages of any size.
pub async fn a_scan_is_in_the_order_of_keys(s: Subject) {
    let mut sorted = vec!["", "0", "1", "10", "2", "A", "a", "a\u{0}", "a b", "ab", "z", "é", "Ω", "😀", "~"];
    let mut shuffled = sorted.clone();
    fastrand::Rng::with_seed(5).shuffle(&mut shuffled);
    for key in &shuffled {
        must(commit(&s, vec![set(key, "{}")]).await, "documents can be written");
    }
    must(commit(&s, vec![write("b", "x", WriteOp::Set(crate::build::json("{}")))]).await, "written");
    sorted.sort_by_key(|key| key.as_bytes().to_vec());
    for limit in [1, 2, 7, 15, 16, 1_000] {
        let mut found: Vec<Document> = Vec::new();
        loop {
            let after = found.last().map(|document| document.key.clone());
            let page = scan(&s, after.as_deref(), limit).await;
            let left = sorted.len() - found.len();
            assert_eq!(
                page.len(),
                limit.min(left),
                "a page has fewer than `limit` documents only at the end"
            );
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        assert_eq!(
            keys(&found),
            sorted,
            "a scan in pages of {limit} is in the order of the bytes of the keys"
        );
    }
}

/// A scan starts after a key, whether there is a document of that key or not.
pub async fn a_scan_starts_after_any_key(s: Subject) {
    let writes = ["b", "d", "f"].map(|key| set(key, "{}"));
    must(commit(&s, writes.into()).await, "documents can be written");
    for (after, expected) in
        [("", "bdf"), ("a", "bdf"), ("b", "df"), ("c", "df"), ("ba", "df"), ("f", ""), ("z", "")]
    {
        let found = scan(&s, Some(after), 10).await;
        assert_eq!(keys(&found).concat(), expected, "after {after:?}");
    }
}

/// A scan gives documents as they are, without deleted ones; an unknown collection has none.
pub async fn a_scan_gives_documents_as_they_are(s: Subject) {
    assert_eq!(scan(&s, None, 10).await, [], "an unknown collection has no documents");
    must(commit(&s, vec![set("a", "{}"), set("b", r#"{"n":1.0}"#), set("d", "{}")]).await, "written");
    must(commit(&s, vec![set("b", r#"{"n":2.0}"#), write("c", "a", WriteOp::Delete)]).await, "written");
    let found = scan(&s, None, 10).await;
    assert_eq!(keys(&found), ["b", "d"], "deleted documents are gone");
    assert_eq!(Some(&found[0]), s.document("c", "b").await.as_ref(), "a scan gives what a look-up gives");
    must(
        commit(&s, vec![write("c", "b", WriteOp::Delete), write("c", "d", WriteOp::Delete)]).await,
        "written",
    );
    assert_eq!(scan(&s, None, 10).await, [], "an emptied collection has no documents");
}
