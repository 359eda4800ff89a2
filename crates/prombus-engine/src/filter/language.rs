//! CEL as the library has it, and the functions by which an expression pays for what it does.

use super::budget::Budget;
use super::pattern::Pattern;
use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelString, DYN_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};
use std::sync::{Arc, LazyLock};

// Names that cannot be written in an expression. The first argument of each function is the budget.

/// The budget of the evaluation.
pub(super) const BUDGET: &str = "@budget";
/// Each round of a loop: its steps, and what it comes to.
pub(super) const ROUND: &str = "@round";
/// A value that will be copied or looked through, unless it is the last of its kind.
pub(super) const COPY: &str = "@copy";
/// A value of which a function reads the text.
pub(super) const TEXT: &str = "@text";
/// An index.
pub(super) const AT: &str = "@at";
/// `+`
pub(super) const ADD: &str = "@add";
/// `in`
pub(super) const IN: &str = "@in";
/// `matches` with a pattern that comes up on the way.
pub(super) const MATCHES: &str = "@matches";
/// `matches` with the number of a pattern of the expression.
pub(super) const KNOWN_MATCHES: &str = "@known_matches";
/// What a loop goes over.
pub(super) const IN_ORDER: &str = "@in_order";

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// The language.
pub(super) fn language() -> Arc<Env> {
    static LANGUAGE: LazyLock<Arc<Env>> = LazyLock::new(|| {
        let mut env = Env::stdlib();
        // The names are nobody else's. Were one missing all the same, what needs it would fail and say so.
        let mut add = |name, args, function| {
            let args = std::iter::repeat_with(|| DYN_TYPE).take(args).collect();
            drop(env.add_overload(name, name, args, function));
        };
        add(ROUND, 3, round);
        add(COPY, 2, copy);
        add(TEXT, 2, text);
        add(AT, 2, at);
        add(ADD, 3, add_values);
        add(IN, 3, is_in);
        add(MATCHES, 3, matches);
        add(KNOWN_MATCHES, 3, known_matches);
        add(IN_ORDER, 2, in_order);
        Arc::new(env)
    });
    LANGUAGE.clone()
}

/// The arguments as there must be, and the budget.
fn arguments<'b, 'v, const N: usize>(args: Args<'b, 'v>) -> Result<[CowVal<'b, 'v>; N], ExecutionError> {
    let actual = args.len();
    args.try_into().map_err(|_| ExecutionError::invalid_argument_count(N, actual))
}

fn budget<'a>(value: &'a CowVal<'_, '_>) -> Result<&'a Budget, ExecutionError> {
    value
        .downcast_ref::<Budget>()
        .ok_or_else(|| ExecutionError::function_error(super::OWN_ERROR, "there is no budget"))
}

fn round<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [left, work, value] = arguments(args)?;
    let work = work.downcast_ref::<CelInt>().map_or(0, |work| *work.inner());
    budget(&left)?.charge(u64::try_from(work).unwrap_or(u64::MAX))?;
    Ok(value)
}

/// What is made on the way was paid for when it was made, and is used only once.
fn copy<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [left, value] = arguments(args)?;
    if value.is_borrowed() {
        budget(&left)?.charge_value(value.as_ref())?;
    }
    Ok(value)
}

fn text<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [left, value] = arguments(args)?;
    budget(&left)?.charge_text(value.as_ref())?;
    Ok(value)
}

/// An index that is no whole number would fail with a copy of what it is an index of.
fn at<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [left, index] = arguments(args)?;
    budget(&left)?.charge_text(index.as_ref())?;
    match index.downcast_ref::<CelDouble>() {
        Some(double) if double.inner().fract() != 0.0 => {
            Err(ExecutionError::function_error(super::OWN_ERROR, "an index must be a whole number"))
        }
        _ => Ok(index),
    }
}

fn add_values<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [left, a, b] = arguments(args)?;
    let budget = budget(&left)?;
    budget.charge_value(a.as_ref())?;
    budget.charge_value(b.as_ref())?;
    let Some(adder) = a.as_adder() else { return Err(no_overload("_+_", &[&a, &b])) };
    Ok(CowVal::Owned(adder.add(b.as_ref())?.into_owned()))
}

fn is_in<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [left, value, container] = arguments(args)?;
    // A list is compared item by item; a map is asked for one name.
    let looked_at = if container.downcast_ref::<CelMap<'_>>().is_some() { &value } else { &container };
    budget(&left)?.charge_value(looked_at.as_ref())?;
    let Some(holder) = container.as_container() else {
        return Err(no_overload("_in_", &[&value, &container]));
    };
    Ok(CowVal::owned(CelBool::from(holder.contains(value.as_ref())?)))
}

fn matches<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [left, text, pattern] = arguments(args)?;
    let Some(source) = pattern.downcast_ref::<CelString<'_>>() else {
        return Err(no_overload("matches", &[&text, &pattern]));
    };
    let budget = budget(&left)?;
    let pattern = budget.pattern_of(source.inner())?;
    is_match(budget, &text, &pattern)
}

fn known_matches<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [left, text, index] = arguments(args)?;
    let index = index.downcast_ref::<CelInt>().map_or(-1, |index| *index.inner());
    let budget = budget(&left)?;
    let pattern = budget.pattern(index);
    is_match(budget, &text, pattern.ok_or_else(|| no_overload("matches", &[&text]))?)
}

fn is_match<'b, 'v>(budget: &Budget, text: &CowVal<'_, '_>, pattern: &Pattern) -> Answer<'b, 'v> {
    let Some(string) = text.downcast_ref::<CelString<'_>>() else {
        return Err(no_overload("matches", &[text]));
    };
    budget.charge(pattern.work(string.inner()))?;
    Ok(CowVal::owned(CelBool::from(pattern.is_match(string.inner()))))
}

/// The names of a map in their order, because the library gives them in none; anything else as it is. Each round gets
/// a copy of its item.
fn in_order<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [left, range] = arguments(args)?;
    let budget = budget(&left)?;
    let Some(map) = range.downcast_ref::<CelMap<'v>>() else {
        budget.charge_value(range.as_ref())?;
        return Ok(range);
    };
    map.keys().try_for_each(|key| budget.charge_value(key.inner()))?;
    let mut keys: Vec<&CelMapKey<'v>> = map.keys().collect();
    keys.sort_unstable();
    let keys: Vec<Box<dyn Val + 'v>> = keys.into_iter().map(|key| key.inner().clone_as_boxed()).collect();
    Ok(CowVal::owned(CelList::from(keys)))
}

fn no_overload(function: &str, args: &[&CowVal<'_, '_>]) -> ExecutionError {
    ExecutionError::no_such_overload(
        function,
        args.iter().map(|arg| arg.get_type().name().to_owned()).collect(),
    )
}
