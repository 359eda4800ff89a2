//! Reading a partition page by page, and finding a place in it by time.

use crate::Subject;
use crate::build::{event, numbered, partitions};
use crate::subject::must;
use prombus_core::{Event, Offset, Page, Partition, ReadRequest};

async fn read(s: &Subject, request: ReadRequest) -> Page {
    must(s.log.read(request).await, "a kept offset can be read")
}

/// Pages of any size follow each other, and together they are everything, in order.
pub async fn pages_follow_each_other(s: Subject) {
    let topic = s.create("pages", partitions(2)).await;
    s.published(&topic, (0..23).map(numbered)).await;
    s.published(&topic, (0..5).map(|n| numbered(n).in_partition(1))).await;
    let all = s.all(&topic, 0).await;
    for limit in [1, 2, 3, 7, 22, 23, 24, 1_000] {
        let (mut events, mut from) = (Vec::new(), Offset(0));
        loop {
            let page = read(&s, ReadRequest { limit, ..s.page(&topic, 0, from) }).await;
            assert!(page.events.len() <= limit, "a page has at most `limit` events");
            assert!(!page.events.is_empty(), "a page has an event where there is one");
            let last = page.events.last().map(|event| event.offset.plus(1));
            assert_eq!(Some(page.next), last, "the next page starts after the last event");
            assert_eq!(page.end, Offset(23), "the end is the first offset that is not written");
            events.extend(page.events);
            from = page.next;
            if page.next == page.end {
                break;
            }
        }
        assert_eq!(events, all, "pages of {limit} are everything, in order");
    }
}

/// A page can start at any offset.
pub async fn a_page_starts_where_it_is_asked_to(s: Subject) {
    let topic = s.create("starts", partitions(1)).await;
    s.published(&topic, (0..12).map(numbered)).await;
    let all = s.all(&topic, 0).await;
    for from in 0..12 {
        let request = ReadRequest { limit: 4, ..s.page(&topic, 0, Offset(from)) };
        let page = read(&s, request).await;
        let end = (from as usize + 4).min(12);
        assert_eq!(page.events, all[from as usize..end], "a page starts at the offset asked for");
    }
}

/// A page ends at about `max_bytes`, and has at least one event where there is one.
pub async fn a_page_is_about_max_bytes_and_at_least_one_event(s: Subject) {
    let topic = s.create("bytes", partitions(1)).await;
    let payload = |n: usize| format!("\"{}\"", "x".repeat(1 + n * 500 % 9_000));
    s.published(&topic, (0..30).map(|n| event(&payload(n)))).await;
    let all = s.all(&topic, 0).await;
    assert_eq!(all.len(), 30);
    for max_bytes in [0, 1, 5_000, 20_000, 1 << 30] {
        let (mut events, mut from) = (Vec::<Event>::new(), Offset(0));
        while from < Offset(30) {
            let page = read(&s, ReadRequest { max_bytes, ..s.page(&topic, 0, from) }).await;
            let sizes = page.events.iter().map(|event| event.payload.len());
            let total: usize = sizes.clone().sum();
            let last = sizes.last().unwrap_or_default();
            assert!(last > 0, "a page has at least one event where there is one");
            assert!(total - last <= max_bytes, "{total} bytes are not about {max_bytes}");
            events.extend(page.events);
            from = page.next;
        }
        assert_eq!(events, all, "pages of {max_bytes} bytes are everything, in order");
    }
}

/// At the end and beyond it, and in an empty partition, a page is empty.
pub async fn a_page_at_the_end_is_empty(s: Subject) {
    let topic = s.create("ends", partitions(2)).await;
    s.published(&topic, (0..3).map(numbered)).await;
    for (partition, end) in [(0, 3), (1, 0)] {
        let page = read(&s, s.page(&topic, partition, Offset(end))).await;
        let empty = Page { events: Vec::new(), next: Offset(end), end: Offset(end) };
        assert_eq!(page, empty, "a page at the end is empty, and its next is the end");
        for beyond in [end + 1, end + 1_000_000, u64::from(u32::MAX) + 7] {
            let page = read(&s, s.page(&topic, partition, Offset(beyond))).await;
            assert_eq!((page.events, page.end), (Vec::new(), Offset(end)), "beyond the end there is nothing");
        }
    }
    s.published(&topic, [numbered(3)]).await;
    let page = read(&s, s.page(&topic, 0, Offset(3))).await;
    assert_eq!(page.events.len(), 1, "what was the end has an event once one is committed");
}

/// `offset_at` is the first offset whose `ts` is at or after the one asked for, though `ts` runs backwards.
pub async fn a_place_by_time_is_the_first_at_or_after(s: Subject) {
    let topic = s.create("by-time", partitions(1)).await;
    assert_eq!(s.offset_at(&topic, 0, 0).await, Offset(0), "of an empty partition it is the end");
    let times = [50, 10, 40, 20, 60, 60, 5];
    s.published(&topic, times.iter().map(|ts| event("1").ts(*ts))).await;
    let expected = [(0, 0), (10, 0), (45, 0), (50, 0), (51, 4), (60, 4), (61, 7), (u64::MAX >> 12, 7)];
    for (ts, offset) in expected {
        let found = s.offset_at(&topic, 0, ts).await;
        assert_eq!(found, Offset(offset), "the first offset with a ts at or after {ts} in {times:?}");
    }
}

/// The same for many events in many commits, against a plain search.
pub async fn places_by_time_agree_with_a_plain_search(s: Subject) {
    let topic = s.create("by-time.many", partitions(2)).await;
    let mut rng = fastrand::Rng::with_seed(3);
    for base in 0..20u64 {
        let drafts: Vec<_> = (0..20)
            .map(|_| event("1").ts(base * 100 + rng.u64(0..1_000)).in_partition(rng.u32(0..2)))
            .collect();
        s.published(&topic, drafts).await;
    }
    for partition in 0..2 {
        let all = s.all(&topic, partition).await;
        let end = Offset(all.len() as u64);
        for ts in (0..3_100).step_by(47) {
            let plain = all.iter().find(|event| event.ts >= ts).map_or(end, |event| event.offset);
            assert_eq!(s.offset_at(&topic, partition, ts).await, plain, "the place of ts {ts}");
        }
    }
}

/// Partitions are read each for itself.
pub async fn partitions_are_read_apart(s: Subject) {
    let topic = s.create("partitions", partitions(4)).await;
    s.published(&topic, (0..40).map(|n| numbered(n).in_partition(n as u32 % 3))).await;
    for partition in 0..4 {
        let events = s.all(&topic, partition).await;
        assert!(
            events.iter().all(|event| event.partition == Partition(partition)),
            "events of one partition"
        );
        let expected: Vec<_> =
            (0..40).filter(|n| *n as u32 % 3 == partition).map(|n| numbered(n).event.payload).collect();
        let found: Vec<_> = events.into_iter().map(|event| event.payload).collect();
        assert_eq!(found, expected, "a partition has its events in the order of their commits");
    }
}
