//! Where a group is to start, as it is said on the command line: by a name, and by a value where that needs one.

use crate::failure::Failure;
use clap::ValueEnum;

/// A place in a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Start {
    /// The first kept event
    #[value(name = "earliest")]
    Earliest,
    /// After the last event
    #[value(name = "latest")]
    Latest,
    /// The first event whose time is at or after --ts
    #[value(name = "ts")]
    Ts,
    /// After the event that --after-id names
    #[value(name = "after-id", alias = "afterId")]
    AfterId,
    /// The event that --offset names
    #[value(name = "offset")]
    Offset,
}

impl Start {
    /// Its name in a request.
    pub fn wire_name(self) -> &'static str {
        match self {
            Self::Earliest => "earliest",
            Self::Latest => "latest",
            Self::Ts => "ts",
            Self::AfterId => "afterId",
            Self::Offset => "offset",
        }
    }

    /// Its name on the command line.
    fn word(self) -> &'static str {
        match self {
            Self::AfterId => "after-id",
            other => other.wire_name(),
        }
    }

    fn needs_value(self) -> bool {
        matches!(self, Self::Ts | Self::AfterId | Self::Offset)
    }
}

/// The start that `flag` has named, or else the one that the given value stands for. `values` are the starts
/// whose values were given.
pub fn choose(flag: &str, named: Option<Start>, values: &[Start]) -> Result<Option<Start>, Failure> {
    match (named, values) {
        (None, []) => Ok(None),
        (None, [start]) => Ok(Some(*start)),
        (Some(start), []) if !start.needs_value() => Ok(Some(start)),
        (Some(start), [given]) if start == *given => Ok(Some(start)),
        (Some(start), []) => {
            Err(Failure::Usage(format!("{flag} {word} needs --{word}", word = start.word())))
        }
        (Some(start), [given]) => Err(Failure::Usage(format!(
            "--{given} goes with {flag} {given}, not with {flag} {start}",
            given = given.word(),
            start = start.word()
        ))),
        (_, [first, second, ..]) => Err(Failure::Usage(format!(
            "--{} and --{} name two places; give one of them",
            first.word(),
            second.word()
        ))),
    }
}

/// The starts whose values were given.
pub fn given(values: &[(Start, bool)]) -> Vec<Start> {
    values.iter().filter(|(_, is_given)| *is_given).map(|(start, _)| *start).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_enough_and_a_name_without_its_value_too_little() {
        assert_eq!(choose("--from", None, &[]).unwrap(), None);
        assert_eq!(choose("--from", None, &[Start::Ts]).unwrap(), Some(Start::Ts));
        assert_eq!(choose("--from", Some(Start::Earliest), &[]).unwrap(), Some(Start::Earliest));
        assert_eq!(choose("--from", Some(Start::AfterId), &[Start::AfterId]).unwrap(), Some(Start::AfterId));
        for (named, values, hint) in [
            (Some(Start::AfterId), &[][..], "--from after-id needs --after-id"),
            (Some(Start::Latest), &[Start::Ts], "--ts goes with --from ts"),
            (None, &[Start::Ts, Start::Offset], "--ts and --offset"),
        ] {
            let message = choose("--from", named, values).unwrap_err().to_string();
            assert!(message.contains(hint), "{message}");
        }
    }

    #[test]
    fn both_spellings_of_after_id_are_understood() {
        for word in ["after-id", "afterId"] {
            assert_eq!(Start::from_str(word, false), Ok(Start::AfterId));
        }
    }
}
