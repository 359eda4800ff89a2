//! Moving everything from one store to another: what is there afterwards is what was there before.

use prombus_core::Transfer;
use prombus_core::transfer::{self, Moved};

/// Moves everything to an empty store, or to one that an earlier call has begun to fill, and compares it. Panics where that does
/// not work.
pub async fn moved(source: &dyn Transfer, target: &dyn Transfer, now_ms: u64) -> Moved {
    match transfer_all(source, target, now_ms).await {
        Ok(moved) => moved,
        Err(error) => panic!("what a store holds can be moved, but: {error}"),
    }
}

async fn transfer_all(
    source: &dyn Transfer,
    target: &dyn Transfer,
    now_ms: u64,
) -> Result<Moved, transfer::TransferError> {
    transfer::fill((source, target), now_ms, &mut |_| {}).await?;
    let moved = transfer::compare((source, target), now_ms, &mut |_| {}).await?;
    target.complete().await?;
    Ok(moved)
}
