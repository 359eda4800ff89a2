//! Flags for the settings of a topic: one for each option in [`topic_options`](prombus_wire::topic_options).

use crate::commands::flags::{Flag, FlagValue, named};
use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use prombus_core::{Durability, SchemaMode, SnapshotConfig, TopicName, TopicPatch};
use prombus_wire::topic::days_in_ms;

const SNAPSHOT_TOPIC: &str = "snapshot_topic";
const SNAPSHOT_EVERY_MS: &str = "snapshot_every_ms";
const NO_SNAPSHOT: &str = "no_snapshot";
const RETENTION_DAYS: &str = "retention_days";

/// The settings that were named.
#[derive(Debug, Clone, Default)]
pub struct Settings(pub TopicPatch);

impl FlagValue for Durability {
    fn parsed(flag: &Flag) -> Arg {
        named::<Self>(flag)
    }
}

impl FlagValue for SchemaMode {
    fn parsed(flag: &Flag) -> Arg {
        named::<Self>(flag)
    }
}

/// Two flags, and neither without the other; and one that takes the setting back.
impl FlagValue for Option<SnapshotConfig> {
    fn parsed(flag: &Flag) -> Arg {
        let topic = Flag { name: SNAPSHOT_TOPIC, ..*flag };
        topic.arg().value_parser(TopicName::parse).requires(SNAPSHOT_EVERY_MS)
    }

    fn add(flag: &Flag, command: Command) -> Command {
        let help = "Time between two passes that publish snapshots";
        let every = Flag { name: SNAPSHOT_EVERY_MS, help, value: "MS" };
        let none = Flag { name: NO_SNAPSHOT, help: "Publish no snapshots any more", value: "" };
        let none = none.arg().action(ArgAction::SetTrue).conflicts_with(SNAPSHOT_TOPIC);
        command.arg(Self::parsed(flag)).arg(u64::parsed(&every).requires(SNAPSHOT_TOPIC)).arg(none)
    }

    fn given(_: &str, matches: &ArgMatches) -> Option<Self> {
        if matches.get_flag(NO_SNAPSHOT) {
            return Some(None);
        }
        let topic: Option<&TopicName> = matches.get_one(SNAPSHOT_TOPIC);
        let (topic, every_ms) = topic.cloned().zip(matches.get_one(SNAPSHOT_EVERY_MS).copied())?;
        Some(Some(SnapshotConfig { topic, every_ms }))
    }
}

macro_rules! flags {
    ($($(#[doc = $help:literal])* $name:ident: $type:ty = $default:expr, $value:literal;)*) => {
        fn add_all(command: Command) -> Command {
            $(
                let flag = Flag { name: stringify!($name), help: concat!($($help),*), value: $value };
                let command = <$type as FlagValue>::add(&flag, command);
            )*
            command
        }

        fn all_given(matches: &ArgMatches) -> TopicPatch {
            TopicPatch { $($name: <$type as FlagValue>::given(stringify!($name), matches),)* }
        }
    };
}

/// How topics are named in options.
type N = TopicName;

prombus_wire::topic_options!(flags);

/// Another way to say `retention_ms`.
fn add_days(command: Command) -> Command {
    let help = "Same as --retention-ms, in days";
    command
        .arg(u32::parsed(&Flag { name: RETENTION_DAYS, help, value: "DAYS" }).conflicts_with("retention_ms"))
}

impl Args for Settings {
    fn augment_args(command: Command) -> Command {
        add_all(add_days(command))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let (patch, days) = (all_given(matches), matches.get_one(RETENTION_DAYS).copied());
        Ok(Self(TopicPatch { retention_ms: patch.retention_ms.or(days.map(days_in_ms)), ..patch }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
