//! Waiting until a group has settled everything.

use crate::{Client, ClientError, GroupPartition, Waiting};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// The first pause between two checks of a group.
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// The longest one.
const LONGEST_LOOK: Duration = Duration::from_millis(500);
/// Maximum number of partitions that a timeout error describes.
const MAX_TOLD: usize = 8;

/// Why a group has not drained.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// Timed out with unsettled events.
    #[error("{}", describe(self))]
    Timeout {
        /// The topic.
        topic: String,
        /// The group.
        group: String,
        /// How long the call waited.
        waited: Duration,
        /// The partitions with unsettled events.
        behind: Vec<GroupPartition>,
        /// How many members the group has.
        members: usize,
    },
    /// There is no such group.
    #[error("topic {topic} has no group {group}: a group is created by its first consumer, or by put_group")]
    NoGroup {
        /// The topic.
        topic: String,
        /// The group.
        group: String,
    },
    /// A call to the hub failed.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl DrainError {
    /// Whether the same call may succeed later: the group needs more time, or the hub is temporarily unavailable.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::NoGroup { .. } => false,
            Self::Client(error) => error.is_temporary(),
        }
    }
}

fn describe(error: &DrainError) -> String {
    let DrainError::Timeout { topic, group, waited, behind, members } = error else { return String::new() };
    let told: Vec<String> = behind.iter().take(MAX_TOLD).map(|one| Behind(one).to_string()).collect();
    let more = match behind.len().saturating_sub(MAX_TOLD) {
        0 => String::new(),
        more => format!("; and {more} more partitions"),
    };
    let hint = if *members == 0 { ": it has no members, so nothing is consumed" } else { "" };
    let told = told.join("; ");
    format!("group {group} of topic {topic} has not drained within {waited:?}{hint}: {told}{more}")
}

/// Describes what is left to do in a partition.
struct Behind<'a>(&'a GroupPartition);

impl fmt::Display for Behind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupPartition { partition, lag, in_flight, next, waiting, .. } = self.0;
        write!(
            f,
            "partition {partition} has {lag} unsettled events from offset {next} on, {in_flight} in flight"
        )?;
        let Some(Waiting { why, events, .. }) = waiting else { return Ok(()) };
        match (why.as_str(), events) {
            ("ordering", 0) => write!(f, "; the others are delivered one after another"),
            ("ordering", _) => {
                write!(f, "; {events} of them wait until earlier ones of their key are settled")
            }
            ("retry", _) => write!(f, "; {events} of them wait for their next attempt"),
            ("ack_window", _) => {
                write!(f, "; no more are delivered before offset {next} is settled: ackWindow is used up")
            }
            ("growth", _) => {
                write!(f, "; they wait until the other partitions have settled what came before them")
            }
            (other, _) => write!(f, "; {events} of them wait ({other})"),
        }
    }
}

impl Client {
    /// Waits until a group has settled every event of its topic and nothing is in flight. This is true at one moment:
    /// events published later do not count. If the hub is down for a while, this waits for it.
    ///
    /// ```no_run
    /// # async fn example(client: prombus_client::Client) -> Result<(), prombus_client::DrainError> {
    /// client.drained("orders", "billing", std::time::Duration::from_secs(30)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn drained(&self, topic: &str, group: &str, within: Duration) -> Result<(), DrainError> {
        let start = Instant::now();
        let mut pause = FIRST_LOOK;
        loop {
            let is_late = start.elapsed() >= within;
            match self.group(topic, group).await {
                Ok(Some(answer)) => {
                    let is_behind = |one: &GroupPartition| one.lag > 0 || one.in_flight > 0;
                    let behind: Vec<_> = answer.partitions.into_iter().filter(is_behind).collect();
                    if behind.is_empty() {
                        return Ok(());
                    }
                    if is_late {
                        let (topic, group) = (topic.to_owned(), group.to_owned());
                        let (members, waited) = (answer.members.len(), within);
                        return Err(DrainError::Timeout { topic, group, waited, behind, members });
                    }
                }
                Ok(None) => {
                    return Err(DrainError::NoGroup { topic: topic.to_owned(), group: group.to_owned() });
                }
                Err(error) if error.is_temporary() && !is_late => {}
                Err(error) => return Err(error.into()),
            }
            // There is nothing at the hub that could be waited for.
            tokio::time::sleep(pause.min(within.saturating_sub(start.elapsed()))).await;
            pause = (pause * 2).min(LONGEST_LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_helps_where_the_group_is_there() {
        let (topic, group) = ("t".to_owned(), "g".to_owned());
        let (waited, behind) = (Duration::from_secs(1), Vec::new());
        assert!(!DrainError::NoGroup { topic: topic.clone(), group: group.clone() }.is_temporary());
        assert!(DrainError::Timeout { topic, group, waited, behind, members: 1 }.is_temporary());
        assert!(!DrainError::from(ClientError::BadAnswer("none".into())).is_temporary());
    }

    #[test]
    fn what_is_waited_for_is_said_in_words() {
        let waiting = |why: &str, events| Some(Waiting { why: why.to_owned(), offset: 7, events });
        for (waiting, told) in [
            (None, ""),
            (waiting("ordering", 3), "; 3 of them wait until earlier ones of their key are settled"),
            (waiting("ordering", 0), "; the others are delivered one after another"),
            (waiting("retry", 1), "; 1 of them wait for their next attempt"),
            (
                waiting("ack_window", 0),
                "; no more are delivered before offset 7 is settled: ackWindow is used up",
            ),
            (
                waiting("growth", 0),
                "; they wait until the other partitions have settled what came before them",
            ),
            (waiting("else", 2), "; 2 of them wait (else)"),
        ] {
            let partition = GroupPartition {
                partition: 0,
                next: 7,
                last_id: None,
                last_ts: None,
                tail: 12,
                lag: 5,
                lag_ms: 0,
                in_flight: 1,
                redelivered: 0,
                lost: 0,
                oldest_unacked_ms: None,
                waiting,
                owner: None,
                epoch: 0,
            };
            let described = Behind(&partition).to_string();
            let most = "partition 0 has 5 unsettled events from offset 7 on, 1 in flight";
            assert_eq!(described, format!("{most}{told}"));
        }
    }
}
