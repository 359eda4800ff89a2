//! A position in a topic, written the same way for every `--from` and `--to`.

use crate::failure::Failure;
use crate::time::{self, Moment};
use clap::Args;
use prombus_client::ClientError;
use uuid::Uuid;

/// The forms, as shown in help texts.
pub const WORDS: &str = "earliest|latest|TIME|offset:N|after:ID";

/// A place in a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The first kept event.
    Earliest,
    /// After the last event.
    Latest,
    /// The first event whose time is at or after this, in epoch milliseconds.
    Ts(u64),
    /// After the event with this id.
    AfterId(String),
    /// This offset.
    Offset(u64),
}

/// The value of `--from` or `--to`: a position, or the name of the option with the rest of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PositionArg {
    /// A position.
    At(Start),
    /// That of `--ts`.
    Ts,
    /// That of `--after-id`.
    AfterId,
    /// That of `--offset`.
    Offset,
}

impl PositionArg {
    fn name(&self) -> &'static str {
        match self {
            Self::At(Start::Earliest) => "earliest",
            Self::At(Start::Latest) => "latest",
            Self::At(Start::Ts(_)) => "TIME",
            Self::At(Start::AfterId(_)) => "after:ID",
            Self::At(Start::Offset(_)) => "offset:N",
            Self::Ts => "ts",
            Self::AfterId => "after-id",
            Self::Offset => "offset",
        }
    }
}

/// Parses a position for clap. Relative times start with a hyphen, so the option needs `allow_hyphen_values`.
pub fn parse(text: &str) -> Result<PositionArg, String> {
    match text {
        "ts" => return Ok(PositionArg::Ts),
        "after-id" | "afterId" | "after_id" => return Ok(PositionArg::AfterId),
        "offset" => return Ok(PositionArg::Offset),
        _ => {}
    }
    let place = if let Some(offset) = text.strip_prefix("offset:") {
        Start::Offset(offset.parse().map_err(|_| format!("{offset:?} is not an offset: write offset:1042"))?)
    } else if let Some(id) = text.strip_prefix("after:") {
        let uuid =
            Uuid::try_parse(id).map_err(|_| format!("{id:?} is not an id: write after: and a UUID"))?;
        Start::AfterId(uuid.to_string())
    } else {
        match time::parse_moment(text) {
            Ok(Moment::Earliest) => Start::Earliest,
            Ok(Moment::Latest) => Start::Latest,
            Ok(Moment::At(ts)) => Start::Ts(ts),
            Err(_) => {
                let words = "earliest, latest, offset:N, after:ID";
                return Err(format!(
                    "{text:?} is not a valid position: use {words}, or a time: {}",
                    time::WORDS
                ));
            }
        }
    };
    Ok(PositionArg::At(place))
}

/// If a partition is required, the hub's message names the parameter of its API. Here it is an option.
pub fn refused(error: ClientError, topic: &str) -> Failure {
    match error.hub().and_then(|error| error.number("partitions")) {
        Some(partitions) => Failure::Failed(format!(
            "topic {topic} has {partitions} partitions: name one with --partition, since an offset or an event is a \
             place in one of them only"
        )),
        None => error.into(),
    }
}

/// The older form of a position: its kind in one option, its value in another.
#[derive(Debug, Default, Args)]
pub struct Values {
    /// Event time to start at: epoch milliseconds, RFC 3339, a date (midnight UTC), or relative to now
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    pub ts: Option<u64>,
    /// Id of the event to start after
    #[arg(long, value_name = "UUID")]
    pub after_id: Option<String>,
}

impl Values {
    /// The position given by `flag` and these values. `offset` is the value of a separate option, if there is one.
    pub fn choose(
        self,
        (flag, word): (&str, Option<PositionArg>),
        offset: Option<u64>,
    ) -> Result<Option<Start>, Failure> {
        let mut given = Vec::new();
        given.extend(self.ts.map(|ts| (PositionArg::Ts, Start::Ts(ts))));
        given.extend(self.after_id.map(|id| (PositionArg::AfterId, Start::AfterId(id))));
        given.extend(offset.map(|offset| (PositionArg::Offset, Start::Offset(offset))));
        if let [(first, _), (second, _), ..] = &given[..] {
            let (first, second) = (first.name(), second.name());
            return Err(Failure::Usage(format!(
                "--{first} and --{second} name two positions; give only one of them"
            )));
        }
        match (word, given.pop()) {
            (None, given) => Ok(given.map(|(_, place)| place)),
            (Some(PositionArg::At(place)), None) => Ok(Some(place)),
            (Some(word), Some((kind, place))) if word == kind => Ok(Some(place)),
            (Some(word), None) => {
                Err(Failure::Usage(format!("{flag} {word} needs --{word}", word = word.name())))
            }
            (Some(word), Some((kind, _))) => {
                let (word, kind) = (word.name(), kind.name());
                Err(Failure::Usage(format!("--{kind} goes with {flag} {kind}, not with {flag} {word}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0198c0de-0000-7000-8000-000000000001";

    fn ts(ts: u64) -> Values {
        Values { ts: Some(ts), ..Values::default() }
    }

    #[test]
    fn a_word_says_it_all() {
        let after = format!("after:{ID}");
        for (text, place) in [
            ("earliest", Start::Earliest),
            ("latest", Start::Latest),
            ("1754683200123", Start::Ts(1_754_683_200_123)),
            ("2025-08-08T20:00:00.123Z", Start::Ts(1_754_683_200_123)),
            ("2025-08-08", Start::Ts(1_754_611_200_000)),
            ("offset:1042", Start::Offset(1_042)),
            (&after, Start::AfterId(ID.into())),
        ] {
            assert_eq!(parse(text), Ok(PositionArg::At(place)), "{text}");
        }
        assert!(matches!(parse("-15m"), Ok(PositionArg::At(Start::Ts(_)))));
        for bad in ["", "early", "offset:", "offset:-1", "after:", "after:x", "-15", "tomorrow"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_value_says_enough_and_a_name_without_its_value_too_little() {
        let choose = |word: Option<&str>, values: Values, offset| {
            values.choose(("--from", word.map(|word| parse(word).unwrap())), offset)
        };
        assert_eq!(choose(None, Values::default(), None).unwrap(), None);
        assert_eq!(choose(None, ts(5), None).unwrap(), Some(Start::Ts(5)));
        assert_eq!(choose(Some("ts"), ts(5), None).unwrap(), Some(Start::Ts(5)));
        assert_eq!(choose(Some("offset"), Values::default(), Some(7)).unwrap(), Some(Start::Offset(7)));
        for word in ["after-id", "afterId", "after_id"] {
            let values = Values { after_id: Some("x".into()), ..Values::default() };
            assert_eq!(choose(Some(word), values, None).unwrap(), Some(Start::AfterId("x".into())));
        }
        for (word, values, offset, hint) in [
            (Some("after-id"), Values::default(), None, "--from after-id needs --after-id"),
            (Some("latest"), ts(5), None, "--ts goes with --from ts"),
            (Some("offset:3"), ts(5), None, "--ts goes with --from ts"),
            (None, ts(5), Some(1), "--ts and --offset"),
        ] {
            let message = choose(word, values, offset).unwrap_err().to_string();
            assert!(message.contains(hint), "{message}");
        }
    }
}
