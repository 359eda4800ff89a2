//! How long it takes until work goes on after something went wrong: a few topics, each of which gets an event through to a
//! consumer again and again.

use crate::api::{Api, Doors};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How many topics: about as many at home on each hub.
const TOPICS: usize = 6;
/// A call that takes longer is made again.
const CALL_WITHIN: Duration = Duration::from_secs(5);
/// Work that does not go on by then never will.
const BACK_WITHIN: Duration = Duration::from_secs(60);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Makes the topics and their groups.
pub async fn make(api: &Api) -> Result<(), String> {
    for n in 0..TOPICS {
        api.put(&format!("/v1/topics/{}", topic(n)), &json!({"partitions": 1})).await?;
        let group = json!({"from": "earliest", "ackTimeoutMs": 1_000, "maxAttempts": 1_000, "backoffMs": 1});
        api.put(&format!("/v1/topics/{}/groups/g", topic(n)), &group).await?;
    }
    Ok(())
}

/// Waits until each topic has taken, delivered and settled an event that was sent after this call, through the hubs that
/// are named, and says how long that took.
pub async fn until_work_goes_on(doors: Doors, begun: Instant) -> Result<Duration, String> {
    let topics = (0..TOPICS).map(|n| tokio::spawn(one(n, doors.clone(), begun)));
    let mut longest = Duration::ZERO;
    for topic in topics.collect::<Vec<_>>() {
        longest = longest.max(topic.await.map_err(|error| error.to_string())??);
    }
    Ok(longest)
}

/// Everything that was asked of each hub before has come to its end, one way or the other: a hub commits one thing after the
/// other.
pub async fn barrier(doors: &Doors) -> Result<(), String> {
    for door in doors.each() {
        let api = Api::new(&door)?;
        api.post(&events(0), &json!({"payload": "barrier"})).await?;
    }
    Ok(())
}

fn topic(n: usize) -> String {
    format!("probe.{n}")
}

fn events(n: usize) -> String {
    format!("/v1/topics/{}/events", topic(n))
}

async fn one(n: usize, doors: Doors, begun: Instant) -> Result<Duration, String> {
    let api = Api::new(&doors)?;
    let mark = json!(format!("{:?}", begun));
    let mut is_sent = false;
    let mut last = String::new();
    while begun.elapsed() < BACK_WITHIN {
        if !is_sent {
            match within(api.post(&events(n), &json!({"payload": mark}))).await {
                Ok(_) => is_sent = true,
                Err(why) => last = why,
            }
        }
        if is_sent {
            match within(take(&api, n, &mark)).await {
                Ok(true) => return Ok(begun.elapsed()),
                Ok(false) => {}
                Err(why) => last = why,
            }
        }
        // What is broken tells nobody when it works again.
        tokio::time::sleep(PAUSE).await;
    }
    Err(format!("{}: no work was done for {BACK_WITHIN:?} after a fault; at last: {last}", topic(n)))
}

async fn within<T>(call: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::time::timeout(CALL_WITHIN, call).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {CALL_WITHIN:?}")),
    }
}

/// Settles what there is, and says whether the event was among it.
async fn take(api: &Api, n: usize, mark: &Value) -> Result<bool, String> {
    let path = format!("/v1/topics/{}/groups/g", topic(n));
    let pulled = api.post(&format!("{path}/pull"), &json!({"max": 100, "waitMs": 500})).await?;
    let deliveries = pulled["deliveries"].as_array().cloned().unwrap_or_default();
    if deliveries.is_empty() {
        return Ok(false);
    }
    let leases: Vec<&Value> = deliveries.iter().map(|delivery| &delivery["ctx"]["lease"]).collect();
    let settled = api.post(&format!("{path}/ack"), &json!({"ack": leases})).await?;
    let is_ours = |at: &usize| deliveries[*at]["event"]["payload"] == *mark;
    let at = (0..deliveries.len()).find(is_ours);
    Ok(at.is_some_and(|at| settled["results"][at]["ok"] == true))
}
