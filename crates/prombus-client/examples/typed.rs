//! Typed topics: `cargo run -p prombus-client --example typed`.
//!
//! What a topic is called, what its payloads are, what their key is and how it is kept stands in one place.

use prombus_client::{Client, ConsumeOptions, subscribe, topics};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    number: u64,
    customer: String,
    total: u64,
}

topics! {
    /// Orders as they come in; those of a customer stay in their order.
    ORDERS: Order = "example.orders" { partitions: 4, retention_days: 30, keyed_by: |order| order.customer.clone() };
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("PROMBUS_URL").unwrap_or_else(|_| "http://127.0.0.1:7070".into());
    let client = Client::new(&url, None)?;
    client.ensure(&ORDERS).await?;
    let live = client.connect().await?;

    let (bills, mut sent) = mpsc::channel(10);
    let options = ConsumeOptions::earliest();
    let billing = subscribe!(live, ORDERS, "billing", options, clone(bills), |order| {
        bills.send(format!("order {}: {} owes {}", order.number, order.customer, order.total)).await?;
    })
    .await?;

    for number in 1..=3 {
        let order = Order { number, customer: format!("customer-{}", number % 2), total: 100 * number };
        live.of(&ORDERS).publish(&order).await?;
    }
    for _ in 1..=3 {
        if let Some(bill) = sent.recv().await {
            println!("{bill}");
        }
    }
    billing.stop().await?;
    live.close().await;
    Ok(())
}
