//! Memory that a connection holds for as long as it is open: what subscriptions and streams know about their topics.
//!
//! Waiting does not free it, so it may take only a part of the shared memory, and a request that finds it exhausted is
//! refused at once.

use super::{Memory, Reservation, SMALL_BYTES};
use crate::error::ApiError;
use std::sync::atomic::Ordering;

/// The fraction of the memory that reservations of connections may take.
const SHARE: usize = 2;

/// The memory that one connection holds for as long as it is open.
#[derive(Debug)]
pub(crate) struct ConnectionReservation(Reservation);

impl ConnectionReservation {
    /// This much is free for each connection, and not worth counting.
    pub const FREE_BYTES: usize = SMALL_BYTES;

    /// Nothing yet.
    pub fn new(memory: &Memory) -> Self {
        Self(memory.charge(0))
    }

    /// Sets the reserved size. If it would grow and there is no room, nothing changes.
    pub fn resize(&mut self, bytes: usize) -> Result<(), ApiError> {
        let (shared, before) = (&self.0.memory.0, self.0.bytes);
        let bytes = bytes.saturating_sub(Self::FREE_BYTES);
        let most = if bytes <= before { usize::MAX } else { shared.limit / SHARE };
        let resized = |connection_bytes: usize| {
            (connection_bytes - before).checked_add(bytes).filter(|after| *after <= most)
        };
        if shared.connection_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, resized).is_err() {
            return Err(ApiError::unavailable(format!(
                "the subscriptions and streams of all connections take half of limits.buffer_bytes, {most} bytes; \
                 follow fewer topics, or try again later"
            )));
        }
        self.0.resize(bytes);
        Ok(())
    }
}

impl Drop for ConnectionReservation {
    fn drop(&mut self) {
        self.0.memory.0.connection_bytes.fetch_sub(self.0.bytes, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_takes_a_part_of_the_room_and_a_little_is_always_there() {
        const LIMIT: usize = 1 << 20;
        const FREE: usize = ConnectionReservation::FREE_BYTES;
        let memory = Memory::new(LIMIT);
        let (mut large, mut other) =
            (ConnectionReservation::new(&memory), ConnectionReservation::new(&memory));
        large.resize(FREE + LIMIT / 2).unwrap();
        let refused = large.resize(FREE + LIMIT / 2 + 1).unwrap_err();
        assert!(refused.message().contains("limits.buffer_bytes"), "{refused:?}");
        other.resize(FREE).unwrap();
        other.resize(FREE + 1).unwrap_err();
        assert_eq!(memory.used(), LIMIT / 2);
        large.resize(FREE + 1).unwrap();
        other.resize(FREE + 1).unwrap();
        // Requests have the rest, and what is larger than all of it is not kept waiting by what stays.
        assert!(memory.room_for(LIMIT).is_some());
        drop((large, other));
        assert_eq!((memory.used(), memory.0.connection_bytes.load(Ordering::SeqCst)), (0, 0));
    }
}
