//! The partitions that a key was ever placed in.

use prombus_core::hashing::partition_of;
use prombus_core::{Partition, TopicState};

/// In which partitions the events of a key are, in the order in which it came to be placed there: that of their numbers.
pub fn lineage(topic: &TopicState, key: &str) -> Vec<Partition> {
    let sizes = topic.growths.iter().map(|ends| ends.len() as u32).chain([topic.config.partitions]);
    let mut places: Vec<Partition> = sizes.map(|size| partition_of(key.as_bytes(), size)).collect();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_core::{Offset, TopicConfig, TopicName, TopicNumber};

    #[test]
    fn a_key_is_where_it_was_placed_at_each_size() {
        let config = TopicConfig { partitions: 64, ..TopicConfig::default() };
        let mut topic = TopicState::new(TopicName::parse("t").unwrap(), TopicNumber(1), config);
        assert_eq!(lineage(&topic, "a"), [Partition(14)], "it never had fewer");
        topic.growths = vec![[Offset(0); 2].into(), [Offset(0); 8].into()];
        assert_eq!(lineage(&topic, "a"), [Partition(1), Partition(14)]);
        assert_eq!(lineage(&topic, "web1:stt:4242"), [Partition(0), Partition(5), Partition(23)]);
    }
}
