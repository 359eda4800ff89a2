//! Publishes a thousand measurements, without waiting for each: `cargo run -p prombus-client --example publish`.
//!
//! The hub is the one that `PROMBUS_URL` names.

use prombus_client::{Client, NewEvent, PublisherOptions};
use serde_json::json;

/// How many measurements there are.
const COUNT: u64 = 1_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("PROMBUS_URL").unwrap_or_else(|_| "http://127.0.0.1:7070".into());
    let live = Client::new(&url, None)?.connect().await?;

    // One event, and where it is.
    let started = live.publish("example.runs", &NewEvent::of("started")?).await?;
    println!("the run is at offset {}", started.offset);

    // Many events: up to a thousand are in flight at any time, and they share frames.
    let publisher = live.publisher("example.measurements", PublisherOptions::default());
    for n in 0..COUNT {
        let event = NewEvent::of(&json!({ "n": n, "celsius": 20.0 + (n % 10) as f64 }))?;
        publisher.send(event.with_key(format!("sensor-{}", n % 5))).await?;
    }
    publisher.flush().await?;
    println!("{COUNT} measurements are in");
    live.close().await;
    Ok(())
}
