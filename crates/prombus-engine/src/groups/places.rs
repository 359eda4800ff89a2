//! Where a group starts, or is set to.

use super::GroupError;
use crate::query::{From, QueryError, missing_id};
use prombus_core::{EventLog, EventLogExt, Partition, ReadError, TopicState, TsRequest};

/// The offset in each partition of `topic` that `from` stands for.
pub async fn starts(log: &dyn EventLog, topic: &TopicState, from: From) -> Result<Vec<u64>, GroupError> {
    let mut starts = Vec::new();
    for partition in (0..topic.config.partitions).map(Partition) {
        starts.push(start(log, topic, partition, from).await?);
    }
    Ok(starts)
}

/// The offset in one partition. After an id means in other partitions: from the time of that event on.
async fn start(
    log: &dyn EventLog,
    topic: &TopicState,
    partition: Partition,
    from: From,
) -> Result<u64, GroupError> {
    let pinned = topic.pinned();
    let at = |ts| log.offset_at(TsRequest { topic: topic.pinned(), partition, ts });
    Ok(match from {
        From::Earliest => log.bounds(&pinned, partition).await?.first.0,
        From::Latest => log.bounds(&pinned, partition).await?.next.0,
        From::Ts(ts) => at(ts).await?.0,
        From::Offset(offset) => {
            let bounds = log.bounds(&pinned, partition).await?;
            if offset > bounds.next {
                return Err(GroupError::BadOption(format!(
                    "partition {partition} ends at offset {}; {offset} is beyond that",
                    bounds.next
                )));
            }
            offset.max(bounds.first).0
        }
        From::AfterId(id) => match log.by_id(&pinned, id).await? {
            Some(event) if event.partition == partition => event.offset.0 + 1,
            Some(event) => at(event.ts).await?.0,
            None => return Err(missing_id(log, topic, (id, None)).await.into()),
        },
    })
}

/// The offsets that a cursor is to be set to, by partition.
pub async fn targets(
    log: &dyn EventLog,
    topic: &TopicState,
    from: From,
    partition: Option<Partition>,
) -> Result<Vec<(usize, u64)>, GroupError> {
    let partitions = topic.config.partitions;
    let Some(partition) = partition else {
        if partitions > 1 && matches!(from, From::AfterId(_) | From::Offset(_)) {
            return Err(QueryError::PartitionNeeded { partitions }.into());
        }
        return Ok(starts(log, topic, from).await?.into_iter().enumerate().collect());
    };
    if partition.0 >= partitions {
        return Err(ReadError::NoSuchPartition { topic: topic.name.clone(), partitions }.into());
    }
    if let From::AfterId(id) = from {
        match log.by_id(&topic.pinned(), id).await? {
            Some(event) if event.partition == partition => {}
            Some(_) => return Err(QueryError::UnknownId(id).into()),
            None => return Err(missing_id(log, topic, (id, Some(partition))).await.into()),
        }
    }
    Ok(vec![(partition.0 as usize, start(log, topic, partition, from).await?)])
}
