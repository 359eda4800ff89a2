//! Topic names with wildcards, as rules, streams and subscriptions use them.

use crate::error::ApiError;
use prombus_core::{MAX_NAME_BYTES, TopicName};

/// Maximum number of names and patterns of a stream, and of patterns of a connection.
pub(crate) const MAX_PATTERNS: usize = 100;

/// A pattern has a misplaced wildcard.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a pattern: * stands for one whole segment between dots, ** for any number of them")]
pub(crate) struct BadPattern(String);

/// Dot-separated segments; `*` matches any one of them and `**` any number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Is(String),
    One,
    Any,
}

impl Pattern {
    /// Checks `text`.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let segment = |segment: &str| match segment {
            "*" => Ok(Segment::One),
            "**" => Ok(Segment::Any),
            // A pattern that cannot match is a mistake, and a dangerous one in a deny rule.
            plain if plain.is_empty() || plain.contains('*') => Err(BadPattern(text.to_owned())),
            plain => Ok(Segment::Is(plain.to_owned())),
        };
        let mut segments: Vec<Segment> = text.split('.').map(segment).collect::<Result<_, _>>()?;
        // Several in a row are equivalent to one, and would cost time to match.
        segments.dedup_by(|a, b| *a == Segment::Any && *b == Segment::Any);
        Ok(Self(segments))
    }

    /// How it is written.
    pub fn text(&self) -> String {
        let segments = self.0.iter().map(|segment| match segment {
            Segment::Is(text) => text.as_str(),
            Segment::One => "*",
            Segment::Any => "**",
        });
        segments.collect::<Vec<_>>().join(".")
    }

    /// Whether it matches every name.
    pub fn is_everything(&self) -> bool {
        self.0 == [Segment::Any]
    }

    /// Whether it matches `name`.
    pub fn matches(&self, name: &str) -> bool {
        matches(&self.0, Some(name))
    }
}

/// Which topics to follow or consume: one by its name, or all that match a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Topics {
    Named(TopicName),
    Matching(Pattern),
}

impl Topics {
    /// Checks `text`: with a `*` it is a pattern, otherwise a name.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        if !text.contains('*') {
            return Ok(Self::Named(TopicName::parse(text)?));
        }
        if text.len() > MAX_NAME_BYTES {
            return Err(ApiError::bad_request(format!("a pattern has {MAX_NAME_BYTES} bytes at most")));
        }
        let pattern = Pattern::parse(text).map_err(|bad| ApiError::bad_request(bad.to_string()))?;
        for segment in &pattern.0 {
            // A pattern that no name can match is a mistake.
            if let Segment::Is(plain) = segment {
                TopicName::parse(plain)?;
            }
        }
        Ok(Self::Matching(pattern))
    }

    /// Whether a topic is one of them. The hub's own topics match only if their prefix is spelled out: a subscriber to
    /// everything does not want dead letters.
    pub fn include(&self, topic: &TopicName) -> bool {
        match self {
            Self::Named(name) => name == topic,
            Self::Matching(pattern) => {
                (!topic.is_internal() || matches!(pattern.0.first(), Some(Segment::Is(_))))
                    && pattern.matches(topic.as_str())
            }
        }
    }
}

/// Whether a name or a pattern, as streams and subscriptions take them, stands for a topic. What is neither stands for
/// none.
pub fn stands_for(text: &str, topic: &str) -> bool {
    let (Ok(topics), Ok(topic)) = (Topics::parse(text), TopicName::parse(topic)) else { return false };
    topics.include(&topic)
}

/// Matches one segment after the other. Where a `**` is followed by another one, the first need not be tried again:
/// what comes after the second could not match either.
fn matches(mut pattern: &[Segment], mut name: Option<&str>) -> bool {
    let mut retry: Option<(&[Segment], Option<&str>)> = None;
    loop {
        let step = match (pattern.split_first(), name) {
            (None, None) => return true,
            (Some((Segment::Any, rest)), _) => {
                retry = Some((rest, name));
                pattern = rest;
                continue;
            }
            (Some((segment, rest)), Some(text)) => {
                let (first, left) =
                    text.split_once('.').map_or((text, None), |(first, left)| (first, Some(left)));
                (*segment == Segment::One || matches!(segment, Segment::Is(is) if is == first))
                    .then_some((rest, left))
            }
            (None, Some(_)) | (Some(_), None) => None,
        };
        match (step, retry) {
            (Some(next), _) => (pattern, name) = next,
            // The last `**` takes one segment more.
            (None, Some((after, Some(text)))) => {
                let left = text.split_once('.').map(|(_, left)| left);
                retry = Some((after, left));
                (pattern, name) = (after, left);
            }
            (None, _) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_go_by_segments() {
        for (pattern, yes, no) in [
            ("a", &["a"][..], &["b", "a.b", "aa"][..]),
            ("a.*", &["a.b"], &["a", "a.b.c", "b.b"]),
            ("*", &["a"], &["a.b"]),
            ("**", &["a", "a.b", "a.b.c"], &[]),
            ("a.**", &["a", "a.b", "a.b.c"], &["b", "ab", "b.a"]),
            ("**.z", &["z", "a.z", "a.b.z", "z.z"], &["a", "z.a"]),
            ("a.**.z", &["a.z", "a.b.z", "a.z.b.z"], &["a", "z", "a.z.b"]),
            ("**.*", &["a", "a.b"], &[]),
            ("a.**.b.**.c", &["a.b.c", "a.x.b.y.b.c", "a.b.b.c"], &["a.c.b", "a.b", "a.b.c.d"]),
        ] {
            let pattern = Pattern::parse(pattern).unwrap();
            yes.iter().for_each(|name| assert!(pattern.matches(name), "{pattern:?} {name}"));
            no.iter().for_each(|name| assert!(!pattern.matches(name), "{pattern:?} {name}"));
        }
        for bad in ["", "a.", ".a", "a..b", "a*", "a.b*.c", "***"] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn topics_of_the_hub_are_meant_only_by_their_prefix() {
        let include =
            |text: &str, name: &str| Topics::parse(text).unwrap().include(&TopicName::parse(name).unwrap());
        assert!(include("orders", "orders") && !include("orders", "orders.eu"));
        assert!(include("**", "orders.eu") && include("*.eu", "orders.eu"));
        assert!(
            !include("**", "dlq.orders") && !include("*.orders", "dlq.orders") && !include("**", "system.x")
        );
        assert!(
            include("dlq.**", "dlq.orders")
                && include("dlq.*", "dlq.orders")
                && include("dlq.orders", "dlq.orders")
        );
        for bad in ["", "a*", "***", "A.*", "a..*", "a b.*", "*.", &"x.".repeat(200)] {
            assert!(Topics::parse(bad).is_err(), "{bad}");
        }
    }

    /// The plainest way to say what a pattern means.
    fn plain(pattern: &[Segment], name: &[&str]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((Segment::Any, rest)), first) => {
                plain(rest, name) || first.is_some_and(|(_, left)| plain(pattern, left))
            }
            (Some((Segment::One, rest)), Some((_, left))) => plain(rest, left),
            (Some((Segment::Is(is), rest)), Some((first, left))) => is == first && plain(rest, left),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_plain_way(
            pattern in prop::collection::vec("a|b|\\*|\\*\\*", 1..7),
            name in prop::collection::vec("a|b", 1..8),
        ) {
            let pattern = Pattern::parse(&pattern.join(".")).unwrap();
            let segments: Vec<&str> = name.iter().map(String::as_str).collect();
            prop_assert_eq!(pattern.matches(&name.join(".")), plain(&pattern.0, &segments));
        }
    }
}
