//! Makes a golden data folder: `cargo run -p prombus-store-disk --example make_golden -- <folder>`.
//!
//! Run it once for each format version; later builds must open what it made (see `tests/it/golden.rs`).

#[path = "../tests/it/support/listing.rs"]
mod listing;

use bytes::Bytes;
use prombus_core::collection::Index;
use prombus_core::*;
use prombus_store_disk::{DiskOptions, DiskStore};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use uuid::Uuid;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("name a folder")?);
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    let data = folder.join("data");
    let options =
        DiskOptions { part_bytes: 8 << 10, clock: clock.clone(), seed: 7, ..DiskOptions::new(&data) };
    let store = DiskStore::open(options)?;
    let (kept, gone) = (TopicName::parse("kept.v1")?, TopicName::parse("gone")?);
    for (name, partitions) in [(&kept, 3), (&gone, 1)] {
        let config = TopicConfig { partitions, ..TopicConfig::default() };
        configure(&store, ConfigChange::CreateTopic { name: name.clone(), config }).await?;
    }
    for n in 0..120u32 {
        clock.advance(u64::from(n % 5));
        if n == 60 {
            let index = Index { fields: vec![FieldPath::parse("n")?], unique: false };
            let config = CollectionConfig { indexes: vec![index], ..CollectionConfig::default() };
            let change = ConfigChange::PutCollection { name: "documents".into(), expect_revision: 1, config };
            configure(&store, change).await?;
        }
        let mut events = vec![append(&kept, 3, n)?];
        if n < 20 {
            events.push(append(&gone, 1, n)?);
        }
        let set = WriteOp::Set(Json::parse(format!("{{\"n\":{n},\"big\":12345678901234567890.10}}").into())?);
        let key = format!("document {}", n % 9);
        let write = DocumentWrite { ts: clock.now_ms(), ..DocumentWrite::new("documents", key, set) };
        let target = CursorTarget { next: Offset(u64::from(n)), detail: Bytes::from(vec![0, 255, n as u8]) };
        let key = CursorKey { topic: kept.clone(), reader: "reader".into(), partition: Partition(0) };
        let cursor = CursorMove {
            incarnation: None,
            key,
            expect_version: u64::from(n),
            epoch: Epoch(u64::from(n / 50)),
            to: Some(target),
        };
        let commit = Commit { events, documents: vec![write], cursors: vec![cursor], ..Commit::default() };
        store.commit(Arc::new(commit)).await?;
    }
    configure(&store, ConfigChange::DeleteTopic { name: gone }).await?;
    let before = Offset(4);
    configure(
        &store,
        ConfigChange::Trim { topic: (&kept).into(), partition: Partition(1), before, loss: Loss::default() },
    )
    .await?;
    std::fs::write(folder.join("expected.txt"), listing::listing(&store).await)?;
    store.close().await;
    Ok(())
}

async fn configure(store: &DiskStore, change: ConfigChange) -> Result<(), CommitError> {
    store.commit(Arc::new(Commit { config: vec![change], ..Commit::default() })).await.map(drop)
}

fn append(topic: &TopicName, partitions: u32, n: u32) -> Result<Append, JsonError> {
    let json = |text: String| Json::parse(text.into());
    let event = NewEvent {
        id: n.is_multiple_of(2).then(|| Uuid::from_u128(u128::from(n) << 64 | 0xfeed)),
        ts: n.is_multiple_of(3).then_some(1_700_000_000_000 + u64::from(n)),
        key: (!n.is_multiple_of(4)).then(|| format!("key {} ö", n % 6).into()),
        sid: if n.is_multiple_of(5) { Some(json("\"sid\"".into())?.into()) } else { None },
        headers: if n.is_multiple_of(7) { Some(json("{\"x-a\":\"b\"}".into())?.into()) } else { None },
        payload: json(format!("{{\"n\":{n},\"exact\":1.10,\"pad\":\"{}\"}}", "p".repeat(n as usize * 3)))?,
        caused_by: if n.is_multiple_of(11) { Some(json("[\"c\"]".into())?.into()) } else { None },
        tags: if n.is_multiple_of(13) { Some(json("[\"#t\"]".into())?.into()) } else { None },
    };
    let placement = Placement::Named(Partition(n % partitions));
    Ok(Append { topic: topic.clone(), placement, expect: None, event })
}
