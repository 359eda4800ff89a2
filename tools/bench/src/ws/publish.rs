//! One connection that publishes, with a number of frames in flight.

use super::super::hub::Hub;
use super::super::load;
use super::wire::{Wire, check_ok};
use super::{frames, payload};
use std::fmt::Write;
use std::time::Instant;

/// A write has a tenth of the window: one for each answer would cost the client more than the hub.
const WRITES_IN_A_WINDOW: u64 = 10;

/// What is published, and how.
pub struct Load {
    /// Where to.
    pub topic: &'static str,
    /// How many events.
    pub events: u64,
    /// Events in a frame.
    pub batch: u64,
    /// Frames in flight.
    pub window: u64,
}

/// Events in a second, until the last is answered.
pub fn rate(hub: &Hub, load: &Load) -> Result<f64, String> {
    let chunk = load.window / WRITES_IN_A_WINDOW;
    let frames = load.events / load.batch / chunk * chunk;
    let block = block(load, chunk);
    let seconds = load::runtime()?.block_on(async {
        let mut wire = Wire::open(hub.address())?;
        let start = Instant::now();
        let (mut sent, mut answered) = (0, 0);
        while answered < frames {
            while sent < frames && sent - answered + chunk <= load.window {
                wire.frames(&block);
                sent += chunk;
            }
            wire.receive().await?;
            while let Some(text) = wire.next_text()? {
                check_ok(text)?;
                answered += 1;
            }
        }
        Ok::<f64, String>(start.elapsed().as_secs_f64())
    })?;
    hub.check_topic(load.topic, frames * load.batch)?;
    Ok((frames * load.batch) as f64 / seconds)
}

/// The frames of one write.
fn block(load: &Load, chunk: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for number in 0..chunk {
        let mut text = format!("{{\"op\":\"PUBLISH\",\"corr\":\"{number}\",\"topic\":\"{}\",", load.topic);
        // Writing to a String cannot fail.
        let _ = match load.batch {
            1 => write!(text, "\"payload\":{}}}", payload(number)),
            batch => write!(text, "\"events\":[{}]}}", events(number, batch)),
        };
        frames::write_text(&mut out, text.as_bytes());
    }
    out
}

fn events(frame: u64, batch: u64) -> String {
    let events =
        (frame * batch..(frame + 1) * batch).map(|number| format!("{{\"payload\":{}}}", payload(number)));
    events.collect::<Vec<_>>().join(",")
}
