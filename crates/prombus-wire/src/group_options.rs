//! What can be set on a group: in the bodies that create or change it, in the options of the client, and by flags of the
//! command line.
//!
//! All options are listed once, in [`group_options`](crate::group_options). A new option is one entry there, and its
//! meaning in the engine.

use serde::{Deserialize, Deserializer, Serialize};

/// Who gets which events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum GroupMode {
    /// Every member may get every event.
    Shared,
    /// Each partition has one member.
    Partitioned,
}

/// What waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum GroupOrdering {
    /// Later events of a key wait for the earlier ones.
    Key,
    /// Nothing waits.
    None,
    /// Everything in a partition waits for what is before it.
    Partition,
}

// Through a string, because serde_json calls a number in the place of a name a mistake of syntax.
impl TryFrom<String> for GroupMode {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            "shared" => Ok(Self::Shared),
            "partitioned" => Ok(Self::Partitioned),
            _ => Err(format!("mode must be shared or partitioned, not {name:?}")),
        }
    }
}

impl TryFrom<String> for GroupOrdering {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            "key" => Ok(Self::Key),
            "none" => Ok(Self::None),
            "partition" => Ok(Self::Partition),
            _ => Err(format!("ordering must be key, none or partition, not {name:?}")),
        }
    }
}

/// Hands all options of a group to another macro, after what is given for it in braces. For each option: its help, name,
/// type and default, what stands for a value of it on the command line, and the method of the client that sets it.
///
/// Those that are `fixed` say how what is settled is kept, so they cannot be changed later. Those that are `optional`
/// are not set by default, and can be taken back.
#[macro_export]
macro_rules! group_options {
    ($to:ident $({ $($before:tt)* })?) => {
        $to! {
            $({ $($before)* })?
            fixed {
                /// Whether any member may get any event, or each partition is assigned to one member
                mode: $crate::GroupMode = $crate::GroupMode::Shared, "shared|partitioned", with_mode;
                /// What waits while an event is in flight: its key, nothing, or its partition
                ordering: $crate::GroupOrdering = $crate::GroupOrdering::Key, "key|none|partition", with_ordering;
            }
            optional {
                /// Only events that match this CEL expression over `event`; the group skips the others
                filter: String, "CEL", with_filter;
            }
            changing {
                /// How long a lease lasts
                ack_timeout_ms: u64 = 30_000, "MS", with_ack_timeout;
                /// Number of attempts before an event is dead-lettered
                max_attempts: u32 = 5, "N", with_max_attempts;
                /// Delay before the third attempt; it doubles with each further attempt
                backoff_ms: u64 = 100, "MS", with_backoff;
                /// Whether to upgrade events to the latest version of their schema
                normalize: bool = false, "true|false", with_normalize;
                /// How far the group may run ahead of its oldest unsettled event, in offsets
                ack_window: u64 = 100_000, "N", with_ack_window;
                /// How long a member of a partitioned group may be silent before it is removed
                member_ttl_ms: u64 = 15_000, "MS", with_member_ttl;
            }
        }
    };
}

/// Declares a request with fields of its own beside the options of a group. (`flatten` would do, but it does not go
/// together with `deny_unknown_fields`.)
macro_rules! request {
    (
        { $(#[$doc:meta])* pub struct $request:ident { $($(#[$own_doc:meta])* pub $own:ident: $own_type:ty,)* } }
        fixed { $($(#[$fixed_doc:meta])* $fixed:ident: $fixed_type:ty = $_d1:expr, $_v1:tt, $_w1:ident;)* }
        optional { $($(#[$optional_doc:meta])* $optional:ident: $optional_type:ty, $_v2:tt, $_w2:ident;)* }
        changing { $($(#[$name_doc:meta])* $name:ident: $type:ty = $_d3:expr, $_v3:tt, $_w3:ident;)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $request {
            $($(#[$own_doc])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $own: $own_type,)*
            /// Where a new group starts: `earliest`, `latest`, `ts` or `afterId`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub from: Option<String>,
            /// Goes with `from: "ts"`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub ts: Option<u64>,
            /// Goes with `from: "afterId"`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub after_id: Option<String>,
            $($(#[$fixed_doc])* #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $fixed: Option<$fixed_type>,)*
            $($(#[$optional_doc])* #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $optional: Option<$optional_type>,)*
            $($(#[$name_doc])* #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $name: Option<$type>,)*
        }
    };
}

/// What such a request says about the group, and the other way round: a request that says nothing else.
macro_rules! from_options {
    (
        { $request:ident }
        fixed { $($(#[$_m1:meta])* $fixed:ident: $_t1:ty = $_d1:expr, $_v1:tt, $_w1:ident;)* }
        optional { $($(#[$_m2:meta])* $optional:ident: $_t2:ty, $_v2:tt, $_w2:ident;)* }
        changing { $($(#[$_m3:meta])* $name:ident: $_t3:ty = $_d3:expr, $_v3:tt, $_w3:ident;)* }
    ) => {
        impl From<$request> for $crate::GroupOptionsRequest {
            fn from(request: $request) -> Self {
                let $request { from, ts, after_id, $($fixed,)* $($optional,)* $($name,)* .. } = request;
                Self { from, ts, after_id, $($fixed,)* $($optional,)* $($name,)* }
            }
        }

        impl From<$crate::GroupOptionsRequest> for $request {
            fn from(options: $crate::GroupOptionsRequest) -> Self {
                let $crate::GroupOptionsRequest { from, ts, after_id, $($fixed,)* $($optional,)* $($name,)* } = options;
                Self { from, ts, after_id, $($fixed,)* $($optional,)* $($name,)* ..Self::default() }
            }
        }
    };
}

macro_rules! change {
    (
        fixed { $($_fixed:tt)* }
        optional { $($(#[$optional_doc:meta])* $optional:ident: $optional_type:ty, $_v2:tt, $_w2:ident;)* }
        changing { $($(#[$doc:meta])* $name:ident: $type:ty = $_d3:expr, $_v3:tt, $_w3:ident;)* }
    ) => {
        /// The body of `PATCH /v1/topics/{topic}/groups/{group}`: the options that can be changed. What is absent stays,
        /// and `Some(None)`, which is `null`, takes an option back.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct GroupChangeRequest {
            $($(#[$optional_doc])*
            #[serde(default, deserialize_with = "null_or", skip_serializing_if = "Option::is_none")]
            pub $optional: Option<Option<$optional_type>>,)*
            $($(#[$doc])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $name: Option<$type>,)*
        }
    };
}

pub(crate) use {from_options, request};

group_options! { request {
    /// The body of `PUT /v1/topics/{topic}/groups/{group}`; what is absent has its default.
    pub struct GroupOptionsRequest {}
} }

group_options!(change);

/// Makes serde tell `null` from absent.
fn null_or<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}
