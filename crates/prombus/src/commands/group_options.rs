//! Flags for the options of a group: one for each option in [`group_options`](prombus_wire::group_options).

use super::flags::{Flag, FlagValue, named};
use clap::error::Error;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches};
use prombus_client::{GroupChangeRequest, GroupMode, GroupOptionsRequest, GroupOrdering};

/// The options that a new group is to have.
#[derive(Debug, Clone, Default)]
pub struct NewGroupOptions(pub GroupOptionsRequest);

/// The options to change; at least one.
#[derive(Debug, Clone, Default)]
pub struct ChangedOptions(pub GroupChangeRequest);

impl FlagValue for GroupMode {
    fn parsed(flag: &Flag) -> Arg {
        named::<Self>(flag)
    }
}

impl FlagValue for GroupOrdering {
    fn parsed(flag: &Flag) -> Arg {
        named::<Self>(flag)
    }
}

/// The flag that takes an option back.
fn none(name: &str) -> String {
    format!("no_{name}")
}

macro_rules! flags {
    (
        fixed { $($(#[doc = $fixed_help:literal])* $fixed:ident: $fixed_type:ty = $_d1:expr, $fixed_value:tt, $_w1:ident;)* }
        optional { $($(#[doc = $optional_help:literal])* $optional:ident: $optional_type:ty, $optional_value:tt, $_w2:ident;)* }
        changing { $($(#[doc = $help:literal])* $name:ident: $type:ty = $_d3:expr, $value:tt, $_w3:ident;)* }
    ) => {
        impl Args for NewGroupOptions {
            fn augment_args(command: Command) -> Command {
                $(
                    let flag = Flag { name: stringify!($fixed), help: concat!($($fixed_help),*), value: $fixed_value };
                    let command = <$fixed_type>::add(&flag, command);
                )*
                add_changing(command)
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }

        impl FromArgMatches for NewGroupOptions {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
                Ok(Self(GroupOptionsRequest {
                    $($fixed: <$fixed_type>::given(stringify!($fixed), matches),)*
                    $($optional: <$optional_type>::given(stringify!($optional), matches),)*
                    $($name: <$type>::given(stringify!($name), matches),)*
                    ..GroupOptionsRequest::default()
                }))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }

        fn add_changing(command: Command) -> Command {
            $(
                let flag = Flag { name: stringify!($optional), help: concat!($($optional_help),*), value: $optional_value };
                let command = <$optional_type>::add(&flag, command);
            )*
            $(
                let flag = Flag { name: stringify!($name), help: concat!($($help),*), value: $value };
                let command = <$type>::add(&flag, command);
            )*
            command
        }

        impl Args for ChangedOptions {
            fn augment_args(command: Command) -> Command {
                let command = add_changing(command);
                $(
                    let name = none(stringify!($optional));
                    let arg = Arg::new(name.clone()).long(name.replace('_', "-")).action(ArgAction::SetTrue);
                    let arg = arg.help(concat!("Remove the ", stringify!($optional)));
                    let command = command.arg(arg.conflicts_with(stringify!($optional)));
                )*
                let group = ArgGroup::new("change").required(true).multiple(true);
                let group = group.args([$(stringify!($optional).to_owned(), none(stringify!($optional)),)*]);
                command.group(group.args([$(stringify!($name)),*]))
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }

        impl FromArgMatches for ChangedOptions {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
                Ok(Self(GroupChangeRequest {
                    $($optional: match matches.get_flag(&none(stringify!($optional))) {
                        true => Some(None),
                        false => <$optional_type>::given(stringify!($optional), matches).map(Some),
                    },)*
                    $($name: <$type>::given(stringify!($name), matches),)*
                }))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }
    };
}

prombus_wire::group_options!(flags);

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<T: Args>(args: &[&str]) -> Result<T, Error> {
        let command = T::augment_args(Command::new("test").no_binary_name(true));
        T::from_arg_matches(&command.try_get_matches_from(args)?)
    }

    #[test]
    fn every_option_has_a_flag() {
        let named = "--ack-timeout-ms 1 --max-attempts 2 --backoff-ms 3 --filter f --normalize --ack-window 4 --member-ttl-ms 5";
        let named: Vec<&str> = named.split(' ').collect();
        let new: NewGroupOptions =
            parse(&[&["--mode", "partitioned", "--ordering", "none"][..], &named[..]].concat()).unwrap();
        let expected = serde_json::json!({"mode": "partitioned", "ordering": "none", "filter": "f", "ackTimeoutMs": 1,
            "maxAttempts": 2, "backoffMs": 3, "normalize": true, "ackWindow": 4, "memberTtlMs": 5});
        assert_eq!(serde_json::to_value(new.0).unwrap(), expected);
        let changed: ChangedOptions = parse(&named).unwrap();
        let changed = serde_json::to_value(changed.0).unwrap();
        assert!(
            changed.as_object().unwrap().iter().all(|(name, value)| expected[name] == *value),
            "{changed}"
        );
        assert_eq!(changed.as_object().unwrap().len(), 7);
        assert!(
            parse::<NewGroupOptions>(&["--ordering", "any"])
                .unwrap_err()
                .to_string()
                .contains("key, none or")
        );
    }

    #[test]
    fn a_change_names_at_least_one_option_and_can_take_one_back() {
        assert!(parse::<ChangedOptions>(&[]).is_err());
        assert!(parse::<ChangedOptions>(&["--mode", "shared"]).is_err());
        let none = parse::<ChangedOptions>(&["--no-filter"]).unwrap().0;
        assert_eq!(none, GroupChangeRequest { filter: Some(None), ..GroupChangeRequest::default() });
        assert!(parse::<ChangedOptions>(&["--no-filter", "--filter", "f"]).is_err());
        assert_eq!(parse::<NewGroupOptions>(&[]).unwrap().0, GroupOptionsRequest::default());
    }
}
