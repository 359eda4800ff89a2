//! Filtered pages of documents, out of a million.

use super::connection::Connection;
use super::shape::{HOSTS, NAMES, STATES, host, name, process, status};
use super::{Context, Hub, Ledger, Row, Target, Unit, parsed};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Instant;

/// How many documents there are.
const DOCUMENTS: u64 = 1_000_000;
/// Documents in a commit.
const BATCH: u64 = 1_000;
/// How often each page is asked for.
const CALLS: u64 = 1_000;
/// Documents of a page.
const PAGE: usize = 100;
/// No page takes longer.
const MOST_MS: f64 = 5.0;

#[derive(Deserialize)]
struct Page {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    status: String,
    host: String,
    name: String,
}

#[derive(Deserialize)]
struct Collection {
    count: u64,
}

/// One kind of page.
struct Scenario {
    row: &'static str,
    /// The query of the `n`th call.
    query: fn(u64) -> String,
    /// Whether a document should be there.
    fits: fn(u64, &Item) -> bool,
    /// One document in so many is.
    one_in: u64,
}

const SCENARIOS: [Scenario; 3] = [
    Scenario {
        row: "HTTP list of 100, 1 M documents, by an indexed field that a tenth has",
        query: |n| format!("status={}&", status(n)),
        fits: |n, item| item.status == status(n),
        one_in: STATES,
    },
    Scenario {
        row: "HTTP list of 100, 1 M documents, by two fields of one index",
        query: |n| format!("host={}&name={}&", host(n), name(n)),
        fits: |n, item| (&item.host, &item.name) == (&host(n), &name(n)),
        one_in: HOSTS * NAMES,
    },
    Scenario {
        row: "HTTP list of 100, 1 M documents, newest first",
        query: |_| String::new(),
        fits: |_, _| true,
        one_in: 1,
    },
];

/// Writes all documents, and asks for pages.
pub fn measure(context: &Context, hub: &Hub, ledger: &mut Ledger) -> Result<(), String> {
    let mut connection = Connection::open(hub.address())?;
    let documents = context.scaled(DOCUMENTS);
    fill(&mut connection, documents)?;
    for Scenario { row, query, fits, one_in } in &SCENARIOS {
        let mut times = Vec::new();
        for n in 0..CALLS {
            let path = format!("/v1/collections/many/list?{}limit={PAGE}", query(n));
            let start = Instant::now();
            let answer = connection.call("GET", &path, "")?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            let Page { items } = parsed(&path, answer)?;
            if items.len() != PAGE.min((documents / one_in) as usize)
                || !items.iter().all(|item| fits(n, item))
            {
                return Err(format!("{path} has {} documents, or others", items.len()));
            }
        }
        times.sort_by(f64::total_cmp);
        for (rank, share) in [("p50", 0.5), ("p99", 0.99)] {
            let row = Row::of(format!("{row}, {rank}"), Unit::Milliseconds).target(Target::AtMost(MOST_MS));
            ledger.record(row, times[(times.len() as f64 * share) as usize]);
        }
    }
    Ok(())
}

fn fill(connection: &mut Connection, documents: u64) -> Result<(), String> {
    let settings = json!({"indexes": [["host", "name"], ["status"]]}).to_string();
    parsed::<Value>("many", connection.call("PUT", "/v1/collections/many", &settings)?)?;
    for first in (0..documents).step_by(BATCH as usize) {
        let mut body = String::from("{\"writes\":[");
        for number in first..first + BATCH {
            let comma = if number > first { "," } else { "" };
            let document = process(number, 0);
            // Writing to a string cannot fail.
            let _ = write!(body, r#"{comma}{{"collection":"many","key":"p{number}","set":{document}}}"#);
        }
        body.push_str("]}");
        parsed::<Value>("a commit", connection.call("POST", "/v1/commit", &body)?)?;
    }
    let Collection { count } = parsed("many", connection.call("GET", "/v1/collections/many", "")?)?;
    if count == documents { Ok(()) } else { Err(format!("{count} of {documents} documents are there")) }
}
