//! Consumes what the example `publish` has published: `cargo run -p prombus-client --example consume [COUNT]`.
//!
//! It ends after so many events, or with Ctrl-C. Start it twice, and both share the work.

use prombus_client::{Client, ClientError, ConsumeOptions, Delivery};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("PROMBUS_URL").unwrap_or_else(|_| "http://127.0.0.1:7070".into());
    let count: Option<u64> = std::env::args().nth(1).map(|count| count.parse()).transpose()?;
    let live = Client::new(&url, None)?.connect().await?;

    let (handled, mut taken) = mpsc::channel(1_000);
    // Ok acks the event; an error nacks it, and it comes again.
    let handler = move |delivery: Delivery| {
        let handled = handled.clone();
        async move {
            let measurement: serde_json::Value = delivery.payload()?;
            let celsius = measurement["celsius"].as_f64().unwrap_or_default();
            // Nobody may be counting any more.
            let _ = handled.send(celsius).await;
            Ok::<(), ClientError>(())
        }
    };
    let options = ConsumeOptions::earliest().with_concurrency(8);
    let consumer = live.consume("example.measurements", "example", options, handler).await?;

    let (mut seen, mut sum) = (0_u64, 0.0);
    while count.is_none_or(|count| seen < count) {
        tokio::select! {
            Some(celsius) = taken.recv() => {
                seen += 1;
                sum += celsius;
            }
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    drop(taken);
    consumer.stop().await?;
    println!("{seen} measurements, {:.1} degrees on average", sum / seen.max(1) as f64);
    live.close().await;
    Ok(())
}
