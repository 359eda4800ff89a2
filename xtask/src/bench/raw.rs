//! The raw loop: append a batch of bytes to a plain file, `fdatasync`, again. Nothing durable can be faster by
//! much, so it is what everything durable is compared with.

use super::context::Context;
use super::load::EVENT_BYTES;
use super::table::{Group, Ledger, Row};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

/// The name of the group.
pub const NAME: &str = "raw";
/// How many events a round appends: as many as the engine does.
pub const EVENTS: u64 = 1_000_000;
/// The batch sizes that are compared.
pub const BATCHES: [u64; 2] = [100, 1_000];

/// The group.
pub struct Raw;

impl Group for Raw {
    fn name(&self) -> &'static str {
        NAME
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        for batch in BATCHES {
            let dir = context.fresh_dir(NAME)?;
            let events = context.scaled(EVENTS);
            let seconds = append(&dir.join("raw"), batch, events).map_err(|error| error.to_string())?;
            ledger.record(Row::events(row_name(batch)), events as f64 / seconds);
        }
        Ok(())
    }
}

/// The row of a batch size.
pub fn row_name(batch: u64) -> String {
    format!("raw loop, batch {batch}")
}

fn append(path: &Path, batch: u64, events: u64) -> io::Result<f64> {
    let bytes = vec![b'x'; batch as usize * EVENT_BYTES];
    let mut file = OpenOptions::new().append(true).create_new(true).open(path)?;
    let start = Instant::now();
    for _ in 0..events / batch {
        file.write_all(&bytes)?;
        file.sync_data()?;
    }
    Ok(start.elapsed().as_secs_f64())
}
