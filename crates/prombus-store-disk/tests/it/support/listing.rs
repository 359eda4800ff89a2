//! Everything that can be read of a store, as text: what a golden folder is compared with.

use prombus_core::collection::{Condition, Operand, SortKey, Test};
use prombus_core::*;
use prombus_store_disk::DiskStore;

/// One line an event, a topic, a document and a cursor.
pub async fn listing(store: &DiskStore) -> String {
    let mut out = Vec::new();
    for topic in store.topics().await.unwrap_or_default() {
        let config = serde_json::to_string(&topic.config).unwrap_or_default();
        out.extend(format!("topic {} {} {} {config}\n", topic.name, topic.number, topic.revision).bytes());
        for partition in (0..topic.config.partitions).map(Partition) {
            let Ok(bounds) = store.bounds(&topic.pinned(), partition).await else { continue };
            out.extend(format!("bounds {partition} {} {}\n", bounds.first, bounds.next).bytes());
            let mut from = bounds.first;
            while from < bounds.next {
                let request =
                    ReadRequest { topic: topic.pinned(), partition, from, limit: 100, max_bytes: 1 << 20 };
                let Ok(page) = store.read(request).await else { break };
                for event in &page.events {
                    event.write_json(&mut out);
                    out.push(b'\n');
                }
                from = page.next;
            }
        }
        let key = CursorKey { topic: topic.name.clone(), reader: "reader".into(), partition: Partition(0) };
        if let Ok(Some(cursor)) = store.cursor(&key).await {
            out.extend(format!("cursor {cursor:?}\n").bytes());
        }
    }
    let all = ScanRequest { collection: "documents".into(), after: None, limit: 1_000 };
    for document in store.scan(all).await.unwrap_or_default() {
        let Document { key, version, ts, body, .. } = document;
        let text =
            format!("document Document {{ key: {key:?}, version: {version}, ts: {ts}, body: {body:?} }}\n");
        out.extend(text.bytes());
    }
    for document in by_index(store).await.unwrap_or_default() {
        out.extend(format!("found {}\n", document.key).bytes());
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The latest documents by the index of their number, where they have one.
async fn by_index(store: &DiskStore) -> Option<Vec<Document>> {
    let state = store.collection("documents").await.ok()??;
    if state.config.indexes.is_empty() {
        return None;
    }
    let field = FieldPath::parse("n").ok()?;
    let test = Test::Gte(Operand::value(115.into()));
    let find = Find {
        collection: "documents".into(),
        conditions: vec![Condition { field: field.clone(), test }],
        sort: vec![SortKey { field, descending: true }],
        offset: 0,
        limit: 100,
        max_bytes: usize::MAX,
        sort_bytes: usize::MAX,
    };
    Some(store.find(find).await.ok()?.documents)
}
