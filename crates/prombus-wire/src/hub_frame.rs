//! Frames that the hub sends over the WebSocket, as a client reads them: in one pass, borrowed where that can be.

use crate::answer::{EventRecord, Published};
use crate::group::{DeliveryContext, DeliveryRecord};
use crate::text::Text;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Any frame of the hub. Which fields there are goes by `op`; fields that a client does not know are passed over.
#[derive(Debug, Deserialize)]
pub struct HubFrame<'a> {
    /// `OK`, `ERR`, `EVENT`, `EVENTS` or `ASSIGNED`.
    #[serde(borrow)]
    pub op: Text<'a>,
    /// What the request had.
    #[serde(borrow, default)]
    pub corr: Option<Text<'a>>,
    /// The topic of deliveries and assignments.
    #[serde(borrow, default)]
    pub topic: Option<Text<'a>>,
    /// The group of deliveries and assignments.
    #[serde(borrow, default)]
    pub group: Option<Text<'a>>,
    /// The id of a published event.
    #[serde(borrow, default)]
    pub id: Option<Text<'a>>,
    /// Its partition.
    #[serde(default)]
    pub partition: Option<u32>,
    /// Its place in the partition.
    #[serde(default)]
    pub offset: Option<u64>,
    /// Its event time.
    #[serde(default)]
    pub ts: Option<u64>,
    /// Whether it was there already.
    #[serde(default)]
    pub duplicate: Option<bool>,
    /// What a publish waited for.
    #[serde(borrow, default)]
    pub durability: Option<Text<'a>>,
    /// The events of a publish of several, or of a commit.
    #[serde(default)]
    pub events: Option<Vec<Published>>,
    /// The versions of the documents that a commit has written, by collection and key.
    #[serde(default)]
    pub versions: Option<BTreeMap<String, BTreeMap<String, u64>>>,
    /// The event of a delivery.
    #[serde(default)]
    pub event: Option<EventRecord>,
    /// How it was delivered.
    #[serde(default)]
    pub ctx: Option<DeliveryContext>,
    /// Several deliveries.
    #[serde(default)]
    pub deliveries: Option<Vec<DeliveryRecord>>,
    /// The partitions that the subscription has now.
    #[serde(default)]
    pub partitions: Option<Vec<u32>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> HubFrame<'_> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn answers_are_understood_and_unknown_fields_passed_over() {
        let one = parse(
            r#"{"op":"OK","corr":"7","durability":"sync","id":"i","partition":1,"offset":2,"ts":3,"duplicate":false,"new":{}}"#,
        );
        assert_eq!((&*one.op, one.corr.as_deref(), one.offset), ("OK", Some("7"), Some(2)));
        let many = parse(
            r#"{"op":"OK","corr":"8","events":[{"id":"0198c0de-0000-7000-8000-000000000001","partition":1,"offset":2,"ts":3,"duplicate":true}]}"#,
        );
        assert!(many.events.unwrap()[0].duplicate);
    }

    #[test]
    fn deliveries_keep_every_byte_of_their_payload() {
        let text = r#"{"op":"EVENTS","topic":"t","group":"g\n","deliveries":[{"event":{"id":"i","ts":1,"topic":"t",
            "partition":0,"offset":0,"payload":{"n":1.10}},"ctx":{"attempt":1,"maxAttempts":5,"ack_deadline_ms":9,"lease":"l"}}]}"#;
        let frame = parse(text);
        let delivery = &frame.deliveries.unwrap()[0];
        assert_eq!((delivery.event.payload.get(), delivery.ctx.lease.as_str()), (r#"{"n":1.10}"#, "l"));
        assert_eq!(frame.group.as_deref(), Some("g\n"));
    }
}
