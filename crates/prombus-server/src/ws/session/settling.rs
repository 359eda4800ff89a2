//! Acks, nacks and extends of a connection, and what it holds afterwards.

use super::{Effect, Key, Session, accept, refuse};
use crate::commit::MAX_SETTLED;
use crate::error::{ApiError, not_a_lease};
use crate::params::parse_id;
use crate::routes::groups::short_reason;
use crate::ws::frames::Corr;
use crate::ws::held::Taken;
use bytes::Bytes;
use prombus_core::CommitError;
use prombus_engine::groups::{LeaseToken, Settle, SettleCall, SettleResult};
use prombus_wire::{ErrorCode, SettleFrame, parse_object};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A frame that settles deliveries, and is not answered yet.
#[derive(Debug)]
pub(crate) struct PendingSettle {
    pub corr: Corr,
    pub key: Key,
    /// How many leases it names.
    pub count: usize,
    /// What the connection held of its leases, in their order; nothing where they are only extended.
    taken: Vec<Option<Taken>>,
}

impl Session {
    pub(super) fn settle(
        &mut self,
        op: &str,
        text: &Bytes,
        corr: &Corr,
        out: &mut Vec<Effect>,
    ) -> Result<(), ApiError> {
        let frame: SettleFrame<'_> = parse_object(text)?;
        let misplaced = match op {
            "ACK" => frame.reason.is_some() || frame.delay_ms.is_some() || frame.extend_ms.is_some(),
            "NACK" => frame.extend_ms.is_some(),
            _ => frame.reason.is_some() || frame.delay_ms.is_some(),
        };
        if misplaced {
            let message = "reason and delay_ms go with NACK, extend_ms with MODACK";
            return Err(ApiError::bad_request(message));
        }
        let several = |given: &Option<Vec<_>>| given.as_ref().map_or(0, Vec::len);
        let one = |given: &Option<_>| usize::from(given.is_some());
        let named = several(&frame.ids) + several(&frame.leases) + one(&frame.id) + one(&frame.lease);
        if named > MAX_SETTLED {
            return Err(ApiError::too_many(op, MAX_SETTLED));
        }
        let (key, subscription) = self.known(&frame.topic, &frame.group)?;
        let mut leases = Vec::with_capacity(named);
        for id in frame.id.iter().chain(frame.ids.iter().flatten()) {
            let lease = subscription.held.lease_of(parse_id("id", id)?).ok_or_else(|| {
                let message = format!(
                    "this connection holds no lease on {}: it was settled, expired, or delivered to another one",
                    &**id
                );
                ApiError::with_code(ErrorCode::UnknownId, message)
            })?;
            leases.push(lease);
        }
        for lease in frame.lease.iter().chain(frame.leases.iter().flatten()) {
            leases.push(parse_lease(lease)?);
        }
        if leases.is_empty() {
            return Err(ApiError::bad_request(format!("{op} needs id, ids, lease or leases")));
        }

        let ms = |ms: Option<u64>| ms.map(Duration::from_millis);
        let reason: Option<Arc<str>> = frame.reason.as_deref().map(short_reason).map(Arc::from);
        let settle = |lease| match op {
            "ACK" => Settle::Ack(lease),
            // All of them share the reason, however many they are.
            "NACK" => Settle::Nack { lease, reason: reason.clone(), delay: ms(frame.delay_ms) },
            _ => Settle::Extend { lease, by: ms(frame.extend_ms) },
        };
        let settles: Vec<Option<Settle>> = leases.iter().map(|lease| Some(settle(*lease))).collect();
        let call = SettleCall { settles };
        call.check()?;
        let taken = if op == "MODACK" {
            if let Some(by) = ms(frame.extend_ms) {
                let until = Instant::now() + by;
                leases.iter().for_each(|lease| subscription.held.extend(*lease, until));
            }
            Vec::new()
        } else {
            // Once it is said, an id no longer stands for that delivery, unless it has to be said again.
            leases.iter().map(|lease| subscription.held.take(*lease)).collect()
        };
        let pending = PendingSettle { corr: corr.clone(), key, count: call.settles.len(), taken };
        out.push(Effect::Settle { pending, call });
        Ok(())
    }

    /// What came of acks, nacks or extensions: all of them hold, or some leases were spent. Leases for which there was no
    /// room are held as before. Gives those that the connection would hold if it had not left the group meanwhile.
    pub fn settled(
        &mut self,
        pending: PendingSettle,
        result: Result<&[SettleResult], &ApiError>,
        out: &mut Vec<Effect>,
    ) -> Vec<LeaseToken> {
        let PendingSettle { corr, key, taken, .. } = pending;
        match result {
            Ok(results) if results.contains(&SettleResult::NoRoom) => {
                refuse(corr, &ApiError::from(CommitError::NoRoom), out);
                let refused = taken.into_iter().zip(results).filter(|(_, one)| **one == SettleResult::NoRoom);
                return self.hold_again(&key, refused.map(|(taken, _)| taken).collect());
            }
            Ok(results) if results.contains(&SettleResult::Expired) => refuse(corr, &expired(), out),
            Ok(_) => accept(&corr, out),
            Err(error) => {
                refuse(corr, error, out);
                if error.code() == ErrorCode::DiskFull {
                    return self.hold_again(&key, taken);
                }
            }
        }
        Vec::new()
    }

    /// What is not begun because the connection ends leaves its leases as they are.
    pub fn not_begun(&mut self, effect: &mut Effect) {
        if let Effect::Settle { pending, .. } = effect {
            self.hold_again(&pending.key, std::mem::take(&mut pending.taken));
        }
    }

    /// Holds leases again, or gives them back where the subscription is gone.
    fn hold_again(&mut self, key: &Key, taken: Vec<Option<Taken>>) -> Vec<LeaseToken> {
        let taken = taken.into_iter().flatten();
        match self.subscriptions.get_mut(key) {
            Some(subscription) => {
                taken.for_each(|one| subscription.held.put_back(one));
                Vec::new()
            }
            None => taken.map(|one| one.lease).collect(),
        }
    }
}

fn parse_lease(text: &str) -> Result<LeaseToken, ApiError> {
    if let Ok(lease) = text.parse() {
        return Ok(lease);
    }
    match not_a_lease(text) {
        Some(why) => {
            let message = format!("{why}, or name the event with id or ids");
            Err(ApiError::with_code(ErrorCode::LeaseExpired, message))
        }
        None => Err(expired()),
    }
}

fn expired() -> ApiError {
    ApiError::with_code(ErrorCode::LeaseExpired, "the lease has expired or was superseded")
}
