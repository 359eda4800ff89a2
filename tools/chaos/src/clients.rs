//! Chaos through the Rust client: handlers as in its documentation book orders while the hub is killed, and every order
//! must be booked once, with a single attempt each, and no dead letter.

use super::hub::{Hub, HubSetup};
use super::plan::{End, Plan};
use prombus_client::{
    Client, Commit, CommitError, ConsumeOptions, Consumer, Delivery, HandlerError, Live, LiveOptions,
    NewEvent, PublisherOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;

/// The topic.
const ORDERS: &str = "orders";
/// The groups: one for each way to write a handler.
const BY_MATCH: &str = "by-match";
const BY_QUESTION_MARK: &str = "by-question-mark";
/// How many orders a round has.
const ORDERS_A_ROUND: u64 = 1_000;
/// How many events each group handles at once.
const CONCURRENCY: usize = 16;
/// All is booked by then.
const BOOKED_WITHIN: Duration = Duration::from_secs(60);
/// How many documents are read at once.
const PAGE: u64 = 1_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    round: u32,
    number: u64,
}

impl Order {
    /// What a group books it with.
    fn booking(&self, group: &str, delivery: &Delivery) -> Commit {
        let (collection, key) = (collection(group, self.round), self.number.to_string());
        Commit::new().ack(delivery).inc(&collection, &key, &json!({"times": 1}))
    }
}

fn collection(group: &str, round: u32) -> String {
    format!("{group}-{round}")
}

async fn book_by_match(live: Live, delivery: Delivery) -> Result<(), HandlerError> {
    let order: Order = delivery.payload()?;
    match live.commit(&order.booking(BY_MATCH, &delivery)).await {
        Ok(_) => {}
        Err(CommitError::LeaseExpired(_)) => {}
        Err(other) => return Err(other.into()),
    }
    Ok(())
}

async fn book_by_question_mark(live: Live, delivery: Delivery) -> Result<(), HandlerError> {
    let order: Order = delivery.payload()?;
    live.commit(&order.booking(BY_QUESTION_MARK, &delivery)).await?;
    Ok(())
}

/// All rounds so far.
pub struct Clients {
    site: HubSetup,
    hub: Hub,
    client: Client,
    live: Live,
    /// They run through all rounds.
    _consumers: [Consumer; 2],
    orders: u64,
}

impl Clients {
    /// Starts on an empty folder.
    pub async fn begin(mut site: HubSetup, part_bytes: u64) -> Result<Self, String> {
        std::fs::create_dir_all(&site.folder).map_err(|error| error.to_string())?;
        let hub = site.start(part_bytes)?;
        // The client comes back to where the hub was.
        site.listen = hub.base.trim_start_matches("http://").to_owned();
        let client = Client::new(&hub.base, None).map_err(told)?;
        let longest_pause = Duration::from_millis(200);
        let options = LiveOptions { longest_pause, ..LiveOptions::default() };
        let live = client.connect_with(options).await.map_err(told)?;
        let _consumers = [
            consume(&live, BY_MATCH, book_by_match).await?,
            consume(&live, BY_QUESTION_MARK, book_by_question_mark).await?,
        ];
        Ok(Self { site, hub, client, live, _consumers, orders: 0 })
    }

    /// How it goes.
    pub fn summary(&self, rounds: u32, took: Duration) -> String {
        format!("chaos of clients: {rounds} rounds, {} orders booked twice over; {took:.0?}", self.orders)
    }

    /// Does a round. After it, the hub runs.
    pub async fn round(mut self, plan: &Plan) -> Result<Self, String> {
        let publishing = tokio::spawn(publish(self.live.clone(), plan.round));
        // The moment is the plan's; there is nothing to wait for.
        tokio::time::sleep(plan.end_after).await;
        match plan.end {
            End::Kill => self.hub.kill()?,
            End::Terminate => self.hub.terminate()?,
        }
        .no_panic()?;
        for pause in &plan.interrupted_starts {
            self.site.start_in_vain(plan.part_bytes, *pause).await?;
        }
        self.hub = self.site.start(plan.part_bytes)?;
        publishing.await.map_err(told)??;
        self.judge(plan.round)
            .await
            .map_err(|why| format!("{why}\nlog of the hub:\n{}", self.hub.log().text()))?;
        self.orders += ORDERS_A_ROUND;
        Ok(self)
    }

    /// Every order of the round is booked once by each group.
    async fn judge(&self, round: u32) -> Result<(), String> {
        for group in [BY_MATCH, BY_QUESTION_MARK] {
            self.client.drained(ORDERS, group, BOOKED_WITHIN).await.map_err(told)?;
            let mut pages = self.client.list(&collection(group, round)).sort("_key").limit(PAGE).pages();
            let (mut booked, mut wrong) = (0, Vec::new());
            while let Some(page) = pages.next().await.map_err(told)? {
                let documents: Vec<Value> = page.parse().map_err(told)?;
                booked += documents.len() as u64;
                wrong.extend(documents.into_iter().filter(|document| document["times"] != 1));
            }
            if booked != ORDERS_A_ROUND || !wrong.is_empty() {
                return Err(format!(
                    "{group}: {booked} of {ORDERS_A_ROUND} orders are booked, wrongly: {wrong:?}"
                ));
            }
        }
        let letters = self.client.dead_letters(ORDERS, &Default::default(), 1).await.map_err(told)?;
        match letters.events.first() {
            None => Ok(()),
            Some(letter) => Err(format!("a restart made a dead letter: {}", letter.payload)),
        }
    }
}

async fn consume<F>(live: &Live, group: &str, handler: fn(Live, Delivery) -> F) -> Result<Consumer, String>
where
    F: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    let line = live.clone();
    let options = ConsumeOptions::earliest().with_concurrency(CONCURRENCY).with_max_attempts(1);
    let consuming = live.consume(ORDERS, group, options, move |delivery| handler(line.clone(), delivery));
    consuming.await.map_err(told)
}

async fn publish(live: Live, round: u32) -> Result<(), String> {
    let publisher = live.publisher(ORDERS, PublisherOptions { window: 50, ..PublisherOptions::default() });
    for number in 0..ORDERS_A_ROUND {
        let event = NewEvent::of(&Order { round, number }).map_err(told)?;
        publisher.send(event.with_key(number.to_string())).await.map_err(told)?;
    }
    publisher.flush().await.map_err(told)
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
