//! How an expression is changed so that it pays for what it does.
//!
//! Most of an expression is no larger than its text and costs nothing worth counting. What remains is what goes by the
//! size of a value (a copy, a comparison, a function over text) and by the number of rounds. Each such place gets a
//! call of a function that takes the work from the budget first.

use super::budget::STEP;
use super::language::{ADD, AT, BUDGET, COPY, IN, IN_ORDER, KNOWN_MATCHES, MATCHES, ROUND, TEXT};
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

/// Functions whose answer is a number, a boolean, a time or a type, beside those whose names begin with `get`.
const SMALL_ANSWERS: [&str; 30] = [
    operators::SUBSTRACT,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::NEGATE,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::NOT_STRICTLY_FALSE,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::IN,
    IN,
    KNOWN_MATCHES,
    MATCHES,
    "bool",
    "contains",
    "double",
    "duration",
    "endsWith",
    "int",
    "size",
    "startsWith",
    "timestamp",
    "type",
    "uint",
];

fn call_of(id: u64, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let args = std::iter::once(IdedExpr { id, expr: Expr::Ident(BUDGET.to_owned()) }).chain(args).collect();
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }) }
}

/// Puts a call around an expression, unless its value is small whatever the event is.
fn wrap(at: &mut IdedExpr, name: &str) {
    if !is_small(at) {
        let inner = std::mem::take(at);
        *at = call_of(inner.id, name, vec![inner]);
    }
}

/// Whether a value is not larger than the text of its expression.
fn is_small(at: &IdedExpr) -> bool {
    match &at.expr {
        Expr::Literal(_) => true,
        Expr::Select(select) => select.test,
        Expr::List(list) => list.elements.iter().all(is_small),
        Expr::Call(call) => {
            SMALL_ANSWERS.contains(&call.func_name.as_str()) || call.func_name.starts_with("get")
        }
        _ => false,
    }
}

/// A value that is about to be copied.
pub(super) fn copy(item: &mut IdedExpr) {
    wrap(item, COPY);
}

/// A call of a function or operator, whose arguments pay already.
pub(super) fn call(id: u64, call: &mut CallExpr) {
    let replace = |call: &mut CallExpr, name: &str| {
        let args = call.target.take().map(|target| *target).into_iter().chain(call.args.drain(..)).collect();
        if let Expr::Call(new) = call_of(id, name, args).expr {
            *call = new;
        }
    };
    let are_small = call.args.iter().all(is_small);
    let has_pattern = pattern_of(call).is_some();
    match (call.func_name.as_str(), &mut call.args[..]) {
        (operators::ADD, [_, _]) if !are_small => replace(call, ADD),
        (operators::IN, [_, container]) if !is_small(container) => replace(call, IN),
        ("matches", _) if has_pattern => replace(call, MATCHES),
        (KNOWN_MATCHES, _) => replace(call, KNOWN_MATCHES),
        // No more is compared than there is of the smaller one.
        (operators::EQUALS | operators::NOT_EQUALS, [a, b]) if !is_small(b) => wrap(a, COPY),
        (operators::INDEX, [_, index]) => {
            if !matches!(index.expr, Expr::Literal(LiteralValue::Int(_) | LiteralValue::String(_))) {
                let inner = std::mem::take(index);
                *index = call_of(inner.id, AT, vec![inner]);
            }
        }
        // What cannot be compared or counted with is copied into the error.
        (
            operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO,
            args,
        ) => args.iter_mut().for_each(|arg| wrap(arg, COPY)),
        // Only as much of the text is looked at as the other one is long.
        ("startsWith" | "endsWith", _) if are_small => {}
        (name, _) if is_operator(name) => {}
        _ => {
            let target = call.target.iter_mut().map(|target| &mut **target);
            target.chain(&mut call.args).for_each(|arg| wrap(arg, TEXT));
        }
    }
}

/// Whether a name stands for an operator, or for something that no expression can name.
pub(super) fn is_operator(name: &str) -> bool {
    name.contains('_') || name.starts_with(['@', '!', '-'])
}

/// The pattern of a call of `matches`.
pub(super) fn pattern_of(call: &CallExpr) -> Option<&IdedExpr> {
    match (call.func_name.as_str(), &call.target, &call.args[..]) {
        ("matches", Some(_), [pattern]) | ("matches", None, [_, pattern]) => Some(pattern),
        _ => None,
    }
}

