//! Keeps the state of every key in memory: `cargo run -p prombus-client --example warm_up`.
//!
//! Sensors say how warm it is, all the time. This reads what each of them has said last, and follows the changes. Run it
//! again: it reads one record per sensor, however many events there were.

use prombus_client::{Client, ClientError, NewEvent};
use serde_json::json;
use std::collections::BTreeMap;

const TOPIC: &str = "example.sensors";

/// Some hours of temperatures. One of the sensors is taken away at the end.
async fn measure(client: Client, hours: std::ops::Range<u8>) -> Result<(), ClientError> {
    for hour in hours {
        for (sensor, celsius) in [("cellar", 12.0), ("kitchen", 18.0 + f64::from(hour) / 4.0)] {
            client.publish(TOPIC, &NewEvent::of(&celsius)?.with_key(sensor)).await?;
        }
    }
    client.publish(TOPIC, &NewEvent::of(&json!(null))?.with_key("cellar")).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("PROMBUS_URL").unwrap_or_else(|_| "http://127.0.0.1:7070".into());
    let client = Client::new(&url, None)?;
    let snapshot = json!({"topic": "example.sensors.snapshot", "every_ms": 50});
    client.put_topic(TOPIC, &json!({ "snapshot": snapshot })).await?;
    measure(client.clone(), 0..12).await?;
    let measuring = tokio::spawn(measure(client.clone(), 12..25));

    // Snapshots first, then live: nothing is missed, and nothing comes twice.
    let mut sensors: BTreeMap<String, f64> = BTreeMap::new();
    let mut changes = client.warm_up(TOPIC).await?;
    while sensors.get("kitchen") != Some(&24.0) || sensors.contains_key("cellar") {
        let change = changes.next().await?;
        let Some(sensor) = change.key() else { continue };
        match change.payload()? {
            Some(celsius) => sensors.insert(sensor.to_owned(), celsius),
            None => sensors.remove(sensor),
        };
    }
    measuring.await??;
    println!("{sensors:?}");
    Ok(())
}
