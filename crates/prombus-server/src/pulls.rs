//! Deliveries within the memory that connections share.
//!
//! Their size is known only once they have been read. So only a few pulls read at a time, in turns, and if there is no
//! room for what one has read, that goes back to its group and the pull waits for room without holding any events.

use crate::answers;
use crate::error::ApiError;
use crate::memory::{Memory, Reservation};
use prombus_engine::groups::{Delivery, GivenBack, GroupError, InTurn, LeaseToken, Present, Pull};
use std::time::Duration;

/// Deliveries, with their reservation.
pub(crate) struct Pulled {
    pub deliveries: Vec<Delivery>,
    #[expect(dead_code, reason = "it is there to be dropped")]
    pub room: Reservation,
}

/// How long a pull waits for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoomWait {
    /// Until it has to be answered.
    Call,
    /// Indefinitely.
    Subscription,
}

/// Why a pull failed.
#[derive(Debug)]
pub(crate) enum PullError {
    Group(GroupError),
    NoRoom(ApiError),
}

impl From<GroupError> for PullError {
    fn from(error: GroupError) -> Self {
        Self::Group(error)
    }
}

impl From<PullError> for ApiError {
    fn from(error: PullError) -> Self {
        match error {
            PullError::Group(error) => error.into(),
            PullError::NoRoom(error) => error,
        }
    }
}

/// Pulls deliveries for a member, within reserved memory.
pub(crate) async fn pull(
    memory: &Memory,
    present: &Present,
    (pull, patience): (&Pull, RoomWait),
) -> Result<Pulled, PullError> {
    let InTurn { deliveries, turn } = present.pull_in_turn(pull, memory.pulls()).await?;
    let bytes = answers::size_of_all(&deliveries);
    if let Some(room) = memory.room_for(bytes) {
        return Ok(Pulled { deliveries, room });
    }
    give_back(present, deliveries);
    drop(turn);
    let mut room = match patience {
        RoomWait::Call => memory.reserve(bytes).await.map_err(PullError::NoRoom)?,
        RoomWait::Subscription => memory.reserve_patiently(bytes).await,
    };
    // Other members may have taken them in the meantime; a pull that holds a reservation does not wait for more.
    let now = Pull { wait: Duration::ZERO, ..pull.clone() };
    let InTurn { deliveries, turn } = present.pull_in_turn(&now, memory.pulls()).await?;
    let bytes = answers::size_of_all(&deliveries);
    if memory.room_for(bytes.saturating_sub(room.bytes())).is_some() {
        room.resize(bytes);
        return Ok(Pulled { deliveries, room });
    }
    give_back(present, deliveries);
    drop(turn);
    match patience {
        RoomWait::Call => Err(PullError::NoRoom(memory.refusal())),
        // It asks again.
        RoomWait::Subscription => Ok(Pulled { deliveries: Vec::new(), room: memory.charge(0) }),
    }
}

fn give_back(present: &Present, deliveries: Vec<Delivery>) {
    let leases: Vec<LeaseToken> = deliveries.iter().map(|delivery| delivery.lease).collect();
    // First of all they are released.
    drop(deliveries);
    present.group().give_back(&leases, GivenBack::Unused);
}
