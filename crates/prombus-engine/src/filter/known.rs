//! Expressions that are in use, by their text. Thousands of groups and streams may have the same one, and a compiled
//! expression takes a hundred times its text: it is compiled and kept once.

use super::compile::{self, Checked};
use super::{BadFilter, Compiled};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, LazyLock, Weak};

/// So many are kept although nobody uses them, for whoever sends one again with every request.
const MAX_UNUSED: usize = 32;

/// What is known is so whichever hub of the process asks.
static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Known {
    all: HashMap<Arc<str>, Weak<Compiled>>,
    /// Those that were compiled last.
    last: VecDeque<Arc<Compiled>>,
    /// When there are so many, those that nobody uses any more are forgotten.
    sweep_at: usize,
}

/// The compiled expression, if it is known.
pub(super) fn find(source: &str) -> Option<Arc<Compiled>> {
    KNOWN.lock().all.get(source)?.upgrade()
}

/// The compiled expression.
pub(super) fn compiled(source: &str) -> Result<Arc<Compiled>, BadFilter> {
    if let Some(known) = find(source) {
        return Ok(known);
    }
    let Checked { expression, patterns, touched, is_costly } = compile::compile(source)?;
    let compiled = Arc::new(Compiled {
        source: source.into(),
        expression,
        patterns: Arc::new(patterns),
        touched,
        is_written_costly: is_costly,
        probation: AtomicU32::new(0),
    });
    let unused = KNOWN.lock().add(compiled.clone());
    // Outside of the lock: it may be large.
    drop(unused);
    Ok(compiled)
}

impl Known {
    /// Adds an expression, and gives one that need not be kept any more.
    fn add(&mut self, compiled: Arc<Compiled>) -> Option<Arc<Compiled>> {
        if self.all.len() >= self.sweep_at {
            self.all.retain(|_, known| known.strong_count() > 0);
            self.sweep_at = 2 * self.all.len() + MAX_UNUSED;
        }
        self.all.insert(compiled.source.clone(), Arc::downgrade(&compiled));
        self.last.push_back(compiled);
        if self.last.len() > MAX_UNUSED { self.last.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_compiled_once_while_it_is_used() {
        let source = "event.payload.known_once == 1";
        let first = compiled(source).unwrap();
        assert!(Arc::ptr_eq(&first, &compiled(source).unwrap()));
        let kept = Arc::downgrade(&first);
        drop(first);
        for n in 0..=MAX_UNUSED {
            compiled(&format!("event.payload.known_once == {}", n + 2)).unwrap();
        }
        assert!(kept.upgrade().is_none() && find(source).is_none(), "it was let go");
    }
}
