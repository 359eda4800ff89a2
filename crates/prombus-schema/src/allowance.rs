//! What the comparisons of one version with all earlier ones may cost together.

use crate::{BUDGET, Budget, Violation};

/// How many checks of two schemas they may cost.
const CHECKS: u64 = 10;
/// How much text of earlier versions is read for them. That takes time as well, and comes before any step of a check.
const BYTES: usize = 32 << 20;

/// What is left of it. Whoever compares starts with the latest version, which counts most.
#[derive(Debug)]
pub struct Allowance {
    each: Budget,
    bytes: usize,
}

impl Allowance {
    /// For so many comparisons.
    pub fn of(comparisons: usize) -> Self {
        let share = CHECKS * BUDGET.steps / (comparisons as u64).max(1);
        Self { each: Budget { steps: BUDGET.steps.min(share), ..BUDGET }, bytes: BYTES }
    }

    /// The budget of the comparison with a version whose text has so many bytes; otherwise what is told of a version that is
    /// not compared, because all texts together are too long.
    pub fn take(&mut self, bytes: usize) -> Result<Budget, Violation> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(|| Violation {
            path: String::new(),
            rule: "undecided".to_owned(),
            message: format!(
                "it could not be decided: the versions to compare with are longer than {BYTES} bytes together"
            ),
            counterexample: None,
        })?;
        Ok(self.each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_comparisons_share_what_a_few_have_each() {
        let steps = |comparisons| Allowance::of(comparisons).take(0).unwrap().steps;
        assert_eq!((steps(0), steps(1), steps(10)), (BUDGET.steps, BUDGET.steps, BUDGET.steps));
        assert_eq!(steps(1_000), BUDGET.steps / 100);
    }

    #[test]
    fn texts_are_read_up_to_a_limit() {
        let mut allowance = Allowance::of(3);
        assert!(allowance.take(BYTES - 1).is_ok());
        assert_eq!(allowance.take(2).unwrap_err().rule, "undecided");
        assert!(allowance.take(1).is_ok());
    }
}
