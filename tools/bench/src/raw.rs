//! The raw loop: append a batch of bytes to a plain file, `fdatasync`, repeat. It is the baseline for everything durable,
//! so it is measured again right before each row that is compared with it.

use super::context::Context;
use super::load::EVENT_BYTES;
use super::table::{Ledger, Row};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

/// How many batches are appended each time.
const APPENDS: u64 = 2_500;

/// Measures the loop with batches of that many events.
pub fn record(batch: u64, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
    let dir = context.fresh_dir("raw")?;
    let appends = context.scaled(APPENDS);
    let seconds = append(&dir.join("raw"), batch, appends).map_err(|error| error.to_string())?;
    ledger.record(Row::events(row_name(batch)), (appends * batch) as f64 / seconds);
    Ok(())
}

/// The row of a batch size.
pub fn row_name(batch: u64) -> String {
    format!("raw loop, batch {batch}")
}

fn append(path: &Path, batch: u64, appends: u64) -> io::Result<f64> {
    let bytes = vec![b'x'; batch as usize * EVENT_BYTES];
    let mut file = OpenOptions::new().append(true).create_new(true).open(path)?;
    let start = Instant::now();
    for _ in 0..appends {
        file.write_all(&bytes)?;
        file.sync_data()?;
    }
    Ok(start.elapsed().as_secs_f64())
}
