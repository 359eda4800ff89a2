//! Frames that are not quite what a hub should send: whatever can be understood counts, so that one unreadable event does
//! not cost the others their connection.

use super::feeding::Delivered;
use super::{BadFrame, Session};
use prombus_wire::{DeliveryContext, DeliveryRecord, FrameHead, HubFrame, Text};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

/// Deliveries whose events may be anything.
#[derive(Deserialize)]
struct LooseDeliveries<'a> {
    #[serde(borrow)]
    topic: Text<'a>,
    #[serde(borrow)]
    group: Text<'a>,
    #[serde(borrow, default)]
    deliveries: Vec<LooseDelivery<'a>>,
    #[serde(borrow, default)]
    event: Option<&'a RawValue>,
    #[serde(borrow, default)]
    ctx: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct LooseDelivery<'a> {
    #[serde(borrow)]
    event: &'a RawValue,
    #[serde(borrow)]
    ctx: &'a RawValue,
}

impl Session {
    /// Takes a frame that could not be read as a whole.
    pub(super) fn odd_frame(&mut self, text: &str, now: Instant) -> Result<(), BadFrame> {
        let head: FrameHead<'_> =
            serde_json::from_str(text).map_err(|error| BadFrame(format!("invalid frame: {error}")))?;
        match &*head.op {
            // The details of an error may have names that mean something else in other frames.
            "ERR" => self.error_frame(text, now),
            "OK" => {
                let bare = format!(r#"{{"op":"OK","corr":{}}}"#, head.corr.map_or("null", RawValue::get));
                match serde_json::from_str::<HubFrame<'_>>(&bare) {
                    Ok(frame) => self.ok(frame, text, now),
                    Err(_) => Ok(()),
                }
            }
            "EVENT" | "EVENTS" => {
                self.odd_deliveries(text, now);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn odd_deliveries(&mut self, text: &str, now: Instant) {
        // Where not even this can be read, the leases run out.
        let Ok(mut frame) = serde_json::from_str::<LooseDeliveries<'_>>(text) else { return };
        if let (Some(event), Some(ctx)) = (frame.event, frame.ctx) {
            frame.deliveries.push(LooseDelivery { event, ctx });
        }
        let Some(number) = self.named(&frame.topic, &frame.group) else {
            return self.stray(&frame.topic, &frame.group);
        };
        let mut came = Delivered::default();
        for LooseDelivery { event, ctx } in frame.deliveries {
            let Ok(ctx) = serde_json::from_str::<DeliveryContext>(ctx.get()) else { continue };
            match serde_json::from_str(event.get()) {
                Ok(event) => came.readable.push(DeliveryRecord { event, ctx }),
                Err(error) => came.unreadable.push((ctx.lease, error.to_string())),
            }
        }
        self.deliver(number, came, now);
    }
}
