//! What expressions are evaluated over, one after another: they share what they may cost, and those that touch the same of it
//! what was read.

use super::budget::{Allowance, Spent};
use super::operand::Operand;
use super::{Compiled, Failure};
use prombus_core::{Event, Json};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// An event, or a payload by itself.
pub(crate) struct Subject<'a> {
    over: Over<'a>,
    allowance: Arc<Allowance>,
    /// What was read last, and for which expression. No more is kept, because it takes many times the memory of its text.
    last: RefCell<Option<(Arc<Compiled>, Rc<Operand<'a>>)>>,
}

enum Over<'a> {
    Event(&'a Event),
    Payload(&'a Json),
}

impl From<Spent> for Failure {
    fn from(spent: Spent) -> Self {
        Self::Unknown(spent.told())
    }
}

impl<'a> Subject<'a> {
    /// An event.
    pub fn event(event: &'a Event) -> Self {
        Self { over: Over::Event(event), allowance: Arc::default(), last: RefCell::default() }
    }

    /// A payload, over which others may have been evaluated as it was before.
    pub fn payload(payload: &'a Json, allowance: &Arc<Allowance>) -> Self {
        Self { over: Over::Payload(payload), allowance: allowance.clone(), last: RefCell::default() }
    }

    /// What all expressions may still cost.
    pub fn allowance(&self) -> &Arc<Allowance> {
        &self.allowance
    }

    /// What an expression touches.
    pub(super) fn operand(&self, compiled: &Arc<Compiled>) -> Result<Rc<Operand<'a>>, Failure> {
        let mut last = self.last.borrow_mut();
        if let Some((known, operand)) = &*last
            && known.touched == compiled.touched
        {
            return Ok(operand.clone());
        }
        // Before there is another one.
        *last = None;
        let operand = Rc::new(match self.over {
            Over::Event(event) => Operand::of(event, &compiled.touched),
            Over::Payload(payload) => Operand::of_payload(payload, &compiled.touched),
        });
        self.allowance.charge_reading(operand.work)?;
        *last = Some((compiled.clone(), operand.clone()));
        Ok(operand)
    }
}
