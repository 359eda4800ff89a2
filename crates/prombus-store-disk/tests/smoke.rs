#![allow(missing_docs)]
use prombus_core::*;
use prombus_store_disk::*;
use std::sync::Arc;

fn commit(topic: &TopicName, number: TopicNumber, n: usize) -> Arc<Commit> {
    let events = (0..n)
        .map(|i| Append {
            topic: topic.clone(),
            placement: Placement::Placed(Partition(0), Layout { topic: number, partitions: 1 }),
            expect: None,
            event: NewEvent {
                key: Some(format!("key-{}", i % 7).into()),
                ..NewEvent::new(Json::parse(format!("{{\"n\":{i}}}").into()).unwrap())
            },
        })
        .collect();
    Arc::new(Commit { events, ..Commit::default() })
}

#[tokio::test]
async fn smoke() {
    let dir = tempfile::tempdir().unwrap();
    let topic = TopicName::parse("a").unwrap();
    for round in 0..5u64 {
        let store =
            DiskStore::open(DiskOptions { part_bytes: 100_000, ..DiskOptions::new(dir.path()) }).unwrap();
        if round == 0 {
            let change = ConfigChange::CreateTopic { name: topic.clone(), config: TopicConfig::default() };
            store.commit(Arc::new(Commit { config: vec![change], ..Default::default() })).await.unwrap();
        }
        let number = store.topic(&topic).await.unwrap().unwrap().number;
        for _ in 0..30 {
            let receipt = store.commit(commit(&topic, number, 100)).await.unwrap();
            let last = receipt.events.last().unwrap();
            assert_eq!(store.by_id(&topic, last.id).await.unwrap().unwrap().offset, last.offset);
        }
        assert_eq!(store.bounds(&topic, Partition(0)).await.unwrap().next, Offset(3000 * (round + 1)));
        let mut next = Offset(0);
        loop {
            let page = store
                .read(ReadRequest {
                    topic: topic.clone(),
                    partition: Partition(0),
                    from: next,
                    limit: 777,
                    max_bytes: 1 << 20,
                })
                .await
                .unwrap();
            for (i, e) in page.events.iter().enumerate() {
                assert_eq!(e.offset.0, next.0 + i as u64);
            }
            next = page.next;
            if next == page.end {
                break;
            }
        }
        assert_eq!(next, Offset(3000 * (round + 1)));
        if round % 2 == 0 {
            store.close().await;
        }
        drop(store);
        let report = check(dir.path(), &mut |_| {}).unwrap();
        assert_eq!(report.problems, []);
        assert_eq!(report.events, 3000 * (round + 1));
    }
}
