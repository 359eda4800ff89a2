//! What a question may still cost.

/// Steps that are left. Whatever takes time or memory takes steps, so that an answer depends on what is asked and never on
/// the clock or the machine. Once they are used up they stay so, and nothing that is concluded after that is a proof.
#[derive(Debug, Default)]
pub struct Fuel {
    left: u64,
}

impl Fuel {
    pub fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    /// Takes steps, and says whether there were enough.
    pub fn spend(&mut self, steps: u64) -> bool {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Takes up to so many steps out, for something that may not cost more.
    pub fn portion(&mut self, most: u64) -> Self {
        let portion = self.left.min(most);
        self.left -= portion;
        Self { left: portion }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}
