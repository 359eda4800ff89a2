//! Which topics there are, told to those who wait for new ones: one task looks for all of them, and only while somebody
//! waits.

use parking_lot::Mutex;
use prombus_core::{EventLog, Sequence, TopicName, TopicNumber};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Of its time, the task spends one part in so many on looking.
const REST_FACTOR: u32 = 10;
/// The longest rest after a look.
const LONGEST_REST: Duration = Duration::from_millis(250);
/// The shortest.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// The topics by their numbers, which grow: one that is made later has a greater one.
pub type TopicNumbers = Arc<Vec<(TopicName, TopicNumber)>>;

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
    let mut numbers: Vec<_> = topics.into_iter().map(|topic| (topic.name, topic.number)).collect();
    numbers.sort_unstable_by_key(|(_, number)| *number);
    Ok(Arc::new(numbers))
}

async fn tell(
    log: Arc<dyn EventLog>,
    sender: Arc<watch::Sender<TopicNumbers>>,
    told: Arc<Mutex<Option<Arc<watch::Sender<TopicNumbers>>>>>,
) {
    let mut seen = Sequence(0);
    loop {
        tokio::select! {
            now = log.changed(seen) => seen = now,
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
        // A store that cannot be read now is asked again with the next change.
        if let Ok(now) = numbers(&*log).await {
            sender.send_if_modified(|before| {
                let is_new =
                    before.last().map(|(_, number)| *number) != now.last().map(|(_, number)| *number);
                if is_new {
                    *before = now;
                }
                is_new
            });
        }
        // Most commits make no topic, and there may be thousands to look at.
        tokio::time::sleep((began.elapsed() * REST_FACTOR).clamp(SHORTEST_REST, LONGEST_REST)).await;
    }
}
