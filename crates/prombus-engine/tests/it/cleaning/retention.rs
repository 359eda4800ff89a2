//! What goes by its age and by what a topic takes.

use super::stage::*;
use crate::support::switch::Refusal;
use prombus_core::*;
use prombus_engine::Cleaned;

fn for_ms(retention_ms: u64) -> TopicPatch {
    TopicPatch { retention_ms: Some(retention_ms), ..TopicPatch::default() }
}

fn up_to(retention_bytes: u64) -> TopicPatch {
    TopicPatch { retention_bytes: Some(retention_bytes), ..TopicPatch::default() }
}

async fn bytes(s: &Stage, topic: &TopicName) -> u64 {
    s.kept(topic).await.iter().map(|kept| kept.bytes).sum()
}

pub async fn events_go_by_their_age_one_by_one(s: Stage) {
    let topic = s.topic_with("aged", for_ms(10)).await;
    s.record_in_time(&topic, 10).await;
    let before = bytes(&s, &topic).await;
    assert_eq!(s.clean(&topic).await.events, 0, "the first one is just as old as it may be");
    for gone in 1..=10 {
        s.clock.advance(1);
        let cleaned = s.clean(&topic).await;
        assert_eq!((cleaned.events, cleaned.bytes), (1, before / 10));
        assert_eq!(s.offsets(&topic).await, (gone..10).collect::<Vec<_>>());
        let bounds = s.kept(&topic).await[0].bounds;
        assert_eq!(bounds, Bounds { first: Offset(gone), next: Offset(10) });
    }
    assert_eq!(bytes(&s, &topic).await, 0);
    s.record_in_time(&topic, 1).await;
    assert_eq!(s.offsets(&topic).await, [10], "offsets go on where they were");
}

pub async fn the_clock_of_the_hub_decides_and_not_the_ts(s: Stage) {
    let topic = s.topic_with("backdated", for_ms(1_000)).await;
    let now = s.clock.now_ms();
    s.record(&topic, &[Draft { ts: Some(1), ..of("k") }]).await;
    s.clock.advance(600);
    s.record(&topic, &[Draft { ts: Some(now + 100_000), ..of("k") }]).await;
    assert_eq!(s.clean(&topic).await.events, 0);
    s.clock.advance(401);
    assert_eq!(s.clean(&topic).await.events, 1);
    s.clock.advance(600);
    assert_eq!(s.clean(&topic).await.events, 1);
}

pub async fn the_oldest_events_go_until_the_rest_fits(s: Stage) {
    let topic = s.topic_with("sized", TopicPatch { partitions: Some(3), ..TopicPatch::default() }).await;
    // Round robin over three partitions.
    s.record_in_time(&topic, 30).await;
    let all = bytes(&s, &topic).await;
    let each = all / 30;
    s.set(&topic, up_to(all)).await;
    assert_eq!(s.clean(&topic).await.events, 0, "it fits exactly");
    s.set(&topic, up_to(all - 1)).await;
    assert_eq!(s.clean(&topic).await.events, 1, "the oldest goes");
    s.set(&topic, up_to(7 * each + 1)).await;
    let cleaned = s.clean(&topic).await;
    assert_eq!((cleaned.events, cleaned.bytes), (22, 22 * each));
    let mut ages: Vec<u64> = s.events(&topic).await.iter().map(|event| event.recorded_ts).collect();
    ages.sort_unstable();
    let newest = s.clock.now_ms() - 1;
    assert_eq!(ages, (newest - 6..=newest).collect::<Vec<_>>(), "the newest are left, wherever they are");
    assert_eq!(bytes(&s, &topic).await, 7 * each);
    s.set(&topic, up_to(1)).await;
    assert_eq!(s.clean(&topic).await.events, 7, "one event that does not fit goes too");
}

pub async fn what_is_recorded_at_once_goes_in_the_order_of_partitions(s: Stage) {
    let topic = s.topic_with("ties", TopicPatch { partitions: Some(4), ..TopicPatch::default() }).await;
    s.record(&topic, &[Draft::default(); 8]).await;
    let all = bytes(&s, &topic).await;
    s.set(&topic, up_to(all / 2)).await;
    assert_eq!(s.clean(&topic).await.events, 4);
    assert_eq!(s.left(&topic).await, [(2, 0), (2, 1), (3, 0), (3, 1)]);
}

