//! Behaviours of the log that HTTP has no words for: commits of several parts, placements and revisions, trims,
//! waiting, closing, and what depends on the clock.

mod changes;
mod clock;
mod closing;
mod copying;
mod discarding;
mod dropping;
mod forgetting;
mod horizon;
mod making;
mod ordering;
mod placement;
mod several;
mod trimming;
mod waiting;

pub use changes::*;
pub use clock::*;
pub use closing::*;
pub use copying::*;
pub use discarding::*;
pub use dropping::*;
pub use forgetting::*;
pub use horizon::*;
pub use making::*;
pub use ordering::*;
pub use placement::*;
pub use several::*;
pub use trimming::*;
pub use waiting::*;
