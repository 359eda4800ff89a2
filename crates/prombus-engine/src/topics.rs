//! Which topics there are, told to those who wait for new ones: one task looks for all of them, and only while somebody
//! waits; and what is kept of a topic.

use parking_lot::Mutex;
use prombus_core::{
    EventLog, Kept, Partition, ReadError, Sequence, TopicName, TopicNumber, TopicState, Watched,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Of its time, the task spends one part in so many on looking.
const REST_FACTOR: u32 = 10;
/// The longest rest after a look at all topics.
pub(crate) const LONGEST_REST: Duration = Duration::from_millis(250);
/// The shortest; less is not worth it.
pub(crate) const SHORTEST_REST: Duration = Duration::from_millis(1);

/// Rests, by how long the work took that began then.
pub(crate) async fn rest_after(began: Instant) {
    // A task that is woken all the time should not spend all of its time on finding out what woke it.
    tokio::time::sleep((began.elapsed() * REST_FACTOR).clamp(SHORTEST_REST, LONGEST_REST)).await;
}

/// What is kept of each partition of a topic.
pub(crate) async fn kept_of(log: &dyn EventLog, topic: &TopicState) -> Result<Vec<Kept>, ReadError> {
    let pinned = topic.pinned();
    let mut kept = Vec::with_capacity(topic.config.partitions as usize);
    for partition in 0..topic.config.partitions {
        kept.push(log.kept(&pinned, Partition(partition)).await?);
        // There may be many, and the store may never wait.
        tokio::task::consume_budget().await;
    }
    Ok(kept)
}

/// A topic that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedTopic {
    /// Its name.
    pub name: TopicName,
    /// Which one of those that had its name.
    pub number: TopicNumber,
    /// How many partitions it had when it was looked at.
    pub partitions: u32,
}

/// The topics by their numbers, which grow: one that is made later has a greater one.
pub type TopicNumbers = Arc<Vec<NumberedTopic>>;

/// Tells of topics.
pub(crate) struct TopicsWatch {
    log: Arc<dyn EventLog>,
    told: Arc<Mutex<Option<Arc<watch::Sender<TopicNumbers>>>>>,
}

impl TopicsWatch {
    pub fn new(log: Arc<dyn EventLog>) -> Self {
        Self { log, told: Arc::default() }
    }

    /// The topics, as soon as there are new ones. What is there at first may be old.
    pub fn subscribe(&self) -> watch::Receiver<TopicNumbers> {
        let mut told = self.told.lock();
        if let Some(sender) = &*told {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(TopicNumbers::default());
        let sender = Arc::new(sender);
        *told = Some(sender.clone());
        tokio::spawn(tell(self.log.clone(), sender, self.told.clone()));
        receiver
    }
}

/// The topics as they are now.
pub(crate) async fn numbers(log: &dyn EventLog) -> Result<TopicNumbers, prombus_core::ReadError> {
    let topics = log.topics().await?;
    let numbered = |TopicState { name, number, config, .. }| NumberedTopic {
        name,
        number,
        partitions: config.partitions,
    };
    let mut numbers: Vec<NumberedTopic> = topics.into_iter().map(numbered).collect();
    numbers.sort_unstable_by_key(|topic| topic.number);
    Ok(Arc::new(numbers))
}

async fn tell(
    log: Arc<dyn EventLog>,
    sender: Arc<watch::Sender<TopicNumbers>>,
    told: Arc<Mutex<Option<Arc<watch::Sender<TopicNumbers>>>>>,
) {
    let (mut seen, mut changed) = (Sequence(0), Sequence(0));
    loop {
        tokio::select! {
            now = log.changed(&Watched::Topics, seen) => changed = now,
            () = sender.closed() => {
                let mut told = told.lock();
                // Somebody may have come in the meantime.
                if sender.receiver_count() == 0 {
                    *told = None;
                    return;
                }
            }
        }
        let began = Instant::now();
        // A store that cannot be read now is asked again.
        if let Ok(now) = numbers(&*log).await {
            seen = changed;
            sender.send_if_modified(|before| {
                let is_new = before.last().map(|last| last.number) != now.last().map(|last| last.number);
                if is_new {
                    *before = now;
                }
                is_new
            });
        }
        // There may be thousands to look at, and many made one after another.
        rest_after(began).await;
    }
}
