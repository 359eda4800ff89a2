//! What the options of a group mean, which are listed in [`group_options`](prombus_core::group_options).

use super::GroupError;
use super::state::GroupFilter;
use crate::filter::{Filter, FilterError};
use prombus_core::ReadError;
pub use prombus_core::{GroupMode as Mode, GroupOrdering as Ordering};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The longest name of a group or member, in bytes.
const MAX_NAME_BYTES: usize = 200;
/// The longest that a lease may hold.
pub const MAX_ACK_TIMEOUT_MS: u64 = 24 * 3_600_000;
/// The longest pause that a consumer may ask for.
pub const MAX_DELAY_MS: u64 = 24 * 3_600_000;
/// The longest pause that a group makes by itself.
const MAX_BACKOFF_MS: u64 = 30_000;
/// The most attempts.
const MAX_ATTEMPTS: u32 = 1_000_000;
/// The widest window; what is settled in it is kept in memory.
const MAX_ACK_WINDOW: u64 = 10_000_000;

/// A valid name of a group: no control characters and no slash. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupName(Arc<str>);

impl GroupName {
    /// Checks `name`.
    pub fn parse(name: &str) -> Result<Self, GroupError> {
        check_name("group", name)?;
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Refuses names of groups and members that would be trouble in a path, a log or a metric.
pub fn check_name(what: &str, name: &str) -> Result<(), GroupError> {
    let fits = !name.is_empty() && name.len() <= MAX_NAME_BYTES;
    if fits && !name.chars().any(|c| c.is_control() || c == '/') {
        return Ok(());
    }
    Err(GroupError::BadOption(format!(
        "{name:?} is not a name for a {what}: use 1 to {MAX_NAME_BYTES} bytes without slashes and control characters"
    )))
}

macro_rules! define {
    (
        fixed { $($(#[$fixed_doc:meta])* $fixed:ident: $fixed_type:ty = $fixed_default:expr, $_v1:tt, $_w1:ident;)* }
        optional { $($(#[$optional_doc:meta])* $optional:ident: $optional_type:ty, $_v2:tt, $_w2:ident;)* }
        changing { $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr, $_v3:tt, $_w3:ident;)* }
    ) => {
        /// The options of a group, as they are stored and shown.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct GroupOptions {
            $($(#[$fixed_doc])* pub $fixed: $fixed_type,)*
            $($(#[$optional_doc])* pub $optional: Option<$optional_type>,)*
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for GroupOptions {
            fn default() -> Self {
                Self { $($fixed: $fixed_default,)* $($optional: None,)* $($field: $default,)* }
            }
        }

        /// The options that a caller named; `None` was left out.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct OptionsPatch {
            $($(#[$fixed_doc])* pub $fixed: Option<$fixed_type>,)*
            $($(#[$optional_doc])* pub $optional: Option<Option<$optional_type>>,)*
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        impl OptionsPatch {
            /// `options` with what is named here.
            pub fn apply(&self, options: &GroupOptions) -> GroupOptions {
                let Self { $($fixed,)* $($optional,)* $($field,)* } = self.clone();
                let changed = OptionsChange { $($optional,)* $($field,)* }.apply(options);
                GroupOptions { $($fixed: $fixed.unwrap_or(options.$fixed),)* ..changed }
            }
        }

        /// A change of a group's options; `None` stays as it is.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct OptionsChange {
            $($(#[$optional_doc])* pub $optional: Option<Option<$optional_type>>,)*
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        impl OptionsChange {
            /// `options` with this change made to them.
            pub fn apply(self, options: &GroupOptions) -> GroupOptions {
                let mut changed = options.clone();
                $(if let Some(value) = self.$optional {
                    changed.$optional = value;
                })*
                $(if let Some(value) = self.$field {
                    changed.$field = value;
                })*
                changed
            }
        }
    };
}

prombus_core::group_options!(define);

impl OptionsPatch {
    /// Refuses options that differ from those that a group has.
    pub fn agrees_with(&self, options: &GroupOptions) -> Result<(), GroupError> {
        let wanted = self.apply(options);
        if wanted == *options {
            return Ok(());
        }
        let (have, want) = (serde_json::to_value(options), serde_json::to_value(&wanted));
        let differing = match (have, want) {
            (Ok(serde_json::Value::Object(have)), Ok(serde_json::Value::Object(want))) => {
                have.into_iter().filter(|(name, value)| want.get(name) != Some(value)).collect()
            }
            _ => serde_json::Map::new(),
        };
        Err(GroupError::Options { actual: differing })
    }
}

impl GroupOptions {
    /// Refuses options that make no sense, and gives the compiled filter.
    pub async fn validate(&self) -> Result<Option<Filter>, GroupError> {
        let between = |name: &str, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(GroupError::BadOption(format!("{name} must be between {min} and {max}, not {value}")))
        };
        between("ackTimeoutMs", self.ack_timeout_ms, 1, MAX_ACK_TIMEOUT_MS)?;
        between("maxAttempts", self.max_attempts.into(), 1, MAX_ATTEMPTS.into())?;
        between("backoffMs", self.backoff_ms, 0, MAX_DELAY_MS)?;
        between("ackWindow", self.ack_window, 1, MAX_ACK_WINDOW)?;
        between("memberTtlMs", self.member_ttl_ms, 1, MAX_ACK_TIMEOUT_MS)?;
        Ok(Filter::compile_any(self.filter.as_deref()).await?)
    }

    /// The filter as it was stored, or why it does not compile any more.
    pub async fn stored_filter(&self) -> Result<GroupFilter, ReadError> {
        match Filter::compile_any(self.filter.as_deref()).await {
            Ok(filter) => Ok(Ok(filter)),
            Err(FilterError::Bad(bad)) => Ok(Err(bad)),
            Err(FilterError::Unavailable(error)) => Err(error),
        }
    }

    /// The pause before the next attempt, after `attempts` that failed: none the first time, then growing.
    pub fn backoff(&self, attempts: u32) -> Duration {
        let doublings = match attempts {
            0 | 1 => return Duration::ZERO,
            more => more - 2,
        };
        let factor = 1u64.checked_shl(doublings).unwrap_or(u64::MAX);
        Duration::from_millis(self.backoff_ms.saturating_mul(factor).min(MAX_BACKOFF_MS))
    }

    /// How long a lease holds.
    pub fn ack_timeout(&self) -> Duration {
        Duration::from_millis(self.ack_timeout_ms)
    }

    /// How long a member may be silent.
    pub fn member_ttl(&self) -> Duration {
        Duration::from_millis(self.member_ttl_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_have_an_end() {
        let options = GroupOptions { backoff_ms: 100, ..GroupOptions::default() };
        let pauses = [1, 2, 3, 4, 10, 11, 64, 70, u32::MAX].map(|n| options.backoff(n).as_millis());
        assert_eq!(pauses, [0, 100, 200, 400, 25_600, 30_000, 30_000, 30_000, 30_000]);
        let none = GroupOptions { backoff_ms: 0, ..options };
        assert_eq!(none.backoff(90), Duration::ZERO);
    }

    #[test]
    fn what_is_left_out_agrees_with_anything() {
        let options =
            GroupOptions { max_attempts: 7, filter: Some("true".into()), ..GroupOptions::default() };
        assert!(OptionsPatch::default().agrees_with(&options).is_ok());
        assert!(
            OptionsPatch { max_attempts: Some(7), ..OptionsPatch::default() }.agrees_with(&options).is_ok()
        );
        let other =
            OptionsPatch { max_attempts: Some(8), mode: Some(Mode::Shared), ..OptionsPatch::default() };
        match other.agrees_with(&options) {
            Err(GroupError::Options { actual }) => {
                assert_eq!(serde_json::Value::Object(actual), serde_json::json!({"maxAttempts": 7}));
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn senseless_options_are_refused() {
        let base = GroupOptions::default();
        for bad in [
            GroupOptions { ack_timeout_ms: 0, ..base.clone() },
            GroupOptions { max_attempts: 0, ..base.clone() },
            GroupOptions { backoff_ms: MAX_DELAY_MS + 1, ..base.clone() },
            GroupOptions { ack_window: 0, ..base.clone() },
            GroupOptions { filter: Some("event.".into()), ..base.clone() },
        ] {
            assert!(bad.validate().await.is_err(), "{bad:?}");
        }
        assert!(base.validate().await.is_ok());
        for bad in ["", "a/b", "a\nb", &"a".repeat(201)] {
            assert!(GroupName::parse(bad).is_err(), "{bad:?}");
        }
        assert!(GroupName::parse("billing v2 (ü)").is_ok());
    }
}
