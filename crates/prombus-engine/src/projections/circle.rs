//! Whether changefeeds, dead letters and snapshots lead from a topic back to it: then one event there could be followed by
//! others without end.

use prombus_core::collection::CollectionConfig;
use prombus_core::{TopicConfig, TopicName};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The way of events through a projection, or to a snapshot topic.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    /// The topic that is read.
    pub topic: TopicName,
    /// By what they go on (changefeeds of a projection's collections, its dead letters, or snapshots), and where to.
    pub feeds: Vec<(String, TopicName)>,
}

impl Flow {
    /// The way of events from a topic through a projection that writes these collections.
    pub fn of(name: &str, topic: &TopicName, collections: &[(Arc<str>, CollectionConfig)]) -> Self {
        let by = |what: &str| format!("projection {name:?}, {what}");
        let feed = |(name, config): &(Arc<str>, CollectionConfig)| {
            Some((by(&format!("collection {name}")), config.changefeed.clone()?))
        };
        let letters = topic.dead_letters().map(|letters| (by("dead letters"), letters));
        let feeds = collections.iter().filter_map(feed).chain(letters).collect();
        Self { topic: topic.clone(), feeds }
    }

    /// The way of events from a topic with these settings to its snapshot topic, where it has one.
    pub fn of_snapshots(topic: &TopicName, config: &TopicConfig) -> Option<Self> {
        let snapshots = config.snapshot.as_ref()?;
        let feeds = vec![("its snapshots".to_owned(), snapshots.topic.clone())];
        Some(Self { topic: topic.clone(), feeds })
    }
}

/// How events that `new` makes come back to it, in words: the shortest way there is.
pub(super) fn through(new: &Flow, others: &[Flow]) -> Option<String> {
    let mut readers: HashMap<&TopicName, Vec<&Flow>> = HashMap::new();
    others.iter().for_each(|flow| readers.entry(&flow.topic).or_default().push(flow));
    // For each topic that was reached, the way that leads there, and by what.
    let mut ways: HashMap<&TopicName, (&Flow, &str)> = HashMap::new();
    let mut reached: VecDeque<&Flow> = [new].into();
    while let Some(flow) = reached.pop_front() {
        for (feed, topic) in &flow.feeds {
            if ways.contains_key(topic) {
                continue;
            }
            ways.insert(topic, (flow, feed));
            if *topic == new.topic {
                return Some(told(new, &ways));
            }
            reached.extend(readers.get(topic).into_iter().flatten());
        }
    }
    None
}

fn told(new: &Flow, ways: &HashMap<&TopicName, (&Flow, &str)>) -> String {
    let mut steps = vec![format!("topic {}", new.topic)];
    let mut topic = &new.topic;
    while let Some((flow, feed)) = ways.get(topic) {
        steps.push(format!("topic {}, {feed}", flow.topic));
        topic = &flow.topic;
        if std::ptr::eq(*flow, new) {
            break;
        }
    }
    steps.reverse();
    format!("its events would lead back to it without end: {}", steps.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(name: &str, topic: &str, feeds: &[&str]) -> Flow {
        let topic_name = |name: &str| TopicName::parse(name).unwrap();
        let feed = |feed: &&str| (format!("projection {name:?}, collection of_{name}"), topic_name(feed));
        Flow { topic: topic_name(topic), feeds: feeds.iter().map(feed).collect() }
    }

    #[test]
    fn a_circle_is_found_however_long_it_is() {
        let others = [flow("b", "y", &["q", "z"]), flow("c", "z", &["x"]), flow("d", "z", &["w"])];
        let told = through(&flow("a", "x", &["w", "y"]), &others).unwrap();
        let way = "topic x, projection \"a\", collection of_a, topic y, projection \"b\", collection of_b, topic z, \
            projection \"c\", collection of_c, topic x";
        assert!(told.ends_with(way), "{told}");
        assert!(through(&flow("a", "x", &["x"]), &[]).unwrap().ends_with("collection of_a, topic x"));
    }

    #[test]
    fn what_does_not_come_back_is_fine() {
        let others = [flow("b", "y", &["z"]), flow("c", "z", &["end"]), flow("d", "y", &["end"])];
        assert_eq!(through(&flow("a", "x", &["y", "z", "end"]), &others), None);
        assert_eq!(through(&flow("a", "x", &[]), &[flow("b", "y", &["x"])]), None);
        let circle = [flow("b", "y", &["z"]), flow("c", "z", &["y"])];
        assert_eq!(through(&flow("a", "x", &["y"]), &circle), None, "a circle of others is not its own");
    }
}
