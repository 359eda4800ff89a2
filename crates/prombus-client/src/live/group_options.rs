//! Builder methods for the options of a group, on the options of subscriptions and handlers.

use super::consume::ConsumeOptions;
use super::subscription::SubscribeOptions;
use prombus_wire::GroupMode;
use std::time::Duration;

/// Declares the method that sets an option: times are given as such, everything else as it is.
macro_rules! setter {
    ([$($subscribe:ident)?] $(#[$doc:meta])* $name:ident: $type:ty, "MS", $with:ident) => {
        $(#[$doc])* #[must_use] pub fn $with(mut self, time: Duration) -> Self {
            self$(.$subscribe)?.group.$name = Some(millis(time));
            self
        }
    };
    ([$($subscribe:ident)?] $(#[$doc:meta])* $name:ident: $type:ty, $value:tt, $with:ident) => {
        $(#[$doc])* #[must_use] pub fn $with(mut self, $name: $type) -> Self {
            self$(.$subscribe)?.group.$name = Some($name.into());
            self
        }
    };
}

/// Gives both kinds of options the same methods.
macro_rules! setters {
    (
        { $options:ident $to:tt }
        fixed { $($(#[$fixed_doc:meta])* $fixed:ident: $fixed_type:ty = $_d1:expr, $fixed_value:tt, $fixed_with:ident;)* }
        optional { $($(#[$optional_doc:meta])* $optional:ident: $optional_type:ty, $optional_value:tt, $optional_with:ident;)* }
        changing { $($(#[$doc:meta])* $name:ident: $type:ty = $default:expr, $value:tt, $with:ident;)* }
    ) => {
        impl $options {
            $(setter! { $to $(#[$fixed_doc])* $fixed: $fixed_type, $fixed_value, $fixed_with })*
            $(setter! { $to $(#[$optional_doc])* $optional: impl Into<$optional_type>, $optional_value, $optional_with })*
            $(setter! { $to $(#[$doc])* #[doc = concat!("(`", stringify!($name), "`, by default ", stringify!($default), ")")]
                $name: $type, $value, $with })*
        }
    };
}

prombus_wire::group_options! { setters { SubscribeOptions [] } }
prombus_wire::group_options! { setters { ConsumeOptions [subscribe] } }

/// The other methods of both kinds of options.
macro_rules! others {
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

            /// Assigns each partition to one member of the group.
            #[must_use]
            pub fn partitioned(self) -> Self {
                self.with_mode(GroupMode::Partitioned)
            }

            /// Upgrades events to the latest version of their schema.
            #[must_use]
            pub fn normalized(self) -> Self {
                self.with_normalize(true)
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

others!(SubscribeOptions,);
others!(ConsumeOptions, subscribe);

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupOptionsRequest, GroupOrdering};

    #[test]
    fn both_kinds_of_options_say_the_same() {
        macro_rules! said {
            ($options:ident) => {
                $options::since(7)
                    .with_max_attempts(1)
                    .with_ack_timeout(Duration::from_secs(2))
                    .with_backoff(Duration::MAX)
                    .with_ordering(GroupOrdering::None)
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
            mode: Some(GroupMode::Partitioned),
            ordering: Some(GroupOrdering::None),
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
