//! Flags that are made of the options of a list, such as [`topic_options`](prombus_wire::topic_options).

use clap::{Arg, ArgMatches, Command, value_parser};

/// An option, as the list has it.
pub struct Flag {
    pub name: &'static str,
    pub help: &'static str,
    pub value: &'static str,
}

impl Flag {
    pub fn arg(&self) -> Arg {
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
pub trait FlagValue: Clone + Send + Sync + 'static {
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

impl FlagValue for String {
    fn parsed(flag: &Flag) -> Arg {
        flag.arg()
    }
}

/// A flag whose values are names.
pub fn named<T: TryFrom<String> + Clone + Send + Sync + 'static>(flag: &Flag) -> Arg {
    let choices = flag.choices();
    flag.arg()
        .value_parser(move |text: &str| T::try_from(text.to_owned()).map_err(|_| format!("use {choices}")))
}
