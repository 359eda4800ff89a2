//! What goes wrong in a round.

use super::proxy::Cut;
use fastrand::Rng;
use std::time::Duration;

/// How many hubs and how many members of the database there are.
pub const COUNT: usize = 3;
/// Everything works for so long, at most, before something goes wrong.
const LONGEST_PEACE: Duration = Duration::from_millis(1_500);

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL of a hub.
    KillHub,
    /// SIGTERM of a hub.
    EndHub,
    /// A hub is stopped until it is missed, and goes on.
    StopHub,
    /// SIGKILL of the primary.
    KillPrimary,
    /// The primary is stopped until there is another one, and goes on.
    StopPrimary,
    /// SIGKILL of a hub and the primary.
    KillBoth,
    /// SIGKILL of a hub inside a transaction.
    KillHubInTransaction,
    /// SIGKILL of a hub that has asked for a commit, and was not answered.
    KillHubInCommit,
    /// Between a hub and the database.
    CutHubFromDatabase(Cut),
    /// Between the other hubs and one.
    CutHubs(Cut),
    /// Nobody reaches the primary, while it reaches the others.
    CutPrimary(Cut),
}

/// All of them, each kind before any comes again that is only cut in another way.
pub const FAULTS: [Fault; 18] = [
    Fault::KillHub,
    Fault::KillPrimary,
    Fault::StopHub,
    Fault::StopPrimary,
    Fault::KillHubInTransaction,
    Fault::KillBoth,
    Fault::CutHubFromDatabase(Cut::Stalled),
    Fault::CutHubs(Cut::NoAnswers),
    Fault::KillHubInCommit,
    Fault::CutPrimary(Cut::Stalled),
    Fault::EndHub,
    Fault::CutHubFromDatabase(Cut::NoAnswers),
    Fault::CutHubs(Cut::Closed),
    Fault::CutHubFromDatabase(Cut::Closed),
    Fault::CutHubs(Cut::Stalled),
    Fault::CutHubFromDatabase(Cut::NoRequests),
    Fault::CutPrimary(Cut::Closed),
    Fault::CutHubs(Cut::NoRequests),
];

/// A fault, where and when it happens.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultPlan {
    /// What.
    pub fault: Fault,
    /// To which hub.
    pub hub: usize,
    /// So long after the load has begun.
    pub after: Duration,
    /// For so long, as a part of what it takes until others notice; more than one where it is long enough for that.
    pub lasts: f64,
}

impl FaultPlan {
    /// The fault of a round, which is counted from 1. Each comes once, and then each comes once more, in another order.
    pub fn new(seed: u64, round: u32) -> Self {
        let mut order = FAULTS;
        let turn = round.saturating_sub(1) as usize;
        let again = (turn / order.len()) as u64;
        if again > 0 {
            Rng::with_seed(seed.wrapping_add(again)).shuffle(&mut order);
        }
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(round));
        Self {
            fault: order[turn % order.len()],
            hub: rng.usize(..COUNT),
            after: LONGEST_PEACE.mul_f64(rng.f64()),
            lasts: if rng.u32(..4) == 0 { rng.f64() } else { 1.1 + rng.f64() / 2.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_once_and_all_follows_from_the_seed() {
        let plan = |seed, round| FaultPlan::new(seed, round);
        assert_eq!(plan(7, 3), plan(7, 3));
        assert_ne!(plan(7, 3), plan(8, 3));
        for first in [1, 1 + FAULTS.len() as u32] {
            let mut faults: Vec<Fault> =
                (first..).take(FAULTS.len()).map(|round| plan(7, round).fault).collect();
            faults.sort();
            let mut all = FAULTS.to_vec();
            all.sort();
            assert_eq!(faults, all);
        }
    }
}
