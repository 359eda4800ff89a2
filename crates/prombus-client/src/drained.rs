//! Waiting until a group has settled all that there is.

use crate::{Client, ClientError, GroupPartition};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// The first pause between two looks at a group.
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// The longest one.
const LONGEST_LOOK: Duration = Duration::from_millis(500);
/// So many partitions are described where the time was too short.
const MAX_TOLD: usize = 8;

/// Why a group has not drained.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// The time is over, and some events are not settled.
    #[error("{}", describe(self))]
    Timeout {
        /// The topic.
        topic: String,
        /// The group.
        group: String,
        /// How long was waited.
        waited: Duration,
        /// The partitions that are not through.
        behind: Vec<GroupPartition>,
        /// How many members the group has.
        members: usize,
    },
    /// There is no such group.
    #[error("topic {topic} has no group {group}: a group is made by its first consumer, or by put_group")]
    NoGroup {
        /// The topic.
        topic: String,
        /// The group.
        group: String,
    },
    /// The hub could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
}

fn describe(error: &DrainError) -> String {
    let DrainError::Timeout { topic, group, waited, behind, members } = error else { return String::new() };
    let told: Vec<String> = behind.iter().take(MAX_TOLD).map(|one| Behind(one).to_string()).collect();
    let more = match behind.len().saturating_sub(MAX_TOLD) {
        0 => String::new(),
        more => format!("; and {more} more partitions"),
    };
    let hint = if *members == 0 { ": it has no members, so nobody consumes" } else { "" };
    let told = told.join("; ");
    format!("group {group} of topic {topic} has not drained within {waited:?}{hint}: {told}{more}")
}

/// What is left to do in a partition, in words.
struct Behind<'a>(&'a GroupPartition);

impl fmt::Display for Behind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupPartition { partition, lag, in_flight, next, waiting, .. } = self.0;
        write!(
            f,
            "partition {partition} has {lag} unsettled events from offset {next} on, {in_flight} in flight"
        )?;
        match waiting {
            Some(waiting) => write!(f, ", held back by {} at offset {}", waiting.why, waiting.offset),
            None => Ok(()),
        }
    }
}

impl Client {
    /// Waits until a group has settled every event of its topic and nothing is in flight. It says so of one moment: what
    /// is published after that is another matter. A hub that is away for a while is waited for.
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
