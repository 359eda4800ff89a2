//! CEL as the library has it, and one function more.

use super::too_often;
use cel::common::types::{CelList, CelMap, CelMapKey, DYN_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};
use std::cell::Cell;
use std::sync::{Arc, LazyLock};

/// What each loop goes over is handed to this first; no expression can be written that calls it.
pub(super) const IN_ORDER: &str = "@in_order";

thread_local! {
    /// How many names an expression may still put in order. A function of the language has nowhere else to keep it.
    static KEYS: Cell<u64> = const { Cell::new(0) };
}

/// Says how many names the next expression on this thread may put in order.
pub(super) fn allow_keys(count: u64) {
    KEYS.set(count);
}

/// The language.
pub(super) fn language() -> Arc<Env> {
    static LANGUAGE: LazyLock<Arc<Env>> = LazyLock::new(|| {
        let mut env = Env::stdlib();
        // The name is nobody else's. Were it missing all the same, each loop would fail and say so.
        let _ = env.add_overload(IN_ORDER, IN_ORDER, vec![DYN_TYPE], in_order);
        Arc::new(env)
    });
    LANGUAGE.clone()
}

/// The names of a map in their order, because the library gives them in none; anything else as it is.
fn in_order<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let Some(range) = args.into_iter().next() else {
        return Err(ExecutionError::invalid_argument_count(1, 0));
    };
    let Some(map) = range.downcast_ref::<CelMap<'v>>() else { return Ok(range) };
    let left = KEYS.get().checked_sub(map.len() as u64);
    KEYS.set(left.ok_or_else(too_often)?);
    let mut keys: Vec<&CelMapKey<'v>> = map.keys().collect();
    keys.sort_unstable();
    let keys: Vec<Box<dyn Val + 'v>> = keys.into_iter().map(|key| key.inner().clone_as_boxed()).collect();
    Ok(CowVal::owned(CelList::from(keys)))
}