/// Puts the number of a pattern in its place.
pub(super) fn known_pattern(call: &mut CallExpr, index: usize) {
    if let (Some(pattern), Ok(index)) = (call.args.last_mut(), i64::try_from(index)) {
        pattern.expr = Expr::Literal(LiteralValue::Int(index.into()));
        call.func_name = KNOWN_MATCHES.to_owned();
    }
}

/// What a round of a loop decides by and puts into its list, where it makes a list (`map`, `filter`). The library
/// appends to that in place as long as it finds the loop as it has made it.
pub(super) fn parts_of_append(each: &mut ComprehensionExpr) -> Option<Vec<&mut IdedExpr>> {
    fn is(at: &IdedExpr, name: &str) -> bool {
        matches!(&at.expr, Expr::Ident(ident) if ident == name)
    }
    fn items_of<'a>(step: &'a mut IdedExpr, list: &str) -> Option<&'a mut Vec<IdedExpr>> {
        match &mut step.expr {
            Expr::Call(call) if call.func_name == operators::ADD => match &mut call.args[..] {
                [to, IdedExpr { expr: Expr::List(items), .. }] if is(to, list) => Some(&mut items.elements),
                _ => None,
            },
            _ => None,
        }
    }
    let ComprehensionExpr { accu_var: list, accu_init, loop_step, .. } = each;
    if !matches!(accu_init.expr, Expr::List(_)) {
        return None;
    }
    if !matches!(&loop_step.expr, Expr::Call(call) if call.func_name == operators::CONDITIONAL) {
        return items_of(loop_step, list).map(|items| items.iter_mut().collect());
    }
    let Expr::Call(choice) = &mut loop_step.expr else { return None };
    match &mut choice.args[..] {
        [guard, step, other] if is(other, list) => {
            let items = items_of(step, list)?;
            Some(std::iter::once(guard).chain(items).collect())
        }
        _ => None,
    }
}

/// Has a loop pay for what it goes over, and for each of its rounds.
pub(super) fn rounds(each: &mut ComprehensionExpr, work: i64) {
    let range = std::mem::take(&mut each.iter_range);
    each.iter_range = call_of(range.id, IN_ORDER, vec![range]);
    let pay = |at: &mut IdedExpr| {
        let inner = std::mem::take(at);
        let work = IdedExpr { id: inner.id, expr: Expr::Literal(LiteralValue::Int(work.into())) };
        *at = call_of(inner.id, ROUND, vec![work, inner]);
    };
    match parts_of_append(each).and_then(|parts| parts.into_iter().next()) {
        Some(first) => pay(first),
        None => pay(&mut each.loop_cond),
    }
}

/// What a round costs beside what goes by the size of values: its steps.
pub(super) fn work_of_round(each: &ComprehensionExpr) -> i64 {
    let work = STEP.saturating_add(work_of(&each.loop_cond)).saturating_add(work_of(&each.loop_step));
    i64::try_from(work).unwrap_or(i64::MAX)
}

/// The steps of an expression, without the rounds of the loops in it.
fn work_of(at: &IdedExpr) -> u64 {
    let all = |parts: &[&IdedExpr]| parts.iter().map(|part| work_of(part)).sum::<u64>();
    STEP + match &at.expr {
        Expr::Unspecified | Expr::Ident(_) => 0,
        Expr::Literal(LiteralValue::String(text)) => text.inner().len() as u64,
        Expr::Literal(LiteralValue::Bytes(bytes)) => bytes.inner().len() as u64,
        Expr::Literal(_) => 0,
        Expr::Select(select) => work_of(&select.operand),
        Expr::List(list) => list.elements.iter().map(work_of).sum(),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).map(work_of).sum(),
        Expr::Map(map) => map.entries.iter().map(|entry| work_of_entry(&entry.expr)).sum(),
        Expr::Struct(value) => value.entries.iter().map(|entry| work_of_entry(&entry.expr)).sum(),
        Expr::Comprehension(each) => all(&[&each.iter_range, &each.accu_init, &each.result]),
    }
}

fn work_of_entry(entry: &EntryExpr) -> u64 {
    match entry {
        EntryExpr::StructField(field) => work_of(&field.value),
        EntryExpr::MapEntry(entry) => work_of(&entry.key) + work_of(&entry.value),
    }
}
