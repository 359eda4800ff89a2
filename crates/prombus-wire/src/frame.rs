//! Frames that a client sends over the WebSocket: JSON objects with their kind in `op`.

use crate::Object;
use crate::commit::{CommitEventRequest, CommitRequest, WriteRequest};
use crate::group_options;
use crate::group_options::{from_options, request};
use crate::publish::{PublishOptions, given};
use crate::text::Text;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What every frame has; its other fields are for the kind to say.
#[derive(Debug, Deserialize)]
pub struct FrameHead<'a> {
    /// Its kind.
    #[serde(borrow)]
    pub op: Text<'a>,
    /// What its answer carries as well, as it was given.
    #[serde(borrow, default)]
    pub corr: Option<&'a RawValue>,
}

/// Declares a kind of frame: its own fields beside `op` and `corr`.
macro_rules! frame {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$meta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name<'a> {
            /// See [`FrameHead::op`].
            #[serde(borrow)]
            pub op: Text<'a>,
            /// See [`FrameHead::corr`].
            #[serde(borrow, default)]
            pub corr: Option<&'a RawValue>,
            $($(#[$meta])* pub $field: $type,)*
        }
    };
}

frame! {
    /// `AUTH`.
    pub struct AuthFrame {
        /// The token.
        #[serde(borrow)]
        pub token: Text<'a>,
    }
}

frame! {
    /// `PUBLISH`: one payload with its options, or several events.
    pub struct PublishFrame {
        /// Where to.
        #[serde(borrow)]
        pub topic: Text<'a>,
        /// Any JSON, `null` included.
        #[serde(borrow, default, deserialize_with = "given")]
        pub payload: Option<&'a RawValue>,
        /// What goes with the payload.
        #[serde(borrow, default)]
        pub opts: Option<Object<PublishOptions<'a>>>,
        /// An array of events, all or none.
        #[serde(borrow, default)]
        pub events: Option<&'a RawValue>,
    }
}

frame! {
    /// `SUBSCRIBE`.
    pub struct SubscribeFrame {
        /// The topic.
        #[serde(borrow, default)]
        pub topic: Option<Text<'a>>,
        /// Or several.
        #[serde(borrow, default)]
        pub topics: Option<Vec<Text<'a>>>,
        /// The group.
        #[serde(borrow)]
        pub group: Text<'a>,
        /// What the group is to be, and how it is consumed.
        #[serde(default)]
        pub opts: Option<Object<SubscribeOptions>>,
    }
}

frame! {
    /// `UNSUBSCRIBE`, `PAUSE` and `RESUME`.
    pub struct SubscriptionFrame {
        /// The topic.
        #[serde(borrow)]
        pub topic: Text<'a>,
        /// The group.
        #[serde(borrow)]
        pub group: Text<'a>,
    }
}

frame! {
    /// `ACK`, `NACK` and `MODACK`: of events by id, or by lease.
    pub struct SettleFrame {
        /// The topic.
        #[serde(borrow)]
        pub topic: Text<'a>,
        /// The group.
        #[serde(borrow)]
        pub group: Text<'a>,
        /// One event.
        #[serde(borrow, default)]
        pub id: Option<Text<'a>>,
        /// Several.
        #[serde(borrow, default)]
        pub ids: Option<Vec<Text<'a>>>,
        /// One lease.
        #[serde(borrow, default)]
        pub lease: Option<Text<'a>>,
        /// Several.
        #[serde(borrow, default)]
        pub leases: Option<Vec<Text<'a>>>,
        /// Why it failed, for `NACK`.
        #[serde(borrow, default)]
        pub reason: Option<Text<'a>>,
        /// When to try again, for `NACK`.
        #[serde(default)]
        pub delay_ms: Option<u64>,
        /// How long it is to hold from now on, for `MODACK`.
        #[serde(default)]
        pub extend_ms: Option<u64>,
    }
}

frame! {
    /// `COMMIT`.
    pub struct CommitFrame {
        /// See [`CommitRequest::commit_id`].
        #[serde(borrow, default)]
        pub commit_id: Option<Text<'a>>,
        /// See [`CommitRequest::ack`].
        #[serde(borrow, default)]
        pub ack: Option<Vec<Text<'a>>>,
        /// See [`CommitRequest::writes`].
        #[serde(borrow, default)]
        pub writes: Option<Vec<Object<WriteRequest<'a>>>>,
        /// See [`CommitRequest::publish`].
        #[serde(borrow, default)]
        pub publish: Option<Vec<Object<CommitEventRequest<'a>>>>,
    }
}

impl<'a> CommitFrame<'a> {
    /// What it asks for.
    pub fn into_request(self) -> CommitRequest<'a> {
        let Self { commit_id, ack, writes, publish, .. } = self;
        CommitRequest { commit_id, ack, writes, publish }
    }
}

group_options! { request {
    /// The options of `SUBSCRIBE`.
    pub struct SubscribeOptions {
        /// Whether deliveries come several in a frame.
        pub batch: Option<bool>,
        /// Who consumes.
        pub member: Option<String>,
        /// Maximum number of deliveries at once.
        pub batch_size: Option<usize>,
        /// Maximum number of open leases.
        pub max_in_flight: Option<usize>,
    }
} }

group_options! { from_options { SubscribeOptions } }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupOptionsRequest, parse_object};
    use proptest::prelude::*;

    #[test]
    fn a_head_does_not_look_at_the_rest() {
        let head: FrameHead<'_> = parse_object(br#"{"payload":{"op":1},"op":"PUBLISH","corr":"7"}"#).unwrap();
        assert_eq!((&*head.op, head.corr.unwrap().get()), ("PUBLISH", "\"7\""));
        assert!(parse_object::<FrameHead<'_>>(br#"{"corr":"7"}"#).is_err());
    }

    #[test]
    fn a_payload_of_null_is_not_a_missing_payload() {
        let frame = |text: &'static [u8]| parse_object::<PublishFrame<'_>>(text).unwrap();
        assert_eq!(frame(br#"{"op":"PUBLISH","topic":"t","payload":null}"#).payload.unwrap().get(), "null");
        assert!(frame(br#"{"op":"PUBLISH","topic":"t"}"#).payload.is_none());
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(parse_object::<PublishFrame<'_>>(br#"{"op":"PUBLISH","topic":"t","paylod":1}"#).is_err());
        let text = br#"{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"batch":true,"maxInFlight":5,"from":"earliest"}}"#;
        let frame: SubscribeFrame<'_> = parse_object(text).unwrap();
        let opts = frame.opts.unwrap().0;
        assert_eq!((opts.batch, opts.max_in_flight), (Some(true), Some(5)));
        assert_eq!(GroupOptionsRequest::from(opts).from.as_deref(), Some("earliest"));
        let bad = br#"{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"max":5}}"#;
        assert!(parse_object::<SubscribeFrame<'_>>(bad).is_err());
    }

    proptest! {
        #[test]
        fn random_frames_never_panic(text in r#"\{("(op|corr|topic|payload|opts|events|group|id|ids|lease)"|[\[\]{}:,"0-9A-Za-z\\ ]){0,30}"#) {
            let _ = parse_object::<FrameHead<'_>>(text.as_bytes());
            let _ = parse_object::<PublishFrame<'_>>(text.as_bytes());
            let _ = parse_object::<SettleFrame<'_>>(text.as_bytes());
        }
    }
}
