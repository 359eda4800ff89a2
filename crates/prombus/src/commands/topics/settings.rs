//! Flags for the settings of a topic: one for each option in [`topic_options`](prombus_wire::topic_options).

use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use prombus_core::{Durability, SchemaMode, SnapshotConfig, TopicName, TopicPatch};
use prombus_wire::topic::days_in_ms;

const SNAPSHOT_TOPIC: &str = "snapshot_topic";
const SNAPSHOT_EVERY_MS: &str = "snapshot_every_ms";
const NO_SNAPSHOT: &str = "no_snapshot";
const RETENTION_DAYS: &str = "retention_days";

/// The settings that were named.
#[derive(Debug, Clone, Default)]
pub struct Settings(pub TopicPatch);

/// An option, as the list has it.
struct Flag {
    name: &'static str,
    help: &'static str,
    value: &'static str,
}

impl Flag {
    fn arg(&self) -> Arg {
        let Self { name, help, value } = *self;
        Arg::new(name).long(name.replace('_', "-")).value_name(value).help(help.trim_ascii())
    }

    /// What can be given, as a sentence has it: `a|b|c` becomes `a, b or c`.
    fn choices(&self) -> String {
        match self.value.rsplit_once('|') {
            Some((first, last)) => format!("{} or {last}", first.replace('|', ", ")),
            None => self.value.to_owned(),
        }
    }
}

/// What an option can be set to, by one flag unless it says otherwise.
trait FlagValue: Clone + Send + Sync + 'static {
    fn parsed(flag: &Flag) -> Arg;

    fn add(flag: &Flag, command: Command) -> Command {
        command.arg(Self::parsed(flag))
    }

    fn given(name: &str, matches: &ArgMatches) -> Option<Self> {
        matches.get_one(name).cloned()
    }
}

impl FlagValue for u32 {
    fn parsed(flag: &Flag) -> Arg {
        flag.arg().value_parser(value_parser!(u32))
    }
}

impl FlagValue for u64 {
    fn parsed(flag: &Flag) -> Arg {
        flag.arg().value_parser(value_parser!(u64))
    }
}

impl FlagValue for bool {
    fn parsed(flag: &Flag) -> Arg {
        flag.arg().value_parser(value_parser!(bool)).num_args(0..=1).default_missing_value("true")
    }
}

/// A flag whose values are names.
fn named<T: TryFrom<String> + Clone + Send + Sync + 'static>(flag: &Flag) -> Arg {
    let choices = flag.choices();
    flag.arg()
        .value_parser(move |text: &str| T::try_from(text.to_owned()).map_err(|_| format!("use {choices}")))
}

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
    let help = "The same in days";
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
