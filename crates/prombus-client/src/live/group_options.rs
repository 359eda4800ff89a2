//! Builder methods for the options of a group, on the options of subscriptions and handlers.

use super::consume::ConsumeOptions;
use super::subscription::SubscribeOptions;
use std::time::Duration;

/// Gives both kinds of options the same methods.
macro_rules! group_options {
    ($options:ty, $($subscribe:ident)?) => {
        impl $options {
            /// A new group starts at the earliest event.
            #[must_use]
            pub fn earliest() -> Self {
                Self::default().starting("earliest")
            }

            /// A new group starts with events published from now on (the default).
            #[must_use]
            pub fn latest() -> Self {
                Self::default().starting("latest")
            }

            /// A new group starts at the first event whose time, in epoch milliseconds, is at or after this.
            #[must_use]
            pub fn since(ts: u64) -> Self {
                let mut options = Self::default().starting("ts");
                options$(.$subscribe)?.group.ts = Some(ts);
                options
            }

            /// A new group starts after the event with this id.
            #[must_use]
            pub fn after(id: impl Into<String>) -> Self {
                let mut options = Self::default().starting("afterId");
                options$(.$subscribe)?.group.after_id = Some(id.into());
                options
            }

            fn starting(mut self, from: &str) -> Self {
                self$(.$subscribe)?.group.from = Some(from.to_owned());
                self
            }

            /// Number of attempts before an event is dead-lettered (5).
            #[must_use]
            pub fn with_max_attempts(mut self, attempts: u32) -> Self {
                self$(.$subscribe)?.group.max_attempts = Some(attempts);
                self
            }

            /// How long a lease lasts (30 s).
            #[must_use]
            pub fn with_ack_timeout(mut self, time: Duration) -> Self {
                self$(.$subscribe)?.group.ack_timeout_ms = Some(millis(time));
                self
            }

            /// The delay before the third attempt (100 ms); it doubles with each further attempt.
            #[must_use]
            pub fn with_backoff(mut self, pause: Duration) -> Self {
                self$(.$subscribe)?.group.backoff_ms = Some(millis(pause));
                self
            }

            /// What waits while an event is in flight: later events of its `key` (the default), of its `partition`, or
            /// `none`.
            #[must_use]
            pub fn with_ordering(mut self, ordering: impl Into<String>) -> Self {
                self$(.$subscribe)?.group.ordering = Some(ordering.into());
                self
            }

            /// Only events that match this CEL expression.
            #[must_use]
            pub fn with_filter(mut self, filter: impl Into<String>) -> Self {
                self$(.$subscribe)?.group.filter = Some(filter.into());
                self
            }

            /// Assigns each partition to one member of the group.
            #[must_use]
            pub fn partitioned(mut self) -> Self {
                self$(.$subscribe)?.group.mode = Some("partitioned".into());
                self
            }

            /// How long a member of a partitioned group may be silent before it is removed (15 s).
            #[must_use]
            pub fn with_member_ttl(mut self, time: Duration) -> Self {
                self$(.$subscribe)?.group.member_ttl_ms = Some(millis(time));
                self
            }

            /// Upgrades events to the latest version of their schema.
            #[must_use]
            pub fn normalized(mut self) -> Self {
                self$(.$subscribe)?.group.normalize = Some(true);
                self
            }

            /// How far the group may run ahead of its oldest unsettled event in a partition, in offsets (100,000).
            #[must_use]
            pub fn with_ack_window(mut self, offsets: u64) -> Self {
                self$(.$subscribe)?.group.ack_window = Some(offsets);
                self
            }

            /// The name of the member; by default, the connection has its own.
            #[must_use]
            pub fn with_member(mut self, name: impl Into<String>) -> Self {
                self$(.$subscribe)?.member = Some(name.into());
                self
            }

            /// Maximum number of deliveries per frame (100).
            #[must_use]
            pub fn with_batch_size(mut self, deliveries: usize) -> Self {
                self$(.$subscribe)?.batch_size = Some(deliveries);
                self
            }

            /// Maximum number of unsettled deliveries (1,000).
            #[must_use]
            pub fn with_max_in_flight(mut self, deliveries: usize) -> Self {
                self$(.$subscribe)?.max_in_flight = Some(deliveries);
                self
            }
        }
    };
}

group_options!(SubscribeOptions,);
group_options!(ConsumeOptions, subscribe);

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GroupOptionsRequest;

    #[test]
    fn both_kinds_of_options_say_the_same() {
        macro_rules! said {
            ($options:ident) => {
                $options::since(7)
                    .with_max_attempts(1)
                    .with_ack_timeout(Duration::from_secs(2))
                    .with_backoff(Duration::MAX)
                    .with_ordering("none")
                    .with_filter("true")
                    .partitioned()
                    .with_member_ttl(Duration::from_secs(3))
                    .normalized()
                    .with_ack_window(4)
                    .with_member("m")
                    .with_batch_size(5)
                    .with_max_in_flight(6)
            };
        }
        let subscribe = said!(SubscribeOptions);
        assert_eq!(said!(ConsumeOptions).subscribe, subscribe);
        let group = GroupOptionsRequest {
            from: Some("ts".into()),
            ts: Some(7),
            after_id: None,
            mode: Some("partitioned".into()),
            ordering: Some("none".into()),
            ack_timeout_ms: Some(2_000),
            max_attempts: Some(1),
            backoff_ms: Some(u64::MAX),
            filter: Some("true".into()),
            normalize: Some(true),
            ack_window: Some(4),
            member_ttl_ms: Some(3_000),
        };
        assert_eq!(subscribe.group, group);
        assert_eq!((subscribe.batch_size, subscribe.max_in_flight), (Some(5), Some(6)));
        let after = SubscribeOptions::after("id").group;
        assert_eq!((after.from.as_deref(), after.after_id.as_deref()), (Some("afterId"), Some("id")));
        assert_eq!(ConsumeOptions::latest().subscribe.group.from.as_deref(), Some("latest"));
    }
}