pub async fn a_topic_that_keeps_everything_is_left_alone(s: Stage) {
    let topic = s.topic_with("kept", TopicPatch::default()).await;
    s.record_in_time(&topic, 3).await;
    s.clock.advance(1_000_000_000);
    s.looked_at();
    let kept = s.kept(&topic).await;
    assert_eq!(s.clean(&topic).await, Cleaned { events: 0, bytes: 0, kept });
    assert_eq!(s.looked_at(), (0, 0));
    assert!(s.hub.cleaning().clean(&topic_name("no.such.topic")).await.is_err());
}

pub async fn a_pass_that_finds_nothing_reads_next_to_nothing(s: Stage) {
    let topic = s.topic_with("quiet", for_ms(1_000_000)).await;
    s.record_in_time(&topic, 500).await;
    s.looked_at();
    s.clean(&topic).await;
    assert_eq!(s.looked_at(), (1, 0), "the oldest event says that there is nothing to do");
}

pub async fn what_is_left_tells_what_keys_were_from_the_horizon_on(s: Stage) {
    let topic = s.topic_with("horizons", for_ms(50)).await;
    let at = |ts| Some(s.clock.now_ms() + ts);
    let now = s.clock.now_ms();
    // The last of "gone" goes, so nobody asks for it. "back" has run backwards: what is left of it covers what went.
    s.record(&topic, &[Draft { ts: at(5), ..of("gone") }, Draft { ts: at(20), ..of("back") }]).await;
    s.record(&topic, &[Draft { ts: at(1), ..of("k") }, Draft { ts: at(9), ..Draft::default() }]).await;
    s.clock.advance(10);
    s.record(&topic, &[Draft { ts: Some(now + 11), ..of("back") }]).await;
    s.record(&topic, &[Draft { ts: Some(now + 7), ..of("k") }, Draft { ts: Some(now + 4), ..of("k") }]).await;
    s.clock.advance(45);
    assert_eq!(s.clean(&topic).await.events, 4);
    assert_eq!(s.kept(&topic).await[0].horizon_ts, now + 7, "when the first of k that is left took over");
    s.clock.advance(10);
    s.record(&topic, &[Draft { ts: Some(now + 8), ..of("k") }]).await;
    assert_eq!(s.clean(&topic).await.events, 3);
    assert_eq!(s.kept(&topic).await[0].horizon_ts, now + 8);
    assert!(!s.kept(&topic).await[0].has_holes);
}

pub async fn a_pass_goes_on_where_another_one_failed(s: Stage) {
    let topic = s.topic_with("refused", for_ms(10)).await;
    s.record_in_time(&topic, 5).await;
    s.clock.advance(100);
    let error = CommitError::Unavailable("the test says so".into());
    s.log.refuse(Refusal { which: |_| true, after: 0, times: 1, error, happens: false });
    assert!(s.hub.cleaning().clean(&topic).await.is_err());
    assert_eq!(s.offsets(&topic).await.len(), 5);
    // Others were in the way: that is tried again.
    let error = CommitError::CursorMoved { reader: "cleaner".into(), actual: 7 };
    s.log.refuse(Refusal { which: |_| true, after: 0, times: 3, error, happens: false });
    assert_eq!(s.clean(&topic).await.events, 5);
    assert_eq!(bytes(&s, &topic).await, 0);
}

pub async fn a_full_disk_does_not_keep_events(s: Stage) {
    let settings = TopicPatch { compaction: Some(true), ..for_ms(10) };
    let topic = s.topic_with("full", settings).await;
    s.record(&topic, &[of("old")]).await;
    s.clock.advance(100);
    s.record(&topic, &[of("k"), of("k"), of("k")]).await;
    let error = CommitError::NoRoom;
    s.log.refuse(Refusal {
        which: |commit| !commit.only_removes(),
        after: 0,
        times: usize::MAX,
        error,
        happens: false,
    });
    assert_eq!(s.clean(&topic).await.events, 3);
    assert_eq!(s.offsets(&topic).await, [3]);
    assert_eq!(s.clean(&topic).await.events, 0, "and nothing is counted twice");
}

pub async fn the_position_of_the_cleaner_is_nobodys_group(s: Stage) {
    let topic = s.topic_with("hidden", TopicPatch { compaction: Some(true), ..for_ms(10) }).await;
    s.record(&topic, &[of("k"), of("k")]).await;
    s.clean(&topic).await;
    let state = s.hub.topic(&topic).await.unwrap().unwrap();
    assert!(s.hub.groups().list(&state).await.is_empty());
    assert_eq!(s.log.readers(&topic, "").await.unwrap(), ["cleaner"], "though there is a cursor");
}
